"""Jobs that run, and what a simulated run leaves behind: a record per job, and how it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from policies import Placement, RunningJob
from simulation.core.clock import JobProgress
from simulation.core.jobs import SimJob


@dataclass(slots=True, kw_only=True)
class Running(JobProgress):
    """A job that runs. `seen` is the job as the policy sees it beside later ones."""

    job: SimJob
    placement: Placement
    masks: Mapping[str, int]
    seen: RunningJob
    ideal_s: float
    postponed: int = 0
    is_forced: bool = False
    is_killed: bool = False

    def planned_end_s(self) -> float:
        """When the queue believes it ends: the walltime asked for, else the truth."""
        asked = self.job.walltime_s
        return self.end_s() if asked is None else max(self.since_s, self.start_s + asked)


@dataclass(frozen=True, slots=True)
class Record:
    """What happened to one job."""

    job: SimJob
    start_s: float
    end_s: float
    placement: Placement
    #: How many waits ran their course.
    postponed: int = 0
    #: Whether it took what there was because the bound on postponing was reached.
    is_forced: bool = False
    #: Its time in its best configuration, by the run's execution-time model.
    ideal_s: float | None = None
    #: Whether its time limit ended it.
    is_killed: bool = False

    @property
    def waited_s(self) -> float:
        """Seconds from submit to start."""
        return self.start_s - self.job.submit_s

    @property
    def slowdown(self) -> float:
        """Run time over the best configuration's, without waiting; 1 is ideal."""
        best = self.job.duration_s if self.ideal_s is None else self.ideal_s
        return (self.end_s - self.start_s) / best if best > 0 else 1.0


@dataclass(slots=True)
class SimulatedRun:
    """A whole simulated run of one policy. `decision_s`: real time of every question."""

    policy: str
    records: list[Record] = field(default_factory=list)
    decision_s: list[float] = field(default_factory=list)
    waits: int = 0
    gpus: int = 0
