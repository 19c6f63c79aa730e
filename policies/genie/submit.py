"""What a job that asks for policy=genie says, and whether it can be: all checks of a submit.

Pure functions of the hint's values, the models and the clock. Every refusal is one line that
names the key, what was read and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from policies.contract.deadlines import deadline_s
from policies.contract.hint_keys import BATCH, CLASS, DEADLINE, ITERATIONS, PROFILE, TASK, HintKey
from policies.contract.scheduling import CLASSES, NORMAL, PRIOR, Platform, Task
from policies.errors import HintError, PolicyError, ProfileError
from policies.genie.tasks import ECT, TaskConstraints, TaskMaker
from policies.performance import TRAINING, Shape, Work

#: The hint keys this scheduler reads; the first three a job must give.
HINTS = (PROFILE, BATCH, ITERATIONS, TASK, CLASS, DEADLINE)
NEEDED = tuple(key.name for key in HINTS[:3])


@dataclass(frozen=True, slots=True)
class ShapingRequest:
    """A hint that was understood."""

    work: Work
    constraints: TaskConstraints


@dataclass(frozen=True, slots=True)
class Within:
    """How long a class may take: so many `times` the latency on the smallest shape (eq. 9), or
    so many `seconds` where a site gives them."""

    times: float = 0.0
    seconds: float | None = None


#: The classes of the paper with their expected completion times (eq. 9).
PAPER: Mapping[str, Within] = MappingProxyType({name: Within(ECT[name]) for name in CLASSES})
#: What every user may have. The others go before other users' jobs: a site grants them.
USUAL: Mapping[str, Within] = MappingProxyType({NORMAL: PAPER[NORMAL]})


@dataclass(frozen=True, slots=True)
class ShapeCandidate:
    """One shape a job could have: predicted seconds, cost (eq. 10), ratio (eq. 11)."""

    shape: Shape
    latency_s: float
    cost: float
    ratio: float
    is_in_time: bool


def read(
    values: Mapping[str, str],
    now_s: float,
    allowed: Sequence[str] = CLASSES,
    shapes: Sequence[Shape] = (),
) -> ShapingRequest:
    """The work and constraints of a hint's values; HintError where something is missing or wrong.

    `allowed` are the classes the site lets this job have, `shapes` what the user fixed by
    Slurm's own options (-N, --gpus).
    """
    texts = {key.name: _text(key, values[key.name]) for key in HINTS if key.name in values}
    for key in NEEDED:
        if key not in texts:
            raise HintError(f"{key}: missing; policy=genie needs {', '.join(NEEDED)}")
    service = texts.get("class", NORMAL)
    if service not in allowed:
        raise HintError(f"class: {service!r} is not for this job; expected {', '.join(allowed)}")
    end_s = None
    if "deadline" in texts:
        end_s = deadline_s(texts["deadline"], now_s)
        if end_s <= now_s:
            raise HintError(
                f"deadline: {texts['deadline']} has passed ({(now_s - end_s) / 3600:.1f} h ago);"
                " expected a time to come"
            )
    work = Work(
        texts["profile"], int(texts["batch"]), int(texts["iterations"]), texts.get("task", TRAINING)
    )
    return ShapingRequest(work, TaskConstraints(service, end_s, tuple(shapes)))


def _text(key: HintKey, value: str) -> str:
    text = key.read(value)
    if text is None:
        raise HintError(f"{key.name}: {value!r}; expected {key.allowed}")
    return text


def task_of(
    job_id: int,
    asked: ShapingRequest,
    maker: TaskMaker,
    now_s: float,
    classes: Mapping[str, Within] = PAPER,
) -> Task:
    """The job as schedulers see it; HintError where its profile or batch cannot be.

    `classes` are the site's, by which a job without an explicit deadline gets one. None is sooner
    than the shortest of them allows: a deadline puts a job before those of others as a class does.
    """
    try:
        constraints = asked.constraints
        once_s = maker.expected_s(asked.work, PRIOR)
        allowed = {
            name: within.times * once_s if within.seconds is None else within.seconds
            for name, within in classes.items()
        }
        if constraints.deadline_s is None:
            constraints = replace(constraints, deadline_s=now_s + allowed[constraints.service])
        elif constraints.deadline_s < now_s + min(allowed.values()):
            name = min(allowed, key=lambda name: allowed[name])
            raise HintError(
                f"deadline: in {(constraints.deadline_s - now_s) / 3600:.2f} h; expected"
                f" {allowed[name] / 3600:.2f} h or more, which class {name} may take"
            )
        return maker.task(job_id, asked.work, now_s, constraints)
    except ProfileError as error:
        raise HintError(f"profile: {error}") from None
    except PolicyError as error:
        raise HintError(f"batch: {error}") from None


def too_late(task: Task, platform: Platform, now_s: float) -> str:
    """Why the job cannot be in time even on an empty cluster, in one line; empty if it can.

    Urgent jobs are late by definition (eq. 9) and never complained about.
    """
    fastest = int(np.argmin(task.latency_s))
    left_s, takes_s = task.deadline_s - now_s, float(task.latency_s[fastest])
    if takes_s <= left_s or task.deadline_s <= task.arrival_s:
        return ""
    return (
        f"cannot be done in time: {takes_s / 3600:.2f} h on the fastest shape"
        f" {platform.shapes[fastest]}, deadline in {left_s / 3600:.2f} h"
    )


def candidates(task: Task, platform: Platform, now_s: float) -> list[ShapeCandidate]:
    """Every shape the job could have, the one of the highest ratio first."""
    shapes = [
        ShapeCandidate(
            platform.shapes[at],
            float(task.latency_s[at]),
            float(platform.costs[at]),
            float(task.ratio[at]),
            bool(now_s + task.latency_s[at] <= task.deadline_s),
        )
        for at in np.flatnonzero(np.isfinite(task.latency_s))
    ]
    return sorted(shapes, key=lambda one: (-one.ratio, one.shape))
