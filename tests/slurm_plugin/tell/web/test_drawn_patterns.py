"""What is drawn of a job, and counted, is what its ranks do: the edges by which it was placed."""

from types import SimpleNamespace
from typing import Any

import pytest
from machines_in_tests import decider_of, node

from gres_topology import catalog, links
from gres_topology.pictures import Marks
from policies import Cluster, NodeState, Placement, Request
from policies.patterns.pattern import PATTERNS, pairs_of, pattern_of
from policies.registry import registry
from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.config.settings import parse
from slurm_plugin.tell.explain import drawing
from slurm_plugin.tell.explain.machines import shown
from slurm_plugin.tell.web import details
from slurm_plugin.tell.web.details import Details

#: Small enough for every pattern to be searched on.
MACHINES = [name for name in catalog.names() if 4 <= catalog.load(name).gpus <= 8]
GPUS = 4


@pytest.fixture
def drawn(monkeypatch) -> list[Marks]:
    """The marks of all pictures that are made."""
    found: list[Marks] = []

    def note(topology, marks, **_):
        found.append(marks)
        return SimpleNamespace(svg=lambda **_: "<svg/>")

    monkeypatch.setattr(details, "machine_picture", note)
    monkeypatch.setattr(drawing, "machine_picture", note)
    monkeypatch.setattr(drawing, "sheet", lambda *_: None)
    monkeypatch.setattr(drawing, "Pane", lambda *_: None)
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("machine", MACHINES)
def test_page_explain_and_log_go_by_the_edges_of_the_placement(tmp_path, drawn, machine, pattern):
    rules = "partitions: {default: {mode: enforce, policy: mapa}}"
    text = f"nodes: [{{nodes: n1, topology: {machine}}}]\n{rules}"
    decider = decider_of(parse(text, tmp_path / "gputopo.yaml"))
    topology = catalog.load(machine)
    free = (1 << topology.gpus) - 1
    asked = PlacementQuestion(
        7, 0, 1000, 0, 0, (node("n1", free, 0b1111, topology.gpus),), "", "gpu",
        f"pattern={pattern}",
    )  # fmt: skip
    line = decider.decide(asked).record()
    ranks = line.chosen.gpus["n1"]
    edges = {frozenset((ranks[a], ranks[b])) for a, b in pattern_of(pattern).edges(len(ranks))}
    placed = registry.get("mapa").place(
        Request((GPUS,), pattern=pattern), Cluster({"n1": NodeState("n1", topology, free)})
    )
    assert isinstance(placed, Placement)
    assert {frozenset(pair) for pair in pairs_of(pattern, placed.gpus["n1"])} == edges
    slow = sum(not links.is_direct(topology.kinds[a][b]) for a, b in map(tuple, edges))
    assert line.chosen.pcie_hops == slow
    story = {"job": 7, "pattern": pattern, "decision": "use", "applied": True, "source": "a test",
             "chosen": {"gpus": {"n1": list(ranks)}}}  # fmt: skip
    sources: Any = SimpleNamespace(machines=decider.machines)
    reading: Any = SimpleNamespace(snapshot=SimpleNamespace(nodes=(), jobs=()))
    page = Details(sources, reading)
    page._of_job(7, None, story, None)
    drawing.drawn(story, shown(decider.machines, story))
    assert len(drawn) >= 2
    for marks in drawn:
        assert {frozenset(pair) for pair in marks.pairs} == edges
