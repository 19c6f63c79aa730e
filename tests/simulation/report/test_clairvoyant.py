"""The bound that knows the future, and the figures it bounds."""

from __future__ import annotations

import pytest

from gres_topology.catalog import load
from policies.registry import registry
from simulation import SimJob, SimulationError, Simulator
from simulation.core.jobs import mixed_jobs
from simulation.report.clairvoyant import best_possible
from simulation.report.metrics import summary

DGX = {"n1": load("dgx1v")}


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
