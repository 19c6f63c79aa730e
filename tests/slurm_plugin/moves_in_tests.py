"""A site with a job that may be moved, and a Slurm that does as told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from jobs_in_tests import node, runs, waits
from machines_in_tests import basic_decider

from slurm_plugin.act.defrag import record
from slurm_plugin.act.defrag.mover import Mover
from slurm_plugin.act.defrag.sight import Sight
from slurm_plugin.act.lending.at_start.reservations import LoanReservations
from slurm_plugin.config.sections import DefragConfig
from slurm_plugin.queue.snapshot import Detail, Settings, Snapshot
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob, SlurmNode

FIRST, OTHER, WAITING = 1, 2, 3


class Site:
    """Two half-full DGX-1V, a job of eight GPUs that waits, and a Slurm that does as told."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 10_000.0
        self.path = folder / "moves.json"
        self.reservations = LoanReservations(clock=lambda: self.now)
        self.decider = basic_decider(folder)
        self.config = DefragConfig(move=True, every_s=0, start_s=20)
        self.requeued: list[str] = []
        self.updates: list[JobUpdate] = []
        self.not_requeueable: set[int] = set()
        self.settings = Settings()
        self.jobs = {
            FIRST: self.running(FIRST, "dgx1", "movable=30"),
            OTHER: self.running(OTHER, "dgx2", ""),
            WAITING: waits(
                WAITING, 8, user="bob", uid=1001, partition="gpu", priority=5, submit=9000,
                time_limit_s=0,
            ),
        }  # fmt: skip
        self.mover = self.engine()

    def running(self, number: int, where: str, hint: str, gpus=range(4)) -> QueuedJob:
        alices = {"user": "alice", "uid": 1000, "partition": "gpu", "start": 5000}
        return runs(number, {where: gpus}, admin_comment=f"[gpu-topo: {hint} | n]", **alices)

    def engine(self) -> Mover:
        """One that starts anew, with what is on the disk."""
        self.reservations.moved = {}
        return Mover(
            self.path,
            self,
            self.decider,
            self.reservations,
            self.config,
            lambda: set(self.jobs) - self.not_requeueable,
            self.requeue_held,
            self.sight(),
            clock=lambda: self.now,
        )

    def sight(self) -> Sight:
        return Sight()

    # -- Slurm --

    def nodes(self) -> list[SlurmNode]:
        def used(name):
            return sorted(gpu for one in self.jobs.values() for gpu in one.gpus.get(name, ()))

        large = {"state": ("IDLE",), "partitions": ("gpu",), "cpus": 64, "memory_mb": 99_999}
        return [node(name, used(name), **large) for name in ("dgx1", "dgx2")]

    def requeue_held(self, name: str) -> None:
        on_disk = json.loads(self.path.read_text())["open"]
        assert on_disk["name"] == name, "it is on the disk before it is done"
        self.requeued.append(name)
        job = self.jobs[int(name)]
        self.jobs[int(name)] = replace(
            job, state="PENDING", priority=0, start=0, nodes=(), gpus={}, reason="JobHeldAdmin"
        )

    def update(self, names, change: JobUpdate) -> None:
        (name,) = names
        self.updates.append(change)
        assert change.is_released
        assert change.req_nodes is None, "Slurm's record of the job is not bound to a node"
        self.jobs[int(name)] = replace(self.jobs[int(name)], priority=1, reason="None")

    def starts(self, number: int, where: str, gpus) -> None:
        self.jobs[number] = replace(
            self.jobs[number],
            state="RUNNING",
            start=int(self.now),
            nodes=(where,),
            gpus={where: tuple(gpus)},
        )

    # -- steps --

    def step(self, may_begin: bool = True) -> bool:
        self.now += 1
        jobs = tuple(self.jobs.values())
        nodes = tuple(self.nodes())
        seen = Snapshot(0.0, self.now, jobs, Detail.SETTINGS, nodes, self.settings)
        return self.mover.step(seen, may_begin)

    def ended(self) -> list[tuple[int, str, str]]:
        past = record.read(self.path).past
        return [(one.job, one.state, one.why) for one in past]
