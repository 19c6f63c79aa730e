"""The decision log as the page shows it: the last decisions, and each job's own choice."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_plugin.base.log_lines import (
    Line,
    LineReader,
    LoggedSet,
    OfUser,
    Placing,
    ShapeLine,
    UseLine,
    known,
)
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.tell.explain.log_files import LogFile, LogFiles

#: Decisions that are shown, and jobs whose choice is remembered.
MAX_SHOWN, MAX_JOBS = 300, 20_000
#: The most that is read at a time: of a longer part of the log, its end.
MAX_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ShownDecision:
    """One line of the log, in short."""

    job: int
    #: -1 where the line does not tell; a start has the uid of the decision before it.
    uid: int
    time: str
    #: use, wait, pass, started, shape, lent and so on.
    decision: str
    partition: str = ""
    policy: str = ""
    #: Which of the job's ranks talk to which.
    pattern: str = "ring"
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

    def __init__(self, config: DecisionLogConfig | None) -> None:
        """`config` is that of the decision log; None: there is none to follow."""
        self._files = LogFiles(config) if config else None
        #: Up to where each file was read.
        self._at: dict[LogFile, int] = {}
        self._count = 0
        #: The last decisions, each by its number since the start, oldest first.
        self.shown: deque[tuple[int, ShownDecision]] = deque(maxlen=MAX_SHOWN)
        #: Job -> the last choice of GPUs that was made for it.
        self.of_job: OrderedDict[int, ShownDecision] = OrderedDict()
        self._uids: OrderedDict[int, int] = OrderedDict()
        #: Why the log cannot be read; '' where it can, or is not there yet.
        self.problem = ""
        self._reader = LineReader()

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
        if self._files is None:
            return False
        before = self._count
        try:
            for file, start in self._unread(self._files.now()):
                self._read(file, start)
        except OSError as error:
            self.problem = f"{self._files.config.path}: {error.strerror}"
            return False
        self.problem = ""
        return self._count > before

    def _unread(self, files: list[LogFile]) -> list[tuple[LogFile, int]]:
        """Each file with the place from which it is read on: of much that is new, its end."""
        starts, left = [], MAX_BYTES
        for file in reversed(files):
            size, at = file.size, self._at.get(file, 0)
            starts.append((file, max(at, size - left)))
            left = max(0, left - (size - at))
        self._at = {file: self._at.get(file, 0) for file in files}
        return starts[::-1]

    def _read(self, file: LogFile, start: int) -> None:
        begins_in_a_line = start > self._at[file]
        for lines, end in file.lines_from(start):
            self._at[file] = end
            if begins_in_a_line:
                lines, begins_in_a_line = lines.partition(b"\n")[2], False
            self.take(self._reader.records(lines.split(b"\n")))

    def take(self, records: Iterable[Line]) -> None:
        """Add records, oldest first."""
        for record in records:
            decision = self._brief(record)
            self._count += 1
            self.shown.append((self._count, decision))
            if isinstance(record, UseLine):
                _put(self.of_job, decision.job, decision)

    def _brief(self, record: Line) -> ShownDecision:
        job = record.job
        uid = record.uid if isinstance(record, OfUser) else self._uids.get(job, -1)
        _put(self._uids, job, uid)
        more: dict[str, Any] = {"partition": record.partition} if isinstance(record, OfUser) else {}
        if isinstance(record, Placing):
            chosen, slurm = known(record.chosen) or LoggedSet(), known(record.slurm) or LoggedSet()
            more |= {
                "policy": known(record.policy) or "",
                "pattern": known(record.pattern) or "ring",
                "slurm_gpus": slurm.gpus,
                "gbps": known(chosen.effbw_gbps),
                "slurm_gbps": known(slurm.effbw_gbps),
                "utility": known(chosen.utility),
            }
        elif isinstance(record, ShapeLine):
            more["policy"] = record.policy
        return ShownDecision(
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
