"""From a plan to the updates for Slurm, pure: shapes, the order, and who is let start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from policies.contract.scheduling import Planned, Task
from policies.performance import Shape
from slurm_plugin.act.genie import reply
from slurm_plugin.act.genie.domain_snapshot import DomainSnapshot, Member
from slurm_plugin.act.genie.site import ShapedPartition
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.hints import postponed_until
from slurm_plugin.base.job_notes.records import GATED, GateRecord
from slurm_plugin.base.job_notes.shape import ShapeNote
from slurm_plugin.slurm.gres_text import counts
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob

Plans = Mapping[int, tuple[int, Planned]]

#: The largest site factor that scontrol takes (NICE_OFFSET - 3).
MOST = 2**31 - 3
#: The lowest priority that a job may get: 0 would hold it.
LEAST = 1


@dataclass(slots=True)
class Changes:
    """What one poll leads to: updates, the first in order first; which jobs get another shape."""

    updates: list[tuple[QueuedJob, JobUpdate]] = field(default_factory=list)
    reshaped: list[tuple[QueuedJob, Task, Planned]] = field(default_factory=list)


def changes(
    snapshot: DomainSnapshot,
    plans: Plans,
    site: Mapping[int, int],
    *,
    separator: str = "/",
    now: float = 0.0,
) -> Changes:
    """The updates of one domain. `site`: the site factors as far as they are known.

    A job that is to start gets its shape. One that waits keeps its own while that is possible and
    in time. Updates come in the queue's order, so that jobs about to start move to its front first.
    """
    made = Changes()
    members = {one.job.job_id: one for one in snapshot.members if one.job.job_id in plans}
    order = sorted(members, key=lambda job_id: plans[job_id][0])
    priority = {job_id: members[job_id].job.priority for job_id in order}
    factors = site_factors(order, priority, site)
    for job_id in order:
        member, plan = members[job_id], plans[job_id][1]
        factor = factors.get(job_id)
        update = JobUpdate(site_factor=factor)
        if _is_other(member, plan, snapshot.domain, now):
            update = reshaped(member.job, member.said, plan.shape, separator, factor)
            made.reshaped.append((member.job, member.task, plan))
        # Told by the plugin's note: Slurm shows `BeginTime` only once it considered the job again.
        if plan.nodes and (postponed_until(member.job.admin_comment) or 0) > now:
            update = replace(update, begin_time=NOW)
        if update != JobUpdate():
            made.updates.append((member.job, update))
    return made


def site_factors(
    order: Sequence[int], priority: Mapping[int, int], site: Mapping[int, int]
) -> dict[int, int]:
    """The site factors, by job, that must change to give the queue this order.

    The jobs exchange their priorities, so that they stand against all other jobs where Slurm's
    multifactor plugin put them. Equal priorities are told apart by one point each, downwards where
    there is room, else upwards by as many points as there are jobs at most.

    `order` begins with the job that goes first. `priority` is what Slurm has now, `site` the factor
    in it (0 where missing). Factors are made anew of the jobs' own priorities each time, also where
    the queue has this order already: else a place that was exchanged would never come back.
    """
    own = {
        job: priority[job] - site.get(job, 0) if priority[job] > LEAST else LEAST for job in order
    }
    # Slurm shows every sum below 1 as 1, so that its owner may have pushed it down to anywhere
    # (Nice) and no factor of ours would show: such a job has nothing to exchange.
    placed = [job for job in order if own[job] > LEAST]
    wanted = dict.fromkeys(order, 0)
    if placed:
        targets = _targets([own[job] for job in placed])
        wanted |= {job: at - own[job] for job, at in zip(placed, targets, strict=True)}
    else:
        wanted |= _ladder(order, priority, site)
    wanted = {job: max(-MOST, min(MOST, factor)) for job, factor in wanted.items()}
    return {job: factor for job, factor in wanted.items() if factor != site.get(job, 0)}


def _targets(own: Sequence[int]) -> list[int]:
    """These priorities, all above `LEAST`, in a strict order, the highest first.

    None ends at `LEAST`, where it could not be told from one that its owner pushed down.
    """
    targets: list[int] = []
    for one in sorted(own, reverse=True):
        targets.append(min(one, targets[-1] - 1) if targets else one)
    up = max(0, LEAST + 1 - targets[-1])
    return [target + up for target in targets]


def _ladder(
    order: Sequence[int], priority: Mapping[int, int], site: Mapping[int, int]
) -> dict[int, int]:
    """Site factors where Slurm's own factors come to nothing for all of these jobs.

    So it is at a site without weights. Each is put one point above the next, the last stays.
    Slurm shows a sum of 0 as 1, so a job that it shows at 1 is taken to have 0.
    """
    wanted = {order[-1]: 0} if order else {}
    for above, job in enumerate(reversed(order[:-1]), LEAST + 1):
        sum_is = priority[job] - site.get(job, 0) if priority[job] > LEAST else 0
        wanted[job] = above - max(0, sum_is)
    return wanted


def _is_other(member: Member, plan: Planned, domain: ShapedPartition, now: float) -> bool:
    """Is the job to have another shape than it has?"""
    said, task = member.said, member.task
    if said.is_fixed or said.shape == plan.shape or not _may_change(member.job):
        return False
    if asked_shape(member.job) != said.shape:
        # The user, or an administrator, changed it since: it is theirs now.
        return False
    if plan.nodes or said.shape is None or said.shape not in domain.platform.shapes:
        return True
    # Waiting: leave a shape that is still good.
    has = float(task.latency_s[domain.platform.index(said.shape)])
    gets = float(task.latency_s[domain.platform.index(plan.shape)])
    return now + gets <= task.deadline_s < now + has or has == float("inf")


def _may_change(job: QueuedJob) -> bool:
    """Can the shape of a job be changed at all?

    Slurm refuses parts of it for array tasks and components of a heterogeneous job. A job that has
    its slots is about to start on them.
    """
    if job.tasks > 1 or job.array_id or job.het_id:
        return False
    gate = GateRecord.read_from(job.admin_comment)
    if gate is None:
        return True
    return gate.state == GATED and not gate.requests.is_22_05 and not gate.names_loan


def asked_shape(job: QueuedJob) -> Shape | None:
    """The shape that a waiting job asks for; None where it asks for none that can be read."""
    try:
        each = sum(counts(job.tres_per_node).values())
    except ValueError:
        return None
    if not each or not job.min_nodes or job.max_nodes not in (0, job.min_nodes):
        return None
    return Shape(job.min_nodes, each)


def reshaped(
    job: QueuedJob, said: ShapeNote, shape: Shape, separator: str, factor: int | None = None
) -> JobUpdate:
    """The update that gives a waiting job this shape, and its gate's record the same request."""
    comment = replace(said, shape=shape).written_into(job.admin_comment)
    gate = GateRecord.read_from(comment)
    if gate is not None:
        comment = gate.reshaped(reply.gres(shape, separator), shape.nodes).written_into(comment)
    comment = hints.with_note(comment, _said(job, shape))
    update = reply.shape_update(said, shape, separator)
    return replace(update, admin_comment=comment, site_factor=factor)


def _said(job: QueuedJob, shape: Shape) -> str:
    # The plugin's own note on a wait must stay: the job's begin time stands in it.
    is_postponed = postponed_until(job.admin_comment) is not None
    return hints.note_in(job.admin_comment) if is_postponed else f"shape {shape}"


def released(job: QueuedJob, said: ShapeNote, shape: Shape, separator: str) -> JobUpdate:
    """The update that gives a job its first shape, after the engine was away at its submit."""
    update = reshaped(job, said, shape, separator)
    return update if said.is_held else replace(update, is_released=True)
