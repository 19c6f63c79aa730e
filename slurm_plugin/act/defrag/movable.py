"""The jobs that may be moved, what each needs, and what a move would cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from gres_topology.features import Unsupported
from policies import hints
from policies.errors import HintError
from slurm_plugin.act.defrag.sight import Sight
from slurm_plugin.base.job_notes.brackets import SLOTS, inside
from slurm_plugin.base.job_notes.hints import hint_in
from slurm_plugin.config.sections import Rule
from slurm_plugin.queue.backfill import in_order
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Hold, Nodes, held_by
from slurm_plugin.queue.slurms_choice import can_start
from slurm_plugin.queue.snapshot import Snapshot
from slurm_plugin.slurm.interface import QueuedJob

#: Entries of jobs whose place others depend on.
_BOUND = ("gpu-loan", "gpu-donor", "gpu-shape")

#: The rule of a partition, an account and a uid.
RuleOf = Callable[[str, str, int], Rule]


@dataclass(frozen=True, slots=True)
class Movable:
    """A running job of one node that may be moved."""

    job: QueuedJob
    need: Need
    #: Seconds between two of its checkpoints; 0 where it does not say.
    interval_s: int

    @property
    def node(self) -> str:
        """The node that the job runs on."""
        return self.job.nodes[0]

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        return len(self.job.gpus[self.node])

    @property
    def hold(self) -> Hold:
        """The GPUs, CPUs and memory that the job holds on its node."""
        return held_by(self.job, 0)

    def cost_gpu_s(self, now: float) -> float:
        """GPU seconds of work that are lost at most: since its last checkpoint, or its start."""
        ran_s = max(0.0, now - self.job.start)
        return self.gpus * (min(ran_s, self.interval_s) if self.interval_s else ran_s)

    @property
    def basis(self) -> str:
        """What the cost goes by, in words."""
        if self.interval_s:
            return f"a checkpoint every {self.interval_s // 60} min, as its hint says"
        return "all since its start: it says no interval of checkpoints"


def interval_of(hint: str, rule: Rule) -> int | None:
    """Seconds between checkpoints by a job's own hint, 0 for unknown; None: it is not movable.

    What the site says for jobs without a hint does not count: it is the user's to say.
    """
    try:
        found = hints.parse(hint, default_policy=rule.policy, patterns=rule.patterns)
        value = found.values.get("movable")
    except HintError:
        return None
    if value is None:
        return None
    return 0 if value == "yes" else 60 * int(value)


def movable_jobs(
    snapshot: Snapshot, nodes: Nodes, rule: RuleOf, moved: Collection[int], sight: Sight
) -> list[Movable]:
    """The jobs that may be moved as far as the queue tells; Slurm is asked of Requeue=1 later.

    `moved` are those that were before.
    """
    need_of = sight.needs(snapshot, nodes)
    found = []
    for job in snapshot.jobs:
        if job.state != "RUNNING" or job.job_id in moved or len(job.nodes) != 1:
            continue
        if job.het_id or job.array_id or job.reservation or job.exclusive:
            continue
        # To let it go is an update that names no number of tasks (job_entries.rules.tasks_to_name).
        per = job.tasks_per_node or job.tasks_per_gpu
        if per > 0 and per != job.ntasks:
            continue
        partition = rule(job.partition, job.account, job.uid)
        interval_s = interval_of(hint_in(job.admin_comment), partition)
        if interval_s is None or not job.gpus.get(job.nodes[0]) or partition.mode != "enforce":
            continue
        if any(inside(job.admin_comment, kind) is not None for kind in _BOUND):
            continue
        # Slots are another way of enforcing than the one in force, or this one.
        if (inside(job.admin_comment, SLOTS) is not None) != sight.by_slots:
            continue
        need = need_of(job)
        is_free = need is not None and need.nodes == 1 and not need.req_nodes
        if need is not None and is_free and job.nodes[0] in nodes:
            found.append(Movable(job, need, interval_s))
    return found


def waiting_jobs(
    snapshot: Snapshot, nodes: Nodes, now: float, sight: Sight
) -> Iterator[tuple[QueuedJob, Need]]:
    """The jobs that wait for room alone and could not start now, in Slurm's order.

    One after the other: who wants the first few does not have a whole queue judged.
    """
    pending = [job for job in snapshot.jobs if job.state == "PENDING"]
    need_of = sight.needs(snapshot, nodes)
    for job in in_order(pending, snapshot.settings.tiers):
        need = need_of(job) if sight.waits_for_room(job, now) else None
        try:
            if need is not None and not can_start(need, nodes):
                yield job, replace(need, nodes=max(1, need.nodes))
        except Unsupported:
            continue
