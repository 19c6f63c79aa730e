"""What was lent, to whom, how long, and what passed: known once a donor has ended.

Slurm keeps a job's record for some minutes after its end; a donor's has its times and its last word
(`job_notes.donor`). Donors that end while no engine runs are in Slurm's accounting alone.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from slurm_plugin.act.lending import standing as loans
from slurm_plugin.base.job_notes.donor import DonorReport, Passed
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.slurm.runner import Runner

logger = logging.getLogger(__name__)

#: Seconds that a donor has to say its last word and to end by itself.
LAST_WORD_S = 5.0
_COMMENT = re.compile(r"^\s*Comment=(.*)$", re.MULTILINE)
_RUN_TIME = re.compile(r"\bRunTime=(?:(\d+)-)?(\d+):(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Lent:
    """What one donor lent to one job, from its start to its end."""

    donor: int
    borrower: int
    uid: int
    account: str
    partition: str
    node: str
    gpus: int
    seconds: int
    passed: Passed

    def counts(self) -> dict[str, int]:
        """What it adds to the engine's counters."""
        sums = {"gpu_s": self.gpus * self.seconds, "bytes_in": self.passed.received}
        return {**sums, "bytes_out": self.passed.sent, "packets_in": self.passed.packets}


@dataclass(slots=True)
class Ledger:
    """Follows donors from one reading of the queue to the next."""

    run: Runner
    clock: Callable[[], float] = time.monotonic
    _running: dict[int, QueuedJob] = field(default_factory=dict)
    _gone: list[QueuedJob] = field(default_factory=list)
    _asked: dict[int, float] = field(default_factory=dict)

    def asks(self, donor: QueuedJob) -> bool:
        """Is this donor, which is not needed any more, still to be asked to end?"""
        return self.clock() < self._asked.setdefault(donor.job_id, self.clock()) + LAST_WORD_S

    def see(self, donors: Iterable[QueuedJob]) -> None:
        """The donors that are in the queue now."""
        there = {donor.job_id: donor for donor in donors}
        self._gone += [one for job_id, one in self._running.items() if job_id not in there]
        self._asked = {job_id: at for job_id, at in self._asked.items() if job_id in there}
        # One that is completing may show no GPUs any more: what it was seen with last counts.
        former = self._running
        running = {job_id: one for job_id, one in there.items() if one.state != "PENDING"}
        self._running = {i: one if one.gpus else former.get(i, one) for i, one in running.items()}

    def ended(self) -> Iterator[Lent]:
        """What those lent that ended since the last call."""
        gone, self._gone = self._gone, []
        for donor in gone:
            if not donor.gpus:
                continue
            try:
                said = self.run(["scontrol", "show", "job", str(donor.job_id)])
            except SlurmError as error:
                logger.warning("donor %s: what it lent is not known: %s", donor.name, error)
                continue
            yield _lent(donor, said)


def _lent(donor: QueuedJob, said: str) -> Lent:
    """What a donor lent by scontrol's record of it, `said`."""
    days, hours, minutes, seconds = (
        map(int, match.groups("0")) if (match := _RUN_TIME.search(said)) else (0, 0, 0, 0)
    )
    comment = _COMMENT.search(said)
    borrower = loans.parent_of(donor)
    report = DonorReport.read_from(comment[1].strip()) if comment else None
    is_own = report is not None and report.borrower == borrower
    return Lent(
        donor=donor.job_id,
        borrower=borrower,
        uid=donor.uid,
        account=donor.account,
        partition=donor.partition,
        node=next(iter(donor.nodes), ""),
        gpus=sum(map(len, donor.gpus.values())),
        seconds=((days * 24 + hours) * 60 + minutes) * 60 + seconds,
        passed=report.passed if report is not None and is_own else Passed(),
    )
