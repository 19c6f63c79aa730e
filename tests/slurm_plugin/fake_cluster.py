"""A stand-in for a whole Slurm: nodes with GPUs, sbatch, scancel, sacct, and a clock of its own.

Jobs start as soon as their GPUs are idle, the one of the highest priority first. What a job of
the profiler does is a function of the test's.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.interface import QueuedJob, SlurmJob, SlurmNode, SlurmPartition


@dataclass
class Asked:
    """What a submitted job was given, as its script sees it."""

    job: int
    name: str
    nodes: int
    gpus: int
    env: dict[str, str]
    argv: list[str]

    @property
    def local_batch(self) -> int:
        return int(self.env["GPUTOPO_LOCAL_BATCH"])

    @property
    def iterations(self) -> int:
        return int(self.env["GPUTOPO_ITERATIONS"])


#: Seconds for which a job that is over is still in the controller.
FORGOTTEN_S = 300.0
#: What a job does: seconds it runs, the state it ends in, what it prints.
Script = Callable[[Asked], tuple[float, str, str]]


@dataclass
class Held:
    """One job of the fake."""

    queued: QueuedJob
    state: str = "PENDING"
    name: str = ""
    gpus: int = 1
    nodes: int = 1
    seconds: float = 1e9
    ends_as: str = "COMPLETED"
    prints: str = ""
    output: str = ""
    start: float = 0.0
    end: float = 0.0
    on: dict[str, tuple[int, ...]] = field(default_factory=dict)


def node(name: str, count: int = 4, kind: str = "v100", **other: object) -> SlurmNode:
    """An idle node of the partition gpu."""
    found = SlurmNode(name, ("IDLE",), ("gpu",), 1, 16, 4000, {kind: count})
    return replace(found, **other)


class FakeCluster:
    """SlurmClient and Runner in one; `submitted` keeps every sbatch that was taken."""

    def __init__(self, script: Script, *nodes: SlurmNode) -> None:
        self.script = script
        self.at = 1000.0
        self.all_nodes = nodes or (node("n1"), node("n2"), node("other", 8, "a100"))
        self.held: dict[int, Held] = {}
        self.submitted: list[Asked] = []
        self.cancelled: list[int] = []
        self.refuse: Callable[[Asked], str] = lambda asked: ""
        self.after_sbatch: Callable[[], None] = lambda: None
        self.epilog_s = 0.0
        self.accounts = True
        self.events: list[tuple[float, Callable[[], None]]] = []

    # -- time ---------------------------------------------------------------

    def clock(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        end = self.at + seconds
        while self.at < end:
            self.at = min(end, self.at + 1)
            for when, what in [event for event in self.events if event[0] <= self.at]:
                self.events.remove((when, what))
                what()
            self._turn()

    def _turn(self) -> None:
        for job in self.held.values():
            if job.state == "RUNNING" and self.at >= job.start + job.seconds:
                self._end(job, job.ends_as)
        waiting = [job for job in self.held.values() if job.state == "PENDING"]
        for job in sorted(waiting, key=lambda job: (-job.queued.priority, job.queued.job_id)):
            self._start(job)

    def _start(self, job: Held) -> None:
        barred = set(job.queued.exc_nodes.split(","))
        free = {
            each.name: sorted(set(range(each.gpu_count)) - set(self._used(each.name)))
            for each in self.all_nodes
            if each.name not in barred and "DRAIN" not in each.state
        }
        able = [name for name, gpus in free.items() if len(gpus) >= job.gpus]
        if len(able) >= job.nodes:
            job.state, job.start = "RUNNING", self.at
            job.on = {name: tuple(free[name][: job.gpus]) for name in able[: job.nodes]}

    def _end(self, job: Held, state: str) -> None:
        job.state, job.end, job.on = state, self.at, {}
        if job.output:
            Path(job.output.replace("%j", str(job.queued.job_id))).write_text(job.prints)

    def _used(self, name: str) -> tuple[int, ...]:
        return tuple(sorted(gpu for job in self.held.values() for gpu in job.on.get(name, ())))

    # -- others ---------------------------------------------------------------

    def other(self, gpus: int = 1, seconds: float = 1e9, **fields: object) -> int:
        """Another user's job; its id."""
        found = QueuedJob(
            len(self.held) + 1,
            user="bob",
            partition="gpu",
            submit=int(self.at),
            eligible=int(self.at),
            reason="Resources",
            priority=1000,
            tres_per_node=f"gres/gpu:v100:{gpus}",
            exc_nodes="other",
        )
        job = replace(found, **fields)
        self.held[job.job_id] = Held(job, gpus=gpus, seconds=seconds)
        self._turn()
        return job.job_id

    # -- SlurmClient ------------------------------------------------------------

    def nodes(self) -> list[SlurmNode]:
        return [replace(each, used=self._used(each.name)) for each in self.all_nodes]

    def partitions(self) -> list[SlurmPartition]:
        return [SlurmPartition("gpu", tuple(each.name for each in self.all_nodes), True)]

    def queue(self) -> list[QueuedJob]:
        return [
            replace(job.queued, state=state, nodes=tuple(job.on), gpus=job.on)
            for job in self.held.values()
            if (state := self._in_queue(job))
        ]

    def _in_queue(self, job: Held) -> str:
        if job.end and self.at - job.end < self.epilog_s:
            return "COMPLETING"
        return job.state if job.state in ("PENDING", "RUNNING") else ""

    def jobs(self) -> list[SlurmJob]:
        return [
            SlurmJob(number, job.name, job.state, int(job.start) if job.end else 0, int(job.end))
            for number, job in self.held.items()
            if not job.end or self.at - job.end < FORGOTTEN_S
        ]

    # -- Runner -------------------------------------------------------------------

    def __call__(self, argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        if argv[0] == "scancel":
            job = self.held[int(argv[1])]
            self.cancelled.append(int(argv[1]))
            if not job.end:
                self._end(job, "CANCELLED")
            return ""
        if argv[0] == "sacct" and self.accounts:
            name = next(word[7:] for word in argv if word.startswith("--name="))
            return "".join(
                f"{number}|{job.state}|{int(job.start)}|{int(job.end) or 'Unknown'}\n"
                for number, job in self.held.items()
                if job.name == name
            )
        raise SlurmError(f"{argv[0]}: the fake knows no such command")

    def submit(self, argv: list[str], variables: Mapping[str, str]) -> str:
        """sbatch with these variables in its environment."""
        options = dict(word[2:].partition("=")[::2] for word in argv if word.startswith("--"))
        number = len(self.held) + 1
        asked = Asked(
            number,
            options["job-name"],
            int(options["nodes"]),
            int(re.search(r"(\d+)$", options["gres"])[1]),
            dict(variables),
            argv,
        )
        if refusal := self.refuse(asked):
            raise SlurmError(f"sbatch: exit 1: {refusal}")
        seconds, ends_as, prints = self.script(asked)
        queued = QueuedJob(
            number,
            user="alice",
            partition="gpu",
            submit=int(self.at),
            eligible=int(self.at),
            reason="None",
            priority=1,
            tres_per_node=f"gres/gpu:{asked.gpus}",
            exc_nodes=options.get("exclude", ""),
        )
        self.held[number] = Held(
            queued,
            name=asked.name,
            gpus=asked.gpus,
            nodes=asked.nodes,
            seconds=seconds,
            ends_as=ends_as,
            prints=prints,
            output=options["output"].replace("%%", "%"),
        )
        self.submitted.append(asked)
        self._turn()
        self.after_sbatch()
        return f"{number}\n"
