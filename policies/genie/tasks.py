"""Jobs become Tasks: predicted latencies, cost-effective ratios, deadlines (GENIE, 5.1-5.2).

A deadline is the explicit one, else arrival plus the class's expected completion time (eq. 9):
urgent 0, prior once, normal twice the latency on one GPU or, where one GPU does not hold the
batch, on the smallest shape that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from policies.contract.scheduling import NORMAL, PRIOR, URGENT, Platform, Task
from policies.errors import PolicyError, ProfileError
from policies.performance import PerformanceModel, Shape, Work, fitting
from policies.performance.runs import Floats

#: Class -> expected completion time over the latency on the smallest shape (eq. 9).
ECT = {URGENT: 0.0, PRIOR: 1.0, NORMAL: 2.0}


@dataclass(frozen=True, slots=True)
class TaskConstraints:
    """What a job asks of its deadline and shape."""

    service: str = NORMAL
    #: An absolute time; None: by the class.
    deadline_s: float | None = None
    #: The shapes it may have; empty: any.
    shapes: tuple[Shape, ...] = ()
    #: What schedulers without a model give it; None: the smallest shape that holds it.
    requested: Shape | None = None


@dataclass(slots=True)
class TaskMaker:
    """Makes tasks for one platform; models by (profile, task).

    What is the same for equal (profile, task, batch) is computed once.
    """

    platform: Platform
    models: Mapping[tuple[str, str], PerformanceModel]
    _steps: dict[tuple[str, str, int], Floats] = field(default_factory=dict)

    def steps_s(self, work: Work) -> Floats:
        """Seconds per iteration for every shape, infinity where the batch does not fit.

        ProfileError for a profile without a model, PolicyError for a batch that fits no shape.
        """
        key = (work.profile, work.task, work.batch)
        if key not in self._steps:
            self._steps[key] = self._computed(work)
        return self._steps[key]

    def _computed(self, work: Work) -> Floats:
        model = self._model(work)
        shapes = self.platform.shapes
        allowed = set(fitting(shapes, work.batch, model.max_local_batch))
        if not allowed:
            most = model.max_local_batch * shapes[-1].gpus
            raise PolicyError(
                f"batch {work.batch} of {work.profile} fits no shape of up to {shapes[-1]} GPUs;"
                f" expected at most {most}"
            )
        steps = model.steps_s(shapes, work.batch, work.task)
        return np.where([shape in allowed for shape in shapes], steps, inf)

    def _model(self, work: Work) -> PerformanceModel:
        try:
            return self.models[work.profile, work.task]
        except KeyError:
            known = sorted({name for name, _ in self.models})
            raise ProfileError(
                f"no profile {work.profile!r} for {work.task}; expected one of {', '.join(known)}"
            ) from None

    def latencies_s(self, work: Work) -> Floats:
        """Predicted run time for every shape (eq. 4)."""
        result: Floats = self.steps_s(work) * work.iterations + self._model(work).startup_s
        return result

    def smallest(self, work: Work) -> Shape:
        """The smallest shape that holds the batch: fewest GPUs, then fewest nodes."""
        steps = self.steps_s(work)
        return min(
            (shape for at, shape in enumerate(self.platform.shapes) if steps[at] < inf),
            key=lambda shape: (shape.gpus, shape.nodes),
        )

    def expected_s(self, work: Work, service: str) -> float:
        """The class's expected completion time, counted from arrival (eq. 9)."""
        smallest = self.platform.index(self.smallest(work))
        return ECT[service] * float(self.latencies_s(work)[smallest])

    def task(
        self, job_id: int, work: Work, arrival_s: float, constraints: TaskConstraints | None = None
    ) -> Task:
        """The task of one job; PolicyError where none of the shapes it may have holds it."""
        constraints = constraints or TaskConstraints()
        latencies = self.latencies_s(work)
        if constraints.shapes:
            latencies = _only(latencies, self.platform, constraints.shapes)
            if not np.isfinite(latencies).any():
                asked = ", ".join(map(str, constraints.shapes))
                raise PolicyError(
                    f"batch {work.batch} of {work.profile} does not fit {asked}; expected"
                    f" {self.smallest(work)} or more"
                )
        deadline_s = constraints.deadline_s
        if deadline_s is None:
            deadline_s = arrival_s + self.expected_s(work, constraints.service)
        rates = work.batch * work.iterations / latencies
        ratio = np.where(np.isfinite(latencies), rates / self.platform.costs, -inf)
        requested = constraints.requested or (
            constraints.shapes[0] if constraints.shapes else self.smallest(work)
        )
        return Task(
            job_id,
            work.profile,
            arrival_s,
            deadline_s,
            latencies,
            ratio,
            requested,
            constraints.service,
        )


def _only(latencies: Floats, platform: Platform, shapes: Sequence[Shape]) -> Floats:
    kept = np.full_like(latencies, inf)
    for shape in shapes:
        at = platform.index(shape)
        kept[at] = latencies[at]
    return kept
