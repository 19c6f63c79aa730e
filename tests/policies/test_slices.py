"""MIG slices: GPUs in use first, whole pairs kept, the same over the nodes."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from machines import machine

from gres_topology.slices import SlicedTopology, declared
from policies import Cluster, NodeState, Placement, Request
from policies.contract.nodes import Candidates, candidates
from policies.slices import PROFILE, Slices, as_taken, by_gpu, choose

#: Bridges over 0-2, 1-3, 4-5, 6-7. GPU 0 and 1 are whole; Slurm's 2 to 7 are 3g of GPU 2 to 4,
#: 8 to 28 are 1g of GPU 5 to 7.
WORDS = ["0-1", "2/3g.20gb*2", "3/3g.20gb*2", "4/3g.20gb*2"]
WORDS += ["5/1g.5gb*7", "6/1g.5gb*7", "7/1g.5gb*7"]
MIXED = declared(machine("a100-pcie-bridged"), WORDS)
ALL = (1 << 29) - 1
#: Eight GPUs in halves: slice 2g and 2g+1 are of GPU g.
HALVES = declared(machine("a100-pcie-bridged"), [f"{gpu}/3g.20gb*2" for gpu in range(8)])


def taken(topology: SlicedTopology, free: int, profile: str, count: int) -> set[int]:
    choice = choose(topology, free, profile, count)
    assert choice is not None
    return {device for device in range(64) if choice.devices >> device & 1}


def busy(*devices: int, of: int = ALL) -> int:
    return of & ~sum(1 << device for device in devices)


CHOICES = [
    ("an empty node: the first GPU whose loss costs least", MIXED, ALL, "1g.5gb", 1, {8}),
    ("a GPU in use goes before one that nobody uses", MIXED, busy(15), "1g.5gb", 1, {16}),
    ("the fullest of those in use", MIXED, busy(8, 15, 16), "1g.5gb", 1, {17}),
    ("all slices on one GPU that has room", MIXED, busy(8, 15, 16), "1g.5gb", 6, {*range(9, 15)}),
    ("what is in use is filled before another GPU is begun", HALVES, busy(1, of=0xFFFF),
     "3g.20gb", 2, {0, 4}),
    ("GPU 5 is in use: its bridge partner 4 costs less than a whole pair", HALVES,
     busy(10, 11, of=0xFFFF), "3g.20gb", 1, {8}),
    ("of GPUs in use the one whose partner is in use, too", HALVES, busy(8, 12, 14, of=0xFFFF),
     "3g.20gb", 1, {13}),
    ("a whole GPU in use breaks its pair, too", MIXED, busy(0), "3g.20gb", 1, {2}),
    ("slices of other profiles are not for this job", MIXED, busy(*range(2, 6)), "3g.20gb", 2,
     {6, 7}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("topology", "free", "profile", "count", "expected"),
    [pytest.param(*row[1:], id=row[0]) for row in CHOICES],
)
def test_slices_are_taken_by_their_gpu(topology, free, profile, count, expected):
    assert taken(topology, free, profile, count) == expected


def test_without_room_there_is_no_choice():
    assert choose(MIXED, busy(2, 3), "3g.20gb", 5) is None
    assert choose(MIXED, ALL, "7g.40gb", 1) is None


@pytest.mark.parametrize("seed", range(60))
def test_no_choice_begins_fewer_gpus(seed):
    """Of all sets of that size, by brute force: none leaves more GPUs untouched."""
    draw = Random(seed)
    words = [f"{gpu}/{draw.choice(('3g.20gb*2', '2g.10gb*3', '1g.10gb*4'))}" for gpu in range(8)]
    topology = declared(machine("a100-pcie-bridged"), words)
    free = draw.getrandbits(topology.gpus) | draw.getrandbits(topology.gpus)
    profile = draw.choice(topology.profiles)
    devices = [d for d, of in enumerate(topology.profiles) if of == profile and free >> d & 1]
    count = draw.randint(1, 4)
    if len(devices) < count:
        assert choose(topology, free, profile, count) is None
        return
    choice = choose(topology, free, profile, count)
    assert choice is not None
    assert choice.devices & ~free == 0
    assert choice.devices.bit_count() == count
    best = max(
        topology.untouched(free & ~sum(1 << device for device in some))
        for some in combinations(devices, count)
    )
    assert topology.untouched(free & ~choice.devices) == best


def cluster(**free: int) -> Cluster:
    return Cluster({name: NodeState(name, HALVES, mask) for name, mask in free.items()})


NODES = [
    ("the node with a GPU in use", {"n1": 0xFFFF, "n2": 0xFFFE}, (1,), {"n2": (1,)}),
    ("no node is begun while another in use has a GPU nobody uses",
     {"n1": 0xFFFF, "n2": 0xFFFC}, (1,), {"n2": (4,)}),
    ("the node whose pair is broken already", {"n1": 0xF0FF, "n2": 0xFFF3}, (1,), {"n2": (6,)}),
    ("of equal ones the node where fewer GPUs are left",
     {"n1": 0xF0FF, "n2": 0xF000}, (1,), {"n2": (12,)}),
    ("several nodes", {"n1": 0xFFFF, "n2": 0xFFFE, "n3": 0xFFFD}, (1, 1),
     {"n2": (1,), "n3": (0,)}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("free", "counts", "expected"), [pytest.param(*row[1:], id=row[0]) for row in NODES]
)
def test_the_node_is_chosen_by_the_same_rule(free, counts, expected):
    request = Request(counts, options={PROFILE: "3g.20gb"})
    answer = Slices().place(request, cluster(**free))
    assert isinstance(answer, Placement)
    assert answer.gpus == expected


def test_what_a_choice_means_is_told_by_gpu():
    states = {"n1": NodeState("n1", HALVES, 0xFFFE)}
    ours = Placement({"n1": (1, 4)}, "slices", "")
    assert by_gpu(states, ours) == {"of_gpus": {"n1": [0, 2]}, "begun": 1, "untouched": 6}
    slurms = as_taken({"n1": 0b10100})
    assert by_gpu(states, slurms) == {"of_gpus": {"n1": [1, 2]}, "begun": 2, "untouched": 5}


@pytest.mark.parametrize("seed", range(4))
def test_a_kept_cluster_gets_the_same_answers_as_one_told_anew(seed):
    draw = Random(seed)
    states = {f"n{i:02}": NodeState(f"n{i:02}", MIXED, draw.getrandbits(29)) for i in range(24)}
    kept = candidates(dict(states))
    answered = 0
    for _ in range(40):
        name = draw.choice(sorted(states))
        states[name] = NodeState(name, MIXED, draw.getrandbits(29))
        kept.table.set_free(kept.table.place[name], states[name].free)
        profile = draw.choice(("1g.5gb", "3g.20gb"))
        request = Request(draw.choice(((1,), (2,), (2, 1))), options={PROFILE: profile})
        among = Candidates(kept.table, (1 << 24) - 1, {})
        ours, anew = (Slices().place(request, Cluster(nodes)) for nodes in (among, states))
        assert isinstance(ours, Placement)
        assert ours.gpus == anew.gpus
        answered += 1
    assert answered == 40
