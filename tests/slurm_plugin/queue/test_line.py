"""Who must not be delayed: of each set of nodes the first job that waits for it."""

import random
from dataclasses import replace

import pytest

from slurm_plugin.queue.backfill import (
    ENDLESS_S,
    MOST_IN_LINE,
    MOST_NEEDS_OF_ONE,
    MOST_OF_ONE,
    WaitingLine,
    in_line,
)
from slurm_plugin.queue.candidates import Need, Spread
from slurm_plugin.queue.capacity import Hold, Node, with_hold, without_holds
from slurm_plugin.queue.slurms_choice import can_start

TYPES = tuple(f"v100.s{i}" for i in range(8))


def node(name: str, partition: str = "batch", **more: object) -> Node:
    return Node(name, TYPES, 0xFF, 40, 1000, partitions=frozenset({partition}), **more)


def taken(nodes: dict[str, Node], *holds: Hold) -> dict[str, Node]:
    for hold in holds:
        nodes = with_hold(nodes, hold)
    return nodes


def need(gpus: int, nodes: int = 1, partition: str = "batch") -> Need:
    return Need(gpus, nodes, partitions=frozenset({partition}))


LONG, SHORT = 1000.0, 90.0
HELD = Hold({"a": 0x0F}, 1, 0, 100.0)
ROOM = taken({"a": node("a")}, HELD)


def test_who_comes_first_is_delayed_by_no_one_who_ends_too_late():
    line = WaitingLine().with_job(need(8), ROOM, [HELD], 0.0)
    assert [one.start for one in line.waits] == [100.0]
    assert not line.is_delayed_by(Hold({"a": 0xF0}, 1, 0, 100.0))
    assert line.is_delayed_by(Hold({"a": 0x80}, 1, 0, 100.1))
    assert not line.is_delayed_by(Hold({"b": 0x80}, 1, 0, LONG)), "a node that it may not use"


def test_what_is_taken_behind_its_back_counts():
    """Each of two alone leaves room for it, both do not."""
    line = WaitingLine().with_job(need(6), ROOM, [HELD], 0.0)
    one, other = (Hold({"a": mask}, 1, 0, LONG) for mask in (0x30, 0xC0))
    assert not line.is_delayed_by(one)
    assert line.with_hold(one).is_delayed_by(other)


def test_one_that_never_can_start_holds_up_nobody():
    """Its node is in repair, say: the next one that waits is the first."""
    nodes = {"a": ROOM["a"], "down": node("down", is_open=False)}
    pinned = Need(1, req_nodes=frozenset({"down"}), partitions=frozenset({"batch"}))
    line = WaitingLine().with_job(pinned, nodes, [HELD], 0.0).with_job(need(8), nodes, [HELD], 0.0)
    assert [one.need.gpus for one in line.waits] == [8]


def test_the_first_of_other_nodes_has_a_place_too():
    nodes = taken({"a": node("a"), "z": node("z", "other")}, HELD)
    both = [HELD, hold := Hold({"z": 0x01}, 1, 0, 500.0)]
    nodes = taken(nodes, hold)
    line = WaitingLine()
    for asked in (need(8), need(7), need(8, partition="other")):
        line = line.with_job(asked, nodes, both, 0.0)
    assert [(one.need.gpus, one.start) for one in line.waits] == [(8, 100.0), (8, 500.0)]
    assert line.is_delayed_by(Hold({"z": 0x80}, 1, 0, LONG))


def test_a_job_of_one_node_takes_no_wider_job_the_place_away():
    """Each has its own start, as if the other were not there, and nobody may delay either."""
    holds = [Hold({"a": 0xFF}, 1, 0, 900.0), Hold({"b": 0x0F}, 1, 0, 100.0)]
    nodes = taken({name: node(name) for name in "abc"}, *holds)
    pinned, also = (replace(need(8), req_nodes=frozenset({name})) for name in "ab")
    line = WaitingLine()
    for asked in (pinned, need(8, nodes=2), also, need(7)):
        line = line.with_job(asked, nodes, holds, 0.0)
    found = [(one.need.nodes, sorted(one.names), one.start) for one in line.waits]
    assert found == [(1, ["a"], 900.0), (2, ["a", "b", "c"], 100.0)]
    assert line.is_delayed_by(Hold({"a": 0x80}, 1, 0, LONG)), "the pinned one"
    assert line.is_delayed_by(Hold({"c": 0x80}, 1, 0, 100.1)), "the wide one"
    assert not line.is_delayed_by(Hold({"c": 0x80}, 1, 0, 100.0))


MANY = [f"n{i}" for i in range(MOST_IN_LINE + 1)]
FULL = [Hold({name: 0xFF}, 1, 0, 100.0) for name in MANY]
MACHINE = taken({name: node(name) for name in MANY}, *FULL)


def on(name: str, gpus: int = 8) -> Need:
    return replace(need(gpus), req_nodes=frozenset({name}))


def with_jobs(line: WaitingLine, *asked: tuple[Need, int]) -> WaitingLine:
    for what, uid in asked:
        line = line.with_job(what, MACHINE, FULL, 0.0, uid=uid)
    return line


def test_one_users_jobs_take_no_place_but_their_share():
    line = with_jobs(WaitingLine(), *((on(name), 1) for name in MANY))
    assert [one.uid for one in line.waits] == [1] * MOST_OF_ONE
    left_out = on(MANY[MOST_OF_ONE])
    line = with_jobs(line, (left_out, 2), (need(8, nodes=2), 3))
    assert [(one.uid, one.need.nodes) for one in line.waits[MOST_OF_ONE:]] == [(2, 1), (3, 2)]


def test_one_users_needs_that_nothing_can_serve_take_no_place_but_hers():
    never = ((replace(on(MANY[0]), memory_mb=2000 + i), 1) for i in range(2 * MOST_NEEDS_OF_ONE))
    line = with_jobs(WaitingLine(), *never, (on(MANY[0]), 1), (on(MANY[1]), 2))
    assert [(one.uid, *one.names) for one in line.waits] == [(2, MANY[1])]


def test_all_users_together_have_so_many_places():
    line = with_jobs(WaitingLine(), *((on(name), i) for i, name in enumerate(MANY)))
    assert [one.uid for one in line.waits] == [*range(MOST_IN_LINE)]


def test_what_was_looked_at_for_others_costs_nobody_her_share():
    """Needs for the same nodes are alike, whatever they ask of each."""
    like = [(replace(on(MANY[0]), memory_mb=i), 1) for i in range(2 * MOST_NEEDS_OF_ONE)]
    line = with_jobs(WaitingLine(), *like, (on(MANY[1]), 1))
    assert [[*one.names] for one in line.waits] == [[MANY[0]], [MANY[1]]]


def test_a_job_without_a_limit_ends_after_a_year_as_for_slurm():
    endless = Hold({"a": 0x0F})
    line = WaitingLine().with_job(need(8), ROOM, [endless], 0.0)
    assert [one.start for one in line.waits] == [ENDLESS_S]
    assert not line.is_delayed_by(Hold({"a": 0x80}, 1, 0, LONG))
    assert line.is_delayed_by(Hold({"a": 0x80}))


#: A CPU for each GPU, and three for each pair of GPUs.
EACH = tuple((gpus, gpus, 0) for gpus in range(1, 9))
PAIRS = tuple((2 * pairs, 3 * pairs, 0) for pairs in range(1, 5))


def plain_start(asked: Need, nodes: dict[str, Node], holds: list[Hold], now: float) -> float | None:
    """End after end."""
    for end in (now, *sorted(hold.end for hold in holds)):
        over = [hold for hold in holds if hold.end <= end]
        if can_start(asked, without_holds(nodes, over)):
            return end
    return None


@pytest.mark.parametrize("seed", range(40))
def test_it_is_found_node_by_node_as_end_after_end(seed):
    chance = random.Random(seed)
    nodes = {name: node(name) for name in "abcd"}
    holds = []
    for _ in range(12):
        name = chance.choice("abcd")
        free = [gpu for gpu in range(8) if nodes[name].free >> gpu & 1]
        if free:
            mask = sum(1 << gpu for gpu in chance.sample(free, chance.randint(1, len(free))))
            end = float(chance.choice((10, 20, 20, 30, 40)))
            holds.append(Hold({name: mask}, chance.randint(1, 4), 100, end))
            nodes = with_hold(nodes, holds[-1])
    spreads = [
        replace(need(gpus), spread=Spread(shares, gpus, cpus, least, most))
        for gpus, cpus, least, most in ((9, 9, 1, 0), (6, 1, 1, 2), (12, 20, 3, 0), (4, 4, 2, 0))
        for shares in (EACH, PAIRS)
    ]
    for asked in (need(1), need(4), need(8), need(8, 2), need(3, 4), *spreads):
        found, start = in_line(asked, nodes, holds, 5.0), plain_start(asked, nodes, holds, 5.0)
        assert (found.start if found else None) == start
        if found and start is not None:
            late = Hold({chance.choice("abcd"): 1 << chance.randrange(8)}, 1, 0, start + 1)
            over = [hold for hold in holds if hold.end <= start]
            then = with_hold(without_holds(nodes, over), late)
            assert found.is_delayed_by(late) == (not can_start(asked, then))
