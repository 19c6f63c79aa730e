"""The loop around the plan, on a Slurm that only remembers what it is told."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slots_in_tests import DGX1, NOW, Remembering, gated, look, reconciler, running

from policies.performance import Shape
from slurm_plugin.act.gates.capacity_cache import PROMISE_S, CapacityCache
from slurm_plugin.act.gates.plan import GatePlan
from slurm_plugin.act.gates.reconciler import RENEWED_AT_ONCE, HoldReason
from slurm_plugin.act.gates.released import Watch
from slurm_plugin.base.log_lines import UseLine
from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.backfill import WaitingLine
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Hold
from slurm_plugin.queue.snapshot import read_snapshot
from slurm_plugin.serve.give_back import give_back
from slurm_plugin.slurm.interface import NOW as AT_ONCE
from slurm_plugin.slurm.interface import JobUpdate, Reservation, SlurmPartition


def polled(
    folder: Path, slurm: Remembering, cache: CapacityCache, hold_reason: HoldReason | None = None
) -> list[dict[str, Any]]:
    """One look; the lines of the decision log."""
    lines: list[dict[str, Any]] = []
    look(reconciler(folder, slurm, cache, lines, hold_reason=hold_reason), slurm)
    return lines


def test_a_gated_job_is_released_on_the_policys_gpus(tmp_path):
    slurm, cache = Remembering(gated(1)), CapacityCache()
    [line] = polled(tmp_path, slurm, cache)
    assert (line.job, line.decision, line.chosen.gpus) == (1, "use", {"dgx1": (0, 3)})
    [(names, update)] = slurm.updates
    assert "dgx1:0,3 by mapa" in (update.admin_comment or "")
    assert (names, update.tres_per_node) == (("1",), "gres/gpu:v100.s0:1,gres/gpu:v100.s3:1")
    assert cache.is_fresh(NOW)
    assert cache.nodes["dgx1"].free == 0xFF & ~0b1001
    assert cache.settings.default_partition == "batch"


RUNS = running(9, (0,), start=NOW, end=NOW + 60)


@pytest.mark.parametrize("is_held_back", [True, False])
def test_a_job_that_is_held_back_stays_behind_its_gate_and_delays_nobody(tmp_path, is_held_back):
    """One that waits for GPUs alone does: who would be longer than it can wait stays, too."""
    large, long = gated(1, 8), replace(gated(2), time_limit_s=3600)
    slurm, asked = Remembering(RUNS, large, long, used=(0,)), list[tuple[int, str]]()

    def hold_reason(place: PlacementQuestion, shape: Shape) -> str:
        asked.append((place.job, str(shape)))
        return "others go first" if is_held_back and place.job == 1 else ""

    polled(tmp_path, slurm, CapacityCache(), hold_reason)
    assert asked == [(1, "1x8"), (2, "1x2")]
    let_go = [names for names, change in slurm.updates if change.begin_time == AT_ONCE]
    assert let_go == ([("2",)] if is_held_back else [])
    assert not any(change.admin_comment for names, change in slurm.updates if names == ("1",))


def test_nobody_is_held_back_past_the_time_before_a_reservation(tmp_path):
    slurm, cache = Remembering(replace(gated(1), time_limit_s=600)), CapacityCache()
    polled(tmp_path, slurm, cache, lambda *_: "others go first")
    assert not [names for names, change in slurm.updates if change.begin_time == AT_ONCE]
    slurm.reserved = [Reservation("m", NOW + 660, NOW + 9000, ("dgx1",))]
    polled(tmp_path, slurm, cache, lambda *_: "others go first")
    assert [names for names, change in slurm.updates if change.begin_time == AT_ONCE] == [("1",)]


def test_a_policy_hears_for_whom_somebody_may_sit_and_wait(tmp_path):
    heard = dict[int, bool]()

    def hold_reason(place: PlacementQuestion, shape: Shape) -> str:
        heard[place.job] = place.interactive
        return ""

    slurm = Remembering(gated(1), gated(2, keys="interactive=1"))
    polled(tmp_path, slurm, CapacityCache(), hold_reason)
    assert heard == {1: False, 2: True}


def test_gates_of_a_full_cluster_are_renewed_in_one_update(tmp_path):
    slurm = Remembering(gated(1), gated(2), used=range(8))
    polled(tmp_path, slurm, CapacityCache())
    assert slurm.updates == [(("1", "2"), JobUpdate(begin_time=NOW + 120))]


def test_promised_slots_are_not_released_to_another_job(tmp_path):
    slurm, cache = Remembering(gated(1)), CapacityCache()
    cache.promise("unseen", Hold({"dgx1": 0xFE}), NOW)
    polled(tmp_path, slurm, cache)
    assert [update.tres_per_node for _, update in slurm.updates] == [None]


def test_a_promise_lasts_until_a_look_begun_after_it_ran_out():
    state = CapacityCache()
    state.update({"dgx1": DGX1}, (), WaitingLine(), NOW)
    state.promise("t", Hold({"dgx1": 0xFF}), NOW)
    state.forget(NOW + PROMISE_S - 0.1)
    assert state.now()[0]["dgx1"].free == 0
    state.forget(NOW + PROMISE_S)
    assert state.now()[0]["dgx1"].free == 0xFF


def test_a_promise_ends_when_its_job_is_seen(tmp_path):
    cache = CapacityCache()
    cache.promise("t1", Hold({"dgx1": 0xFF}), NOW)
    polled(tmp_path, Remembering(gated(1), used=range(8)), cache)
    assert not cache.promises


def test_a_job_gated_during_a_look_that_did_not_see_it_is_still_the_first(tmp_path):
    """Or the next submits, which may delay it, would be placed until the look after."""
    cache, need = CapacityCache(), Need(8, 1, 1, 0, frozenset({"batch"}))
    cache.promise("t1", Hold(), NOW, need=need)
    polled(tmp_path, Remembering(), cache)
    assert [one.need for one in cache.line.waits] == [need]
    polled(tmp_path, Remembering(gated(1)), cache)
    assert not cache.line.waits


def test_a_promise_that_ran_out_holds_nothing(tmp_path):
    slurm, cache = Remembering(gated(1)), CapacityCache()
    cache.promise("refused", Hold({"dgx1": 0xFF}), NOW - 60)
    polled(tmp_path, slurm, cache)
    assert slurm.updates[0][1].tres_per_node is not None


def test_one_refused_update_does_not_stop_the_others(tmp_path):
    slurm = Remembering(gated(1, 4), gated(2, 4), gated(3), refuses=True)
    polled(tmp_path, slurm, CapacityCache())
    assert [names for names, _ in slurm.updates] == [("1",), ("2",), ("3",)]


def test_a_task_that_ends_before_a_look_sees_it_is_written_down_under_its_array():
    lines: list[dict[str, Any]] = []
    watch = Watch(lambda build: lines.append(build()))
    array = replace(gated(7), array_id=7, task="0-2", tasks=3, name="7_[0-2]")
    first = replace(array, job_id=8, task="0", tasks=1, name="7_0", state="COMPLETING")
    for task in range(3):
        watch.released(f"7_{task}", array, lambda: UseLine(job=7))
    watch.follow([array], GatePlan({}))
    assert lines == []
    watch.follow([first], GatePlan({}))
    assert lines == [UseLine(job=8, array=7)]
    watch.follow([], GatePlan({}))
    assert lines[1:] == [UseLine(job=7), UseLine(job=7)]


def test_on_slurm_22_05_a_job_whose_slots_are_refused_gets_its_request_back(tmp_path):
    """What it asked was taken away first; it must not start without GPUs."""
    comment = "[gpu-slots: gated tpj=gres:gpu:2 nodes=1-1 by=node]"
    job = gated(1, admin_comment=comment, tres_per_node="")
    slurm = Remembering(job, refuses_slots=True)
    polled(tmp_path, slurm, CapacityCache())
    asked = JobUpdate(tres_per_node="", tres_per_job="gres:gpu:2", tres_per_task="")
    asked = replace(asked, begin_time=job.eligible)
    assert slurm.updates[-1] == (("1",), replace(asked, tres_per_socket=""))
    assert len(slurm.updates) == 3
    with_slots = replace(job, tres_per_node="gres:gpu:v100.s6:1,gres:gpu:v100.s7:1")
    slurm = Remembering(with_slots, refuses_slots=True)
    polled(tmp_path, slurm, CapacityCache())
    assert slurm.updates[-1][1].tres_per_node == with_slots.tres_per_node


# -- between two looks, or during one -----------------------------------------


@pytest.mark.parametrize("promised", [{"dgx1": 0b1000}, {"dgx1": 0b110}, {"dgx2": 0xFF}, {}])
def test_slots_promised_during_a_look_are_not_released_to_another_job(tmp_path, promised):
    """The policy takes 0 and 3, which is known when the plan is made and the submit answered."""
    slurm, cache = Remembering(gated(1)), CapacityCache()

    def a_submit_comes(place: PlacementQuestion, shape: Shape) -> str:
        cache.promise("new", Hold(promised), NOW)
        return ""

    made = look(reconciler(tmp_path, slurm, cache, hold_reason=a_submit_comes), slurm)
    is_taken = promised == {"dgx1": 0b1000}
    assert [update.tres_per_node is None for _, update in slurm.updates] == [False] * (not is_taken)
    assert made.again is is_taken
    assert cache.nodes["dgx1"].free == (0xFF if is_taken else 0xFF & ~0b1001)


def test_slots_of_a_job_that_a_look_sees_first_are_not_given_to_a_submit_during_it(tmp_path):
    """Until the look is over, submits are answered by the one before, which shows them as free."""
    cache, free = CapacityCache(), list[int]()
    look(reconciler(tmp_path, Remembering(), cache), Remembering())
    cache.promise("t1", Hold({"dgx1": 0b1}), NOW)

    def a_submit_comes(place: PlacementQuestion, shape: Shape) -> str:
        free.append(cache.now()[0]["dgx1"].free)
        return "not now"

    seen = replace(RUNS, admin_comment=gated(1).admin_comment)
    slurm = Remembering(seen, gated(2), used=(0,))
    look(reconciler(tmp_path, slurm, cache, hold_reason=a_submit_comes), slurm)
    assert free == [0xFE]
    assert not cache.promises
    assert cache.now()[0]["dgx1"].free == 0xFE


async def test_an_update_that_slurm_refuses_is_tried_again_after_longer_and_longer_pauses(
    tmp_path,
):
    """2 s, 4 s and so on, and five minutes at most; the gate need not be renewed meanwhile."""
    slurm, now = Remembering(gated(1, eligible=NOW + 10_000), refuses=True), [float(NOW)]
    planner = reconciler(tmp_path, slurm, lease_s=10_000, clock=lambda: now[0])
    tried = []
    for second in range(NOW, NOW + 1400):
        now[0], before = float(second), len(slurm.updates)
        await planner.reconcile(read_snapshot(slurm, at=now[0]), 0)
        if len(slurm.updates) > before:
            tried.append(second - NOW)
    assert tried == [0, 2, 6, 14, 30, 62, 126, 254, 510, 810, 1110]
    assert planner.status()["refused"] == len(tried)


def test_jobs_that_are_given_back_are_counted_and_those_that_slurm_keeps_named():
    begun = replace(gated(3), state="RUNNING")
    slurm = Remembering(gated(1), gated(2), begun, replace(gated(4), admin_comment=""))
    assert give_back(slurm) == 2
    assert [names for names, _ in slurm.updates] == [("1",), ("2",)]
    slurm.refuses = True
    with pytest.raises(SlurmError, match="0 jobs were given back, 2 were not: 1: no; 2: no"):
        give_back(slurm)


class Tiers(Remembering):
    """Three partitions, and how one pushes jobs of another aside."""

    def __init__(self, preempt_type: str) -> None:
        super().__init__()
        self.preempt_type = preempt_type

    def partitions(self) -> list[SlurmPartition]:
        tiers = {"low": 1, "batch": 1, "high": 5}
        return [SlurmPartition(name, ("dgx1",), False, tier) for name, tier in tiers.items()]

    def config(self) -> dict[str, str]:
        return {"PreemptType": self.preempt_type}


@pytest.mark.parametrize(
    ("preempt_type", "preempting"),
    [("preempt/partition_prio", {"high"}), ("preempt/none", set()), ("preempt/qos", set())],
)
def test_only_partitions_above_the_lowest_tier_preempt_and_only_where_tiers_do(
    tmp_path, preempt_type, preempting
):
    cache = CapacityCache()
    slurm = Tiers(preempt_type)
    look(reconciler(tmp_path, slurm, cache), slurm)
    assert cache.settings.preempting == preempting


def test_gates_are_renewed_a_part_at_a_time_and_give_way_to_a_job_that_ended(tmp_path):
    """What is left is renewed in the next round; it is the release that people wait for."""
    cache, count = CapacityCache(), RENEWED_AT_ONCE + 1
    slurm = Remembering(*(gated(i, 8) for i in range(1, count + 1)), used=range(8))
    update = slurm.update

    def ends(jobs: Sequence[str], change: JobUpdate) -> None:
        cache.ended += 1
        update(jobs, change)

    slurm.update = ends
    planner = reconciler(tmp_path, slurm, cache)
    assert len(look(planner, slurm).renewed) == RENEWED_AT_ONCE
    assert planner.status()["ends_unseen"] == 1
    slurm.update = update
    cache.ended = 0
    assert len(look(planner, slurm).renewed) == count
    assert planner.status()["ends_unseen"] == 0
    assert [len(names) for names, _ in slurm.updates] == [RENEWED_AT_ONCE, RENEWED_AT_ONCE, 1]
