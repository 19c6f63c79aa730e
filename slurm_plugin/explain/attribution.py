"""Gives the decisions of an array to its tasks.

Slurm asks about an array under the array's own job id and splits the task off when it
starts, so that only the start (`started`) names the task's id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Record = dict[str, Any]


def attributed(records: Iterable[Record]) -> Iterator[Record]:
    """The records, oldest first; what was decided directly before a task's start gets its id."""
    held: dict[int, Record] = {}
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
