"""One plan for the whole queue, pure: which gates open, which are renewed, what is repaired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, islice
from math import inf

from slurm_plugin.act.gates import change, slot_loans
from slurm_plugin.act.gates.admission import PREEMPTS, SPREAD, Admission
from slurm_plugin.act.gates.limits import NOT_STARTED, Tries
from slurm_plugin.act.gates.plan import (
    FAR_LEASES,
    NEAR,
    Choose,
    GateContext,
    GatePlan,
    Renewal,
    TierTurns,
    Unit,
    Want,
    units_of,
)
from slurm_plugin.act.gates.released import (
    LONGEST_PAUSE_S,
    MOST_TRIES,
    awaited_hold,
    gated_again,
    gpus_in_use,
    is_in_vain,
    may_start_now,
)
from slurm_plugin.act.gates.slot_request import slots_given
from slurm_plugin.act.lending import forms
from slurm_plugin.act.lending.admission import LoanAdmission
from slurm_plugin.act.lending.matcher import LoanMatcher
from slurm_plugin.act.lending.plan import LoanCandidate
from slurm_plugin.base.job_notes.records import GATED, PLACED, is_ahead
from slurm_plugin.queue.backfill import InLine, in_line, in_order, place_at, place_of
from slurm_plugin.queue.capacity import Hold, Nodes, holds_in, with_hold, without_holds
from slurm_plugin.queue.coming import waiting_at_slurm
from slurm_plugin.queue.snapshot import is_up, would_start
from slurm_plugin.slurm.array_tasks import task_runs
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob

HeldBack = Callable[[QueuedJob, Want], bool]

PARTLY_SLURMS = "one of its components is Slurm's to place, on nodes of its own"
MORE_NODES = "it needs more nodes than it asks for at least, and there are limits"
OVERTAKEN = "later jobs that are Slurm's own would start before it time and again"


def plan(
    queue: Iterable[QueuedJob],
    wants: Mapping[int, Want],
    nodes: Nodes,
    context: GateContext,
    choose: Choose,
    promised: Sequence[Hold] = (),
    matcher: LoanMatcher | None = None,
    held_back: HeldBack = lambda *_: False,
) -> GatePlan:
    """Everything to be done now. In `nodes` what is `promised` still counts as free.

    `matcher` says who would lend to jobs that fit nowhere. A job that is `held_back` stays behind
    its gate and delays nobody.
    """
    jobs = list(queue)
    holds = [*holds_in(nodes, jobs, context.now), *promised]
    made = GatePlan(with_hold(nodes, *promised), holds)
    _Planning(jobs, wants, nodes, made, context, choose, matcher, held_back).run()
    return made


@dataclass
class _Planning:
    """One plan in the making."""

    jobs: Sequence[QueuedJob]
    wants: Mapping[int, Want]
    #: Before anything was given to anybody.
    nodes: Nodes
    made: GatePlan
    context: GateContext
    choose: Choose
    matcher: LoanMatcher | None
    held_back: HeldBack

    def __post_init__(self) -> None:
        context, settings = self.context, self.context.settings
        self._borrowers = LoanAdmission(self.made, self.matcher, context.now)
        self._tries = self.made.tries = Tries(
            context.now, context.limits, context.look_s, settings.window_s, settings.backfills
        )
        shared = self._borrowers, self._tries.has_place
        self._admission = Admission(self.made, context, self.choose, *shared)
        # Of ten thousand jobs most are alike in these.
        partitions = settings.by_name
        self._is_up = cache(lambda names: is_up(names.split(","), partitions))
        self._would_start = cache(
            lambda names, time_s, nodes: would_start(names.split(","), time_s, nodes, partitions)
        )
        # By an array's id: how many of its tasks run or are released, and how many may.
        arrays = [job for job in self.jobs if job.array_id]
        self._active = Counter(job.array_id for job in arrays if job.state != "PENDING")
        # Arrays of which a task waits by itself, and how many tasks may run at a time.
        self._split = {job.array_id for job in arrays if self._waits_alone(job)}
        self._throttle = {job.array_id: job.throttle for job in arrays if job.throttle}

    @cached_property
    def _in_use(self) -> dict[str, int]:
        """Asked for only where a released job waits: most looks have none."""
        return gpus_in_use(self.jobs)

    def _waits_alone(self, job: QueuedJob) -> bool:
        want = self.wants.get(job.job_id)
        is_gated = want is not None and want.kept.state == GATED and not want.kept.names_loan
        return job.state == "PENDING" and job.tasks == 1 and is_gated

    def run(self) -> None:
        """First the jobs that have their slots or donors already, then gates in Slurm's order."""
        pending = in_order((j for j in self.jobs if j.state == "PENDING"), self.context.tiers)
        by_id = {job.job_id: job for job in self.jobs}
        gated: list[Unit] = []
        for unit in units_of(pending, self.wants):
            wants = [want for _, want in unit.members]
            self.made.seen.update(want.kept.state for want in wants)
            if problem := next((want.problem for want in wants if want.problem), ""):
                self._leave(unit, problem)
            elif any(want.kept.state == PLACED for want in wants):
                self._await_start(unit)
            elif any(want.kept.names_loan for want in wants):
                self._await_donors(unit, by_id)
            else:
                gated.append(unit)
        self._let_go(gated, pending)
        self._check_limits(gated)
        self._borrowers.settle()
        self.made.renewals.sort()

    def _let_go(self, gated: Iterable[Unit], pending: Iterable[QueuedJob]) -> None:
        """Release what may start, at each unit's turns, and renew the gates of the others."""
        made, turns = self.made, TierTurns(self.context.tiers, self.context.settings.by_name)
        waiting = waiting_at_slurm(pending, self.wants, made.nodes, self.context.now)
        slurms, released, seen = turns.of_slurms(waiting), set[int](), 0
        for place, unit in turns.of_units(gated):
            while slurms and slurms[0][0] < place:
                _, job, need = slurms.popleft()
                self._admission.waits(job, need)
            seen += unit.is_last
            count, job_id = len(made.releases), unit.first[0].job_id
            if job_id in released or self._open(unit):
                if len(made.releases) > count:
                    released.add(job_id)
            elif unit.is_last and self._is_overtaken(unit):
                self._leave(unit, OVERTAKEN)
            elif unit.is_last:
                self._ask_to_lend(unit)
                self._renew(unit, 1 if seen <= NEAR else FAR_LEASES)

    def _await_start(self, unit: Unit) -> None:
        """A released job that has not started: keep its slots, or gate it again after a while."""
        made, context = self.made, self.context
        holds = [awaited_hold(job, want, made.nodes, context) for job, want in unit.members]
        in_use = self._in_use
        is_taken = any(
            mask & in_use.get(node, 0) for one in holds if one for node, mask in one.gpus.items()
        )
        if not is_taken and all(hold is not None for hold in holds):
            for (job, want), hold in zip(unit.members, holds, strict=True):
                assert hold is not None
                self._tries.begin(job, want.need)
                self._active[job.array_id] += 1
                made.take(hold)
            return
        job, want = unit.first
        if is_in_vain(job, want):
            self._leave(unit, f"{MOST_TRIES} releases did not start it ({job.reason or 'None'})")
            return
        for job, want in unit.members:
            if not is_taken:
                self._tries.fail(job, want.need)
            made.updates.append((job.name, gated_again(job, want, context, is_taken=is_taken)))
            made.seen["regated"] += 1
        made.again |= is_taken
        self._spare_others(unit)

    def _await_donors(self, unit: Unit, by_id: Mapping[int, QueuedJob]) -> None:
        """A job with a loan: it is released once its donors are ready."""
        [(job, want)] = unit.members
        outcome = slot_loans.continue_loan(job, want, self.made, by_id, self.context)
        self.made.seen[f"loan {outcome}"] += 1
        self._active[job.array_id] += outcome != slot_loans.BROKEN
        if outcome == slot_loans.MEETS:
            self._renew(unit)

    def _ask_to_lend(self, unit: Unit) -> None:
        """Others may lend to a job that fits nowhere."""
        job, want = unit.first
        if self.matcher is None or want.asked is None or want.need is None:
            return
        if not self._admission.fits_nowhere(want) or not self._is_ready(job, want):
            return
        most = self._throttle.get(job.array_id)
        # One task after the other: the next one is split off when this one has its loan.
        if job.tasks > 1 and (job.array_id in self._split or self._active[job.array_id] == most):
            return
        why = forms.obstacle(want.asked, is_het=bool(job.het_id))
        if self._borrowers.ask(LoanCandidate(job, want.kept, want.need, why)):
            self._admission.changed()

    def _check_limits(self, gated: Iterable[Unit]) -> None:
        """Where others wait for a job that may be over a limit, have Slurm check that."""
        for unit in gated if self._admission.waited_for else ():
            job, want = unit.first
            mine = {member.job_id for member, _ in unit.members}
            has_limits = self.context.settings.has_limits
            may_be_limited = has_limits or job.licenses or self._is_for_some(job)
            if not may_be_limited or mine.isdisjoint(self._admission.waited_for):
                continue
            if self._tries.begin_check(job, want.need):
                self.made.updates.append((unit.gate, JobUpdate(begin_time=NOW)))
                self.made.renewed[job.job_id] = self.context.now
                shut = [one for one in self.made.renewals if one.job_id != job.job_id]
                self.made.renewals = shut

    def _is_for_some(self, job: QueuedJob) -> bool:
        """Does one of its partitions not take everybody's jobs?"""
        found = map(self.context.settings.by_name.get, job.partition.split(","))
        return any(one is not None and one.is_for_some for one in found)

    def _is_overtaken(self, unit: Unit) -> bool:
        """Does a job that is Slurm's own delay this one, though it comes after it in the queue?

        Slurm keeps no room for a job behind its gate, which to it is not to start yet. So such jobs
        could pass the first waiting one for ever.
        """
        job, want = unit.first
        mine = (one for one in self.made.line.waits if one.job == job.job_id)
        # One that has a place since the last look may have been passed already. For one that may
        # borrow donors are asked first: Slurm's own lends it nothing.
        is_asked = self.matcher is not None and want.kept.may_borrow
        lately = inf if is_asked or not job.submit else max(job.submit, self.context.last_look)
        since = self.context.waits_since.get(job.job_id, lately)
        return any(self._is_passed(job, one, since) for one in mine)

    def _is_passed(self, job: QueuedJob, one: InLine, since: float) -> bool:
        """The same of one of its places: it has one at each turn at which it lacked room."""
        made, context = self.made, self.context
        names = one.need.partitions or job.partition.split(",")
        own = place_at(job, min(context.tiers.get(name, 1) for name in names))
        later = [
            other
            for other in self.jobs
            if other.state != "PENDING"
            # Slurm tells whole seconds.
            and other.start > since - 1
            and not slots_given(other)
            and place_of(other, context.tiers) > own
            and not one.names.isdisjoint(other.nodes)
        ]
        if not later:
            return False
        # As they were counted: what one gave back before the nodes were read may be another's.
        holds, left = holds_in(self.nodes, later, context.now), [*made.holds]
        for hold in holds:
            left.remove(hold)
        if any(hold.end == inf for hold in holds):
            return True
        without = in_line(one.need, without_holds(made.nodes, holds), left, context.now)
        lost_s = one.start - without.start if without else 0.0
        # One that costs it little may be the only one.
        return lost_s > (0 if len(later) > 1 else context.lease_s)

    def _leave(self, unit: Unit, why: str) -> None:
        """The unit is Slurm's own from now on."""
        if not unit.is_last or self._is_paused(unit.first[0].name):
            return
        for job, want in unit.members:
            self._give_back(job.name, job, want, why)
        self._spare_others(unit)

    def _give_back(self, name: str, job: QueuedJob, want: Want, why: str) -> None:
        if not self._is_paused(name):
            update = change.give_back(job, want.kept, f"Slurm's own choice: {why}")
            self.made.updates.append((name, update))

    def _spare_others(self, unit: Unit) -> None:
        """Slurm writes the first component's new comment to all: the others get theirs back."""
        job, _ = unit.first
        if job.het_id == job.job_id:
            for other in unit.others:
                self.made.updates.append((other.name, change.spared(other)))

    def _is_paused(self, name: str) -> bool:
        return self.context.is_paused(name, self.context.now)

    def _is_ready(self, job: QueuedJob, want: Want) -> bool:
        """Does only our gate keep the job?"""
        now = self.context.now
        return (
            not job.held
            and not job.depends
            # How many tasks of an array may run is counted here: Slurm's reason may be outdated.
            and (may_start_now(job) or job.reason == "JobArrayTaskLimit")
            and _begin(job, want) <= now
            and not is_ahead(want.kept.retry_at, now, LONGEST_PAUSE_S)
            and not self._is_paused(job.name)
            and self._is_up(job.partition)
            and not self._tries.is_closed(job, want.need)
            and not self.held_back(job, want)
        )

    def _open(self, unit: Unit) -> bool:
        """Release the unit, or as many tasks as there is room for; False: it stays gated."""
        for job, want in unit.members:
            if why := self._slurms_own(job, want):
                self._leave(unit, why)
                return True
        if not all(self._is_ready(job, want) for job, want in unit.members):
            return False
        if unit.nodes_of_others is None:
            self._leave(unit, PARTLY_SLURMS)
            return True
        job, _ = unit.first
        released = False
        for names in self._names(unit):
            if released and self._tries.is_closed(job, unit.first[1].need):
                break
            refused = self._admission.admit(names, unit)
            if refused == SPREAD and job.tasks > 1:
                # The array's other tasks may have room on one node.
                self._give_back(names[0], *unit.first, SPREAD)
            elif refused is not None:
                if refused:
                    self._leave(unit, refused)
                return released or bool(refused)
            else:
                for member, want in unit.members:
                    self._tries.begin(member, want.need)
            released = True
            self._active[job.array_id] += 1
            # Until Slurm has split the released tasks off, the array still counts them as waiting.
            self.made.again |= job.tasks > 1
        return released

    def _slurms_own(self, job: QueuedJob, want: Want) -> str:
        """Why Slurm is to start this job without us; empty where it is not."""
        if not self._would_start(job.partition, job.time_limit_s, want.kept.nodes[0]):
            return NOT_STARTED
        settings, names = self.context.settings, job.partition.split(",")
        if not settings.preempting.isdisjoint(names):
            return PREEMPTS
        nodes, least = want.need.nodes if want.need else 1, want.kept.nodes[0]
        if why := settings.why_slurms(names, nodes):
            return why
        return MORE_NODES if settings.has_limits and nodes > max(least, job.min_nodes) else ""

    def _names(self, unit: Unit) -> Iterator[list[str]]:
        """What updates call the unit: for an array each task that its limit lets start now."""
        job, _ = unit.first
        if not job.array_id:
            yield [member.name for member, _ in unit.members]
            return
        names = iter((job.name,))
        if job.tasks > 1:
            tasks = chain.from_iterable(task_runs(job.task))
            names = (f"{job.array_id}_{task}" for task in tasks)
        if most := self._throttle.get(job.array_id):
            names = islice(names, max(0, most - self._active[job.array_id]))
        for name in names:
            yield [name]

    def _renew(self, unit: Unit, leases: int = 1) -> None:
        """Shut a gate again once half of the time that it is to hold is over.

        The update of a heterogeneous job's first component goes to all of them.
        """
        for job, want in unit.members:
            if change.is_bare(job, want.kept):
                request = JobUpdate(**want.kept.requests._asdict())
                self.made.updates.append((job.name, request))
        job, want = unit.first
        if self._tries.is_being_checked(job, want.need):
            return
        now, lease_s = self.context.now, self.context.lease_s * leases
        if 0 < job.eligible < want.kept.begin and not job.het_id:
            # An administrator's, which shutting the gate would write over. The comment of a
            # heterogeneous job's first component would go to all of them.
            kept = want.kept.changed(begin=job.eligible)
            request = JobUpdate(admin_comment=kept.written_into(job.admin_comment))
            self.made.updates.append((job.name, request))
        if _begin(job, want) - now >= lease_s:
            return
        known = job.eligible if job.reason == "BeginTime" else 0
        until = known or self.context.holds_until.get(job.job_id, 0)
        # A gate that holds for longer than a lease is one from before the clock was set back.
        if until - now < lease_s / 2 or until - now > 2 * lease_s:
            self.made.renewals.append(Renewal(until, unit.gate, job.job_id, leases))


def _begin(job: QueuedJob, want: Want) -> int:
    """When the job may start: its own begin time, or the sooner one that an administrator gave it.

    No gate opens before the job's own begin time.
    """
    begin = want.kept.begin
    return min(begin, job.eligible) if job.eligible else begin
