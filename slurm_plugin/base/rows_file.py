"""JSON files of ours; of rows are those in which the engine remembers from start to start."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from slurm_plugin.base import whole_file
from slurm_plugin.errors import PluginError

logger = logging.getLogger(__name__)

#: What msgspec raises for a text that is not the JSON expected. Some of its releases make these
#: ValueErrors, and Debian's does not.
NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Kind = TypeVar("Kind")
Row = TypeVar("Row")


def decoded(path: Path, kind: type[Kind], most_bytes: int, advice: str = "") -> Kind:
    """What is in a JSON file of ours, of which a larger one is none.

    FileNotFoundError where there is none; PluginError for one that cannot be read, and for contents
    that are not of this kind: of these `advice` says what to do.
    """
    # Not by its name: some of root's commands read it, too, in a folder of the engine's.
    content = whole_file.read(path, most_bytes)
    try:
        if len(content) <= most_bytes:
            return msgspec.json.decode(content, type=kind)
        said = f"larger than {most_bytes >> 20} MiB"
    except NO_JSON as error:
        said = f"cannot be read: {' '.join(str(error).split())[:300]}"
    raise PluginError(f"{path}: {said}" + (f"; {advice}" if advice else ""))


class RowsFile(Generic[Row]):
    """The engine goes on without it: what cannot be read or written costs one line in the log."""

    def __init__(self, path: Path, rows: type[list[Row]], max_bytes: int, mode: int) -> None:
        """A larger file than `max_bytes` is none of ours; `mode` is that of a new file."""
        self.path = path
        self._rows, self._max_bytes, self._mode = rows, max_bytes, mode
        self._is_failing = False

    def write(self, rows: Sequence[Row]) -> bool:
        """Whether they were written; only the first of several failures is logged."""
        try:
            whole_file.replace(self.path, msgspec.json.encode(rows), self._mode)
        except PluginError as error:
            if not self._is_failing:
                logger.error("%s; going on, and trying again", error)
            self._is_failing = True
            return False
        if self._is_failing:
            logger.warning("%s is written again", self.path)
        self._is_failing = False
        return True

    def read(self) -> list[Row]:
        """The rows; none where there is no file, or where it cannot be read."""
        try:
            return decoded(self.path, self._rows, self._max_bytes)
        except FileNotFoundError:
            return []
        except PluginError as error:
            logger.error("%s; starting anew", error)
            return []
