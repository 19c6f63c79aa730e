"""Submits in the slots mode on nodes like DGX-1V, and what their answers say."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from machines_in_tests import a_submit, basic_decider
from slots_in_tests import record_in

from slurm_plugin.act.enforcement.slots import Slots
from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.protocol import Ok, Submit
from slurm_plugin.queue.backfill import WaitingLine
from slurm_plugin.queue.capacity import Node
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import SlurmPartition

V100 = tuple(f"v100.s{i}" for i in range(8))
NOW, LEASE_S = 1_000_000.0, 120
NOTHING: Mapping[str, str] = {}
PARTITIONS = frozenset({"batch", "quiet", "watched", "plain"})


def site(
    *others: SlurmPartition, config: Mapping[str, str] | None = None, **batch: Any
) -> Settings:
    """Partition batch, which is Slurm's default, and others."""
    return Settings(
        (SlurmPartition("batch", ("dgx1", "dgx2"), True, **batch), *others), config or {}
    )


def cache(*names: str, free: int = 0xFF) -> CapacityCache:
    room = {
        name: Node(name, V100, free, 40, 100_000, partitions=PARTITIONS, sockets=(0x0F, 0xF0))
        for name in names or ("dgx1",)
    }
    found = CapacityCache(settings=site())
    found.update(room, (), WaitingLine(), NOW)
    return found


def mode(folder: Path, state: CapacityCache) -> Slots:
    tokens = iter(f"t{i}" for i in range(99))
    decider = basic_decider(folder)
    return Slots(decider, state, LEASE_S, clock=lambda: NOW, token=lambda: next(tokens))


def submit(gpus: int = 2, nodes: int = 1, **more: object) -> Submit:
    counts = {"gpus": gpus * nodes, "nodes": nodes, "per_node": gpus, "tasks": 1}
    asked = {"partition": "batch", "tpn": f"gres/gpu:{gpus}", "time_s": 60}
    return a_submit(**{**counts, **asked, **more})


def told(reply: object) -> dict[str, str]:
    assert isinstance(reply, Ok), reply
    return {key.removeprefix("set."): value for key, value in reply.values.items()}


def left(reply: object) -> str:
    """Why the job is left to Slurm."""
    values = told(reply)
    assert set(values) == {"admin_comment"}
    assert "gpu-slots" not in values["admin_comment"]
    return hints.note_in(values["admin_comment"]).removeprefix("Slurm's own choice: ")


def state_of(values: dict[str, str]) -> str:
    return record_in(values["admin_comment"]).state
