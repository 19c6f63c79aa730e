"""A cluster that is kept from question to question gets the answers of one told anew each time."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest
from machines import machine

from gres_topology.slurm_files.topology_conf import parse
from policies import Cluster, NodeState, Placement, Request, RunningJob, Wait
from policies.contract.nodes import Candidates, candidates
from policies.contract.ranking import Ranking
from policies.registry import registry

KINDS = ("dgx1v", "minsky", "mi250x")
NODES = 24
NETWORK = parse(
    "SwitchName=a Nodes=n[00-07]\nSwitchName=b Nodes=n[08-15]\nSwitchName=c Nodes=n[16-23]\n"
    "SwitchName=top Switches=a,b,c",
    "topology.conf",
)


class TwiceTold:
    """The same nodes as a table that is kept and as states made anew."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.states = {}
        for at in range(NODES):
            topology, name = machine(self.draw.choice(KINDS)), f"n{at:02}"
            free = self.draw.getrandbits(topology.gpus)
            weight = self.draw.choice((1, 1, 1, 2))
            self.states[name] = NodeState(name, topology, free, 0, weight)
        self.kept = candidates(self.states)
        self.jobs: tuple[RunningJob, ...] = ()

    def change(self) -> None:
        """Some nodes have other GPUs free, some jobs came and went."""
        for name in self.draw.sample(sorted(self.states), self.draw.randint(0, 6)):
            old = self.states[name]
            free = self.draw.getrandbits(old.topology.gpus)
            self.states[name] = NodeState(name, old.topology, free, 0, old.weight)
            self.kept.table.set_free(self.kept.table.place[name], free)
        left = [job for job in self.jobs if self.draw.random() < 0.8]
        name = self.draw.choice(sorted(self.states))
        busy = ~self.states[name].free & (1 << self.states[name].topology.gpus) - 1
        batch = self.draw.choice((1, 16, 128))
        new = RunningJob(self.draw.getrandbits(30), {name: busy, "elsewhere": 1}, "p", batch, 20.0)
        self.jobs = (*left, new)

    def clusters(self) -> list[Cluster]:
        """Some of the nodes, told in both ways."""
        names = self.draw.sample(sorted(self.states), self.draw.randint(NODES // 2, NODES))
        among = sum(1 << self.kept.table.place[name] for name in names)
        kept = Candidates(self.kept.table, among, {})
        anew = {name: self.states[name] for name in names}
        return [Cluster(nodes, self.jobs, NETWORK) for nodes in (kept, anew)]


def room_for(cluster: Cluster, counts: tuple[int, ...]) -> bool:
    room = sorted((state.free.bit_count() for state in cluster.nodes.values()), reverse=True)
    return len(room) >= len(counts) and all(
        has >= count for has, count in zip(room, counts, strict=False)
    )


@pytest.mark.parametrize("policy", registry.names())
@pytest.mark.parametrize("seed", range(4))
def test_every_policy_gives_a_kept_cluster_the_same_answers(policy, seed):
    told = TwiceTold(seed)
    kept_policy, fresh_policy = registry.build(policy), registry.build(policy)
    answered = 0
    for _ in range(12):
        told.change()
        # What is ranked ahead, all of it or some, changes no answer.
        for _ in range(told.draw.choice((0, 1, 3, 200))):
            told.kept.table.catch_up()
        counts = told.draw.choice(((1,), (2,), (3,), (4,), (2, 2), (4, 2), (1, 1, 1)))
        options = told.draw.choice(({}, {"spread": "yes"}, {"memory-bandwidth": "40"}))
        request = Request(counts, options=options, pattern=told.draw.choice(("ring", "tree")))
        kept, anew = told.clusters()
        if not room_for(anew, counts):
            continue
        answers = [kept_policy.place(request, kept), fresh_policy.place(request, anew)]
        assert answers[0] == answers[1]
        placement = answers[0].instead if isinstance(answers[0], Wait) else answers[0]
        assert isinstance(placement, Placement)
        assert placement.gpus.keys() <= set(kept.nodes)
        answered += 1
    assert answered > 5


@pytest.mark.parametrize("policy", registry.names())
def test_what_changed_is_ranked_ahead_of_the_next_question(policy, monkeypatch):
    told = TwiceTold(3)
    asked = registry.build(policy)
    request = Request((2,))
    nodes = Candidates(told.kept.table, (1 << NODES) - 1, {})
    asked.place(request, Cluster(nodes, told.jobs))
    for _ in range(5):
        told.change()
        while told.kept.table.catch_up():
            pass
    learnt: list[int] = []
    learn = Ranking._learn

    def counted(self, states, keys):
        before = len(self._key_of)
        learn(self, states, keys)
        learnt.append(len(self._key_of) - before)

    monkeypatch.setattr(Ranking, "_learn", counted)
    # Neighbours that came and went are looked at with the question alone.
    asked.place(request, Cluster(nodes, ()))
    assert sum(learnt) == 0


@pytest.mark.parametrize("policy", registry.names())
def test_a_table_that_nobody_uses_any_more_is_gone_at_once(policy):
    """The garbage collector, for which all questions wait, need not look for it."""
    told = TwiceTold(3)
    asked = registry.build(policy)
    asked.place(Request((2,)), Cluster(Candidates(told.kept.table, (1 << NODES) - 1, {})))
    table = weakref.ref(told.kept.table)
    gc.disable()
    try:
        del told.kept
        assert table() is None
    finally:
        gc.enable()


def test_some_of_the_nodes_are_a_mapping_like_any_other():
    told = TwiceTold(1)
    some = told.kept.without(["n03", "n07"])
    assert len(some) == NODES - 2
    assert "n03" not in some
    assert list(some) == sorted(told.states.keys() - {"n03", "n07"})
    assert some["n04"] == told.states["n04"]
    assert list(some.only("n04")) == ["n04"]
    assert list(some.only("n06", "n04")) == ["n04", "n06"]
    with pytest.raises(KeyError):
        some["n07"]
