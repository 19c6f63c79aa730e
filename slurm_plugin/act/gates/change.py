"""The updates that give a queued job slots, or its own request back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_plugin.act.gates.slot_request import placed
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.records import GATED, GateRecord, GpuRequests, without_gate
from slurm_plugin.queue.candidates import Group, Need
from slurm_plugin.queue.demand import gpus_of
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob

#: The upper bound in `NumNodes=` where the user gave none.
OPEN_MAX = 500

#: Between two updates no gate may open, even if no engine comes back for weeks.
_SHUT_S = 365 * 86400
_NOTHING_ASKED = JobUpdate(
    tres_per_node="", tres_per_job="", tres_per_task="", tres_per_socket="", tres_bind=""
)


@dataclass(frozen=True, slots=True)
class ReleasedPart:
    """One job, task or component about to be released; `name` is what updates call it."""

    name: str
    job: QueuedJob
    kept: GateRecord
    need: Need
    group: Group
    mask: int
    note: str = ""
    #: The GPUs on each of its nodes with those that are lent to it; 0: nothing is lent.
    with_lent: int = 0


def release(
    parts: Sequence[ReleasedPart], now: int, others: Sequence[QueuedJob] = ()
) -> tuple[tuple[str, JobUpdate], ...]:
    """The updates, in this order, that start a job, or all components of a heterogeneous one.

    On Slurm 22.05 the job's own request is taken away first, behind a gate that does not open by
    itself: if the next update never came, the job would start without GPUs. `others` are
    components that get no slots.
    """
    leader = parts[0].job.het_id
    steps: list[tuple[str, JobUpdate]] = []
    shut = now + _SHUT_S
    if leader and any(part.kept.requests.is_22_05 for part in parts):
        steps.append((str(leader), JobUpdate(begin_time=shut)))
    for part in parts:
        update = _given(part, now)
        if leader:
            update = replace(update, begin_time=None)
        if leader == part.job.job_id:
            update = _pinned(update)
        if part.kept.requests.is_22_05:
            taken = _NOTHING_ASKED if leader else replace(_NOTHING_ASKED, begin_time=shut)
            steps.append((part.name, taken))
        steps.append((part.name, update))
        if leader == part.job.job_id:
            steps += [(other.name, spared(other)) for other in others]
    if leader:
        # Only the first component's start time lets the whole job start.
        steps.append((str(leader), JobUpdate(begin_time=NOW)))
    return tuple(steps)


def asked_again(parts: Sequence[ReleasedPart]) -> tuple[tuple[str, JobUpdate], ...]:
    """The updates that give jobs their requests back, on Slurm 22.05, where it refused their slots.

    Without them they would start without GPUs. A job that had slots can only ask for those again.
    """
    steps = []
    for part in parts:
        job, kept = part.job, part.kept
        if kept.requests.is_22_05:
            opens = None if job.het_id else job.eligible or None
            asks = job.requests if any(job.requests) else kept.requests
            steps.append((part.name, JobUpdate(begin_time=opens, **asks._asdict())))
    if steps and (leader := parts[0].job).het_id:
        steps.append((str(leader.het_id), JobUpdate(begin_time=leader.eligible or None)))
    return tuple(steps)


def is_bare(job: QueuedJob, kept: GateRecord) -> bool:
    """Did an engine end between a release's two updates (22.05), leaving the job no request?"""
    return not any(job.requests) and kept.state == GATED and kept.requests.is_22_05


def _given(part: ReleasedPart, now: int) -> JobUpdate:
    """The update that gives exactly these slots, and opens the gate."""
    job, kept = part.job, part.kept
    update = placed(kept, job.ntasks or 1, part.need, part.group, part.mask, part.with_lent)
    if update.min_cpus is not None and update.min_cpus <= job.cpus:
        # Its tasks may need more than its GPUs bring; and Slurm holds a job whose CPUs an operator
        # changes to no limit of CPUs any more.
        update = replace(update, min_cpus=None)
    comment = hints.with_note(kept.placed(now).written_into(job.admin_comment), part.note)
    requests = GpuRequests(*(getattr(update, name) or "" for name in GpuRequests._fields))
    return replace(update, begin_time=NOW, admin_comment=comment, **requests._asdict())


def _pinned(update: JobUpdate) -> JobUpdate:
    """The update for a heterogeneous job's first component: its nodes stand in `pin=`.

    Slurm refuses them in the update itself, but the bridge sets them by `pin=`. Slurm copies this
    comment to the other components: their own updates have to come later.
    """
    comment = update.admin_comment or ""
    kept = GateRecord.read_from(comment)
    assert kept is not None
    comment = kept.changed(pin=update.req_nodes or "").written_into(comment)
    return replace(update, req_nodes=None, num_nodes=None, admin_comment=comment)


def spared(job: QueuedJob) -> JobUpdate:
    """The update that gives a component without slots its own comment and nodes back.

    The update of the first component overwrote them.
    """
    return JobUpdate(req_nodes=job.req_nodes, admin_comment=job.admin_comment)


def regate(job: QueuedJob, kept: GateRecord, begin: int, not_before: int, note: str) -> JobUpdate:
    """The update that gates the job again until `begin`, with no release before `not_before`.

    Its number of nodes stays that of its release until it is given back.
    """
    comment = kept.gated_again(not_before).written_into(job.admin_comment)
    update = _own_request(kept, max(begin, kept.begin), hints.with_note(comment, note))
    update = replace(update, num_nodes=None)
    return _of_leader(update) if job.het_id == job.job_id else update


def _of_leader(update: JobUpdate) -> JobUpdate:
    """Without what Slurm refuses for a first component; it stays on the nodes it was pinned to."""
    return replace(update, req_nodes=None, num_nodes=None)


def give_back(job: QueuedJob, kept: GateRecord, note: str) -> JobUpdate:
    """The update that leaves the job to Slurm, as the user wrote it and without a bracket."""
    comment = without_gate(job.admin_comment)
    begin = kept.begin or NOW
    if kept.state == GATED and not kept.requests.is_22_05:
        # It has its own request still.
        comment, (least, most) = hints.with_note(comment, note), kept.nodes
        # Where no release has narrowed it, a changed number of nodes is an administrator's. Tasks
        # are released one by one, so those that wait together have what Slurm gave them; and it
        # takes an update of nodes for no more than one task (_is_single_job of scontrol's
        # update_job.c).
        is_ours = job.tasks == 1 and (bool(kept.tries) or not kept.is_changed)
        is_within = 0 < job.max_nodes < (most or OPEN_MAX)
        is_narrowed = is_ours and is_within and job.het_id != job.job_id
        nodes = (least, most or OPEN_MAX) if is_narrowed else None
        return JobUpdate(begin_time=begin, num_nodes=nodes, admin_comment=comment)
    update = _own_request(kept, begin, hints.with_note(comment, note))
    if is_bare(job, kept):
        update = replace(update, **kept.requests._asdict())
    return _of_leader(update) if job.het_id == job.job_id else update


def waiting(job: QueuedJob, kept: GateRecord, now: int, note: str) -> JobUpdate:
    """The update that tells why a policy lets the job wait, and since when."""
    since = min(kept.since or now, now)
    comment = kept.changed(since=since).written_into(job.admin_comment)
    return JobUpdate(admin_comment=hints.with_note(comment, note))


def _own_request(kept: GateRecord, begin: int, comment: str) -> JobUpdate:
    least, most = kept.nodes
    nodes = (least, most or OPEN_MAX)
    if kept.requests.is_22_05:
        return JobUpdate(
            begin_time=begin, req_nodes=kept.req_nodes, num_nodes=nodes, admin_comment=comment
        )
    per_task, per_gpu = gpus_of(kept.requests.tres_per_task), kept.cpus_per_gpu
    memory_mb = kept.memory_per_gpu_mb
    return JobUpdate(
        begin_time=begin,
        **kept.requests._asdict(),
        tres_bind=f"gres/gpu:per_task:{per_task}" if per_task else None,
        req_nodes=kept.req_nodes,
        num_nodes=nodes,
        cpus_per_task=kept.cpus_per_task or 1 if per_gpu else None,
        cpus_per_tres=f"gres/gpu:{per_gpu}" if per_gpu else None,
        memory_per_tres=f"gres/gpu:{memory_mb}" if memory_mb else None,
        admin_comment=comment,
    )
