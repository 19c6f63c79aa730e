"""Who waits and which GPUs come free, for policies that look ahead.

From the last snapshot of the queue; the select plugin's notices tell which of its jobs have started
or ended since. Ends are those of the jobs' time limits; what jobs used of them is remembered from
one snapshot to the next.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from math import inf

from gres_topology.features import Unsupported
from policies import Ahead, Release, WaitingJob
from policies.contract.hint_keys import BATCH, PROFILE, communication_in
from policies.contract.running import RunningJobs
from policies.errors import HintError
from policies.hints import parse
from policies.horizon.run_times import LimitsUsed
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.queue.backfill import MOST_IN_LINE, MOST_OF_ONE, in_order
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Nodes
from slurm_plugin.queue.demand import Unplaceable, demand_of, lacks_only_room, need_of
from slurm_plugin.queue.slurms_choice import can_start, usable
from slurm_plugin.queue.snapshot import NO_SETTINGS, Settings
from slurm_plugin.slurm.interface import QueuedJob

#: Waiting jobs, and running ones, that a policy sees.
MOST_AHEAD = 32
#: Waiting jobs that are read: a question sees those of its partition.
MOST_READ = 1000
#: So many seconds after a job may start its room is Slurm's to give.
STARTS_S = 30.0
#: What a job without a limit, or one that no snapshot has seen yet, is taken to run (seconds); or
#: as long as the longest of its user's jobs like it, where that is longer.
UNKNOWN_S = 3600.0


class Coming:
    """One snapshot's jobs that wait, in Slurm's order, and the ends of those that run."""

    def __init__(
        self,
        jobs: Iterable[QueuedJob] = (),
        now: float = 0.0,
        settings: Settings = NO_SETTINGS,
        took_s: Callable[[int], Sequence[float]] = lambda job: (),
        former: Coming | None = None,
    ) -> None:
        """`took_s` gives the run times of a user's jobs like one, as far as they are known.

        `former`: the snapshot before, for the jobs that are as they were.
        """
        self._settings = settings
        self._used, self._at = LimitsUsed(), now
        jobs = list(jobs)
        waiting = (job for job in jobs if is_waiting(job, now))
        #: (job, its partitions, what it asks for), one for each task of an array.
        self._waiting: list[tuple[int, tuple[str, ...], WaitingJob]] = []
        #: The same with users' own run times, and these by job.
        self._with_own: list[tuple[int, tuple[str, ...], WaitingJob]] = []
        self._own = {job.job_id: own for job in jobs if (own := took_s(job.job_id))}
        self._user = {job.job_id: job.uid for job in jobs}
        #: Time limits (seconds) of those that have not started, whatever keeps them.
        self._limits = {
            job.job_id: float(job.time_limit_s) for job in jobs if job.state == "PENDING"
        }
        #: Those that are guessed by.
        self._told: dict[int, Sequence[float]] = {}
        #: What each job that waits asks for, as far as that is known.
        self._asked: dict[int, tuple[QueuedJob, WaitingJob | None]] = {}
        before = former._asked if former is not None else {}
        for job in islice(in_order(waiting, {}), MOST_READ):
            was = before.get(job.job_id)
            asked = was[1] if was is not None and was[0] is job else asked_of(job)
            self._asked[job.job_id] = job, asked
            if asked is not None:
                own = self._own.get(job.job_id, ())
                if own:
                    asked = replace(asked, lasts_s=_limit_s(job, own))
                one = (job.job_id, tuple(job.partition.split(",")), asked)
                self._waiting += [one] * min(job.tasks, MOST_AHEAD)
                one = (*one[:2], replace(asked, took_s=own)) if own else one
                self._with_own += [one] * min(job.tasks, MOST_AHEAD)
        #: Of those that wait the ones that have begun since.
        self._begun: set[int] = set()
        self._lasts_s = {job_id: asked.lasts_s for job_id, _, asked in self._waiting}
        #: Start (epoch) and limit (seconds; 0 where it is not known) of those that run.
        self._runs: dict[int, tuple[float, float]] = {
            job.job_id: (
                job.start,
                job.end - job.start
                if job.time_limit_s
                else _limit_s(job, self._own.get(job.job_id, ())),
            )
            for job in jobs
            if job.end and job.gpus
        }
        self._end_of = {job_id: sum(run) for job_id, run in self._runs.items()}
        #: (epoch, job), the first to end first.
        self._ends = sorted((end, job_id) for job_id, end in self._end_of.items())
        #: The first ends, and by partition the first jobs that wait, as a question found them;
        #: nothing where a start or an end may have changed that.
        self._next: list[Release] | None = None
        #: An end after this one (epoch) is not among them.
        self._next_until = inf
        self._first: dict[str, tuple[tuple[int, ...], tuple[WaitingJob, ...]]] = {}

    def started(self, job_id: int, now: float, array: int = 0) -> None:
        """A job started after the snapshot, where a task of an `array` had no id of its own yet."""
        limit_s = self._lasts_s.get(job_id, 0.0)
        if array in self._limits:
            self._limits.setdefault(job_id, self._limits[array])
        self._forget_end(job_id)
        if job_id in self._lasts_s:
            self._begun.add(job_id)
            self._first.clear()
        self._runs[job_id] = now, limit_s
        end = self._end_of[job_id] = now + (limit_s or UNKNOWN_S)
        insort(self._ends, (end, job_id))
        self._changed(end)

    def ended(self, job_id: int, now: float) -> tuple[float, float]:
        """A job ended, which shows what it used of its limit where a snapshot told that.

        Returns how long it ran and its limit (seconds); 0 where they are not known.
        """
        start, limit_s = self._runs.pop(job_id, (now, 0.0))
        user = self._user.get(job_id)
        self._used.ended(now - start, limit_s, self._own.get(job_id, ()), user)
        self._forget_end(job_id)
        return now - start, limit_s or self._limits.get(job_id, 0.0)

    def _forget_end(self, job_id: int) -> None:
        """Else every question would pass over it until the next snapshot."""
        end = self._end_of.pop(job_id, None)
        if end is not None:
            del self._ends[bisect_left(self._ends, (end, job_id))]
            self._changed(end)

    def _changed(self, end: float) -> None:
        """Somebody who ends then came or went."""
        if end <= self._next_until:
            self._next = None

    def follow(
        self, former: Coming, later: Collection[int], alive: RunningJobs, now: float
    ) -> list[tuple[int, tuple[float, float]]]:
        """Know what was learned before, and what became of the jobs told of `later`.

        Where nobody told, a job that this snapshot has not ended just before it. Returns these,
        each with what `ended` says.
        """
        self._used = former._used
        gone = former._runs.keys() - self._runs.keys() - set(later)
        ended = [(job_id, former.ended(job_id, self._at)) for job_id in gone]
        self._told = {
            job_id: own
            for job_id, own in self._own.items()
            if self._used.own_are_nearer(self._user[job_id])
        }
        self._waiting = [
            own if own[0] in self._told else one
            for one, own in zip(self._waiting, self._with_own, strict=True)
        ]
        for job_id in later:
            if alive.get(job_id) is None:
                self._runs.pop(job_id, None)
                self._begun.add(job_id)
            elif job_id not in self._runs:
                self.started(job_id, former._runs.get(job_id, (now, 0.0))[0])
                if job_id in former._limits:
                    self._limits.setdefault(job_id, former._limits[job_id])
        for job_id, (start, _) in former._runs.items():
            seen, limit_s = self._runs.get(job_id, (0.0, 0.0))
            # Slurm knows whole seconds; who told of the start knew better.
            if 0 < start - seen < 1:
                self._runs[job_id] = start, limit_s
        self.outdate()
        return ended

    def outdate(self) -> None:
        """Other jobs run than starts and ends have told of."""
        self._next = None
        self._first.clear()

    def ahead(
        self,
        asked: PlacementQuestion,
        running: RunningJobs,
        now: float,
        usual: float | None = None,
    ) -> Ahead:
        """What the job of a question finds; `running` are the jobs that run now.

        `usual`: what jobs communicate that do not say.
        """
        own = asked.job if asked.job in self._lasts_s else asked.array
        if self._next is None:
            jobs = list(islice(self._ends_of(running), MOST_AHEAD))
            self._next = list(chain.from_iterable(jobs))
            is_full = len(jobs) == MOST_AHEAD and bool(jobs[-1])
            self._next_until = self._next[-1].end_s if is_full else inf
        others, before = self._others(own, asked.partition, running)
        lasts_s = self._lasts_s.get(own, UNKNOWN_S)
        used, own_s = self._used.parts(), self._told.get(own, ())
        settings = self._settings
        return Ahead(
            lasts_s,
            others,
            self._next,
            backfill=settings.backfills,
            used=used,
            took_s=own_s,
            now_s=now,
            is_private=settings.hides_jobs,
            waited_s=asked.waited_s,
            usual=usual,
            before=before,
            used_by=self._used.users(),
        )

    def _ends_of(self, running: RunningJobs) -> Iterator[list[Release]]:
        """What each of those that run gives back, by their limits; the first to end first."""
        for end, job_id in self._ends:
            job, run = running.get(job_id), self._runs.get(job_id)
            if job is not None and run is not None:
                told = self._told.get(job_id, ())
                yield [
                    Release(end, name, mask, run[0], job_id, told)
                    for name, mask in job.gpus.items()
                ]

    def _others(
        self, own: int, partition: str, running: RunningJobs
    ) -> tuple[Sequence[WaitingJob], int]:
        """Who else waits, of the tasks of one's own array all but one; how many come before.

        A job that no reading of the queue has seen is the last one.
        """
        known = self._first.get(partition)
        if known is None:
            waiting = (
                (job_id, job)
                for job_id, partitions, job in self._waiting
                if partition in partitions
                and job_id not in self._begun
                and running.get(job_id) is None
            )
            first = list(islice(waiting, MOST_AHEAD + 1))
            ids, jobs = zip(*first, strict=True) if first else ((), ())
            known = self._first[partition] = ids, jobs
        ids, jobs = known
        if own in ids:
            at = ids.index(own)
            return jobs[:at] + jobs[at + 1 :], at
        return jobs[:MOST_AHEAD], min(len(jobs), MOST_AHEAD)


def _limit_s(job: QueuedJob, own: Sequence[float]) -> float:
    return float(job.time_limit_s or max((UNKNOWN_S, *own)))


def waiting_at_slurm(
    ordered: Iterable[QueuedJob], gated: Container[int], nodes: Nodes, now: float
) -> list[tuple[QueuedJob, Need]]:
    """The first jobs that are not behind a gate and wait for room, with what they need.

    Slurm keeps room for them, so a gated job that would delay them would be released in vain. Where
    one may start only now, as a gate of ours has opened, Slurm is about to do that.
    """
    found, looked_at = list[tuple[QueuedJob, Need]](), Counter[int]()
    for job in ordered:
        if job.job_id in gated or not any("gpu" in text for text in job.requests):
            continue
        # Each user's jobs have a share of the places in line.
        if looked_at[job.uid] >= MOST_OF_ONE or not is_waiting(job, now):
            continue
        looked_at[job.uid] += 1
        if looked_at.total() > MOST_IN_LINE:
            break
        try:
            need = need_of(demand_of(job), nodes)
            is_about_to = 0 <= now - job.eligible < STARTS_S
            if usable(need, nodes) and (is_about_to or not can_start(need, nodes)):
                found.append((job, need))
        except (Unplaceable, Unsupported, ValueError):
            continue
    return found


def is_waiting(job: QueuedJob, now: float) -> bool:
    """Whether Slurm would start the job as soon as there is room.

    Until Slurm looks at a job again it shows a begin time that is over, and that of a gate of ours.
    Of a job that names nodes it has one code for those that others hold and for those that are
    down (`ReqNodeNotAvail`, src/slurmctld/node_scheduler.c).
    """
    if job.state != "PENDING" or job.depends or not job.priority:
        return False
    is_due = job.eligible <= now or GateRecord.read_from(job.admin_comment) is not None
    return is_due and lacks_only_room(job, "BeginTime", "ReqNodeNotAvail")


def asked_of(job: QueuedJob) -> WaitingJob | None:
    """None for a job whose GPUs per node are not known, or whose request is none we can read."""
    try:
        demand = demand_of(job)
    except (Unplaceable, ValueError):
        return None
    nodes = max(1, demand.nodes)
    gpus = demand.per_node or -(-demand.gpus // nodes)
    if not gpus:
        return None
    try:
        values = parse(
            hints.hint_of(job.admin_comment, job.comment), default_policy="horizon"
        ).values
    except HintError:
        values = {}
    return WaitingJob(
        (gpus,) * nodes,
        float(job.time_limit_s or UNKNOWN_S),
        values.get("pattern", "ring"),
        values.get("sensitive", "yes") == "yes",
        communication_in(values),
        values.get(PROFILE.name, ""),
        int(values.get(BATCH.name, "0")),
        job.uid,
    )
