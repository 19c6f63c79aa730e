"""Finds one job's lines in the decision log without decoding all others.

It goes block by block, so that decisions never wait long for the interpreter's lock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide.decision_log import rotated

BLOCK_BYTES = 128 << 10
#: Rest after each block: a thread that only reads takes the lock back before others get it.
REST_S = 0.0005
#: Records kept per job or array, the newest ones: a thousand tasks.
MAX_RECORDS = 2000


def find(config: DecisionLogConfig, job: int) -> list[dict[str, Any]]:
    """The records of the job, or array, with this id, oldest first; rotated files, too.

    Raises PermissionError where the log is closed to this user.
    """
    records = _find(config, job)
    array = next((int(r["array"]) for r in records if r.get("array") not in (0, None, job)), 0)
    if array:
        # A task: what was decided for it stands under its array's id.
        return [r for r in attributed(_find(config, array)) if r.get("job") == job]
    return list(attributed(records))


def _find(config: DecisionLogConfig, job: int) -> list[dict[str, Any]]:
    records: deque[dict[str, Any]] = deque(maxlen=MAX_RECORDS)
    for path in reversed(rotated(config)):
        for line in _lines(path, (b'"job":%d,' % job, b'"array":%d,' % job)):
            try:
                record = msgspec.json.decode(line)
            except msgspec.DecodeError:
                # Half a line of a crash or a full disk.
                continue
            if isinstance(record, dict) and job in (record.get("job"), record.get("array")):
                records.append(record)
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


def attributed(records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The records, oldest first; what was decided directly before a task's start gets its id.

    Slurm asks under the array's own job id; only the start (`started`) names the task's.
    """
    held: dict[int, dict[str, Any]] = {}
    for record in records:
        array = int(record.get("array") or 0)
        if not array:
            yield record
            continue
        before = held.pop(array, None)
        if record.get("decision") == "started":
            if before is not None:
                yield before | {"job": record.get("job")}
            yield record
            continue
        if before is not None:
            yield before
        if record.get("decision") in ("use", "pass") and record.get("job") == array:
            held[array] = record
        else:
            yield record
    yield from held.values()
