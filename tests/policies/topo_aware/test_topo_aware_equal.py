"""The fast path (groups, tables, updates) equals the straightforward one, state for state."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from machines import drawn, machine, of_boards
from topo_aware_plain import place

from gres_topology import Domain, Network
from policies import Cluster, NodeState, Placement, Request, RunningJob, Site, Wait
from policies.contract.bits import mask_of
from policies.contract.interference import (
    Interference,
    Kind,
    kind_of_request,
    kind_of_running,
    weight_of,
)
from policies.contract.nodes import NodeTable
from policies.registry import registry
from policies.topo_aware import TopoAwareSettings, policy
from policies.topo_aware.drb import Bipartition
from policies.topo_aware.index import Index
from policies.topo_aware.machine import MachineGraph
from policies.topo_aware.utility import Beside, JobNeeds, SetScorer

MEASURED = Interference(
    {
        (Kind("bert", 4, 2), Kind("bert", 4, 2)): 1.18,
        (Kind("bert", 4, 2), Kind("vgg", 64, 1)): 1.02,
        (Kind("vgg", 64, 1), Kind("bert", 4, 2)): 1.9,
    }
)
KINDS = [(None, None), ("bert", 4), ("vgg", 64), ("other", 1), ("other", 128), (None, 8)]


def built(known=MEASURED, **settings):
    """A policy that has seen nothing yet."""
    policy._in_use.clear()
    return registry.build(
        "topo-aware", {"topo_aware": TopoAwareSettings(**settings)}, Site((), known)
    )


class Walk:
    """A cluster on which jobs come and go at random; its snapshots, one after the other."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        kinds = [machine("minsky"), machine("ac922"), machine("dgx1v"), drawn(5, seed)]
        self.nodes = {}
        for number in range(self.draw.randint(2, 9)):
            topology = self.draw.choice(kinds)
            full = (1 << topology.gpus) - 1
            weight = self.draw.choice((1, 1, 1, 2))
            self.nodes[f"n{number}"] = NodeState(f"n{number}", topology, full, weight=weight)
        self.jobs: dict[int, RunningJob] = {}
        self.next = 1

    def step(self) -> None:
        """One job ends or starts, on GPUs drawn from what is free."""
        if self.jobs and self.draw.random() < 0.45:
            ended = self.jobs.pop(self.draw.choice(list(self.jobs)))
            self._set(ended.gpus, taken=False)
            return
        masks = {}
        for name in self.draw.sample(list(self.nodes), self.draw.choice((1, 1, 2))):
            mask = self.nodes[name].free & self.draw.getrandbits(8)
            if mask:
                masks[name] = mask
        if masks:
            profile, batch = self.draw.choice(KINDS)
            memory = self.draw.choice((0.0, 20.0, 60.0))
            self.jobs[self.next] = RunningJob(self.next, masks, profile, batch, memory)
            self.next += 1
            self._set(masks, taken=True)

    def _set(self, masks: dict[str, int], *, taken: bool) -> None:
        for name, mask in masks.items():
            old = self.nodes[name]
            free = old.free & ~mask if taken else old.free | mask
            self.nodes[name] = NodeState(name, old.topology, free, weight=old.weight)

    def snapshot(self) -> Cluster:
        """As a caller would make one: at times fewer nodes, at times a job's end not known yet."""
        names = list(self.nodes)
        if self.draw.random() < 0.2:
            names = self.draw.sample(names, max(1, len(names) - 1))
        jobs = tuple(self.jobs.values())
        if self.draw.random() < 0.1:
            jobs += (RunningJob(9999, {names[0]: 3}, "bert", 4),)
        return Cluster({name: self.nodes[name] for name in names}, jobs)

    def request(self, cluster: Cluster) -> Request | None:
        """A job that fits, None where nothing is free."""
        room = sorted((n.free.bit_count() for n in cluster.nodes.values()), reverse=True)
        counts = tuple(
            self.draw.randint(1, free) for free in room[: self.draw.choice((1, 1, 1, 2))] if free
        )
        if not counts:
            return None
        profile, batch = self.draw.choice(KINDS)
        options = {"profile": profile} if profile else {}
        options |= {"batch": str(batch)} if batch else {}
        options |= self.draw.choice(({}, {}, {"spread": "yes"}, {"memory-bandwidth": "50"}))
        ordered = tuple(sorted(counts, reverse=True))
        return Request(ordered, sensitive=self.draw.random() < 0.8, options=options)


def states(seed: int, count: int) -> Iterator[tuple[Request, Cluster]]:
    walk = Walk(seed)
    while count:
        walk.step()
        cluster = walk.snapshot()
        request = walk.request(cluster)
        if request is not None:
            count -= 1
            yield request, cluster


@pytest.mark.parametrize("known", [Interference(), MEASURED], ids=["default", "measured"])
@pytest.mark.parametrize("seed", range(10))
def test_the_fast_path_equals_the_straightforward_one(seed, known):
    """Twenty walks of 150 states; one policy object sees a walk, so its updates are held too."""
    fast = built(known, socket_memory_gbps=40.0)
    for request, cluster in states(seed, 150):
        answer = fast.place(request, cluster)
        expected = place(request, cluster, known, 40.0)
        if expected is None:
            assert isinstance(answer, Wait)
            expected, answer = place(request, cluster, known), answer.instead
        assert isinstance(answer, Placement)
        assert answer.gpus == {name: gpus for name, (gpus, _) in expected.items()}
        worst = min((terms for _, terms in expected.values()), key=lambda terms: terms[0])
        found = (answer.utility, *answer.terms.values())
        assert found == pytest.approx(worst, abs=1e-8)


def below_switches(draw: random.Random, names: Sequence[str]) -> Network:
    """Leaf switches over all nodes, and one above every two of them."""
    mixed = draw.sample(names, len(names))
    levels = [[mixed[at : at + size] for at in range(0, len(mixed), size)] for size in (2, 4)]
    return Network(
        tuple(
            Domain(f"s{level}{at}", level, frozenset(nodes))
            for level, groups in enumerate(levels)
            for at, nodes in enumerate(groups)
        ),
        "test",
    )


@pytest.mark.parametrize("seed", [seed for seed in range(12) if len(Walk(seed).nodes) > 4])
def test_several_nodes_are_the_best_of_the_lowest_switch_with_room(seed):
    """Each switch's nodes asked about alone, the straightforward way."""
    draw = random.Random(seed)
    fast, near = built(), 0
    for request, cluster in states(seed, 150):
        network = below_switches(draw, sorted(cluster.nodes))
        answer = fast.place(request, replace(cluster, network=network))
        if len(request.gpus_per_node) < 2 or "memory-bandwidth" in request.options:
            continue
        ranked = []
        for domain in network.domains:
            inside = {name: cluster.nodes[name] for name in cluster.nodes if name in domain.nodes}
            found = place(request, replace(cluster, nodes=inside), Interference())
            if found is not None and len(found) == len(request.gpus_per_node):
                worst = min(terms[0] for _, terms in found.values())
                free = sum(node.free.bit_count() for node in inside.values())
                weight = sum(inside[name].weight for name in found)
                ranked.append((domain.level, -round(worst, 9), free, domain.name, weight, found))
        anywhere = place(request, cluster, Interference())
        most = sum(cluster.nodes[name].weight for name in anywhere)
        allowed = [one[-1] for one in sorted(ranked, key=lambda one: one[:4]) if one[-2] <= most]
        expected = allowed[0] if allowed else anywhere
        assert answer.gpus == {name: gpus for name, (gpus, _) in expected.items()}
        near += expected != anywhere
    assert near > 5


def test_a_question_is_answered_alike_whatever_was_asked_before():
    """The same question to a policy that saw everything and to one that saw nothing."""
    old = built()
    for request, cluster in states(77, 200):
        assert old.place(request, cluster) == built().place(request, cluster)


def test_hundreds_of_jobs_may_come_and_go_at_once():
    """As when the engine's cache of running jobs is read again; old and new in any order."""
    draw = random.Random(5)
    nodes = {
        f"n{number:03}": NodeState(f"n{number:03}", machine("dgx1v"), 0x0F) for number in range(200)
    }
    jobs = [
        RunningJob(number, {f"n{number:03}": 0x10 << number % 4}, *KINDS[number % len(KINDS)])
        for number in range(200)
    ]
    old = built()
    for _ in range(30):
        now = tuple(draw.sample(jobs, draw.choice((0, 3, 100, 200))))
        cluster, asked = Cluster(nodes, now), Request((draw.randint(1, 4),))
        assert old.place(asked, cluster) == built().place(asked, cluster)


def test_forgetting_solutions_changes_no_answer(monkeypatch):
    monkeypatch.setattr("policies.topo_aware.solutions.MOST_SOLUTIONS", 3)
    monkeypatch.setattr("policies.topo_aware.machine.MOST_SETS", 5)
    forgetful = built()
    for request, cluster in states(78, 100):
        assert forgetful.place(request, cluster) == built().place(request, cluster)


def test_a_question_about_one_node_of_many_disturbs_nothing():
    """What the engine asks beside: the same job on the nodes that Slurm chose."""
    nodes = {f"n{n:02}": NodeState(f"n{n:02}", machine("minsky"), 0b1110) for n in range(30)}
    jobs = tuple(RunningJob(n, {f"n{n:02}": 1}, None, 4 if n % 2 else 128) for n in range(30))
    whole, one = Cluster(nodes, jobs), Cluster({"n07": nodes["n07"]}, jobs)
    asked = Request((1,), options={"batch": "1"})
    old = built(Interference())
    before = old.place(asked, whole)
    alone = old.place(asked, one)
    assert alone == built(Interference()).place(asked, one)
    assert alone.gpus == {"n07": (2,)}
    assert old.place(asked, whole) == before


BOARDS = of_boards()
GPUS = BOARDS.gpus


def with_boards_in_another_order(mask: int, order: Sequence[int]) -> int:
    return sum((mask >> 8 * at & 0xFF) << 8 * to for at, to in enumerate(order))


@pytest.mark.parametrize("seed", range(4))
def test_large_nodes_whose_boards_are_in_another_order_are_worth_the_same(seed):
    """And what a job gets is worth what the answer says."""
    draw, whole = random.Random(seed), MachineGraph(BOARDS)
    for number in range(40):
        free = draw.getrandbits(GPUS) & draw.getrandbits(GPUS)
        held = [draw.getrandbits(GPUS) & ~free & draw.getrandbits(GPUS) for _ in range(3)]
        kinds = [draw.choice(KINDS[3:]) for _ in held]
        order = draw.sample(range(4), 4)
        if free.bit_count() < 8:
            continue
        count = draw.randint(1, 7)
        told = []
        for places in (range(4), order):
            masks = [with_boards_in_another_order(mask, places) for mask in held]
            jobs = [
                RunningJob(at, {"n": mask}, profile, batch)
                for at, (mask, (profile, batch)) in enumerate(zip(masks, kinds, strict=True))
                if mask
            ]
            here = with_boards_in_another_order(free, places)
            cluster = Cluster({"n": NodeState("n", BOARDS, here)}, tuple(jobs))
            asked = Request((count,), options={"batch": "4"})
            answer = built().place(asked, cluster)
            chosen = mask_of(answer.gpus["n"])
            assert chosen & ~here == 0
            assert chosen.bit_count() == count
            beside = [
                Beside(job.gpus["n"], MEASURED.told_apart(kind_of_running(job))) for job in jobs
            ]
            needs = JobNeeds(count, MEASURED.told_apart(kind_of_request(asked)), weight_of(4))
            scale = SetScorer(whole, here, tuple(beside), needs, TopoAwareSettings(), MEASURED)
            assert answer.utility == pytest.approx(scale.terms(chosen).utility), (seed, number)
            assert answer.utility >= Bipartition(scale).solve()[1].utility - 1e-9
            told.append(answer.utility)
        assert told[0] == told[1]


def test_large_nodes_whose_boards_are_in_another_order_are_one_state():
    nodes, jobs = {}, []
    for at, order in enumerate(permutations(range(4))):
        name = f"n{at:02}"
        free = with_boards_in_another_order(0x0F010100, order)
        nodes[name] = NodeState(name, BOARDS, free)
        for job, held in enumerate((0x00700000, 0xF0)):
            masks = {name: with_boards_in_another_order(held, order)}
            jobs.append(RunningJob(100 * at + job, masks, "bert", 4 + job))
    index = Index(NodeTable(nodes.values()), jobs, MEASURED, MachineGraph)
    assert len(index.states) == 24
    assert len(index.states.states()) == 1
    table = NodeTable(nodes.values())
    for at, node in enumerate(nodes.values()):
        seats = index.seats(table, at)
        there = seats.in_state(node.free)
        assert there == index.states[at].free
        assert seats.on_node(there) == node.free
        assert seats.on_node(there & -there).bit_count() == 1
