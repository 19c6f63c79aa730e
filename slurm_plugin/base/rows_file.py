"""What the engine remembers from start to start: a JSON file of rows, replaced as a whole."""

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

Row = TypeVar("Row")


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
            # Not by its name: some of root's commands read it, too, in a folder of the engine's.
            content = whole_file.read(self.path, self._max_bytes)
            if len(content) > self._max_bytes:
                most = self._max_bytes >> 20
                logger.error("%s: larger than %d MiB; starting anew", self.path, most)
                return []
            return msgspec.json.decode(content, type=self._rows)
        except FileNotFoundError:
            return []
        except PluginError as error:
            logger.error("%s; starting anew", error)
            return []
        except NO_JSON as error:
            logger.error("%s: cannot be read: %s; starting anew", self.path, error)
            return []
