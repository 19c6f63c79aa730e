"""Who may pass the first in line of one partition, as Slurm shows it: pure, from look to look.

Whether a job fits goes by GPUs alone, so what is let pass may lack something else: it gets its own
place back soon. Slurm's limits, holds, dependencies, reservations and begin times stay Slurm's. A
job's limit is here when Slurm ends it: its time limit, and how much longer OverTimeLimit lets it
run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from policies.contract.bits import lowest_bits
from policies.order.durations import Learning
from policies.order.passing import Passing
from slurm_plugin.act.order.learned_durations import known_of
from slurm_plugin.base.job_notes import hints
from slurm_plugin.config.sections import Rule
from slurm_plugin.queue.backfill import in_order
from slurm_plugin.queue.backoff import Backoff
from slurm_plugin.queue.candidates import Need, fullest
from slurm_plugin.queue.capacity import (
    Hold,
    Nodes,
    gpus_of_any_type,
    held_by,
    nodes_of,
    with_hold,
    without_holds,
)
from slurm_plugin.queue.coming import asked_of, is_waiting
from slurm_plugin.queue.demand import Unplaceable, lacks_only_room, node_names
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob, SlurmNode

#: A job that was let pass begins within so many seconds, or lacks something else than GPUs.
GRACE_S = 20.0
#: The pause before such a job may pass again.
PAUSE_S = 60.0
#: Jobs let pass in one look.
MOST_AT_ONCE = 50
#: Different requests that did not fit after which no more are tried in one look: of one user, and
#: in all. Each is looked for on all nodes, while other loops wait for their turn.
MOST_TRIED_OF_USER, MOST_TRIED = 20, 200
#: The largest site factor that scontrol takes.
MOST_FACTOR = 2**31 - 3

#: How scontrol shows that there is no such plugin.
_NO_PLUGIN = ("", "(null)", "site_factor/none")
#: How the note of a job that was let pass begins: where Slurm hides others' jobs it names none.
_PASSED, _PASSED_OTHER = "passed job ", "passed another user's job"
#: Slurm looks at time limits every half a minute, and then waits for KillWait.
_ENDING = "and what Slurm takes to end a job"

Update = tuple[QueuedJob, JobUpdate]


@dataclass(frozen=True, slots=True)
class Raised:
    """A job that was let pass, and when (epoch); remembered until Slurm forgets the job."""

    job_id: int
    at: float
    #: What Slurm had computed for it: its own place in the order.
    priority: int
    #: The limit by which it passed (seconds); 0 once it began with that, or where it is not known.
    limit_s: int = 0

    def has_another_limit(self, job: QueuedJob) -> bool:
        """Has the job's owner changed its limit since? Slurm lets owners, while jobs wait."""
        return bool(self.limit_s) and job.time_limit_s != self.limit_s


def why_not(slurm_config: Mapping[str, str]) -> tuple[str, str] | None:
    """Why site factors do not order this site's queue, and what to do; None where they do."""
    kind = slurm_config.get("PriorityType", "") or "not known"
    if kind != "priority/multifactor":
        return f"PriorityType is {kind}", "PriorityType=priority/multifactor"
    plugin = slurm_config.get("PrioritySiteFactorPlugin", "")
    if plugin not in _NO_PLUGIN:
        problem = f"PrioritySiteFactorPlugin is {plugin}: the site factors are its own"
        return problem, "take PrioritySiteFactorPlugin out of slurm.conf, or do without"
    return None


def endless(over_s: Mapping[str, float]) -> tuple[str, str] | None:
    """Partitions in which nobody passes as Slurm ends no job at its limit, and what to do.

    `over_s`: for how long jobs of each may run on there.
    """
    names = ", ".join(name for name, seconds in sorted(over_s.items()) if seconds == math.inf)
    said = f"OverTimeLimit of {names} is UNLIMITED, so limits end no job there"
    return (said, "give OverTimeLimit a number of minutes") if names else None


def own_place(job: QueuedJob) -> JobUpdate:
    """What gives a job that was let pass its own place again, and takes our note of it away."""
    is_ours = hints.note_in(job.admin_comment).startswith((_PASSED, _PASSED_OTHER))
    return JobUpdate(site_factor=0, admin_comment=_noted(job, "") if is_ours else None)


def begun(job: QueuedJob, raised: Raised) -> tuple[Raised, JobUpdate | None]:
    """What is remembered of a job that began, and what makes its limit the one it passed by.

    Its owner may have raised the limit between the last look and the start: then the first in line
    would be held up for as long as its owner likes. Only an operator can raise it from now on.
    """
    is_longer = raised.has_another_limit(job) and not 0 < job.time_limit_s < raised.limit_s
    if not is_longer:
        return replace(raised, limit_s=0), None
    # Until Slurm shows it: an update may be refused.
    return raised, JobUpdate(time_limit=math.ceil(raised.limit_s / 60))


@dataclass(slots=True)
class _Room:
    """What is free in one look. It only shrinks: what did not fit does not fit later, either."""

    nodes: Nodes
    _failed: set[tuple[object, ...]] = field(default_factory=set)
    _of_user: Counter[int] = field(default_factory=Counter)

    def take(self, job: QueuedJob) -> bool:
        """Whether the job fits; then it has its GPUs."""
        # By its texts: to read them, too, takes time.
        asked = (tuple(job.requests), job.min_nodes, job.ntasks, job.req_nodes, job.exc_nodes)
        is_over = self._of_user[job.uid] >= MOST_TRIED_OF_USER or len(self._failed) >= MOST_TRIED
        if asked in self._failed or is_over:
            return False
        hold = _place(_need(job), self.nodes)
        if hold is None:
            self._failed.add(asked)
            self._of_user[job.uid] += 1
            return False
        self.nodes = with_hold(self.nodes, hold)
        return True


@dataclass(slots=True)
class PassingInPartition:
    """One partition's rule and what it did; times are epochs.

    `learning` is the site's: whoever reads the queue teaches it.
    """

    name: str
    rule: Rule
    learning: Learning
    passed: int = 0
    #: What is to be told of jobs, the newest last; whoever writes it down empties it.
    told: list[tuple[QueuedJob, str]] = field(default_factory=list)
    #: Do users see their own jobs alone (PrivateData)? Nothing names others' jobs then.
    is_private: bool = False
    #: Who was let pass and is still in the queue; at first those of an engine before, at 0.
    raised: dict[int, Raised] = field(default_factory=dict)
    _passing: Passing = field(init=False)
    _started: dict[int, int] = field(default_factory=dict)
    #: Jobs whose limit was set back.
    _cut: set[int] = field(default_factory=set)
    #: Every job -> its limit, as it was when it was looked at last.
    _known: dict[int, float | None] = field(default_factory=dict)
    _over_s: float = 0.0
    _backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        self._passing = Passing(float(self.rule.order_bound_s), self.rule.order_by, self.learning)

    def look(
        self,
        jobs: Iterable[QueuedJob],
        nodes: Iterable[SlurmNode],
        now: float,
        is_private: bool = False,
        over_s: float = 0.0,
    ) -> list[Update]:
        """The updates that one snapshot leads to. `is_private`: users see their own jobs alone.

        `over_s`: for how long jobs may run on at their limits (OverTimeLimit).
        """
        self.is_private, self._over_s = is_private, over_s
        mine = {job.job_id: job for job in jobs if self.name in job.partition.split(",")}
        self._follow(mine, now)
        if updates := list(self._give_back(mine, now)):
            # Their priorities are not their own yet: the next look sees who is first.
            return updates
        waiting = [
            job
            for job in mine.values()
            if is_waiting(job, now) and lacks_only_room(job, "BeginTime")
        ]
        order = in_order((self._as_slurm_has_it(job) for job in waiting), {})
        # Before the first in line nobody may pass that is none of ours to judge.
        if not order or (need := _need(order[0])) is None:
            return []
        room = nodes_of((n for n in nodes if self.name in n.partitions), (), gpus_of_any_type)
        first, behind = order[0], order[1:]
        let_pass = [held_by(mine[job_id], now) for job_id in self.raised]
        fits = _place(need, room) is not None
        could_start = fits or _place(need, without_holds(room, let_pass)) is not None
        line = {job.job_id for job in order}
        due = self._passing.due_s(first.job_id, could_start, now, line)
        if fits or any(job.job_id in self.raised for job in waiting):
            # What was let pass has not begun: the GPUs that it needs are not in use yet.
            return []
        return list(self._let_pass(first, behind, room, due, now))

    def _as_slurm_has_it(self, job: QueuedJob) -> QueuedJob:
        raised = self.raised.get(job.job_id)
        return job if raised is None else replace(job, priority=raised.priority)

    def _follow(self, jobs: Mapping[int, QueuedJob], now: float) -> None:
        """Know what has ended and what has come."""
        for job_id in self._known.keys() - jobs.keys():
            self._started.pop(job_id, None)
            self._passing.ended(job_id)
        self.raised = {job_id: one for job_id, one in self.raised.items() if job_id in jobs}
        limits = {job_id: self._limit_s(job) for job_id, job in jobs.items()}
        for job_id, job in jobs.items():
            if job.state == "PENDING":
                # Or again: it was requeued, and is not to begin in front a second time.
                was_running = self._started.pop(job_id, None)
                if was_running and job_id in self.raised:
                    self.raised[job_id] = replace(self.raised[job_id], at=0.0)
                is_known = job_id in self._known and self._known[job_id] == limits[job_id]
                if (was_running or not is_known) and (known := known_of(job)).size:
                    self._passing.submitted(job_id, replace(known, limit_s=limits[job_id]))
            elif job.start and job_id not in self._started:
                self._started[job_id] = job.start
                self._passing.started(job_id, float(job.start), job_id in self.raised)
        self._known = limits
        self._cut &= limits.keys()
        self._backoff.forget(now)

    def _limit_s(self, job: QueuedJob) -> float | None:
        """After how long Slurm ends the job, from its start; None where it does not."""
        return job.time_limit_s + self._over_s if job.time_limit_s else None

    def _give_back(self, jobs: Mapping[int, QueuedJob], now: float) -> Iterator[Update]:
        """Those that were let pass and did not begin, or wait again, get their own place again.

        So do those with another limit by now: they passed by what they had. One that has begun so
        gets that limit.
        """
        for job_id, raised in list(self.raised.items()):
            job = jobs[job_id]
            if job.state == "RUNNING":
                self.raised[job_id], update = begun(job, raised)
                if update is not None:
                    self._say_cut(job, raised)
                    yield job, update
            elif job.state == "PENDING" and (
                raised.has_another_limit(job) or not 0 <= now - raised.at <= GRACE_S
            ):
                del self.raised[job_id]
                self._backoff.pause([job.name], now, PAUSE_S)
                yield job, own_place(job)

    def _say_cut(self, job: QueuedJob, raised: Raised) -> None:
        if job.job_id not in self._cut:
            self._cut.add(job.job_id)
            said = f"passed by a limit of {raised.limit_s} s and began with a longer one: it has"
            self.told.append((job, f"{said} the limit that it passed by"))

    def _let_pass(
        self, first: QueuedJob, behind: list[QueuedJob], room: Nodes, due: float, now: float
    ) -> Iterator[Update]:
        able = {job.job_id: job for job in behind if self._is_able(job, now)}
        count = 0
        # On a busy cluster few: every job is looked for on all of them.
        left = _Room({name: node for name, node in room.items() if node.free})
        for job_id in self._passing.may_pass(due, able, now):
            job = able[job_id]
            if count == MOST_AT_ONCE:
                break
            if not left.take(job):
                continue
            count += 1
            factor = min(MOST_FACTOR, first.priority + count - _computed(job))
            self.raised[job_id] = Raised(job_id, now, job.priority, job.time_limit_s)
            self.passed += 1
            said = self._said(job, first, now)
            self.told.append((job, said))
            yield job, JobUpdate(site_factor=factor, admin_comment=_noted(job, said))
        if count:
            said = f"let {count} shorter jobs pass, which hold it up for {self._at_most}"
            self.told.append((first, said))
            if (comment := _noted(first, said)) is not None:
                yield first, JobUpdate(admin_comment=comment)

    def _is_able(self, job: QueuedJob, now: float) -> bool:
        """Single jobs of this partition alone: the others' places are not one number."""
        is_single = job.tasks == 1 and not job.array_id and not job.het_id
        return (
            is_single
            and job.partition == self.name
            and not job.reservation
            and not self._backoff.is_paused(job.name, now)
        )

    @property
    def _at_most(self) -> str:
        """For how long the first in line is held up: what is promised, and no more."""
        return f"at most {self._passing.promise_s:.0f} s {_ENDING}"

    def _said(self, job: QueuedJob, first: QueuedJob, now: float) -> str:
        is_hidden = self.is_private and job.uid != first.uid
        passed = _PASSED_OTHER if is_hidden else f"{_PASSED}{first.name}"
        seconds = self._passing.longest_s(job.job_id, now)
        limit_s = job.time_limit_s + self._over_s
        guess = f"a prediction of {seconds:.0f} s and " if seconds < limit_s else ""
        over = f" with {self._over_s:.0f} s of OverTimeLimit" if self._over_s else ""
        return (
            f"{passed}, by {guess}its limit of {limit_s:.0f} s{over}:"
            f" those that pass hold the first in line up for {self._at_most}"
        )


def _computed(job: QueuedJob) -> int:
    """What Slurm's factors come to: it shows a sum of 0 as 1, since 0 is a job on hold."""
    return job.priority if job.priority > 1 else 0


def _noted(job: QueuedJob, said: str) -> str | None:
    """The job's comment with this note; None where a note stands there that somebody goes by."""
    comment = job.admin_comment
    if hints.postponed_until(comment) is not None or hints.has_note(comment, said):
        return None
    return hints.with_note(comment, said)


def _need(job: QueuedJob) -> Need | None:
    """What the job needs by its GPUs alone; None where that cannot be known."""
    asked = asked_of(job)
    try:
        named, left_out = node_names(job.req_nodes), node_names(job.exc_nodes)
    except Unplaceable:
        return None
    if asked is None:
        return None
    gpus = asked.gpus_per_node
    return Need(max(gpus), len(gpus), cpus=0, req_nodes=named, exc_nodes=left_out)


def _place(need: Need | None, nodes: Nodes) -> Hold | None:
    """The fullest nodes that will do; None where the job does not fit.

    Slurm may take others: the next look sees which.
    """
    if need is None:
        return None
    chosen = fullest(need, nodes)[: need.nodes]
    gpus = {node.name: lowest_bits(node.free, need.gpus) for node in chosen}
    return Hold(gpus) if len(chosen) == need.nodes else None
