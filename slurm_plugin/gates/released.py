"""Jobs that were released and have not started yet: what they are about to hold."""

from __future__ import annotations

from dataclasses import replace

from slurm_plugin.gates import change
from slurm_plugin.gates.plan import GateContext, Want
from slurm_plugin.gates.slot_request import nodes_given, slots_given, tied_to
from slurm_plugin.job_notes.records import PLACED, GateRecord
from slurm_plugin.queue.candidates import mask_of_types
from slurm_plugin.queue.capacity import Hold, Nodes, end_of
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

#: Slurm's reasons for a job that is about to start; with any other reason Slurm keeps it waiting.
ABOUT_TO_START = frozenset(("", "None", "BeginTime", "Resources", "Priority", "Cleaning"))
#: After so many releases in vain, by no limit of Slurm's own, the job is left to Slurm.
MOST_TRIES = 6
IN_VAIN = frozenset(("", "None", "Resources", "Priority", "BadConstraints"))
#: Slurm sets a reason when it last tried to schedule the job: for so many seconds after a release
#: the reason may be one from before it.
STALE_REASON_S = 2
#: Longest pause after a release that came to nothing, in seconds.
LONGEST_PAUSE_S = 300


def about_to_run(job: QueuedJob) -> QueuedJob:
    """A released job as if it ran on its slots already; any other as it is."""
    kept = GateRecord.read_from(job.admin_comment) if job.state == "PENDING" else None
    if kept is None or kept.state != PLACED:
        return job
    gpus = tuple(sorted(slots_given(job).values()))
    names = nodes_given(job)
    return replace(job, state="RUNNING", gpus=dict.fromkeys(names, gpus)) if gpus else job


def awaited_hold(job: QueuedJob, want: Want, room: Nodes, context: GateContext) -> Hold | None:
    """What a released job is about to get; None where it will not start on it."""
    now, need = context.now, want.need
    assert need is not None
    given = slots_given(job)
    masks = {}
    for name in nodes_given(job) & room.keys():
        node = room[name]
        mask = mask_of_types(node.gpu_types, given)
        masks[name] = node.all_gpus if mask and need.exclusive else mask
    hold = Hold(masks, need.cpus, need.memory_mb, end_of(job, now))
    enough = [mask.bit_count() >= need.gpus for mask in masks.values()]
    is_exact = len(masks) == need.nodes and all(enough)
    # A release in the future: the clock was set back since.
    age = abs(now - (want.kept.at or job.submit))
    may_start = job.reason in ABOUT_TO_START or age < STALE_REASON_S
    # Slurm lets a requeued job wait for two minutes: others may have its slots meanwhile.
    in_time = age <= context.grace_s and job.eligible <= now + STALE_REASON_S
    is_placed = want.kept.state == PLACED
    return hold if is_placed and is_exact and may_start and in_time and not job.held else None


def is_in_vain(job: QueuedJob, want: Want) -> bool:
    """Was the job released as often as it is tried, and kept waiting by no limit of Slurm's?"""
    return job.reason in IN_VAIN and want.kept.tries + 1 >= MOST_TRIES


def gated_again(job: QueuedJob, want: Want, context: GateContext) -> JobUpdate:
    """The update that puts a job that did not start behind its gate again, for a pause."""
    now = context.now
    is_requeued = job.eligible > now + STALE_REASON_S
    kept = want.kept.without("tries") if is_requeued else want.kept
    pause = min(LONGEST_PAUSE_S, 2**kept.tries)
    why = "released, and not started by Slurm"
    if job.reason not in ("", "None"):
        why += f" ({job.reason})"
    if tied := tied_to(job, kept):
        why += f"; Slurm 22.05 gives it nothing but {', '.join(sorted(tied))} again"
    return change.regate(job, kept, now + context.lease_s, now + pause, why)
