"""A node of whose eight GPUs six are in use, a job that wants all, and who may pass it."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jobs_in_tests
from engine_in_tests import an_engine
from jobs_in_tests import waits
from machines_in_tests import BASIC
from slots_in_tests import Counting

from slurm_plugin.act.order.passing import PassingInPartition
from slurm_plugin.config.sections import Rule
from slurm_plugin.errors import SlurmError
from slurm_plugin.serve.loops.order import OrderLoop
from slurm_plugin.serve.service import Engine
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob, SlurmNode

NOW, LONG_S = 1_795_000_000, 90_000
MULTIFACTOR = {"PriorityType": "priority/multifactor", "OverTimeLimit": "0 min"}
ORDERED = "mode: enforce, order: predicted"
RULE = Rule(mode="enforce", order="predicted")


def job(job_id: int, gpus: int = 1, limit_s: int = 300, **more: object) -> QueuedJob:
    """A waiting job of partition batch; the later its id, the lower its priority."""
    values = {"user": "ann", "account": "lab", "priority": 1000 - job_id, "submit": NOW}
    return waits(job_id, gpus, **{**values, "time_limit_s": limit_s, **more})


def runs(one: QueuedJob, *gpus: int, since: float = NOW) -> QueuedJob:
    held = {"n1": gpus}
    return replace(one, state="RUNNING", start=int(since), gpus=held, nodes=("n1",))


def node(*used: int) -> list[SlurmNode]:
    return [jobs_in_tests.node("n1", used, cpus=64, memory_mb=9000)]


#: Six of eight GPUs are in use, the first in line wants eight.
HOLDS, FIRST = runs(job(1, 6, LONG_S), *range(6)), job(2, 8, LONG_S)


def look(
    queue: PassingInPartition, *jobs: QueuedJob, at: float = NOW, used: int = 6
) -> dict[int, JobUpdate]:
    """What each job is told by one look."""
    return {one.job_id: update for one, update in queue.look(jobs, node(*range(used)), at)}


class Site(Counting):
    """A Slurm with the queue of above; what it refuses is in `refused`."""

    settings = MULTIFACTOR
    refused: tuple[str, ...] = ()

    def config(self) -> dict[str, str]:
        return self.settings

    def update(self, jobs: Sequence[str], change: JobUpdate) -> None:
        if jobs[0] in self.refused:
            raise SlurmError("no")
        super().update(jobs, change)

    def nodes(self) -> list[SlurmNode]:
        return node(*range(6))


def engine_with(folder: Path, rule: str = ORDERED) -> Engine:
    return an_engine(folder, BASIC.replace("mode: enforce, policy", f"{rule}, policy"))


def polled(loop: OrderLoop, slurm: Site) -> dict[str, int | None]:
    """The site factors that one poll gave, by job; Slurm's queue takes them over."""
    slurm.updates.clear()
    loop.engine.setup.watcher.outdate()
    asyncio.run(loop.poll(time.monotonic()))
    return {jobs[0]: one.site_factor for jobs, one in slurm.updates if one.site_factor is not None}
