"""Figures of a run where some have no meaning."""

from __future__ import annotations

from gres_topology.catalog import load
from policies.registry import registry
from simulation import SimJob, Simulator
from simulation.report.metrics import summary


def test_a_run_without_rings_has_no_bandwidth():
    nodes = {"n1": load("dgx1v")}
    run = Simulator(nodes, registry.get("mapa")).run([SimJob(1, (1,), 5.0)])
    assert summary(run, nodes)["bandwidth_share"] is None
