"""The simulator keeps the rules of a queue, whatever the policy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gres_topology.catalog import load
from policies import Cluster, Placement, Policy, Request, Wait
from policies.contract.hint_keys import MIN_UTILITY
from policies.registry import registry
from simulation import SimJob, SimulationError, Simulator
from simulation.core.jobs import mixed_jobs
from simulation.models.placing import Postponing

DGX = {"n1": load("dgx1v")}


def replay(jobs, cluster, policy):
    return Simulator(cluster, policy).run(jobs).records


def test_a_job_starts_when_the_one_before_it_makes_room():
    jobs = [SimJob(1, (6,), 100.0), SimJob(2, (4,), 50.0), SimJob(3, (1,), 10.0)]
    records = replay(jobs, DGX, registry.get("first-fit"))
    assert [(r.job.job_id, r.start_s, r.end_s) for r in records] == [
        (1, 0.0, 100.0),
        (2, 100.0, 150.0),
        (3, 100.0, 110.0),
    ]


def test_a_job_never_starts_before_it_is_submitted():
    jobs = [SimJob(1, (1,), 10.0, submit_s=5.0), SimJob(2, (1,), 10.0, submit_s=2.0)]
    starts = {r.job.job_id: r.start_s for r in replay(jobs, DGX, registry.get("mapa"))}
    assert starts == {1: 5.0, 2: 2.0}


def test_a_job_that_can_never_start_is_named():
    with pytest.raises(SimulationError, match=r"job 7 asks for 9 GPUs"):
        replay([SimJob(7, (9,), 1.0)], DGX, registry.get("mapa"))


def test_a_waiting_job_is_passed_and_gets_its_links_when_they_are_free():
    """Job 2 wants a double link, which nobody has before job 1 ends; job 3 passes it."""
    jobs = [
        SimJob(1, (6,), 100.0),
        SimJob(2, (2,), 10.0, hint="min-utility=1"),
        SimJob(3, (1,), 10.0),
    ]
    records = {r.job.job_id: r for r in replay(jobs, DGX, _Leaves01())}
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


def test_nobody_waits_for_ever():
    class Never(Policy):
        name = "never"

        def place(self, request: Request, cluster: Cluster) -> Wait:
            return Wait("never", 60.0, instead=Placement({"n1": (0,)}, "never", "at last"))

    (record,) = replay([SimJob(1, (1,), 5.0)], DGX, Never())
    bounds = Postponing()
    assert record.postponed == bounds.max_postponements
    assert record.start_s == bounds.step_s * bounds.max_postponements


@given(
    st.sampled_from(registry.names()),
    st.integers(0, 1000),
    st.lists(st.sampled_from(["dgx1v", "minsky", "mi250x"]), min_size=1, max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_no_gpu_is_given_twice_and_every_job_runs_once(policy, seed, kinds):
    cluster = {f"n{i}": load(kind) for i, kind in enumerate(kinds)}
    jobs = mixed_jobs(seed, 40, sizes=(1, 4))
    records = replay(jobs, cluster, registry.get(policy))
    assert sorted(r.job.job_id for r in records) == [job.job_id for job in jobs]
    for record in records:
        held = [
            (name, gpu)
            for other in records
            if other.start_s <= record.start_s < other.end_s
            for name, gpus in other.placement.gpus.items()
            for gpu in gpus
        ]
        assert len(held) == len(set(held))


def test_the_same_seed_gives_the_same_jobs():
    assert mixed_jobs(3) == mixed_jobs(3)
    assert mixed_jobs(3) != mixed_jobs(4)
