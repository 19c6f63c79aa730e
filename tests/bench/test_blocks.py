"""The benchmark of NVLink domains: stock's choice of blocks, and what is counted."""

from __future__ import annotations

import pytest

from bench.live.large.blocks import BlockNodes
from bench.simulated import blocks
from gres_topology import catalog
from gres_topology.slurm_files.topology_conf import parse
from policies import Cluster, NodeState, Request, Wait
from simulation.core.jobs import SimJob, offered_load

NAMES = blocks.node_names()
FULL = 0xF


def cluster(busy: set[str]) -> Cluster:
    tray = catalog.load(blocks.MACHINE)
    nodes = {name: NodeState(name, tray, 0 if name in busy else FULL, 0, 1) for name in NAMES}
    return Cluster(nodes, network=blocks.network(NAMES))


def test_stock_takes_the_last_of_the_blocks_with_the_fewest_nodes_that_suffice():
    """As eval_nodes_block: `bnc <= block_node_cnt`, then nodes in Slurm's order."""
    busy = {*NAMES[:3], *NAMES[18:21]}  # b1 and b2 have 15 nodes left
    found = blocks.StockInBlocks().nodes(Request((4, 4)), cluster(busy))
    assert list(found) == ["gb22", "gb23"]
    sixteen = blocks.StockInBlocks().nodes(Request((4,) * 16), cluster(busy))
    assert min(sixteen) == "gb55"


def test_a_job_that_no_block_has_room_for_waits_on_both_sides():
    busy = {NAMES[at] for at in range(0, 72, 18)}
    for policy in (blocks.StockInBlocks(), blocks.Ours()):
        assert isinstance(policy.place(Request((4,) * 18), cluster(busy)), Wait)


def test_whole_domains_are_counted():
    """Two jobs of one node: in two domains and in one."""
    jobs = [SimJob(1, (4,), 100.0, 0.0), SimJob(2, (4,) * 18, 100.0, 0.0)]
    run = blocks.simulated("ours", jobs)
    assert blocks.free_by_block(run, NAMES, 50.0).count(18) == 2
    assert blocks.free_by_block(run, NAMES, 101.0) == [18] * 4


def test_a_mix_offers_its_load_and_is_judged_alike_on_both_sides():
    jobs = blocks.mix(3, 200, 0.6)
    assert offered_load(jobs, 288) == pytest.approx(0.6, abs=0.001)
    runs = {side: [blocks.judged(blocks.simulated(side, jobs))] for side in blocks.SIDES}
    figures = {figure.name: figure for figure in blocks.figures(0.6, runs)}
    assert len(figures) == len(blocks.FIGURES)
    assert 0 < figures["blocks.60.largest"].value <= 18


def test_the_live_nodes_are_four_domains_for_each_side() -> None:
    nodes = BlockNodes()
    found = parse(nodes.network, "test").domains
    assert [len(domain.nodes) for domain in found if domain.level == 0] == [18] * 8
    for side in ("mapa", "stock"):
        whole = [domain for domain in found if domain.nodes <= set(nodes.of(side))]
        assert len(whole) == 4
    assert "TopologyPlugin=topology/block" in nodes.slurm_conf()
    assert "gpu:gb200:4" in nodes.slurm_conf()
