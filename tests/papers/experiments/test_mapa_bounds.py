"""The bound that knows the future."""

from __future__ import annotations

import pytest

from gres_topology.catalog import load
from papers.experiments.mapa.bounds import best_possible, main
from policies.registry import registry
from simulation import SimJob, SimulationError, Simulator
from simulation.core.jobs import mixed_jobs
from simulation.report.metrics import summary

DGX = {"n1": load("dgx1v")}


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


def test_the_rows_are_one_command(capsys):
    main(["--seeds", "1", "--jobs", "20"])
    said, _, *bounds = capsys.readouterr().out.splitlines()
    assert "seeds 0-0" in said
    assert [line.split()[:5] for line in bounds] == [
        ["knows", "all,", "hop", "costs", weight] for weight in ("0", "0.3", "1")
    ]
