"""Jobs that were released: what they are about to hold, and what becomes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from policies import mask_of
from slurm_plugin.act.gates import change
from slurm_plugin.act.gates.limits import holds_for_others
from slurm_plugin.act.gates.plan import GateContext, GatePlan, Want
from slurm_plugin.act.gates.slot_request import nodes_given, slots_given, tied_to
from slurm_plugin.base.job_notes.records import PLACED, GateRecord
from slurm_plugin.base.protocol import Notice
from slurm_plugin.decide.record import Build, started
from slurm_plugin.queue.candidates import mask_of_types
from slurm_plugin.queue.capacity import Hold, Nodes, end_of
from slurm_plugin.queue.demand import lacks_only_room
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

logger = logging.getLogger(__name__)

#: A job that did not start after so many releases, and lacks only room, is left to Slurm.
MOST_TRIES = 6
#: For so many seconds after a release Slurm may still show a reason from before it.
STALE_REASON_S = 2
#: Longest pause after a release that came to nothing, in seconds.
LONGEST_PAUSE_S = 300


def may_start_now(job: QueuedJob) -> bool:
    """Whether Slurm names nothing that keeps a job waiting but room, or the gate it had."""
    return lacks_only_room(job, "BeginTime")


def about_to_run(job: QueuedJob) -> QueuedJob:
    """A released job as if it ran on its slots already; any other as it is."""
    kept = GateRecord.read_from(job.admin_comment) if job.state == "PENDING" else None
    if kept is None or kept.state != PLACED:
        return job
    gpus = tuple(sorted(slots_given(job).values()))
    names = nodes_given(job)
    return replace(job, state="RUNNING", gpus=dict.fromkeys(names, gpus)) if gpus else job


def awaited_hold(job: QueuedJob, want: Want, nodes: Nodes, context: GateContext) -> Hold | None:
    """What a released job is about to hold; None where it will not start on its slots."""
    now, need = context.now, want.need
    assert need is not None
    given = slots_given(job)
    masks = {}
    for name in nodes_given(job) & nodes.keys():
        node = nodes[name]
        mask = mask_of_types(node.gpu_types, given)
        masks[name] = node.all_gpus if mask and need.exclusive else mask
    hold = replace(need.hold((), 0, end_of(job, now)), gpus=masks)
    enough = [mask.bit_count() >= need.gpus for mask in masks.values()]
    is_exact = len(masks) == need.nodes and all(enough)
    # abs: where the release lies in the future, the clock was set back.
    age = abs(now - (want.kept.at or job.submit))
    may_start = may_start_now(job) or age < STALE_REASON_S
    # Slurm lets a requeued job wait for two minutes: others may have its slots meanwhile.
    in_time = age <= context.grace_s and job.eligible <= now + STALE_REASON_S
    is_placed = want.kept.state == PLACED
    return hold if is_placed and is_exact and may_start and in_time and not job.held else None


def is_in_vain(job: QueuedJob, want: Want) -> bool:
    """Did all releases of the job come to nothing, and not because of one of Slurm's limits?"""
    return lacks_only_room(job, "BadConstraints") and want.kept.tries + 1 >= MOST_TRIES


def gpus_in_use(jobs: Iterable[QueuedJob]) -> dict[str, int]:
    """The GPUs of jobs that run, masks by node.

    No job that the same reading shows as waiting starts on one of them: one that is Slurm's own may
    have got them just before a submit was answered.
    """
    masks: dict[str, int] = {}
    for job in jobs:
        if job.state in ("RUNNING", "SUSPENDED"):
            for node, gpus in job.gpus.items():
                masks[node] = masks.get(node, 0) | mask_of(gpus)
    return masks


def gated_again(
    job: QueuedJob, want: Want, context: GateContext, *, is_taken: bool = False
) -> JobUpdate:
    """The update that puts a job that did not start behind its gate again, for a pause.

    `is_taken`: another job runs on its GPUs. There are others to try at once.
    One that Slurm put back keeps the begin time that Slurm gave it: a node that did not answer the
    start may still refuse it, and Slurm would end the job wherever it runs by then, and hold it.
    """
    now = context.now
    kept = want.kept
    if job.eligible > now + STALE_REASON_S:
        kept = kept.without("tries")
        # Else it is a gate that did not open. Of one that is held the node has said all already.
        if job.submit > kept.at and not job.held:
            kept = kept.changed(begin=job.eligible)
    # The pause after a limit is that of all jobs that meet it (`limits.py`).
    pause = 0 if is_taken or holds_for_others(job.reason) else min(LONGEST_PAUSE_S, 2**kept.tries)
    why = "released, and not started by Slurm"
    if is_taken:
        why = "released, and its GPUs were another job's by then"
    elif job.reason not in ("", "None"):
        why += f" ({job.reason})"
    if tied := tied_to(job, kept):
        why += f"; Slurm 22.05 gives it nothing but {', '.join(sorted(tied))} again"
    return change.regate(job, kept, now + context.lease_s, now + pause, why)


class Watch:
    """Follows jobs from release to start. `mismatched` counts those on other GPUs than theirs."""

    def __init__(self, write: Callable[[Build], None]) -> None:
        self._write = write
        self._running: set[int] | None = None
        self._tasks: dict[str, Build] = {}
        self.mismatched = 0

    def released(self, name: str, job: QueuedJob, build: Build | None) -> None:
        """Slurm took a release. An array's task gets its id only then: its line comes later."""
        if build is None:
            return
        if job.tasks > 1:
            self._tasks[name] = build
        else:
            self._write(build)

    def follow(self, ours: Sequence[QueuedJob], made: GatePlan) -> None:
        """Log the starts since the last poll, of the jobs that have a record of ours."""
        for job in ours if self._tasks else ():
            build = self._tasks.pop(job.name, None)
            if build is not None:
                self._write(of_job(build, job))
        running = {job.job_id: job for job in ours if job.state == "RUNNING"}
        # After a start of the engine it is not known which of them have their line already.
        for job_id in running.keys() - (running if self._running is None else self._running):
            self._started(running[job_id])
        self._running = set(running)
        alive = {job.array_id for job in ours}
        for name in [n for n in self._tasks if n not in made.released]:
            if int(name.partition("_")[0]) not in alive:
                # It ended before any poll saw its id: the array's is all there is.
                self._write(self._tasks.pop(name))

    def _started(self, job: QueuedJob) -> None:
        gpus = {name: mask_of(indices) for name, indices in job.gpus.items()}
        notice = Notice("started", job.job_id, job.array_id, gpus)
        self._write(lambda: started(notice))
        kept = GateRecord.read_from(job.admin_comment)
        if kept is None or kept.state != PLACED or job.exclusive:
            return
        asked = set(slots_given(job).values())
        other = [name for name, indices in job.gpus.items() if set(indices) != asked]
        if other and asked:
            self.mismatched += 1
            logger.warning(
                "job %d runs on %s instead of GPUs %s", job.job_id, dict(job.gpus), asked
            )


def of_job(build: Build, job: QueuedJob) -> Build:
    """The record of a decision that was made before the job had its id."""
    return lambda: msgspec.structs.replace(build(), job=job.job_id, array=job.array_id)
