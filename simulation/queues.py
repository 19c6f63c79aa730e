"""The order of the queue: strict first in, first out, or EASY backfill.

In both, a job that waits by its policy's wish lets later ones pass, as in live Slurm. EASY
(Lifka 1995): the first job that does not fit gets a promise of the earliest time it will,
by the walltimes of what runs; later jobs may start now if they end by then or stay off
the nodes it was promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from simulation.occupancy import Room

if TYPE_CHECKING:
    from simulation.engine import Simulator
    from simulation.workload import SimJob

#: How many queued jobs one pass looks at (Slurm's default_queue_depth and bf_max_job_test).
DEPTH = 500


def schedule(run: Simulator) -> None:
    """One pass over the queue."""
    free = sum(state.free != 0 for state in run.room.nodes.values())
    if not run.queue or not free:
        return
    looked_at = list(islice(run.queue.values(), DEPTH))
    for at, job in enumerate(looked_at):
        if not run.may_ask(job):
            continue
        if run.room.room.fits(job.gpus_per_node):
            run.try_start(job)
        elif run.easy:
            _backfill(run, job, looked_at[at + 1 :])
            return
        else:
            return


def _backfill(run: Simulator, first: SimJob, later: Sequence[SimJob]) -> None:
    """Start later jobs that do not delay `first`, which does not fit."""
    start_s, promised = _promise(run, first)
    for job in later:
        if not run.may_ask(job):
            continue
        walltime = run.speed.ideal_s(job) if job.walltime_s is None else job.walltime_s
        reserved = promised if run.now_s + walltime > start_s else frozenset()
        if not run.room.room.fits(job.gpus_per_node):
            continue
        if reserved and not _room_without(run, reserved).fits(job.gpus_per_node):
            continue
        run.try_start(job, without=reserved)


def _room_without(run: Simulator, names: frozenset[str]) -> Room:
    return Room(
        state.free.bit_count() for name, state in run.room.nodes.items() if name not in names
    )


def _promise(run: Simulator, job: SimJob) -> tuple[float, frozenset[str]]:
    """When the job will fit at the latest, and the nodes it will have then.

    By planned ends: a job that outlives its walltime is taken to end now.
    """
    free = {name: state.free.bit_count() for name, state in run.room.nodes.items()}
    room = Room(free.values())
    at_s = run.now_s
    for other in sorted(run.running.values(), key=lambda other: other.planned_end_s()):
        at_s = max(at_s, other.planned_end_s())
        for name, mask in other.masks.items():
            room.move(free[name], free[name] + mask.bit_count())
            free[name] += mask.bit_count()
        if room.fits(job.gpus_per_node):
            break
    # The fullest nodes that will do, so that most of the room stays for others.
    promised: set[str] = set()
    for count in sorted(job.gpus_per_node, reverse=True):
        fitting = (name for name in free if free[name] >= count and name not in promised)
        promised.add(min(fitting, key=lambda name: (free[name], name)))
    return at_s, frozenset(promised)
