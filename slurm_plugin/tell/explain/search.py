"""Finds one job's lines in the decision log by an index, which follows the log.

The log is taken as blocks of lines, and of each the jobs are noted that it tells of: some bytes for
each job, whatever its lines say. Who asks for a job reads the blocks that have it. It goes block by
block, so that decisions never wait long for the interpreter's lock.
"""

from __future__ import annotations

import re
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np

from slurm_plugin.base.log_lines import Line, LineReader, PassLine, StartedLine, UseLine
from slurm_plugin.base.rows_file import NO_JSON
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.tell.explain.log_files import LogFile, LogFiles

BLOCK_BYTES = 64 << 10
#: Rest after so many blocks: a thread that only reads takes the lock back before others get it.
REST_BLOCKS, REST_S = 4, 0.0005
#: Records kept per job or array, the newest ones: a thousand tasks.
MAX_RECORDS = 2000
#: Of a longer log the newest part is known, in bytes; and so many notes of eight bytes each.
MAX_BYTES, MAX_NOTES = 4 << 30, 4 << 20
#: Where a line is cut off, the jobs that it may have been about.
_IN_PIECES = re.compile(rb'"(?:job|array)"\s*:\s*(\d{1,10})')


class Stopped(Exception):
    """Nobody waits for the answer any more."""


class _About(msgspec.Struct, gc=False):
    """What a line says of whom it is about."""

    job: int = 0
    array: int = 0


_ABOUT = msgspec.json.Decoder(_About)


def _jobs_in(line: bytes) -> tuple[int, ...]:
    """The job and array that a line is about, or would be if it were whole."""
    try:
        about = _ABOUT.decode(line)
    except NO_JSON:
        return tuple(map(int, _IN_PIECES.findall(line)))
    return about.job, about.array


def _jobs_of(lines: bytes) -> set[int]:
    """All that whole lines are about, and maybe more."""
    try:
        abouts = _ABOUT.decode_lines(lines)
    except NO_JSON:
        abouts = []
    # One object over several lines, of which each could be read alone, is several broken ones.
    if len(abouts) == lines.count(b"\n"):
        found = {about.job for about in abouts} | {about.array for about in abouts}
    else:
        found = {job for line in lines.split(b"\n") for job in _jobs_in(line)}
    return {job for job in found if 0 < job < 1 << 32}


class _Notes:
    """Which blocks of one file tell of which jobs."""

    def __init__(self, start: int) -> None:
        #: Up to where the file was read.
        self.at = start
        #: Where each block begins.
        self._begins = array("Q")
        # Of each note the job, and its block's place among those.
        self._jobs, self._blocks = array("I"), array("I")
        self._of_last: set[int] = set()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, lines: bytes) -> None:
        """The next whole lines; a small last block is gone on with."""
        if not self._begins or self.at - self._begins[-1] >= BLOCK_BYTES:
            self._begins.append(self.at)
            self._of_last = set()
        new = _jobs_of(lines) - self._of_last
        self._of_last |= new
        self._jobs.extend(new)
        self._blocks.extend([len(self._begins) - 1] * len(new))
        self.at += len(lines)

    def skip(self, end: int) -> None:
        """Bytes up to there are no lines."""
        self._begins.extend((self.at, end))
        self._of_last = set()
        self.at = end

    def forget(self, count: int) -> None:
        """Forget so many of the oldest notes."""
        del self._jobs[:count], self._blocks[:count]

    def places(self, job: int) -> list[tuple[int, int]]:
        """Where each block of the job begins and ends, the last one first."""
        if not self._jobs:
            return []
        found = np.flatnonzero(np.frombuffer(self._jobs, np.uint32) == job)
        return [self._place(self._blocks[note]) for note in reversed(found.tolist())]

    def _place(self, block: int) -> tuple[int, int]:
        is_last = block + 1 == len(self._begins)
        return self._begins[block], self.at if is_last else self._begins[block + 1]


class LogIndex:
    """Finds jobs in a log that grows and rotates; for any number of threads."""

    def __init__(self, config: DecisionLogConfig) -> None:
        self.config = config
        self._files = LogFiles(config)
        self._notes: dict[LogFile, _Notes] = {}
        self._lock = threading.Lock()

    def follow(self) -> None:
        """Take in what was written since. Raises OSError."""
        with self._lock:
            self._follow()

    def find(
        self,
        job: int,
        reader: LineReader | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> list[Line]:
        """The records of the job, or array, with this id, oldest first; rotated files, too.

        The reader counts those that cannot be read. Raises OSError where the log is closed to
        this user, and Stopped once `is_over`, which it asks again and again.
        """
        reader = reader or LineReader()
        self.follow()
        records = self._find(job, reader, is_over)
        array = next((record.array for record in records if record.array not in (0, job)), 0)
        if array:
            # A task: what was decided for it stands under its array's id.
            reader.unread = 0
            records = self._find(array, reader, is_over)
            return [one for one in attributed(records) if one.job == job]
        return list(attributed(records))

    def _find(self, job: int, reader: LineReader, is_over: Callable[[], bool]) -> list[Line]:
        with self._lock:
            places = [
                (file, place)
                for file, notes in reversed(self._notes.items())
                for place in notes.places(job)
            ]
        blocks: list[list[Line]] = []
        found = 0
        for number, (file, (start, end)) in enumerate(places, 1):
            if is_over():
                raise Stopped
            lines = [
                line for line in file.bytes_at(start, end).split(b"\n") if job in _jobs_in(line)
            ]
            blocks.append([one for one in reader.records(lines) if job in (one.job, one.array)])
            found += len(blocks[-1])
            if found >= MAX_RECORDS:
                break
            if number % REST_BLOCKS == 0:
                time.sleep(REST_S)
        return [record for block in reversed(blocks) for record in block][-MAX_RECORDS:]

    def _follow(self) -> None:
        left, notes = MAX_BYTES, {}
        files = self._files.now()
        for file in reversed(files):
            size = file.size
            notes[file] = self._notes.get(file) or _Notes(max(0, size - left))
            left = max(0, left - size)
        self._notes = {file: notes[file] for file in files}
        for file in reversed(files):
            self._read(file, notes[file])

    def _read(self, file: LogFile, notes: _Notes) -> None:
        blocks = 0
        for lines, end in file.lines_from(notes.at):
            for block in _blocks(lines):
                notes.add(block)
                blocks += 1
                if blocks % REST_BLOCKS == 0:
                    time.sleep(REST_S)
            if not lines:
                notes.skip(end)
            self._forget()

    def _forget(self) -> None:
        """The oldest notes of too many."""
        too_many = sum(map(len, self._notes.values())) - MAX_NOTES
        for notes in self._notes.values():
            if too_many > 0:
                count = min(len(notes), too_many)
                notes.forget(count)
                too_many -= count


def _blocks(lines: bytes) -> Iterator[bytes]:
    """Whole lines, some at a time."""
    start = 0
    while start < len(lines):
        end = lines.find(b"\n", start + BLOCK_BYTES) + 1 or len(lines)
        yield lines[start:end]
        start = end


def attributed(records: Iterable[Line]) -> Iterator[Line]:
    """The records, oldest first; what was decided directly before a task's start gets its id.

    Slurm asks under the array's own job id; only the start (`started`) names the task's.
    """
    held: dict[int, Line] = {}
    for record in records:
        array = record.array
        if not array:
            yield record
            continue
        before = held.pop(array, None)
        if isinstance(record, StartedLine):
            if before is not None:
                yield msgspec.structs.replace(before, job=record.job)
            yield record
            continue
        if before is not None:
            yield before
        if isinstance(record, UseLine | PassLine) and record.job == array:
            held[array] = record
        else:
            yield record
    yield from held.values()
