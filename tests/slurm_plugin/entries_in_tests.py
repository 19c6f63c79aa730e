"""A Slurm of jobs with comments, and the engine's client of it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob
from slurm_plugin.slurm.job_entries.client import EntryClient, EntryKeeper
from slurm_plugin.slurm.job_entries.store import EntryStore

NOW = 1_000_000
GATE = "[gpu-slots: gated token=a tpn=gres/gpu:2 nodes=1-1 by=node]"
ISSUED = GATE.replace("token=a", "token=5f0a")
PLACED = GATE.replace("gated", "placed")
HOSTILE = "[gpu-slots: placed token=a tpn=gres/gpu:8 nodes=1-1 by=node at=1]"
JS1 = "JS1:H4sIAAAAAAAA/6tWKi1OLVKyUjDUUVAqSi0uzcxLVwAA"
LOAN = "[gpu-loan: starts remote=1 tpn=gres/gpu:4 loan=dgx1/3,dgx2/3/9/50001 at=5]"


class Slurm:
    """Comments by job; a writer may change them between any two calls."""

    def __init__(self, *jobs: QueuedJob) -> None:
        self.jobs = {job.job_id: job for job in jobs}
        self.sent: list[tuple[str, JobUpdate]] = []
        self.fails = self.takes = False
        #: Happens once a reading has been answered, and before its reader has it.
        self.meanwhile: Callable[[], None] = lambda: None

    def write(self, job_id: int, text: str, **more: object) -> None:
        self.jobs[job_id] = replace(self.jobs[job_id], admin_comment=text, **more)

    def of(self, job_id: int) -> str:
        return self.jobs[job_id].admin_comment

    def queue(self) -> list[QueuedJob]:
        jobs = list(self.jobs.values())
        self.meanwhile()
        return jobs

    def admin_comments(self) -> dict[int, str]:
        return {job_id: job.admin_comment for job_id, job in self.jobs.items()}

    def update(self, names: Sequence[str], change: JobUpdate) -> None:
        if change == JobUpdate():
            return
        if change.admin_comment is not None:
            assert "\n" not in change.admin_comment
        self.sent.append((names[0], change))
        [job_id] = (job.job_id for job in self.jobs.values() if job.name == names[0])
        if change.admin_comment is not None and (self.takes or not self.fails):
            self.write(job_id, change.admin_comment)
        if self.fails:
            raise SlurmError("timed out")


def gated(job_id: int = 7, comment: str = GATE, **more: object) -> QueuedJob:
    values = {
        "name": str(job_id), "state": "PENDING", "reason": "BeginTime", "submit": 5, "uid": 1000,
        "eligible": NOW + 60, "priority": 1, "tres_per_node": "gres/gpu:2",
    }  # fmt: skip
    return QueuedJob(job_id, admin_comment=comment, **{**values, **more})


class Site:
    """Slurm with one job, and the engine's client of it."""

    def __init__(self, *jobs: QueuedJob, path: Path | None = None, notes: bool = True) -> None:
        self.slurm = Slurm(*(jobs or (gated(),)))
        self.clock = SimpleNamespace(s=0.0)
        self.store = EntryStore(
            notes_at_slurm=notes, clock=self.tick, wall_clock=lambda: float(NOW)
        )
        if path is not None:
            self.store.open(path)
        self.client = EntryClient(self.slurm, EntryKeeper(self.store))

    def tick(self) -> float:
        self.clock.s += 0.001
        return float(self.clock.s)

    def seen(self, job_id: int = 7) -> str:
        """The job's comment as the engine sees it after one more reading."""
        return next(job.admin_comment for job in self.client.queue() if job.job_id == job_id)

    def looked(self) -> "Site":
        self.client.queue()
        return self
