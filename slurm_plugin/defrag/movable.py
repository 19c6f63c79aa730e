"""The jobs that may be moved, what each needs, and what a move would cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from policies import hints
from policies.errors import HintError
from slurm_plugin.config.sections import Rule
from slurm_plugin.job_notes.brackets import inside
from slurm_plugin.job_notes.hints import hint_in
from slurm_plugin.queue.backfill import in_order
from slurm_plugin.queue.candidates import Need, can_start
from slurm_plugin.queue.capacity import Hold, Nodes, held_by
from slurm_plugin.queue.demand import READY, Unplaceable, demand_of, need_of
from slurm_plugin.queue.features import Unsupported
from slurm_plugin.slurm.interface import QueuedJob

#: Entries of jobs whose place others depend on.
_BOUND = ("gpu-loan", "gpu-donor", "gpu-shape", "gpu-slots")

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
        """Where it runs."""
        return self.job.nodes[0]

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        return len(self.job.gpus[self.node])

    @property
    def hold(self) -> Hold:
        """What it holds there."""
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
    jobs: Iterable[QueuedJob],
    nodes: Nodes,
    rule: RuleOf,
    moved: Collection[int],
    entries: Mapping[int, str] | None = None,
) -> list[Movable]:
    """The jobs that may be moved as far as the queue tells; Slurm is asked of Requeue=1 later.

    `moved` are those that were before. `entries` are our entries of jobs where AdminComment does
    not have them.
    """
    found = []
    for job in jobs:
        text = (entries or {}).get(job.job_id) or job.admin_comment
        if job.state != "RUNNING" or job.job_id in moved or len(job.nodes) != 1:
            continue
        if job.het_id or job.array_id:
            continue
        partition = rule(job.partition, job.account, job.uid)
        interval_s = interval_of(hint_in(text), partition)
        is_plain = not (job.req_nodes or job.reservation or job.exclusive)
        if interval_s is None or not is_plain or not job.gpus.get(job.nodes[0]):
            continue
        if any(inside(text, kind) is not None for kind in _BOUND):
            continue
        if partition.mode != "enforce":
            continue
        need = need_at_start(job, nodes)
        if need is not None and need.nodes == 1 and job.nodes[0] in nodes:
            found.append(Movable(job, need, interval_s))
    return found


def need_at_start(job: QueuedJob, nodes: Nodes) -> Need | None:
    """What the job needs of a node; None where that cannot be told."""
    try:
        return need_of(demand_of(job), nodes)
    except (Unplaceable, ValueError):
        return None


def waiting_jobs(
    jobs: Iterable[QueuedJob], nodes: Nodes, tiers: Mapping[str, int], now: float
) -> list[tuple[QueuedJob, Need]]:
    """The jobs that wait for GPUs alone and could not start now, in Slurm's order."""
    pending = [
        job
        for job in jobs
        if job.state == "PENDING" and not job.held and not job.depends and job.eligible <= now
    ]
    found = []
    for job in in_order(pending, tiers):
        need = need_at_start(job, nodes) if job.reason in READY else None
        try:
            if need is not None and not can_start(need, nodes):
                found.append((job, replace(need, nodes=max(1, need.nodes))))
        except Unsupported:
            continue
    return found
