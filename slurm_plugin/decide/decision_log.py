"""The decision log: JSON lines, rotated by size, written by a thread of its own.

Answers never wait for the disk. A full disk costs log lines, counted in `dropped`, and one line in
the engine's own log until writing works again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from slurm_plugin.base import whole_file
from slurm_plugin.base.log_lines import Line, LineReader
from slurm_plugin.config.sections import DecisionLogConfig

logger = logging.getLogger(__name__)

MAX_QUEUED = 20_000
_FILE_MODE = 0o640


class DecisionLog:
    """Appends records to `config.path`; keeps `config.keep` rotated files beside it."""

    def __init__(self, config: DecisionLogConfig) -> None:
        self.config = config
        self.written = 0
        self.dropped = 0
        self._failing = False
        self._watcher: Callable[[Line], None] | None = None
        self._file: BinaryIO | None = None
        self._size = 0
        self._queue: queue.Queue[Line | None] = queue.Queue(MAX_QUEUED)
        self._thread = threading.Thread(target=self._run, name="decision-log", daemon=True)
        self._thread.start()

    def append(self, record: Line) -> None:
        """Queue one record; never blocks, drops and counts when the disk cannot follow.

        Raises TypeError for what is no record: nobody could read it.
        """
        if not isinstance(record, Line):
            raise TypeError(f"no line of the decision log: {type(record).__name__}")
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def watch(self, watcher: Callable[[Line], None]) -> None:
        """Show every further record to `watcher`, in the log's own thread."""
        self._watcher = watcher

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is queued, then stop."""
        try:
            self._queue.put(None, timeout=timeout_s)
        except queue.Full:
            logger.warning("decision log: gave up on %d queued lines", self._queue.qsize())
        self._thread.join(timeout_s)

    def _run(self) -> None:
        encoder = msgspec.json.Encoder()
        while (record := self._queue.get()) is not None:
            try:
                self._write(encoder.encode(record) + b"\n")
            except (OSError, TypeError, ValueError, msgspec.EncodeError) as error:
                self._failed(error)
            self._show(record)
        if self._file is not None:
            self._file.close()

    def _show(self, record: Line) -> None:
        if self._watcher is None:
            return
        try:
            self._watcher(record)
        except Exception:
            logger.exception("a record could not be counted; counting no further")
            self._watcher = None

    def _write(self, line: bytes) -> None:
        if self._file is None:
            self._open()
        elif not self._is_there():
            # logrotate, or the engine of another controller, moved the file away.
            self._file.close()
            self._open()
        elif self._size + len(line) > self.config.max_mb << 20:
            self._rotate()
        assert self._file is not None
        if self._file.write(line) != len(line):
            # A disk that is nearly full takes a part of the line, and says so by no error.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += len(line)
        self.written += 1
        if self._failing:
            self._failing = False
            logger.warning("decision log: writing works again; %d lines lost", self.dropped)

    def _is_there(self) -> bool:
        """Does the path still name the file that is open? Others may have written to it, too."""
        assert self._file is not None
        try:
            named = os.stat(self.config.path)
        except FileNotFoundError:
            return False
        self._size = named.st_size
        return os.path.samestat(named, os.fstat(self._file.fileno()))

    def _failed(self, error: Exception) -> None:
        self.dropped += 1
        if not self._failing:
            logger.error("decision log %s: %s; going on without it", self.config.path, error)
        self._failing = True
        # The file may end in half a line now: the next open repairs that.
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _open(self) -> None:
        path = self.config.path
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        # Unbuffered: a line is in the file when write returns, or is known to be lost.
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._size = os.fstat(descriptor).st_size
        if self._size and os.pread(descriptor, 1, self._size - 1) != b"\n":
            self._file.write(b"\n")
            self._size += 1

    def _rotate(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        if self.config.path.exists():
            names = rotated(self.config)
            if self.config.keep == 0:
                self.config.path.unlink()
            for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
                if newer.exists():
                    newer.replace(older)
        self._open()


def rotated(config: DecisionLogConfig) -> list[Path]:
    """The log and its rotated files, newest first, existing or not."""
    base = config.path
    return [base, *(base.with_name(f"{base.name}.{i}") for i in range(1, config.keep + 1))]


def read(config: DecisionLogConfig, reader: LineReader | None = None) -> Iterator[Line]:
    """Records, oldest first; the reader counts lines that are none (a crash, a full disk)."""
    reader = reader or LineReader()
    for path in reversed(rotated(config)):
        with contextlib.suppress(FileNotFoundError), whole_file.opened(path) as lines:
            yield from reader.records(lines)
