"""The decision log's files, followed while the log grows, is rotated, emptied or made anew."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from slurm_plugin.base import whole_file
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide.decision_log import rotated
from slurm_plugin.errors import PluginError

#: How much is read at a time: no line of ours comes near.
READ_BYTES = 1 << 20
#: By its beginning a file that was emptied and filled again is told from one that was added to.
_HEAD_BYTES = 256


class LogFile:
    """One file of the log, which stays this one whatever it is called by now."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises OSError."""
        try:
            with whole_file.opened(path) as file:
                self._descriptor = os.dup(file.fileno())
        except PluginError as error:
            raise OSError(errno.EINVAL, str(error).removeprefix(f"{path}: ")) from error
        status = os.fstat(self._descriptor)
        #: By which the kernel tells files apart. No other one gets it while this one is open.
        self.key = status.st_dev, status.st_ino
        self._size, self._head = 0, b""
        self.goes_on()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._descriptor)

    @property
    def size(self) -> int:
        """In bytes, now."""
        return os.fstat(self._descriptor).st_size

    def goes_on(self) -> bool:
        """Was it only added to since the last call? If not, it was emptied, maybe filled again."""
        size, former = self.size, self._size
        head = os.pread(self._descriptor, _HEAD_BYTES, 0)
        is_same = size >= former and head.startswith(self._head)
        self._size, self._head = size, head
        return is_same

    def bytes_at(self, start: int, end: int) -> bytes:
        """These bytes, fewer where it ends before them."""
        return os.pread(self._descriptor, end - start, start)

    def lines_from(self, start: int) -> Iterator[tuple[bytes, int]]:
        """Whole lines from a place to the end, some at a time, each with the place behind them.

        `READ_BYTES` without any end of line are no line of ours: they are passed over, and what
        follows them is the rest of a line that nobody can read.
        """
        while data := os.pread(self._descriptor, READ_BYTES, start):
            end = data.rfind(b"\n") + 1
            if not end and len(data) < READ_BYTES:
                return
            start += end or len(data)
            yield data[:end], start


class LogFiles:
    """The files of a log, whatever becomes of them. One thread at a time may call it."""

    def __init__(self, config: DecisionLogConfig) -> None:
        self.config = config
        self._files: dict[tuple[int, int], LogFile] = {}

    def now(self) -> list[LogFile]:
        """Those there are, oldest first; one that was emptied is another one. Raises OSError."""
        found: dict[tuple[int, int], LogFile] = {}
        # Newest first: one that is renamed meanwhile is met twice rather than never.
        for path in rotated(self.config):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(path)
                key = status.st_dev, status.st_ino
                if key in found:
                    continue
                file = self._files.get(key)
                if file is None or not file.goes_on():
                    file = LogFile(path)
                found[file.key] = file
        self._files = found
        return list(reversed(found.values()))
