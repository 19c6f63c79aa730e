"""Finds one job's lines in the decision log without decoding all others.

It goes block by block, so that decisions never wait long for the interpreter's lock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide.decision_log import rotated
from slurm_plugin.log_lines import Line, PassLine, Reader, StartedLine, UseLine

BLOCK_BYTES = 128 << 10
#: Rest after each block: a thread that only reads takes the lock back before others get it.
REST_S = 0.0005
#: Records kept per job or array, the newest ones: a thousand tasks.
MAX_RECORDS = 2000


def find(config: DecisionLogConfig, job: int, reader: Reader | None = None) -> list[Line]:
    """The records of the job, or array, with this id, oldest first; rotated files, too.

    The reader counts those that cannot be read. Raises PermissionError where the log is closed to
    this user.
    """
    reader = reader or Reader()
    records = _find(config, job, reader)
    array = next((record.array for record in records if record.array not in (0, job)), 0)
    if array:
        # A task: what was decided for it stands under its array's id.
        reader.unread = 0
        return [one for one in attributed(_find(config, array, reader)) if one.job == job]
    return list(attributed(records))


def _find(config: DecisionLogConfig, job: int, reader: Reader) -> list[Line]:
    records: deque[Line] = deque(maxlen=MAX_RECORDS)
    needles = (b'"job":%d,' % job, b'"array":%d,' % job)
    for path in reversed(rotated(config)):
        found = reader.records(_lines(path, needles))
        records += (record for record in found if job in (record.job, record.array))
    return list(records)


def _lines(path: Path, needles: tuple[bytes, bytes]) -> Iterator[bytes]:
    """The lines of a file that hold one of the needles; none where there is no file."""
    try:
        with path.open("rb", buffering=0) as file:
            rest = b""
            while block := file.read(BLOCK_BYTES):
                time.sleep(REST_S)
                whole, newline, rest_of = (rest + block).rpartition(b"\n")
                rest = rest_of
                if newline and any(needle in whole for needle in needles):
                    yield from (
                        line
                        for line in whole.split(b"\n")
                        if any(needle in line for needle in needles)
                    )
    except FileNotFoundError:
        # Rotated away between the listing and now, or never there.
        return


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
