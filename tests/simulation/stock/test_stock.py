"""The model of stock Slurm's choice: what a live Slurm chose, and what must hold of any choice.

assets/slurm-24.11.5.jsonl was written by tests/cluster/placement/test_stock_live.py
(GPUTOPO_RECORD); -rare.jsonl has choices that earlier forms of the model got wrong.
"""

import json
import random
from pathlib import Path
from statistics import fmean

import pytest

from gres_topology import catalog
from policies import Cluster, NodeState, Request, RunningJob
from policies.contract.bits import mask_of
from simulation.report.pareto import STOCK_OF_ONE_NODE, run
from simulation.stock import Ask, NodeOrder, Stock, StockNode, Taken, choose, machine_of

ASSETS = Path(__file__).parent / "assets"
KINDS = {
    "amd1": "mi250x",
    "bridged1": "a100-pcie-bridged",
    "dgx1": "dgx1v",
    "dgx2": "dgx1v",
    "minsky1": "minsky",
}
DGX1V = machine_of(catalog.load("dgx1v"), 2, has_links=True)


def nodes_of(states, *, has_links):
    return [
        StockNode(
            name,
            machine_of(catalog.load(KINDS[name]), 2, has_links=has_links),
            free,
            tuple(cores),
            weight,
        )
        for name, (free, cores, weight) in states.items()
    ]


@pytest.mark.parametrize("file", ["slurm-24.11.5.jsonl", "slurm-24.11.5-rare.jsonl"])
def test_the_model_chooses_what_a_live_slurm_chose(file):
    for line in (ASSETS / file).read_text(encoding="utf-8").splitlines():
        was = json.loads(line)
        nodes = nodes_of(was["nodes"], has_links=was["links"])
        got = choose(Ask(*was["ask"]), nodes, NodeOrder(was["order"]))
        expected = was["got"] and {
            name: Taken(gpus, tuple(cores)) for name, (gpus, cores) in was["got"].items()
        }
        assert got == expected, line


@pytest.mark.parametrize(
    ("ask", "gpus"),
    [
        pytest.param(Ask(2), (0, 1), id="--gres=gpu:2 takes a single link, and 0,3 has two"),
        pytest.param(Ask(3), (0, 1, 2), id="--gres=gpu:3"),
        pytest.param(Ask(5), (0, 1, 2, 3, 7), id="--gres=gpu:5"),
        pytest.param(Ask(2, is_total=True), (0, 3), id="--gpus=2 takes the double link"),
        pytest.param(Ask(5, is_total=True), (0, 1, 2, 3, 6), id="--gpus=5"),
    ],
)
def test_an_empty_dgx1(ask, gpus):
    """Measured on 24.11.5."""
    got = choose(ask, [StockNode("dgx1", DGX1V, 0xFF, (8, 8))])
    assert got is not None
    assert got["dgx1"].gpus == mask_of(gpus)


@pytest.mark.parametrize("order", NodeOrder)
def test_a_choice_is_free_and_of_the_size_asked_for(order):
    draw = random.Random(7)
    for _ in range(400):
        states = {
            name: [
                draw.randrange(1 << (4 if kind == "minsky" else 8)),
                [draw.randint(1, 4)] * (4 if name == "amd1" else 2),
                draw.randint(1, 2),
            ]
            for name, kind in KINDS.items()
        }
        nodes = {n.name: n for n in nodes_of(states, has_links=draw.random() < 0.5)}
        ask = Ask(draw.randint(1, 5), draw.randint(0, 3), draw.random() < 0.5)
        got = choose(ask, list(nodes.values()), order)
        if got is None:
            continue
        for name, taken in got.items():
            assert not taken.gpus & ~nodes[name].free
            assert all(t <= n for t, n in zip(taken.cores, nodes[name].cores, strict=True))
        counts = [taken.gpus.bit_count() for taken in got.values()]
        # A node of --gpus has one at least, whatever the sum.
        assert (
            sum(counts) == max(ask.gpus, len(counts)) if ask.is_total else set(counts) == {ask.gpus}
        )
        assert not ask.nodes or len(counts) == ask.nodes


def test_what_a_job_holds_is_remembered_until_it_ends():
    """The second job is led to the other socket by the first one's core, and back at its end."""
    topology = catalog.load("dgx1v")
    policy = Stock()

    def place(job_id, free, *running):
        jobs = tuple(RunningJob(number, {"n1": 1}) for number in running)
        nodes = {"n1": NodeState("n1", topology, free)}
        return policy.place(Request((1,), job_id), Cluster(nodes, jobs)).gpus["n1"]

    assert place(1, 0xFF) == (0,)
    assert place(2, 0xFE, 1) == (4,)
    assert place(3, 0xEF, 2) == (0,)


def test_node10_comes_after_node2():
    topology = catalog.load("dgx1v")
    nodes = {name: NodeState(name, topology, 0xFF) for name in ("node10", "node2")}
    answer = Stock().place(Request((1,), 1), Cluster(nodes))
    assert list(answer.gpus) == ["node2"]


@pytest.mark.parametrize("kind", STOCK_OF_ONE_NODE)
def test_the_default_policy_leaves_jobs_more_bandwidth_than_stock_slurm(kind):
    """And fewer rings over PCIe, on the backlog of docs/policies/mapa.md."""
    ours, stock = (run(policy, "dgx1v", range(4), 100) for policy in ("mapa", kind))
    assert fmean(r.share for r in ours) > fmean(r.share for r in stock)
    assert fmean(r.pcie_hops for r in ours) < fmean(r.pcie_hops for r in stock)
