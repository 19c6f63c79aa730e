"""`gputopo web --demo`: a recorded day, played in place of Slurm, the engine and its log.

The day is a simulated site's, with the engine's own decisions (tests/slurm_plugin/tell/web/
record_demo.py makes the file). A minute of it takes a second, and it begins anew at its end.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any

import msgspec

from gres_topology import Domain, Network, catalog
from slurm_plugin.base.log_lines import Line, LineReader, of_plain
from slurm_plugin.decide.machines import Machine
from slurm_plugin.queue.backfill import in_order
from slurm_plugin.queue.watcher import Watcher
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode, SlurmPartition
from slurm_plugin.tell.web.decisions import DecisionTail
from slurm_plugin.tell.web.sources import EngineState, Sources
from slurm_plugin.tell.why.state import Extras

#: Seconds of the day per second, and the time of day at which it begins.
SPEED, BEGIN_S, DAY_S = 60.0, 9 * 3600.0, 86_400.0
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
CPUS_PER_GPU, MEMORY_PER_GPU_MB = 4, 32_000
NOTICE = "A recorded day of a simulated site, a minute of it each second. No Slurm is asked."
#: What users call their jobs, in turn.
JOB_NAMES = ("train", "finetune", "evaluate", "sweep", "notebook", "pretrain", "inference")
ANSWER_MS = {"place": {"p50": 0.31, "p99": 1.9, "max": 4.2}}


class Day:
    """The recording, and what time it is there."""

    def __init__(self, speed: float = SPEED, clock: Callable[[], float] = time.monotonic) -> None:
        packed = (
            resources.files("slurm_plugin.tell.web") / "demo_day" / "day.json.gz"
        ).read_bytes()
        self.recorded: dict[str, Any] = msgspec.json.decode(gzip.decompress(packed))
        self._speed, self._clock, self._began = speed, clock, clock()

    @property
    def second(self) -> float:
        """Seconds since the day's midnight."""
        return (BEGIN_S + (self._clock() - self._began) * self._speed) % DAY_S

    def now(self) -> float:
        """The same as an epoch."""
        return MIDNIGHT.timestamp() + self.second


class DemoSlurm(SlurmClient):
    """Slurm as it was at that moment of the day."""

    def __init__(self, day: Day) -> None:
        super().__init__(_no_commands)
        self._day = day

    def queue(self) -> list[QueuedJob]:
        """Every job that waits or runs then."""
        now, rows = self._day.second, self._day.recorded["jobs"]
        jobs = [self._job(row, now) for row in rows if row["submit"] <= now < row["end"]]
        waiting = in_order((job for job in jobs if job.state == "PENDING"), {})
        first = {job.partition: job.job_id for job in reversed(waiting)}
        return [
            replace(job, reason="Resources") if first.get(job.partition) == job.job_id else job
            for job in jobs
        ]

    def _job(self, row: dict[str, Any], now: float) -> QueuedJob:
        midnight, runs = int(MIDNIGHT.timestamp()), row["start"] <= now
        each, nodes = max(row["asks"]), len(row["asks"])
        submit, start = midnight + row["submit"], midnight + row["start"]
        return QueuedJob(
            job_id=row["id"],
            name=str(row["id"]),
            job_name=JOB_NAMES[row["id"] % len(JOB_NAMES)],
            user=row["user"],
            uid=self._day.recorded["users"][row["user"]],
            account=row["account"],
            partition=row["partition"],
            state="RUNNING" if runs else "PENDING",
            reason="None" if runs else "Priority",
            # Earlier jobs first.
            priority=1_000_000 - row["submit"],
            submit=submit,
            eligible=submit,
            start=start if runs else 0,
            end=start + row["limit_s"] if runs else 0,
            time_limit_s=row["limit_s"],
            nodes=tuple(row["gpus"]) if runs else (),
            min_nodes=nodes,
            max_nodes=nodes,
            cpus=each * nodes,
            tres_per_node=f"gres/gpu:{each}",
            comment=f"gpu-topo: {row['hint']}" if row["hint"] else "",
            gpus={name: tuple(gpus) for name, gpus in row["gpus"].items()} if runs else {},
        )

    def nodes(self) -> list[SlurmNode]:
        """Every node, with what the jobs of that moment hold."""
        used: dict[str, set[int]] = {}
        for job in self.queue():
            for name, gpus in job.gpus.items():
                used.setdefault(name, set()).update(gpus)
        return [
            self._node(row, used.get(row["name"], set())) for row in self._day.recorded["nodes"]
        ]

    def _node(self, row: dict[str, Any], used: set[int]) -> SlurmNode:
        count, model = catalog.load(row["machine"]).gpus, row["machine"]
        return SlurmNode(
            name=row["name"],
            state=("MIXED" if used else "IDLE",),
            partitions=(row["partition"],),
            weight=1,
            cpus=count * CPUS_PER_GPU,
            memory_mb=count * MEMORY_PER_GPU_MB,
            gpus={model: count},
            used=tuple(sorted(used)),
            used_by_type={model: len(used)},
            alloc_cpus=len(used),
        )

    def partitions(self) -> list[SlurmPartition]:
        """The partitions of the recorded nodes."""
        nodes = self._day.recorded["nodes"]
        names = list(dict.fromkeys(row["partition"] for row in nodes))
        return [
            SlurmPartition(
                name, tuple(row["name"] for row in nodes if row["partition"] == name), not at
            )
            for at, name in enumerate(names)
        ]

    def config(self) -> dict[str, str]:
        """slurm.conf of the recorded day: its release alone, as no view reads more of it."""
        return {"SLURM_VERSION": "24.11.5"}


class DemoDecisions(DecisionTail):
    """The decisions and starts up to that moment of the day."""

    def __init__(self, day: Day) -> None:
        super().__init__(None)
        self._day = day
        self._taken: int = 0
        uids = {row["id"]: day.recorded["users"][row["user"]] for row in day.recorded["jobs"]}
        partitions = {row["id"]: row["partition"] for row in day.recorded["jobs"]}
        #: Each with its second of the day.
        self._lines = [
            (
                line["at"],
                of_plain(
                    line
                    | {
                        "time": (MIDNIGHT + timedelta(seconds=line["at"])).isoformat(),
                        "uid": uids[line["job"]],
                        "partition": partitions[line["job"]],
                    }
                ),
            )
            for line in day.recorded["records"]
        ]
        self.records = [line for _, line in self._lines]

    def read(self) -> bool:
        """Take in what was decided since; after midnight the day begins anew."""
        now = self._day.second
        ready = sum(1 for at, _ in self._lines if at <= now)
        if ready < self._taken:
            self._taken = 0
            self.forget()
        self.take(self.records[self._taken : ready])
        before, self._taken = self._taken, ready
        return before < ready

    def of(self, job: int, reader: LineReader, is_over: Callable[[], bool]) -> list[Line]:
        """A job's lines of the log so far."""
        return [line for line in self.records[: self._taken] if line.job == job]


def sources(speed: float = SPEED, clock: Callable[[], float] = time.monotonic) -> Sources:
    """The recorded day in place of a site."""
    day = Day(speed, clock)
    decisions = DemoDecisions(day)
    nodes = day.recorded["nodes"]
    machines = {row["machine"]: Machine(catalog.load(row["machine"])) for row in nodes}
    parts = sorted({row["partition"] for row in nodes})
    below = {name: [row["name"] for row in nodes if row["partition"] == name] for name in parts}
    leaves = [Domain(f"leaf-{name}", 0, frozenset(below[name])) for name in parts]
    spine = Domain("spine", 1, frozenset(row["name"] for row in nodes))
    return Sources(
        Watcher(DemoSlurm(day), wall_clock=day.now),
        lambda snapshot: Extras(),
        lambda: EngineState(True, "", ANSWER_MS),
        decisions,
        {row["name"]: machines[row["machine"]] for row in nodes},
        Network((*leaves, spine), "the recording"),
        records_of=decisions.of,
        all_records=lambda: decisions.records,
        name_of={uid: name for name, uid in day.recorded["users"].items()}.__getitem__,
        notices=(NOTICE,),
    )


def _no_commands(argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
    raise AssertionError(f"the recorded day has no command {argv[0]}")
