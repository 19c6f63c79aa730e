"""One look at the queue: which gates open now, which are renewed, what is repaired.

Pure: a snapshot and the time in, a plan out.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from slurm_plugin.gates import change, slot_loans
from slurm_plugin.gates.plan import Choose, GateContext, GatePlan, JobRelease, Left, Waits, Want
from slurm_plugin.gates.slot_request import nodes_given, slots_given, tied_to
from slurm_plugin.job_notes import hints
from slurm_plugin.job_notes.records import PLACED, GateRecord, is_ahead
from slurm_plugin.lending.askers import Askers, Lends
from slurm_plugin.lending.borrowing import Candidate
from slurm_plugin.queue import backfill
from slurm_plugin.queue.candidates import Need, are_apart, groups, is_even, mask_of_types
from slurm_plugin.queue.capacity import Hold, Nodes, end_of, held_by, with_hold
from slurm_plugin.queue.order import in_order
from slurm_plugin.slurm.array_tasks import task_runs
from slurm_plugin.slurm.interface import QueuedJob

#: Longest pause after a release that came to nothing, in seconds.
LONGEST_PAUSE_S = 300
#: Reasons with which a job is about to start; with others Slurm keeps it for itself.
ABOUT_TO_START = frozenset(("", "None", "BeginTime", "Resources", "Priority", "Cleaning"))
#: So many releases in vain, by no limit of Slurm's own, and it is Slurm's turn to find GPUs.
MOST_TRIES = 6
IN_VAIN = frozenset(("", "None", "Resources", "Priority", "BadConstraints"))
#: A reason is Slurm's of its last scheduling: so old it may be of before the release.
STALE_REASON_S = 2
APART = "no set of GPUs is free on all of its nodes"
UNEVEN = "the best GPUs do not lie evenly on the sockets"
RELEASED, STAYS, LEFT = "released", "stays", "left"

#: Jobs that start together or not at all.
Unit = list[tuple[QueuedJob, Want]]
HeldBack = Callable[[QueuedJob, Want], bool]


class _Stays(Exception):
    """The job stays behind its gate; or, with a text, is left to Slurm for this reason."""

    def __init__(self, leave: str = "") -> None:
        super().__init__(leave)
        self.leave = leave


def plan(
    queue: Iterable[QueuedJob],
    wants: Mapping[int, Want],
    room: Nodes,
    context: GateContext,
    choose: Choose,
    promised: Sequence[Hold] = (),
    lends: Lends | None = None,
    held_back: HeldBack = lambda *_: False,
) -> GatePlan:
    """Everything to be done now. `room` is Slurm's own figures, without what is `promised`.

    `lends` says who would lend to jobs that fit nowhere; a job that is `held_back` is not looked
    at, and delays nobody.
    """
    jobs = list(queue)
    made = GatePlan(room, [held_by(job, context.now) for job in jobs if job.state != "PENDING"])
    for hold in promised:
        made.room = with_hold(made.room, hold)
        made.holds.append(hold)
    return Look(made, wants, context, choose, lends, held_back).over(jobs)


def slots_hold(job: QueuedJob, need: Need, room: Nodes, end: float) -> Hold:
    """What a placed job that has not started is to get, from its own request in Slurm."""
    given = slots_given(job)
    masks = {}
    for name in nodes_given(job) & room.keys():
        node = room[name]
        mask = mask_of_types(node.gpu_types, given)
        masks[name] = node.all_gpus if mask and need.exclusive else mask
    return Hold(masks, need.cpus, need.memory_mb, end)


def about_to_run(job: QueuedJob) -> QueuedJob:
    """A released job as if it ran on its slots already; any other as it is."""
    kept = GateRecord.read_from(job.admin_comment) if job.state == "PENDING" else None
    if kept is None or kept.state != PLACED:
        return job
    gpus = tuple(sorted(slots_given(job).values()))
    names = nodes_given(job)
    return replace(job, state="RUNNING", gpus=dict.fromkeys(names, gpus)) if gpus else job


class Look:
    """The state of one plan in the making."""

    def __init__(
        self,
        made: GatePlan,
        wants: Mapping[int, Want],
        context: GateContext,
        choose: Choose,
        lends: Lends | None,
        held_back: HeldBack,
    ) -> None:
        self._made = made
        self._is_lent = lends is not None
        self._askers = Askers(made, lends, context.now)
        self._held_back = held_back
        self._wants = wants
        self._context = context
        self._choose = choose
        # Room only gets less during a look: what did not fit will not.
        self._no_room: set[Need] = set()
        self._first_start: float | None = None
        self._active: Counter[int] = Counter()
        self._throttle: dict[int, int] = {}
        # By heterogeneous job: components that are Slurm's own, such as those without GPUs.
        self._others: defaultdict[int, list[QueuedJob]] = defaultdict(list)

    def over(self, jobs: Sequence[QueuedJob]) -> GatePlan:
        """All jobs: first what is placed already, then gates in Slurm's order."""
        pending = [job for job in jobs if job.state == "PENDING"]
        self._active.update(j.array_id for j in jobs if j.array_id and j.state != "PENDING")
        for job in jobs:
            if job.array_id and job.throttle:
                self._throttle[job.array_id] = job.throttle
        gated: list[Unit] = []
        there = {job.job_id: job for job in jobs}
        for unit in self._units(in_order(pending, self._context.tiers)):
            self._made.seen.update(want.kept.state for _, want in unit)
            problem = next((want.problem for _, want in unit if want.problem), "")
            if problem:
                self._leave(unit, problem)
            elif any(want.kept.state == PLACED for _, want in unit):
                self._placed(unit)
            elif any(want.kept.names_loan for _, want in unit):
                self._lent(unit, there)
            else:
                gated.append(unit)
        for unit in gated:
            if not self._open(unit):
                self._ask_to_lend(unit)
                self._renew(unit)
        self._askers.settle()
        return self._made

    def _lent(self, unit: Unit, there: Mapping[int, QueuedJob]) -> None:
        """A job that waits for its donors."""
        [(job, want)] = unit
        made, now = self._made, self._context.now
        ready_s = self._context.ready_s if self._is_lent else None
        outcome = slot_loans.look_at(
            job, want, made, there, now, ready_s, end_of(job, self._context.now)
        )
        self._made.seen[f"loan {outcome}"] += 1
        if outcome == slot_loans.MEETS:
            self._renew(unit)

    def _ask_to_lend(self, unit: Unit) -> None:
        """Others may lend to a job that fits nowhere."""
        if not self._is_lent:
            return
        job, want = unit[0]
        if want.asked is None or want.need is None or want.need not in self._no_room:
            return
        if job.tasks > 1 or job.het_id or not self._is_ready(job, want):
            return
        if self._askers.ask(Candidate(job, want.kept, want.asked, want.need)):
            self._first_start = None

    def _units(self, ordered: Iterable[QueuedJob]) -> list[Unit]:
        """Jobs with our bracket; the components of a heterogeneous one together, by offset."""
        units: dict[tuple[str, int], Unit] = {}
        for job in ordered:
            want = self._wants.get(job.job_id)
            if want is not None:
                key = ("het", job.het_id) if job.het_id else ("job", job.job_id)
                units.setdefault(key, []).append((job, want))
            elif job.het_id:
                self._others[job.het_id].append(job)
        return [self._own(sorted(unit, key=lambda m: m[0].het_offset)) for unit in units.values()]

    def _own(self, unit: Unit) -> Unit:
        """Without components that have the first one's bracket, whose own update never came."""
        job, first = unit[0]
        own = [m for m in unit[1:] if m[1].kept.token != first.kept.token]
        for other, _ in unit[1:]:
            if all(other is not job for job, _ in own):
                self._others[job.het_id].append(replace(other, admin_comment="", req_nodes=""))
        return [unit[0], *own]

    def _leave(self, unit: Unit, why: str) -> None:
        if self._is_paused(unit[0][0].name):
            return
        for job, want in unit:
            update = change.give_back(job, want.kept, f"Slurm's own choice: {why}")
            self._made.updates.append((job.name, update))
        self._spare_others(unit)

    def _spare_others(self, unit: Unit) -> None:
        """What the first component was just told goes to all: the others' own words again."""
        job, _ = unit[0]
        if job.het_id == job.job_id:
            for other in self._others[job.het_id]:
                self._made.updates.append((other.name, change.spared(other)))

    def _is_paused(self, name: str) -> bool:
        return self._context.paused.get(name, 0) > self._context.now

    def _placed(self, unit: Unit) -> None:
        """A released job that did not start: keep its slots, after the grace gate it again."""
        holds = [self._held(job, want) for job, want in unit]
        if all(hold is not None for hold in holds):
            for (job, _), hold in zip(unit, holds, strict=True):
                assert hold is not None
                self._active[job.array_id] += 1
                self._made.take(hold)
            return
        now = self._context.now
        job, want = unit[0]
        if job.reason in IN_VAIN and want.kept.tries + 1 >= MOST_TRIES:
            self._leave(unit, f"{MOST_TRIES} releases did not start it ({job.reason or 'None'})")
            return
        for job, want in unit:
            is_requeued = job.eligible > now + STALE_REASON_S
            kept = want.kept.without("tries") if is_requeued else want.kept
            pause = min(LONGEST_PAUSE_S, 2**kept.tries)
            why = "released, and not started by Slurm"
            if job.reason not in ("", "None"):
                why += f" ({job.reason})"
            if tied := tied_to(job, kept):
                why += f"; Slurm 22.05 gives it nothing but {', '.join(sorted(tied))} again"
            begin = now + self._context.lease_s
            update = change.regate(job, kept, begin, now + pause, why)
            self._made.updates.append((job.name, update))
            self._made.seen["regated"] += 1
        self._spare_others(unit)

    def _held(self, job: QueuedJob, want: Want) -> Hold | None:
        """What a placed job is about to get; None where it will not start on it."""
        now, need = self._context.now, want.need
        assert need is not None
        hold = slots_hold(job, need, self._made.room, end_of(job, self._context.now))
        is_exact = len(hold.gpus) == need.nodes and all(
            mask.bit_count() >= need.gpus for mask in hold.gpus.values()
        )
        # A release of the future was before the clock was set back.
        age = abs(now - (want.kept.at or job.submit))
        comes = job.reason in ABOUT_TO_START or age < STALE_REASON_S
        is_placed = want.kept.state == PLACED
        # Slurm lets a requeued job wait for two minutes: its slots are others' meanwhile.
        in_time = age <= self._context.grace_s and job.eligible <= now + STALE_REASON_S
        return hold if is_placed and is_exact and comes and in_time and not job.held else None

    def _is_ready(self, job: QueuedJob, want: Want) -> bool:
        """Does only our gate keep the job?"""
        now = self._context.now
        return (
            not job.held
            and not job.depends
            # An array's limit is kept by our own count: Slurm's word may be an old one.
            and (job.reason in ABOUT_TO_START or job.reason == "JobArrayTaskLimit")
            and want.kept.begin <= now
            and not is_ahead(want.kept.retry_at, now, LONGEST_PAUSE_S)
            and not self._is_paused(job.name)
            and not self._held_back(job, want)
        )

    def _open(self, unit: Unit) -> bool:
        """Release the job, or as many of the array's tasks as there is room for.

        False: it stays behind its gate.
        """
        if not all(self._is_ready(job, want) for job, want in unit):
            return False
        job, _ = unit[0]
        if not job.array_id:
            return self._let_go([job.name for job, _ in unit], unit) != STAYS
        several = job.tasks > 1
        tasks = chain.from_iterable(task_runs(job.task)) if several else iter((0,))
        if most := self._throttle.get(job.array_id):
            tasks = islice(tasks, max(0, most - self._active[job.array_id]))
        outcome, released = STAYS, False
        for task in tasks:
            outcome = self._let_go([f"{job.array_id}_{task}" if several else job.name], unit)
            if outcome != RELEASED:
                break
            self._active[job.array_id] += 1
            released = True
        # Its name covers the released tasks until Slurm has split them off.
        self._made.again |= released and several
        return released or outcome == LEFT

    def _let_go(self, names: Sequence[str], unit: Unit) -> str:
        """All of the unit under these names, or nothing of it: RELEASED, STAYS or LEFT."""
        made = self._made
        room, count, added = made.room, len(made.holds), len(made.added)
        parts: list[change.Part] = []
        try:
            for name, (job, want) in zip(names, unit, strict=True):
                parts.append(self._part(name, job, want, is_first=not parts))
        except _Stays as stays:
            made.room, self._first_start = room, None
            del made.holds[count:]
            del made.added[added:]
            if stays.leave:
                self._leave(unit, stays.leave)
            return LEFT if stays.leave else STAYS
        jobs = {part.name: part.job for part in parts}
        steps = change.release(parts, self._context.now, self._others[unit[0][0].het_id])
        holds, undo = tuple(made.added[added:]), change.asked_again(parts)
        made.releases.append(JobRelease(jobs, steps, holds, undo))
        return RELEASED

    def _part(self, name: str, job: QueuedJob, want: Want, is_first: bool) -> change.Part:
        """The slots for one job, taken from what is free; raises _Stays where there are none."""
        made, need = self._made, want.need
        assert need is not None
        found = [] if need in self._no_room else groups(need, made.room)
        if not found:
            if is_first:
                self._no_room.add(need)
            if are_apart(need, made.room):
                raise _Stays(APART)
            self._askers.no_room(job.job_id, need)
            raise _Stays
        choice = self._choose(name, job, want, found)
        if isinstance(choice, Left):
            raise _Stays(choice.note)
        if isinstance(choice, Waits):
            if not job.het_id:
                # The AdminComment of a first component would go to all of them.
                self._tell(job, want, choice.note)
            raise _Stays
        group, mask = choice.group, choice.mask
        if not is_even(need, made.room[group.own], mask):
            raise _Stays(UNEVEN)
        taken = made.room[group.own].all_gpus if need.exclusive else mask
        hold = need.hold(group.names, taken, end_of(job, self._context.now))
        if self._delays_first(hold):
            raise _Stays
        made.take(hold)
        self._first_start = None
        return change.Part(name, job, want.kept, need, group, mask, choice.note)

    def _delays_first(self, hold: Hold) -> bool:
        made, now = self._made, self._context.now
        if made.first is None:
            return False
        if self._first_start is None:
            self._first_start = backfill.earliest_start(made.first, made.room, made.holds, now)
        after = with_hold(made.room, hold)
        start = backfill.earliest_start(made.first, after, [*made.holds, hold], now)
        return start > self._first_start

    def _tell(self, job: QueuedJob, want: Want, note: str) -> None:
        """Write down why the job waits, once for every new reason (figures do not count)."""
        before = hints.note_in(job.admin_comment)
        since = want.kept.since
        # A wait that begins in the future began before the clock was set back.
        is_told = 0 < since <= self._context.now
        if not is_told or _without_figures(before) != _without_figures(note):
            update = change.waiting(job, want.kept, self._context.now, note)
            self._made.updates.append((job.name, update))

    def _renew(self, unit: Unit) -> None:
        """Every gate is shut again when half of its lease is over.

        Of a heterogeneous job only the first component's: that update goes to all of them.
        """
        for job, want in unit:
            if change.is_bare(job, want.kept):
                self._made.updates.append((job.name, change.asked_for(want.kept)))
        job, want = unit[0]
        now, lease_s = self._context.now, self._context.lease_s
        if want.kept.begin - now >= lease_s:
            return
        known = job.eligible if job.reason == "BeginTime" else 0
        until = known or self._context.holds_until.get(job.job_id, 0)
        # Longer than a lease it holds where the clock was set back.
        if until - now < lease_s / 2 or until - now > 2 * lease_s:
            self._made.renew.append(str(job.het_id) if job.het_id else job.name)
            self._made.renewed.append(job.job_id)


def _without_figures(text: str) -> str:
    return re.sub(r"[\d.]+", "#", text)
