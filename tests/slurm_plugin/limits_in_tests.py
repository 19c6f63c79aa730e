"""A Slurm that holds one user to a limit of running jobs, and rounds of the engine on it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from slots_in_tests import NOW, Remembering, gated, look, reconciler

from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.act.gates.slot_request import slots_given
from slurm_plugin.slurm.interface import NOW as AT_ONCE
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

USER = 7
AT_LIMIT = "QOSMaxGRESPerUser"
NEIGHBOUR = gated(999, 4, uid=8, priority=1)


class LimitingSlurm(Remembering):
    """Takes updates of jobs, and lets `most` jobs of one user run at a time; has a clock."""

    def __init__(self, *jobs: QueuedJob, most: int = 0) -> None:
        super().__init__(*jobs)
        self.most, self.at = most, NOW
        self.tried: list[int] = []

    def update(self, jobs: Sequence[str], change: JobUpdate) -> None:
        super().update(jobs, change)
        self.jobs_there = [
            self._changed(job, change) if job.name in jobs else job for job in self.jobs_there
        ]

    def _changed(self, job: QueuedJob, change: JobUpdate) -> QueuedJob:
        names = ("tres_per_node", "req_nodes", "admin_comment")
        told = {name: getattr(change, name) for name in names}
        is_released = change.begin_time == AT_ONCE
        if is_released and job.uid == USER:
            self.tried.append(job.job_id)
        begins = (
            {}
            if change.begin_time is None
            else {
                "eligible": self.at if is_released else change.begin_time,
                "reason": "" if is_released else "BeginTime",
            }
        )
        return replace(job, **{k: text for k, text in told.items() if text is not None}, **begins)

    def starts(self) -> None:
        """Slurm's own look at the queue."""
        done: list[QueuedJob] = []
        running = [job for job in self.jobs_there if job.state == "RUNNING" and job.uid == USER]
        free = self.most - len(running)
        for job in self.jobs_there:
            gpus = tuple(sorted(slots_given(job).values()))
            if job.state == "PENDING" and gpus and job.reason != "BeginTime":
                if job.uid == USER and free <= 0:
                    done.append(replace(job, reason=AT_LIMIT))
                    continue
                free -= job.uid == USER
                self.used |= {f"v100.s{gpu}": 1 for gpu in gpus}
                held = {"state": "RUNNING", "nodes": ("dgx1",), "gpus": {"dgx1": gpus}}
                job = replace(job, **held, start=self.at, end=self.at + 9000)
            done.append(job)
        self.jobs_there = done

    def ends(self, job_id: int) -> None:
        [gone] = [job for job in self.jobs_there if job.job_id == job_id]
        self.jobs_there.remove(gone)
        for gpu in gone.gpus["dgx1"]:
            del self.used[f"v100.s{gpu}"]


class Rounds:
    """Rounds of one engine, each followed by a look of Slurm's own."""

    def __init__(self, folder: Path, slurm: LimitingSlurm) -> None:
        self.slurm, self.cache = slurm, CapacityCache()
        self._rounds = reconciler(folder, slurm, self.cache, clock=lambda: float(slurm.at))

    def look(self, after_s: int = 0) -> list[int]:
        """Whose jobs of the user with the limit were tried in a round so many seconds later."""
        self.slurm.at += after_s
        before = len(self.slurm.tried)
        look(self._rounds, self.slurm, self.slurm.at)
        self.slurm.starts()
        return self.slurm.tried[before:]

    def running(self) -> list[int]:
        return [job.job_id for job in self.slurm.jobs_there if job.state == "RUNNING"]
