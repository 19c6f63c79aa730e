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
from simulation.core.link_quality import judge
from simulation.models.placing import Postponing
from simulation.report.clairvoyant import best_possible
from simulation.report.metrics import summary

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


@pytest.mark.parametrize(
    ("gpus", "share", "hop"),
    [
        ((0, 3), 1.0, False),
        ((0, 1), 21.61 / 39.08, False),
        ((0, 5), 10.09 / 39.08, True),
        ((0, 2, 3), 1.0, False),
        ((0, 1, 2, 3, 4), 53.61 / 53.61, True),
        ((0, 2, 3, 4, 6), 51.80 / 53.61, False),
        ((4,), 1.0, False),
    ],
    ids=["double", "single", "PCIe", "three", "five by eq. 2", "five without PCIe", "one GPU"],
)
def test_the_judge_on_a_dgx1v(gpus, share, hop):
    verdict = judge(DGX["n1"], gpus)
    assert verdict.share == pytest.approx(share, abs=2e-3)
    assert verdict.pcie_hop is hop


@pytest.mark.parametrize("gpus", [(), (8,), (0, 9)], ids=["none", "no such", "one of two"])
def test_the_judge_refuses_gpus_that_do_not_exist(gpus):
    with pytest.raises(SimulationError, match="no such GPU set"):
        judge(DGX["n1"], gpus)


def test_a_run_without_rings_has_no_bandwidth():
    run = Simulator(DGX, registry.get("mapa")).run([SimJob(1, (1,), 5.0)])
    assert summary(run, DGX)["bandwidth_share"] is None


def test_nobody_beats_the_bound_that_knows_the_future():
    jobs = mixed_jobs(0, 40)
    bound, _ = best_possible(DGX["n1"], jobs, 0.0)
    for name in registry.names():
        run = Simulator(DGX, registry.get(name)).run(jobs)
        assert summary(run, DGX)["bandwidth_share"] <= bound + 1e-9


def test_the_bound_weighs_hops():
    jobs = mixed_jobs(0, 40)
    share, hops = best_possible(DGX["n1"], jobs, 0.0)
    careful_share, careful_hops = best_possible(DGX["n1"], jobs, 1.0)
    assert careful_hops <= hops
    assert careful_share <= share + 1e-9


@pytest.mark.parametrize(
    "job", [SimJob(1, (2, 2), 1.0), SimJob(1, (2,), 1.0, submit_s=3.0)], ids=["nodes", "later"]
)
def test_the_bound_refuses_what_it_cannot_bound(job):
    with pytest.raises(SimulationError, match="the bound takes single-node jobs"):
        best_possible(DGX["n1"], [job], 0.0)
