"""A job of partitions of several PriorityTiers has one turn at each, as it has in Slurm."""

from dataclasses import replace

import pytest
from jobs_in_tests import waits
from slots_in_tests import DGX1, NOW, TERMS, answers, gated, planned, running

from slurm_plugin.act.gates.plan import GatePlan, TierTurns, Unit, units_of
from slurm_plugin.act.gates.planning import OVERTAKEN
from slurm_plugin.act.gates.want import Wants
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.protocol import Pass, WaitFor
from slurm_plugin.queue.capacity import Node
from slurm_plugin.slurm.interface import QueuedJob, SlurmPartition

TIERS = {"batch": 1, "mid": 5, "express": 10}
SITE = replace(TERMS, tiers=TIERS)
#: `dgx1` is batch's.
X1 = replace(DGX1, name="x1", partitions=frozenset({"express"}))
BOTH = {"partition": "express,batch", "priority": 1, "uid": 666}
BATCH = {"partition": "batch", "priority": 100_000, "uid": 7}


def on_two(*jobs: QueuedJob, batch: int = 0xFF, express: int = 0, **more: object) -> GatePlan:
    """On a node of each partition, of whose GPUs these are free."""
    more = {"context": SITE, "others": [replace(X1, free=express)], **more}
    return planned(*jobs, free=batch, **more)


def nodes_of(made: GatePlan) -> dict[str, list[str]]:
    return {
        name: [*hold.gpus]
        for one in made.releases
        for name, hold in zip(one.jobs, one.holds, strict=True)
    }


def test_a_full_partition_of_a_high_tier_gives_nobody_the_nodes_of_a_low_one():
    made = on_two(gated(90, 8, **BOTH), gated(2, 8, **BATCH))
    assert nodes_of(made) == {"2": ["dgx1"]}


def test_at_its_first_turn_a_job_goes_before_all_of_the_lower_tier():
    first, last = gated(2, 8, partition="express,batch", priority=9), gated(3, 8, **BATCH)
    express = gated(1, 8, partition="express", priority=8)
    made = on_two(first, last, express, express=0xFF)
    assert nodes_of(made) == {"2": ["x1"], "3": ["dgx1"]}


def test_at_its_last_turn_it_may_have_any_node_of_its_partitions():
    later = gated(2, 8, partition="batch", priority=1)
    assert nodes_of(on_two(later, gated(1, 8, **{**BOTH, "priority": 9}))) == {"1": ["dgx1"]}


def test_in_the_higher_tier_no_later_job_delays_it():
    """It has a place at each turn at which it lacks room."""
    half = running(50, {"x1": range(4)}, partition="express")
    long = gated(3, 4, partition="express", priority=1, submit=5, time_limit_s=9000)
    full = running(51, range(8), end=NOW + 300)
    made = on_two(gated(90, 8, **BOTH), long, half, full, batch=0, express=0xF0)
    assert made.released == []
    places = [(sorted(one.names), one.start) for one in made.line.waits if one.job == 90]
    assert places == [(["x1"], NOW + 600), (["dgx1", "x1"], NOW + 300)]


@pytest.mark.parametrize(
    ("choice", "note"), [(WaitFor(60, "for x"), "for x"), (Pass("no"), "Slurm's own choice: no")]
)
def test_what_its_last_turn_comes_to_is_written_and_nothing_before(choice, note):
    made = on_two(gated(90, 2, **BOTH), express=0xFF, choose=answers(choice))
    assert [(n, hints.note_in(one.admin_comment)) for n, one in made.updates] == [("90", note)]


def test_its_gate_is_renewed_once():
    made = on_two(gated(90, 8, **BOTH), batch=0)
    assert [one.name for one in made.renewals] == ["90"]


def test_the_tasks_of_an_array_that_are_released_at_one_turn_are_not_at_the_next():
    array = gated(7, 4, array_id=7, task="0-2", tasks=3, **BOTH)
    made = on_two(array, express=0xFF)
    assert made.released == ["7_0", "7_1"]
    assert made.again


OWN = waits(40, 8, partition="express,batch", priority=5)


@pytest.mark.parametrize(("priority", "released"), [(9, ["2"]), (4, [])])
def test_for_a_waiting_job_that_is_slurms_own_only_who_comes_after_it_there_waits(
    priority, released
):
    half = running(50, range(4))
    four = gated(2, 4, partition="batch", priority=priority, time_limit_s=9000)
    assert on_two(half, OWN, four, batch=0xF0).released == released


@pytest.mark.parametrize(
    ("name", "partition", "priority", "is_left"),
    [
        ("dgx1", "batch", 9, False),
        ("dgx1", "batch", 4, True),
        ("x1", "express", 9, False),
        ("x1", "express", 4, True),
    ],
)
def test_it_is_overtaken_by_who_comes_after_it_in_the_same_partition(
    name, partition, priority, is_left
):
    """Half of the one node comes free in ten minutes; the other is full for long."""
    [other] = {"dgx1", "x1"} - {name}
    full, half = running(50, {other: range(8)}, end=NOW + 9000), running(51, {name: range(4)})
    more = {"partition": partition, "priority": priority, "start": NOW - 5, "end": NOW + 9000}
    free = {"dgx1": 0, "x1": 0, name: 0x70}
    made = on_two(
        *(gated(90, 8, **{**BOTH, "priority": 5}), full, half, running(60, {name: [7]}, **more)),
        context=replace(SITE, waits_since={90: NOW - 60}),
        batch=free["dgx1"],
        express=free["x1"],
    )
    left = [name for name, one in made.updates if OVERTAKEN in (one.admin_comment or "")]
    assert left == (["90"] if is_left else [])


def turns(*jobs: QueuedJob, **partitions: SlurmPartition) -> list[tuple[list[str], bool]]:
    """The partitions that count at each turn, and whether it is the last."""
    nodes: dict[str, Node] = {
        name: replace(DGX1, name=name, partitions=frozenset({name})) for name in TIERS
    }
    units: list[Unit] = units_of(jobs, Wants().read(jobs, nodes))
    return [
        (sorted(set().union(*(want.need.partitions for _, want in unit.members))), unit.is_last)
        for _, unit in TierTurns(TIERS, partitions).of_units(units)
    ]


def test_a_job_has_a_turn_at_each_tier():
    three = gated(1, 2, partition="batch,express,mid")
    every = ["batch", "express", "mid"]
    assert turns(three) == [(["express"], False), (["express", "mid"], False), (every, True)]
    assert turns(gated(1, 2, partition="mid")) == [(["mid"], True)]


@pytest.mark.parametrize("unlike", [{"state": "DOWN"}, {"max_time_s": 60}])
def test_a_partition_that_would_not_start_it_gives_it_no_turn(unlike):
    """Its nodes may be free for as long as it is down: the job would be released in vain."""
    express = SlurmPartition("express", ("express",), False, **unlike)
    job = gated(1, 2, partition="express,batch", time_limit_s=3600)
    assert turns(job, express=express) == [(["batch"], True)]


def test_components_have_a_turn_where_each_of_them_has_one():
    """They start together: one in a high tier brings none the nodes of a low one sooner."""
    parts = gated(1, 2, partition="express"), gated(2, 2, partition="mid,batch")
    het = [replace(job, het_id=1, het_offset=i, name=f"1+{i}") for i, job in enumerate(parts)]
    assert turns(*het) == [(["express", "mid"], False), (["batch", "express", "mid"], True)]


def test_of_jobs_alike_the_needs_at_a_turn_are_one_object():
    """Or the nodes would be searched for each of ten thousand jobs anew."""
    jobs = gated(1, 2, **BOTH), gated(2, 2, **BOTH)
    units = units_of(jobs, Wants().read(jobs, {"dgx1": DGX1, "x1": X1}))
    needs = [unit.first[1].need for _, unit in TierTurns(TIERS, {}).of_units(units)]
    assert len(needs) == 4
    assert needs[0] is needs[1]
