"""What a simulated run leaves behind: one record per job, and how the run went."""

from __future__ import annotations

from dataclasses import dataclass, field

from policies import Placement
from simulation.workload import SimJob


@dataclass(frozen=True, slots=True)
class Record:
    """What happened to one job. `seed` is the workload's, so that a table can name it.

    `postponed` counts waits that ran their course; `is_forced`: the bound on postponing
    was reached and the job took what there was. `ideal_s`: its time in its best
    configuration, by the run's execution-time model.
    """

    job: SimJob
    start_s: float
    end_s: float
    placement: Placement
    postponed: int = 0
    seed: int | None = None
    is_forced: bool = False
    ideal_s: float | None = None

    @property
    def waited_s(self) -> float:
        """From submit to start."""
        return self.start_s - self.job.submit_s

    @property
    def slowdown(self) -> float:
        """Run time over the best configuration's, without waiting; 1 is ideal."""
        best = self.job.duration_s if self.ideal_s is None else self.ideal_s
        return (self.end_s - self.start_s) / best if best > 0 else 1.0


@dataclass(slots=True)
class Run:
    """A whole simulated run of one policy. `decision_s`: real time of every question."""

    policy: str
    records: list[Record] = field(default_factory=list)
    decision_s: list[float] = field(default_factory=list)
    waits: int = 0
    gpus: int = 0
