"""Where jobs could start, who goes first, and who may pass whom."""

import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from itertools import combinations
from operator import and_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.queue import backfill
from slurm_plugin.queue.candidates import Need, groups
from slurm_plugin.queue.capacity import (
    Hold,
    Node,
    gpus_by_slot,
    gpus_of_any_type,
    nodes_of,
    with_hold,
    without_holds,
)
from slurm_plugin.queue.demand import Unplaceable, demand_of
from slurm_plugin.queue.slurms_choice import first_hold
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode

V100 = tuple(f"v100.s{i}" for i in range(8))


def node(name, free=0xFF, slots=V100, **other):
    return Node(name, slots, free, other.pop("cpus", 40), other.pop("memory_mb", 1000), **other)


def room(*nodes):
    return {n.name: n for n in nodes}


def test_that_a_job_cannot_be_placed_is_told_through_a_block_too():
    """Who leaves a block of contextlib's by an exception has a traceback set on it."""

    @contextmanager
    def block() -> Iterator[None]:
        yield

    with pytest.raises(Unplaceable, match="no GPUs"), block():
        demand_of(QueuedJob(1))


def test_free_slots_are_what_slurm_does_not_use():
    used = dict.fromkeys(V100, 0) | {"v100.s1": 1, "v100.s7": 1}
    gpus = dict.fromkeys(V100, 1)
    slurm = SlurmNode("dgx1", ("MIXED",), ("batch",), 1, 40, 1000, gpus, (), used, 10, 400)
    [found] = nodes_of([slurm], [QueuedJob(1, nodes=("dgx1",))], gpus_by_slot).values()
    assert (found.free, found.cpus, found.memory_mb, found.jobs) == (0b01111101, 30, 600, 1)


def eight(used=(), **more):
    """A node of Slurm's with eight GPUs of one model."""
    values = {"gpus": {"v100": 8}, "used": used, "used_by_type": {"v100": len(used)}, **more}
    return SlurmNode("dgx1", ("MIXED",), ("batch",), 1, 16, 4000, **values)


def test_a_node_whose_gpus_are_of_one_model_is_looked_at():
    [found] = nodes_of([eight(range(2, 8)), eight(gpus={"a": 1, "b": 1})], []).values()
    assert (found.free, found.model, found.gpu_types) == (0b11, "v100", ("v100",) * 8)


def test_a_node_whose_gpus_in_use_are_not_known_counts_as_full():
    assert nodes_of([eight((0,), used_by_type={"v100": 3})], [])["dgx1"].free == 0


@pytest.mark.parametrize(
    ("node", "free"),
    [
        pytest.param(eight((0,), used_by_type={"v100": 3}), 5, id="three in use, one is named"),
        pytest.param(eight((0, 1), gpus={"a": 2, "b": 6}), 6, id="two types"),
        pytest.param(eight(range(8), used_by_type={}), 0, id="no type is named"),
    ],
)
def test_who_asks_how_many_are_free_gets_what_slurm_counts(node, free):
    [found] = nodes_of([node], [], gpus_of_any_type).values()
    assert found.free.bit_count() == free


def test_of_a_node_that_is_given_out_more_than_once_nothing_is_free():
    over = nodes_of([eight(alloc_cpus=17, alloc_memory_mb=5000)], [])["dgx1"]
    assert (over.cpus, over.memory_mb) == (0, 0)


@pytest.mark.parametrize("state", ["DRAIN", "DOWN*", "NOT_RESPONDING", "RESERVED"])
def test_a_node_slurm_starts_nothing_on_is_closed(state):
    gpus = dict.fromkeys(V100, 1)
    slurm = SlurmNode("dgx1", ("IDLE", state), ("batch",), 1, 40, 1000, gpus)
    assert not groups(Need(1), nodes_of([slurm], [], gpus_by_slot))


@pytest.mark.parametrize(
    ("sentence", "need", "expected"),
    [
        ("lowest weight first, then name", Need(2), ["c", "a", "b"]),
        ("only the named node", Need(2, req_nodes=frozenset("b")), ["b"]),
        ("not an excluded node", Need(2, exc_nodes=frozenset("c")), ["a", "b"]),
        ("only nodes with enough CPUs", Need(2, cpus=41), ["c"]),
        ("only nodes with enough memory", Need(2, memory_mb=1001), ["b"]),
        ("alone means no other job", Need(2, exclusive=True), ["c", "b"]),
        ("only the job's partition", Need(2, partitions=frozenset({"big"})), ["b"]),
        ("only nodes with the feature", Need(2, features="ib"), ["a"]),
        ("only nodes with enough free GPUs", Need(8), ["c", "b"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_candidates_of_one_node(sentence, need, expected):
    found = groups(
        need,
        room(
            node("a", 0x0F, weight=2, jobs=1, features=frozenset({"ib"})),
            node("b", weight=3, memory_mb=2000, partitions=frozenset({"big"})),
            node("c", cpus=80),
        ),
    )
    assert [group.own for group in found] == expected


def test_several_nodes_get_slots_that_are_free_on_all_of_them():
    [found] = groups(Need(2, 2), room(node("a", 0b0011), node("b", 0b1100), node("c", 0b0111)))
    assert (found.names, found.free) == (("a", "c"), 0b0011)


def test_a_hold_takes_what_it_names_and_nothing_else():
    before = room(node("a"), node("b"))
    [a, b] = with_hold(before, Hold({"a": 0b11}, 4, 10)).values()
    assert (a.free, a.cpus, a.memory_mb, a.jobs, b) == (0xFC, 36, 990, 1, before["b"])
    gpus_alone = with_hold(before, Hold({"a": 0b11}))["a"]
    assert (gpus_alone.cpus, gpus_alone.memory_mb) == (40, 1000)


def test_a_hold_taken_and_given_back_leaves_the_room_as_it_was():
    before = room(node("a"), node("b", 0x0F))
    hold = Need(2, cpus=4, memory_mb=10).hold(["a", "b"], 0b11, 5.0)
    assert without_holds(with_hold(before, hold), [hold]) == before


def simulated_start(need, free, holds, horizon):
    """Brute force: look at every second whether the GPUs are there."""
    for t in range(horizon):
        masks = dict(free)
        for hold in holds:
            if hold.end <= t:
                for name, mask in hold.gpus.items():
                    masks[name] |= mask
        if any(mask.bit_count() >= need.gpus for mask in masks.values()):
            return t
    return math.inf


@pytest.mark.parametrize("seed", range(300))
def test_backfill_never_delays_the_first_job_and_refuses_nothing_that_would_not(seed):
    rng = random.Random(seed)
    slots = tuple(f"s{i}" for i in range(4))
    now_room = room(*(node(f"n{i}", 15, slots) for i in range(rng.randint(1, 3))))
    holds = []
    for _ in range(rng.randint(0, 6)):
        hold = first_hold(Need(rng.randint(1, 3)), now_room, rng.randint(1, 20))
        if hold:
            holds.append(hold)
            now_room = with_hold(now_room, hold)
    first, lower = Need(rng.randint(2, 4)), Need(rng.randint(1, 3))
    new = first_hold(lower, now_room, rng.randint(1, 30))
    free = {name: n.free for name, n in now_room.items()}
    before = simulated_start(first, free, holds, 40)
    assert backfill.earliest_start(first, now_room, holds, 0) == before
    if new is None:
        return
    after = {name: n.free for name, n in with_hold(now_room, new).items()}
    delayed = simulated_start(first, after, [*holds, new], 40) > before
    assert backfill.delays(first, now_room, holds, [new], 0) is delayed


def test_a_job_of_several_nodes_starts_when_each_has_enough_gpus_free_whichever_they_are():
    """Slurm chooses the GPUs where no set of them is free on all nodes."""
    slots = tuple(f"s{i}" for i in range(4))
    nodes = room(node("a", 0b0011, slots), node("b", 0b1000, slots))
    holds = [Hold({"b": 0b0100}, end=7)]
    assert backfill.earliest_start(Need(2, nodes=2), nodes, holds, 0) == 7


def test_a_job_without_a_time_limit_holds_for_ever():
    full = room(node("a", 0))
    assert backfill.earliest_start(Need(1), full, [Hold({"a": 0xFF})], 0) == math.inf


def test_jobs_stand_in_slurms_order():
    jobs = [
        QueuedJob(1, partition="low", priority=900),
        QueuedJob(2, partition="high", priority=1, submit=9),
        QueuedJob(3, partition="low,high", priority=1, submit=5),
        QueuedJob(4, partition="low", priority=901),
    ]
    found = backfill.in_order(jobs, {"low": 1, "high": 2})
    assert [job.job_id for job in found] == [3, 2, 4, 1]


def test_tasks_of_their_own_stand_before_the_rest_of_their_array():
    """Its number is the array's, lower than theirs."""
    tasks = [QueuedJob(n, array_id=5, partition="p") for n in (5, 8, 7)]
    jobs = [QueuedJob(6, partition="p"), *tasks, QueuedJob(4, partition="p")]
    assert [job.job_id for job in backfill.in_order(jobs, {})] == [4, 7, 8, 5, 6]


def test_a_job_of_half_the_gpus_of_large_nodes_is_looked_at_in_no_time():
    """There are more ways to choose 36 GPUs of 72 than can ever be tried."""
    chance = random.Random(1)
    slots = tuple(f"s{i}" for i in range(72))
    half, full = (1 << 36) - 1, (1 << 72) - 1
    busy = [node(f"n{i}", chance.getrandbits(72) | half, slots) for i in range(64)]
    began = time.process_time()
    [found] = groups(Need(36, nodes=2), room(*busy, node("whole", full, slots)))
    assert time.process_time() - began < 2
    assert found.free.bit_count() >= 36


@given(st.lists(st.integers(0, 255), min_size=1, max_size=6), st.integers(1, 5), st.integers(2, 3))
def test_of_nodes_with_a_few_gpus_the_group_is_the_best_there_is(free, gpus, nodes):
    there = room(*(node(f"n{i}", mask) for i, mask in enumerate(free)))
    common = [
        (-reduce(and_, (there[name].free for name in chosen)).bit_count(), chosen)
        for chosen in combinations(sorted(there), nodes)
    ]
    found = groups(Need(gpus, nodes=nodes), there)
    best = min((one for one in common if -one[0] >= gpus), default=None)
    assert [(-group.free.bit_count(), group.names) for group in found] == ([best] if best else [])


def test_of_equal_groups_the_one_of_the_lowest_weight_is_taken():
    """Within a group, too, the lighter nodes come first."""
    there = room(*(node(name, 0b0011, weight=2) for name in "abe"), node("d", 0b1111, weight=9))
    there |= room(node("c", 0b1100), node("z", 0b0011))
    [found] = groups(Need(2, 2), there)
    assert (found.names, found.weight) == (("z", "a"), 2)
