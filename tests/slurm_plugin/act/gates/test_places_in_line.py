"""Which waiting jobs no later one may delay: whose nodes they share, and whose jobs they are."""

import random
from dataclasses import replace

import pytest
from jobs_in_tests import waits
from slots_in_tests import DGX1, NOW, TERMS, first_choice, gated, planned, running

from policies import gpus_of
from slurm_plugin.act.gates.plan import GatePlan
from slurm_plugin.act.gates.planning import OVERTAKEN, plan
from slurm_plugin.act.gates.want import Wants
from slurm_plugin.queue.backfill import MOST_OF_ONE, earliest_start
from slurm_plugin.queue.candidates import may_use
from slurm_plugin.queue.capacity import emptied, holds_in
from slurm_plugin.slurm.interface import QueuedJob

DAY = 86400


def wide(job_id: int, gpus: int, nodes: int, **more: object) -> QueuedJob:
    job = gated(job_id, gpus, min_nodes=nodes, max_nodes=nodes, **more)
    return replace(job, admin_comment=job.admin_comment.replace("=1-1", f"={nodes}-{nodes}"))


def pinned(job_id: int, name: str, gpus: int = 8, **more: object) -> QueuedJob:
    return gated(job_id, gpus, keys=f"req={name}", req_nodes=name, **more)


def without(job_id: int, names: str, gpus: int = 8, **more: object) -> QueuedJob:
    return gated(job_id, gpus, keys=f"exc={names}", exc_nodes=names, **more)


LONG = running(50, range(8), end=NOW + 30 * DAY)
HALF = running(51, {"dgx3": range(4)})
OTHERS = [replace(DGX1, name="dgx2"), replace(DGX1, name="dgx3", free=0xF0)]
WIDE = wide(10, 8, 2, uid=7, time_limit_s=3600)


def on_three(*jobs: QueuedJob, **more: object) -> GatePlan:
    """On a full node, an empty one, and one that is half full for ten minutes."""
    return planned(LONG, HALF, *jobs, others=OTHERS, free=0, **more)


@pytest.mark.parametrize("first", [[], [pinned(1, "dgx1", uid=666)]], ids=["alone", "pinned"])
def test_nobody_passes_a_wide_job_for_the_sake_of_one_that_waits_for_a_single_node(first):
    small, short = (gated(20 + i, 4, time_limit_s=s) for i, s in enumerate((DAY, 600)))
    made = on_three(*first, WIDE, small, short)
    assert made.released == ["21"]
    assert [one.start for one in made.line.waits if one.job == 10] == [NOW + 600]


def test_the_second_in_line_is_slurms_own_where_later_jobs_that_are_pass_it():
    """And only this one: nobody passed the job before it."""
    later = running(60, {"dgx2": range(7, 8)}, end=NOW + 9000, start=NOW - 5)
    since = {1: NOW - 60, 10: NOW - 60}
    jobs = pinned(1, "dgx1", priority=99), replace(WIDE, priority=90), later
    others = [replace(OTHERS[0], free=0x7F), OTHERS[1]]
    context = replace(TERMS, waits_since=since)
    made = planned(LONG, HALF, *jobs, others=others, free=0, context=context)
    assert [n for n, one in made.updates if OVERTAKEN in (one.admin_comment or "")] == ["10"]


NAMES = ("dgx1", "dgx2", "dgx3", "dgx4")


@pytest.mark.parametrize("seed", range(25))
def test_no_later_job_delays_one_whose_nodes_no_job_before_it_has_all(seed):
    """And all of them start in the end: nobody is held back for ever."""
    chance = random.Random(seed)
    waiting: dict[int, QueuedJob] = {}
    for i in range(1, 25):
        more = {"time_limit_s": chance.choice((100, 300, 900, 2000)), "priority": 1000 - i}
        few, name = chance.randint(1, 8), chance.choice(NAMES)
        kinds = gated(i, few, **more), pinned(i, name, few, **more), wide(i, 8, 2, **more)
        waiting[i] = chance.choice(kinds)
    active: dict[int, QueuedJob] = {}
    now, before, begun = NOW, dict[int, float](), list[int]()
    for _ in range(500):
        jobs = [*active.values(), *waiting.values()]
        used = {name: set[int]() for name in NAMES}
        for job in active.values():
            for name, gpus in job.gpus.items():
                used[name].update(gpus)
        room = {
            name: replace(DGX1, name=name, free=0xFF & ~sum(1 << gpu for gpu in used[name]))
            for name in NAMES
        }
        wants = Wants().read(jobs, emptied(room))
        sets, starts = list[set[str]](), dict[int, float]()
        for i in sorted(waiting):
            need = wants[i].need
            assert need is not None
            names = {name for name, one in room.items() if may_use(need, one)}
            if not any(names <= other for other in sets):
                starts[i] = earliest_start(need, room, holds_in(room, jobs, now), now)
                sets.append(names)
        for i, start in starts.items():
            # One that has room now, and would delay one before it, has to wait.
            is_later = start > max(before.get(i, start), now)
            assert not is_later or min(begun) < i, (i, begun)
        before = starts
        made = plan(jobs, wants, room, replace(TERMS, now=now), first_choice)
        begun = []
        for release in made.releases:
            [(name, job)], [hold] = release.jobs.items(), release.holds
            gpus = {node: gpus_of(mask) for node, mask in hold.gpus.items()}
            del waiting[int(name)]
            begun.append(int(name))
            end = now + job.time_limit_s
            active[int(name)] = running(int(name), gpus, end=end, priority=job.priority)
        if not waiting:
            return
        now = min(job.end for job in active.values()) if active else now + 1
        active = {i: job for i, job in active.items() if job.end > now}
    pytest.fail(f"{sorted(waiting)} wait for ever")


COLD = [f"cold{i}" for i in range(40)]
COLD_NODES = [replace(DGX1, name=n, free=0, partitions=frozenset({"cold"})) for n in COLD]
RUNS = [running(500 + i, {name: range(8)}, end=NOW + DAY) for i, name in enumerate(COLD)]
MINE = running(900, range(4))
EIGHT = gated(50, 8, uid=7, priority=40, time_limit_s=600)
SMALL = gated(51, 4, uid=666, priority=30, time_limit_s=DAY)
COLD_JOB = {"uid": 666, "priority": 5000, "partition": "cold"}
OWN = waits(1, 8, time_limit_s=600, **COLD_JOB)
IN_FRONT = {
    "each pinned to a node": [pinned(100 + i, name, **COLD_JOB) for i, name in enumerate(COLD)],
    "each with another exclusion": [
        without(100 + i, f"{COLD[i % 40]},x{i}", **COLD_JOB) for i in range(1100)
    ],
    "Slurm's own": [replace(OWN, job_id=100 + i, req_nodes=name) for i, name in enumerate(COLD)],
}


@pytest.mark.parametrize("first", IN_FRONT.values(), ids=IN_FRONT)
@pytest.mark.parametrize("of_slurm", [False, True], ids=["gated", "Slurm's own"])
def test_one_users_jobs_take_nobody_else_the_place_in_line_away(first, of_slurm):
    own = replace(OWN, job_id=50, partition="batch", uid=7, priority=40)
    made = planned(
        *RUNS, MINE, *first, own if of_slurm else EIGHT, SMALL, others=COLD_NODES, free=0xF0
    )
    assert [one.start for one in made.line.waits if one.job == 50] == [NOW + 600]
    assert made.released == []


def test_slurms_own_jobs_without_gpus_take_no_place():
    first = [replace(OWN, job_id=100 + i, tres_per_node="", uid=i) for i in range(100)]
    own = replace(OWN, job_id=50, partition="batch", uid=7, priority=40)
    assert planned(MINE, *first, own, SMALL, free=0xF0).released == []


def test_what_one_users_share_did_not_bring_in_line_another_ones_does():
    """The same request, so that both have one need."""
    hers = [pinned(100 + i, name, **COLD_JOB) for i, name in enumerate(COLD[: MOST_OF_ONE + 1])]
    his = replace(hers[-1], job_id=300, name="300", uid=7, priority=1)
    made = planned(*RUNS, *hers, his, others=COLD_NODES, free=0)
    assert [one.job for one in made.line.waits] == [*range(100, 100 + MOST_OF_ONE), 300]
