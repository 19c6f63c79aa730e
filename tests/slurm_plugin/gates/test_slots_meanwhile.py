"""What happens between two looks, or during one: promises to submits, refusals, preemption."""

import asyncio
from dataclasses import replace

import pytest
from machines_in_tests import BASIC, basic_decider
from slots_in_tests import NOW, Remembering, Remembers, TwoNodes, gated, look, reconciler

from policies.performance import Shape
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.errors import SlurmError
from slurm_plugin.gates.capacity_cache import CapacityCache
from slurm_plugin.gates.give_back import give_back
from slurm_plugin.protocol import PlacementQuestion
from slurm_plugin.queue.capacity import Hold
from slurm_plugin.queue.snapshot import read_snapshot
from slurm_plugin.remote import presets
from slurm_plugin.slurm.interface import SlurmPartition


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
    assert cache.room["dgx1"].free == (0xFF if is_taken else 0xFF & ~0b1001)


@pytest.mark.parametrize("promised", [{"dgx2": 0b1}, {"dgx1": 0b10}, {"dgx1": 0b100}])
def test_slots_promised_during_a_look_are_not_lent_either(tmp_path, promised):
    """Two free GPUs of each node would make four."""
    words = "gated token=t tpn=gres/gpu:4 nodes=1- by=node remote=1"
    job = replace(gated(1), admin_comment=f"[gpu-topo: remote=allow] [gpu-slots: {words}]")
    slurm, cache = TwoNodes(job), CapacityCache()
    lender = Remembers(RemoteConfig(presets.load("echo"), allow=True), slurm)
    text = BASIC + "enforcement: slots\nremote: {{allow: yes}}\n"

    def a_submit_comes(place: PlacementQuestion, shape: Shape) -> str:
        cache.promise("new", Hold(promised), NOW)
        return ""

    more = {
        "decider": basic_decider(tmp_path, text),
        "lending": lender,
        "hold_reason": a_submit_comes,
    }
    made = look(reconciler(tmp_path, slurm, cache, **more), slurm)
    is_taken = promised != {"dgx1": 0b100}
    assert len(lender.asked) == (not is_taken)
    assert made.again is is_taken
    assert {node.free for node in cache.room.values()} == {0b11 if is_taken else 0}


def test_an_update_that_slurm_refuses_is_tried_again_after_longer_and_longer_pauses(tmp_path):
    """2 s, 4 s and so on, and five minutes at most; the gate need not be renewed meanwhile."""
    slurm, now = Remembering(gated(1, eligible=NOW + 10_000), refuses=True), [float(NOW)]
    planner = reconciler(tmp_path, slurm, lease_s=10_000, clock=lambda: now[0])

    async def at_every_second() -> list[float]:
        tried = []
        for second in range(NOW, NOW + 1400):
            now[0], before = float(second), len(slurm.updates)
            await planner.look(read_snapshot(slurm, at=now[0]), 0)  # type: ignore[arg-type]
            if len(slurm.updates) > before:
                tried.append(second - NOW)
        return tried

    times = asyncio.run(at_every_second())
    assert times == [0, 2, 6, 14, 30, 62, 126, 254, 510, 810, 1110]
    assert planner.status()["refused"] == len(times)


def test_jobs_that_are_given_back_are_counted_and_those_that_slurm_keeps_named():
    running = replace(gated(3), state="RUNNING")
    slurm = Remembering(gated(1), gated(2), running, replace(gated(4), admin_comment=""))
    assert give_back(slurm) == 2  # type: ignore[arg-type]
    assert [names for names, _ in slurm.updates] == [("1",), ("2",)]
    slurm.refuses = True
    with pytest.raises(SlurmError, match="0 jobs were given back, 2 were not: 1: no; 2: no"):
        give_back(slurm)  # type: ignore[arg-type]


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
    assert cache.preempting == preempting
