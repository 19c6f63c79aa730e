"""Jobs slow down and speed up as their neighbours change, and the queue keeps its promises."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gres_topology.catalog import load
from policies import Cluster, Placement, Policy, Request, Wait
from policies.contract.hint_keys import MIN_UTILITY
from policies.registry import registry
from simulation import SimJob, SimulationError
from simulation.core.jobs import mixed_jobs
from simulation.models.placing import Postponing, Simulator
from simulation.models.speed import ByBandwidth, Speed
from simulation.report.metrics import summary

MINSKY = {"m1": load("minsky")}
DGX = {"n1": load("dgx1v")}
TWO = {"m1": load("minsky"), "m2": load("minsky")}
FIRST = registry.get("first-fit")


class Halved:
    """Twice as long beside anybody on the node."""

    has_neighbours = True

    def full_s(self, placed, nodes, beside):
        return placed.job.duration_s * (2 if beside else 1)

    def ideal_s(self, job):
        return job.duration_s


def times(run):
    return {record.job.job_id: (record.start_s, record.end_s) for record in run.records}


def test_what_is_left_is_rescaled_when_a_neighbour_comes_and_when_it_goes():
    """Job 1: 40 s alone, then 60 s at half speed (30 s of work), then 30 s alone."""
    jobs = [SimJob(1, (1,), 100.0), SimJob(2, (1,), 30.0, submit_s=40.0)]
    run = Simulator(MINSKY, FIRST, Halved()).run(jobs)
    assert times(run) == {1: (0.0, 130.0), 2: (40.0, 100.0)}


def test_a_neighbour_on_another_node_changes_nothing():
    jobs = [SimJob(1, (4,), 100.0), SimJob(2, (4,), 100.0)]
    run = Simulator(TWO, FIRST, Halved()).run(jobs)
    assert times(run) == {1: (0.0, 100.0), 2: (0.0, 100.0)}


def test_a_model_without_neighbours_is_asked_once_when_a_job_starts():
    class Drawn(Speed):
        """Another time at every question, as a model that draws its noise."""

        noise = iter((1.0, 2.0, 3.0, 4.0))

        def full_s(self, placed, nodes, beside):
            return placed.job.duration_s * next(self.noise)

    jobs = [SimJob(1, (1,), 100.0), SimJob(2, (1,), 10.0, submit_s=40.0)]
    assert times(Simulator(MINSKY, FIRST, Drawn()).run(jobs)) == {1: (0.0, 100.0), 2: (40.0, 60.0)}


def test_slowdown_counts_running_and_not_waiting():
    jobs = [SimJob(1, (4,), 100.0), SimJob(2, (1,), 50.0), SimJob(3, (1,), 50.0)]
    run = Simulator(MINSKY, FIRST, Halved()).run(jobs)
    assert [(r.slowdown, r.waited_s) for r in run.records] == [(1, 0), (2, 100), (2, 100)]
    assert summary(run, MINSKY)["slowdown_mean"] == pytest.approx(5 / 3)


def test_slow_links_stretch_the_communicating_part_only():
    class Across(Policy):
        name = "across"

        def place(self, request, cluster):
            return Placement({"m1": (0, 2)}, self.name, "across the sockets")

    speed = ByBandwidth(0.5)
    (record,) = Simulator(MINSKY, Across(), speed).run([SimJob(1, (2,), 100.0)]).records
    share = summary(Simulator(MINSKY, Across()).run([SimJob(1, (2,), 1.0)]), MINSKY)[
        "bandwidth_share"
    ]
    assert share < 1
    assert record.end_s == pytest.approx(100 * (0.5 + 0.5 / share))


QUEUES = [
    ("strict order lets nobody pass a job that does not fit", MINSKY, False,
     [SimJob(1, (3,), 100.0), SimJob(2, (4,), 10.0), SimJob(3, (1,), 5.0)], {3: (110, 115)}),
    ("backfill lets pass who ends in time", MINSKY, True,
     [SimJob(1, (3,), 100.0), SimJob(2, (4,), 10.0), SimJob(3, (1,), 5.0)],
     {1: (0, 100), 2: (100, 110), 3: (0, 5)}),
    ("it holds who would delay the first of the queue", MINSKY, True,
     [SimJob(1, (3,), 100.0), SimJob(2, (4,), 10.0), SimJob(3, (1,), 101.0)], {3: (110, 211)}),
    ("it uses other nodes than the promised ones for long jobs", TWO, True,
     [SimJob(1, (4,), 100.0), SimJob(2, (3,), 500.0), SimJob(3, (4,), 10.0),
      SimJob(4, (1,), 400.0)], {3: (100, 110), 4: (0, 400)}),
    ("it holds who would end in time but says it may take longer", MINSKY, True,
     [SimJob(1, (3,), 100.0, walltime_s=100.0), SimJob(2, (4,), 10.0),
      SimJob(3, (1,), 5.0, walltime_s=3600.0)], {3: (110, 115)}),
    # Job 1 should have ended at 50 s; whoever takes no time delays nobody at 60 s.
    ("it promises nothing in the past", MINSKY, True,
     [SimJob(1, (3,), 100.0, walltime_s=50.0), SimJob(2, (4,), 10.0, submit_s=60.0),
      SimJob(3, (1,), 0.0, submit_s=60.0), SimJob(4, (1,), 1.0, submit_s=60.0)],
     {3: (60, 60), 4: (110, 111)}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "easy", "jobs", "expected"), [pytest.param(*row[1:], id=row[0]) for row in QUEUES]
)
def test_who_passes_whom_in_the_queue(nodes, easy, jobs, expected):
    assert times(Simulator(nodes, FIRST, easy=easy).run(jobs)).items() >= expected.items()


class Reluctant(Policy):
    """Waits as long as it may, by itself and by the site."""

    name = "reluctant"

    def __init__(self, most_s=inf):
        self.most_s = most_s

    def place(self, request, cluster):
        instead = FIRST.place(request, cluster)
        return Wait("not yet", self.most_s, instead) if request.job_id == 1 else instead


def test_a_job_is_postponed_within_the_sites_bounds_and_then_placed_by_force():
    bounds = Postponing(max_postponements=3, max_wait_s=600.0, step_s=30.0)
    run = Simulator(MINSKY, Reluctant(), bounds=bounds).run([SimJob(1, (1,), 5.0)])
    (record,) = run.records
    assert (record.start_s, record.postponed, record.is_forced, run.waits) == (90.0, 3, True, 3)


def test_waits_are_bounded_in_seconds_too():
    bounds = Postponing(max_postponements=100, max_wait_s=50.0, step_s=30.0)
    (record,) = Simulator(MINSKY, Reluctant(), bounds=bounds).run([SimJob(1, (1,), 5.0)]).records
    assert record.start_s == 50.0


def test_waits_add_up_to_no_more_than_the_policy_allows_one():
    bounds = Postponing(max_postponements=100, max_wait_s=600.0, step_s=30.0)
    run = Simulator(MINSKY, Reluctant(45.0), bounds=bounds).run([SimJob(1, (1,), 5.0)])
    assert run.records[0].start_s == 45.0


def test_a_wait_cut_short_by_an_ending_job_does_not_count():
    """Jobs end every second; the wait's count still reaches 3 only after 45 s each."""
    bounds = Postponing(max_postponements=1, max_wait_s=600.0, step_s=45.0)
    jobs = [SimJob(1, (1,), 5.0), *(SimJob(n, (1,), 1.0, submit_s=n) for n in range(2, 20))]
    records = {
        r.job.job_id: r for r in Simulator(MINSKY, Reluctant(), bounds=bounds).run(jobs).records
    }
    # The last job ends at second 20; the wait that began then runs its course.
    assert records[1].start_s == 65.0
    assert records[1].postponed == 1


def test_a_wait_that_ends_together_with_a_job_counts():
    bounds = Postponing(max_postponements=1, max_wait_s=600.0, step_s=45.0)
    jobs = [SimJob(1, (1,), 5.0), SimJob(2, (1,), 45.0)]
    run = Simulator(MINSKY, Reluctant(), bounds=bounds).run(jobs)
    assert times(run)[1] == (45.0, 50.0)


@pytest.mark.parametrize("speed", [Speed(), Halved(), ByBandwidth(0.3)])
def test_a_job_of_no_length_ends_when_it_starts(speed):
    run = Simulator(MINSKY, FIRST, speed).run([SimJob(1, (4,), 0.0), SimJob(2, (4,), 1.0)])
    assert times(run) == {1: (0.0, 0.0), 2: (0.0, 1.0)}
    assert [record.slowdown for record in run.records] == [1.0, 1.0]


def test_a_policy_that_places_busy_gpus_stops_the_run():
    class Greedy(Policy):
        name = "greedy"

        def place(self, request, cluster):
            return Placement({"m1": (0,)}, self.name, "always GPU 0")

    jobs = [SimJob(1, (1,), 10.0), SimJob(2, (1,), 10.0)]
    with pytest.raises(SimulationError, match="m1: GPUs 1 were placed but are not free"):
        Simulator(MINSKY, Greedy()).run(jobs)


def test_a_job_that_can_never_start_is_named():
    with pytest.raises(SimulationError, match=r"job 7 asks for 9 GPUs"):
        Simulator(DGX, FIRST).run([SimJob(7, (9,), 1.0)])


def test_a_waiting_job_is_passed_and_gets_its_links_when_they_are_free():
    """Job 2 wants a double link, which nobody has before job 1 ends; job 3 passes it."""
    jobs = [
        SimJob(1, (6,), 100.0),
        SimJob(2, (2,), 10.0, hint="min-utility=1"),
        SimJob(3, (1,), 10.0),
    ]
    records = {r.job.job_id: r for r in Simulator(DGX, _Leaves01()).run(jobs).records}
    assert records[3].start_s == 0.0
    assert records[2].start_s == 100.0
    assert records[2].postponed == 2


class _Leaves01(Policy):
    """Six GPUs: all but 0 and 1 (one NVLink); anything else as mapa."""

    name = "leaves-0-1"
    hints = (MIN_UTILITY,)

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        if request.gpus_per_node == (6,):
            return Placement({"n1": (2, 3, 4, 5, 6, 7)}, self.name, "all but 0 and 1")
        return registry.get("mapa").place(request, cluster)


def test_the_same_seed_gives_the_same_jobs():
    assert mixed_jobs(3) == mixed_jobs(3)
    assert mixed_jobs(3) != mixed_jobs(4)


jobs_to_run = st.lists(
    st.builds(
        lambda gpus, duration, submit: (gpus, float(duration), float(submit)),
        st.sampled_from([(1,), (2,), (3,), (4,), (2, 2), (4, 1)]),
        st.integers(0, 50),
        st.integers(0, 60),
    ),
    min_size=1,
    max_size=25,
)


@given(
    st.sampled_from(registry.names()),
    jobs_to_run,
    st.booleans(),
    st.sampled_from([Speed(), Halved()]),
)
@settings(max_examples=80)
def test_every_job_runs_once_and_no_gpu_is_shared(policy, raw, easy, speed):
    jobs = [SimJob(n, gpus, took, at) for n, (gpus, took, at) in enumerate(raw, 1)]
    run = Simulator(TWO, registry.get(policy), speed, easy=easy).run(jobs)
    assert sorted(record.job.job_id for record in run.records) == [job.job_id for job in jobs]
    for record in run.records:
        assert record.start_s >= record.job.submit_s
        assert record.slowdown >= 1 - 1e-9
        for other in run.records:
            if (
                other is not record
                and other.start_s < record.end_s
                and record.start_s < other.end_s
            ):
                for name in set(record.placement.gpus) & set(other.placement.gpus):
                    assert not set(record.placement.gpus[name]) & set(other.placement.gpus[name])


@given(jobs_to_run)
@settings(max_examples=40)
def test_nothing_starts_late_with_one_job_at_a_time(raw):
    """With strict order and stated durations, a start is a submit or somebody's end."""
    jobs = [SimJob(n, gpus, took, at) for n, (gpus, took, at) in enumerate(raw, 1)]
    run = Simulator(TWO, FIRST).run(jobs)
    moments = {job.submit_s for job in jobs} | {record.end_s for record in run.records}
    assert {record.start_s for record in run.records} <= moments
