"""A queue of a dozen jobs for policy=genie, and what the simulator makes of it.

To the models these jobs take hours; a test ends them one by one in the simulator's order. So
neither Slurm's seconds nor the nodes it takes decide what starts next, and with which shape.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

from papers.simulators.shaping import ShapingSimulator, TaskRun
from policies.contract.scheduling import Planned, Platform, Queue, Scheduler, Started, Task
from policies.genie.dynamic import Genie
from policies.genie.tasks import TaskConstraints, TaskMaker
from policies.performance import INFERENCE, TRAINING, Run, Shape, Work, fit

PLATFORM = Platform(2, 8)
GENIE = Genie()


def runs(loss: float) -> list[Run]:
    """A model that loses so much of its speed on every further GPU; one GPU holds 64 samples."""
    one = [Run(1, 1, batch, 0.1 * batch / 16) for batch in (8, 16, 32, 64)]
    more = [Run(1, gpus, 16, 0.1 * (1 + loss * (gpus - 1) / 8)) for gpus in (2, 4, 8)]
    far = [Run(2, 2, 16, 0.1 * (1 + 0.4 * loss)), Run(2, 16, 16, 0.1 * (1 + 1.2 * loss))]
    return [*one, *more, *far]


RUNS = {"wide": runs(0.15), "narrow": runs(1.5)}
MODELS = {name: fit("calibrated", some) for name, some in RUNS.items()}
MAKER = TaskMaker(
    PLATFORM, {(name, task): MODELS[name] for name in MODELS for task in (TRAINING, INFERENCE)}
)


@dataclass(frozen=True, slots=True)
class Coming:
    """One job of the queue; `ends_after` says when it ends among the others, in the simulator."""

    work: Work
    service: str
    ends_after: float
    deadline_s: int = 0

    def task(self, job_id: int, at_s: float) -> Task:
        """The job as the simulator sees it, submitted at `at_s`."""
        deadline_s = at_s + self.deadline_s if self.deadline_s else None
        return MAKER.task(job_id, self.work, at_s, TaskConstraints(self.service, deadline_s))


#: Job 1 is the first of them. A test holds that neither seconds nor nodes matter.
QUEUE = (
    Coming(Work("narrow", 256, 20000), "normal", 75, 1800),
    Coming(Work("wide", 256, 8000), "normal", 40),
    Coming(Work("narrow", 256, 30000), "normal", 50),
    Coming(Work("wide", 256, 60000), "urgent", 15),
    Coming(Work("wide", 32, 30000), "prior", 80),
    Coming(Work("narrow", 256, 4000), "urgent", 30),
    Coming(Work("narrow", 32, 20000), "normal", 85),
    Coming(Work("narrow", 256, 60000), "normal", 65),
    Coming(Work("narrow", 256, 20000), "normal", 5),
    Coming(Work("wide", 256, 8000), "prior", 95),
    Coming(Work("narrow", 64, 12000), "prior", 55, 1800),
    Coming(Work("narrow", 256, 8000), "prior", 100, 1800),
)
#: Job 0 holds all GPUs until the others have come.
FIRST = Work("wide", 64, 20000)


@dataclass(frozen=True, slots=True)
class Step:
    """One job ends; with the GPUs that it leaves these start, with these shapes."""

    ends: int
    starts: Mapping[int, str]


def simulated(seed: int = 0, scheduler: Scheduler = GENIE) -> list[Step]:
    """What the simulator makes of QUEUE with this scheduler.

    Seed 0: a job a second, and every job on the node that the scheduler names. Others draw when
    jobs come, how slowly time goes, and the nodes.
    """
    draw = random.Random(seed) if seed else None
    gaps = [draw.uniform(0.05, 10) if draw else 1.0 for _ in QUEUE]
    at_s = list(accumulate(gaps))
    blocked_s = at_s[-1] + (draw.uniform(1, 120) if draw else 1.0)
    slower = draw.uniform(0.3, 5) if draw else 1.0

    def truth(task: Task, shape: Shape) -> float:
        return slower * QUEUE[task.job_id - 1].ends_after if task.job_id else blocked_s

    first = MAKER.task(0, FIRST, 0.0, TaskConstraints(shapes=(Shape(2, 8),)))
    tasks = [first, *(job.task(at, at_s[at - 1]) for at, job in enumerate(QUEUE, 1))]
    return list(_steps(ShapingSimulator(PLATFORM, OnAnyNode(draw, scheduler), truth).run(tasks)))


def _steps(done: list[TaskRun]) -> Iterator[Step]:
    for ended in sorted(done, key=lambda one: one.end_s):
        starts = {one.task.job_id: str(one.shape) for one in done if one.start_s == ended.end_s}
        yield Step(ended.task.job_id, starts)


@dataclass(frozen=True, slots=True)
class OnAnyNode:
    """The scheduler in a cluster that gives jobs other nodes than it says, where they fit as well.

    It also holds that a plan is whole: asked once more, the scheduler starts nobody else.
    """

    draw: random.Random | None
    scheduler: Scheduler
    name: str = "on any node"

    def plan(self, queue: Queue) -> list[Planned]:
        """The scheduler's plan on other nodes."""
        free = dict(queue.free)
        made = [self._moved(one, free) if one.nodes else one for one in self.scheduler.plan(queue)]
        rest = [one.task for one in made if not one.nodes]
        started = [_started(one, queue) for one in made if one.nodes]
        again = replace(queue, free=free, waiting=rest, running=(*queue.running, *started))
        assert not any(one.nodes for one in self.scheduler.plan(again)), (
            "starts more when asked again"
        )
        return made

    def _moved(self, planned: Planned, free: dict[str, int]) -> Planned:
        each = planned.shape.gpus_per_node
        fits = sorted(name for name, gpus in free.items() if gpus >= each)
        nodes = planned.nodes
        if self.draw is not None:
            nodes = tuple(sorted(self.draw.sample(fits, planned.shape.nodes)))
        for name in nodes:
            free[name] -= each
        return replace(planned, nodes=nodes)


def _started(planned: Planned, queue: Queue) -> Started:
    task, shape = planned.task, planned.shape
    latency_s = float(task.latency_s[PLATFORM.index(shape)])
    return Started(task.job_id, task.profile, shape, queue.now_s + latency_s)
