"""What moves go by, in either way of enforcing: the nodes, what jobs need, which of them wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from slurm_plugin.act.gates.reconciler import kinds_of
from slurm_plugin.act.gates.released import may_start_now
from slurm_plugin.act.gates.want import want_of
from slurm_plugin.base.job_notes.records import GATED, GateRecord
from slurm_plugin.decide.machines import Machines
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Node, Nodes, emptied, gpus_by_slot, nodes_of
from slurm_plugin.queue.demand import Unplaceable, demand_of, need_of, waits_for_room
from slurm_plugin.queue.snapshot import Snapshot
from slurm_plugin.slurm.interface import QueuedJob


def is_gated(job: QueuedJob) -> bool:
    """Does the job wait behind a gate of ours, with the request that its user wrote?"""
    return _gate_of(job) is not None


def _gate_of(job: QueuedJob) -> GateRecord | None:
    kept = GateRecord.read_from(job.admin_comment) if job.state == "PENDING" else None
    return kept if kept is not None and kept.state == GATED else None


@dataclass(frozen=True)
class Sight:
    """How a snapshot is read. With `enforcement: slots` our own record has what a job asked for."""

    #: The site's machines where each GPU has a GRES type of its own; None: `enforcement: select`.
    machines: Machines | None = None

    @property
    def by_slots(self) -> bool:
        """Are GPUs given as slots?"""
        return self.machines is not None

    @cached_property
    def _kind_of(self) -> Callable[[str], tuple[str, tuple[int, ...]]]:
        return kinds_of(self.machines or {})

    def nodes(self, snapshot: Snapshot) -> dict[str, Node]:
        """The nodes, and what is free on them."""
        there, partitions = (snapshot.nodes, snapshot.active), snapshot.settings.partitions
        if not self.by_slots:
            return nodes_of(*there, partitions=partitions)
        return nodes_of(*there, gpus_by_slot, self._kind_of, partitions)

    def needs(self, snapshot: Snapshot, nodes: Nodes) -> Callable[[QueuedJob], Need | None]:
        """What a job of the snapshot needs of a node; None where that cannot be told."""
        # Once for all jobs: there may be a thousand of them, and as many nodes.
        empty = emptied(nodes) if self.by_slots else {}
        defaults = snapshot.settings.defaults

        def need(job: QueuedJob) -> Need | None:
            if self.by_slots:
                want = want_of(job, empty, defaults)
                return want.need if want is not None else None
            try:
                return need_of(demand_of(job), nodes)
            except (Unplaceable, ValueError):
                return None

        return need

    def waits_for_room(self, job: QueuedJob, now: float) -> bool:
        """Does it wait for nothing but room?"""
        if job.state != "PENDING" or job.held or job.depends:
            return False
        if not self.by_slots:
            return waits_for_room(job, now)
        kept = _gate_of(job)
        return kept is not None and kept.begin <= now and may_start_now(job)
