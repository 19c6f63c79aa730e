"""Replaying task queues under schedulers."""

from __future__ import annotations

import numpy as np
import pytest

from papers.experiments.genie.schedulers import FIFO, schedulers
from papers.experiments.genie.workload import ASKED, HOURS, Spec, TrueTimes, make, models
from papers.experiments.pollux import PROFILES
from papers.simulators.shaping import ShapingSimulator
from policies.contract.scheduling import Platform, Task
from policies.genie.tasks import TaskMaker
from policies.performance import Shape
from simulation.errors import SimulationError

PLATFORM = Platform(2, 2)
SMALL = Platform(4, 4)


ONE = Shape(1, 1)


def task(job_id, seconds, arrival_s=0.0, shape=ONE, deadline_s=1e9):
    latency = np.full(len(PLATFORM.shapes), np.inf)
    latency[PLATFORM.index(shape)] = seconds
    ratio = np.where(np.isfinite(latency), 1.0, -np.inf)
    return Task(job_id, "cnn", arrival_s, deadline_s, latency, ratio, shape)


def as_predicted(one, shape):
    return float(one.latency_s[PLATFORM.index(shape)])


def test_jobs_run_side_by_side_and_one_after_the_other():
    replay = ShapingSimulator(PLATFORM, FIFO, as_predicted)
    done = replay.run([task(1, 10, shape=Shape(2, 2)), task(2, 5), task(3, 7, arrival_s=12)])
    assert [(one.task.job_id, one.start_s, one.end_s) for one in done] == [
        (1, 0, 10), (2, 10, 15), (3, 12, 19),
    ]  # fmt: skip
    assert len(replay.plan_s) == 3


def test_a_job_takes_its_true_time_not_the_predicted_one():
    done = ShapingSimulator(PLATFORM, FIFO, lambda one, shape: 42.0).run(
        [task(1, 10, deadline_s=41)]
    )
    assert done[0].end_s == 42.0
    assert not done[0].is_in_time


class _Broken:
    name = "broken"

    def __init__(self, answer):
        self.plan = answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda queue: [], "job 1: broken never started it"),
        (
            lambda queue: [
                type(one)(one.task, one.shape, 0.0, ("node1", "node1", "node2"))
                for one in FIFO.plan(queue)
            ],
            "job 1: broken starts it wrongly",
        ),
        (
            lambda queue: [
                type(one)(one.task, Shape(1, 3), 0.0, ("node1",)) for one in FIFO.plan(queue)
            ],
            "job 1: broken takes busy GPUs of node1",
        ),
    ],
    ids=["never starts", "starts wrongly", "takes busy GPUs"],
)
def test_a_scheduler_that_errs_stops_the_run(answer, said):
    with pytest.raises(SimulationError, match=said):
        ShapingSimulator(PLATFORM, _Broken(answer), lambda one, shape: 1.0).run([task(1, 10)])


@pytest.fixture(scope="module")
def maker():
    return TaskMaker(SMALL, models())


@pytest.fixture(scope="module")
def day(maker):
    return make(Spec(20), 1, maker)


def test_a_seed_gives_the_same_queue_and_another_seed_another(maker, day):
    def told(workload):
        return [(one.arrival_s, one.service, one.requested) for one in workload.tasks]

    assert told(make(Spec(20), 1, maker)) == told(day)
    assert told(make(Spec(20), 2, maker)) != told(day)


def test_the_queue_is_table_3s(day):
    count = len(day.tasks)
    assert 400 < count < 560
    assert all(0 < one.arrival_s <= 24 * 3600 for one in day.tasks)
    share = {
        name: sum(one.service == name for one in day.tasks) / count
        for name in ("urgent", "prior", "normal")
    }
    assert share == pytest.approx({"urgent": 0.05, "prior": 0.35, "normal": 0.60}, abs=0.06)
    assert {work.profile for work in day.works.values()} == set(PROFILES)
    inference = sum(work.task == "inference" for work in day.works.values()) / count
    assert inference == pytest.approx(0.5, abs=0.07)


def test_tasks_take_half_an_hour_to_three_on_the_smallest_shape(maker, day):
    for work in day.works.values():
        smallest = maker.latencies_s(work)[SMALL.index(maker.smallest(work))]
        assert HOURS[0] * 3600 * 0.999 <= smallest <= HOURS[1] * 3600 * 1.001
    assert any(maker.smallest(work).gpus > 1 for work in day.works.values())


def test_users_ask_for_shapes_that_hold_their_batch(maker, day):
    for one in day.tasks:
        assert np.isfinite(one.latency_s[SMALL.index(one.requested)])
    asked = {one.requested.gpus for one in day.tasks}
    assert set(ASKED) <= asked
    whole = make(Spec(20), 1, maker, "largest")
    assert max(one.requested.gpus for one in whole.tasks) == 16


@pytest.mark.parametrize("scheduler", schedulers(PROFILES), ids=lambda scheduler: scheduler.name)
def test_every_scheduler_runs_every_task_of_a_short_day(scheduler, maker):
    workload = make(Spec(10, hours=4), 3, maker)
    truth = TrueTimes(SMALL, workload.works, models(light=False))
    done = ShapingSimulator(SMALL, scheduler, truth).run(workload.tasks)
    assert sorted(one.task.job_id for one in done) == [one.job_id for one in workload.tasks]
    assert all(one.start_s >= one.task.arrival_s for one in done)
    changes = sorted(
        [(one.start_s, 1, one.shape.gpus) for one in done]
        + [(one.end_s, 0, -one.shape.gpus) for one in done]
    )
    assert max(np.cumsum([gpus for _, _, gpus in changes])) <= 16
