"""The decision log as the page shows it: the last decisions, and each job's own choice."""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_plugin.log_lines import (
    Choice,
    Line,
    OfUser,
    Placing,
    Reader,
    ShapeLine,
    UseLine,
    known,
)

#: Decisions that are shown, and jobs whose choice is remembered.
MAX_SHOWN, MAX_JOBS = 300, 20_000
#: How much of the log is read at the start: its end.
FIRST_BYTES = 8 << 20
#: The most that is read at a time later on.
MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the log, in short."""

    job: int
    #: -1 where the line does not tell; a start has the uid of the decision before it.
    uid: int
    time: str
    #: use, wait, pass, started, shape, lent and so on.
    decision: str
    partition: str = ""
    policy: str = ""
    why: str = ""
    #: Node -> GPUs, by Slurm's index: the chosen ones in rank order.
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: What Slurm itself would have taken.
    slurm_gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: Effective bandwidth in GB/s: of the choice, and of what Slurm would have taken.
    gbps: float | None = None
    slurm_gbps: float | None = None
    #: The share of the best that the node could give, 0 to 1.
    utility: float | None = None
    took_ms: float = 0.0


class DecisionTail:
    """Follows the log as it grows and rotates. One thread at a time may call it."""

    def __init__(self, path: Path | None) -> None:
        """None follows nothing."""
        self._path = path
        self._at = 0
        self._inode = 0
        self._rest = b""
        self._count = 0
        #: The last decisions, each by its number since the start, oldest first.
        self.shown: deque[tuple[int, Decision]] = deque(maxlen=MAX_SHOWN)
        #: Job -> the last choice of GPUs that was made for it.
        self.of_job: OrderedDict[int, Decision] = OrderedDict()
        self._uids: OrderedDict[int, int] = OrderedDict()
        #: Why the log cannot be read; '' where it can, or is not there yet.
        self.problem = ""
        self._reader = Reader()

    @property
    def left_out(self) -> str:
        """How many lines could not be read; '' for none."""
        return self._reader.in_words

    def forget(self) -> None:
        """Everything that was taken in; numbers go on."""
        self.shown.clear()
        self.of_job.clear()
        self._uids.clear()

    def read(self) -> bool:
        """Take in what was written since; True where there was something."""
        if self._path is None:
            return False
        try:
            with self._path.open("rb") as file:
                data = self._new_bytes(file.fileno())
        except FileNotFoundError:
            return False
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror}"
            return False
        self.problem = ""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_BYTES:
            # It has no end, so it is no line of ours.
            lines, self._rest = [*lines, self._rest], b""
        self.take(self._reader.records(lines))
        return bool(lines)

    def _new_bytes(self, descriptor: int) -> bytes:
        status = os.fstat(descriptor)
        is_first = not self._inode
        if status.st_ino != self._inode or status.st_size < self._at:
            self._inode, self._rest = status.st_ino, b""
            self._at = max(0, status.st_size - FIRST_BYTES) if is_first else 0
        begins_in_a_line = is_first and self._at > 0
        data = os.pread(descriptor, FIRST_BYTES if is_first else MAX_BYTES, self._at)
        self._at += len(data)
        return data.partition(b"\n")[2] if begins_in_a_line else data

    def take(self, records: Iterable[Line]) -> None:
        """Add records, oldest first."""
        for record in records:
            decision = self._brief(record)
            self._count += 1
            self.shown.append((self._count, decision))
            if isinstance(record, UseLine):
                _put(self.of_job, decision.job, decision)

    def _brief(self, record: Line) -> Decision:
        job = record.job
        uid = record.uid if isinstance(record, OfUser) else self._uids.get(job, -1)
        _put(self._uids, job, uid)
        more: dict[str, Any] = {"partition": record.partition} if isinstance(record, OfUser) else {}
        if isinstance(record, Placing):
            chosen, slurm = known(record.chosen) or Choice(), known(record.slurm) or Choice()
            more |= {
                "policy": known(record.policy) or "",
                "slurm_gpus": slurm.gpus,
                "gbps": known(chosen.effbw_gbps),
                "slurm_gbps": known(slurm.effbw_gbps),
                "utility": known(chosen.utility),
            }
        elif isinstance(record, ShapeLine):
            more["policy"] = record.policy
        return Decision(
            job,
            uid,
            record.time,
            record.decision,
            why=record.said[:300],
            gpus=record.places,
            took_ms=record.took_ms,
            **more,
        )


def _put(kept: OrderedDict[int, Any], job: int, value: object) -> None:
    kept[job] = value
    kept.move_to_end(job)
    if len(kept) > MAX_JOBS:
        kept.popitem(last=False)
