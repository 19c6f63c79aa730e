"""Brings the gates in line with the queue: plans, publishes, acts.

Planning and acting run in a thread, one after the other; what submits see changes in the
event loop alone. All state is Slurm's: the first round after a start is like any other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any

from policies import mask_of
from policies.best_fit import domains
from policies.contract.bits import gpus_of
from policies.performance import Shape
from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.act.gates.limits import LOOK_S, Limits
from slurm_plugin.act.gates.plan import Choice, GateContext, GatePlan, Want
from slurm_plugin.act.gates.planning import plan
from slurm_plugin.act.gates.question import ask
from slurm_plugin.act.gates.released import Watch, about_to_run, of_job
from slurm_plugin.act.gates.want import Wants
from slurm_plugin.act.lending.matcher import LoanMatcher
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.base.protocol import WaitFor
from slurm_plugin.base.telemetry import Telemetry
from slurm_plugin.decide.decide import Decider
from slurm_plugin.decide.machines import Machines
from slurm_plugin.decide.neighbours import Neighbours
from slurm_plugin.decide.record import Build
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.backoff import Backoff
from slurm_plugin.queue.candidates import Group
from slurm_plugin.queue.capacity import (
    Hold,
    emptied,
    gpus_by_slot,
    holds_in,
    nodes_of,
    with_hold,
    with_shared,
)
from slurm_plugin.queue.coming import Coming
from slurm_plugin.queue.snapshot import Snapshot
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob, Reservation

logger = logging.getLogger(__name__)

#: Gates that are renewed at once, and how many at most in one round before it is time.
RENEWED_AT_ONCE, MOST_EARLY = 100, 300

#: Why a job is not to start now with this shape; '' where it may.
HoldReason = Callable[[PlacementQuestion, Shape], str]


@dataclass(kw_only=True)
class GateReconciler:
    """One round after the other on one Slurm. Rounds never overlap; submits come at any time.

    `write` takes what becomes a line of the decision log. `hold_reason` may keep jobs behind
    their gates that would fit. A gate holds for `lease_s` seconds; a released job that has not
    started after `grace_s` is gated again.
    """

    client: SlurmClient
    decider: Decider
    cache: CapacityCache
    write: Callable[[Build], None]
    lease_s: int
    grace_s: int
    matcher: LoanMatcher
    neighbours: Neighbours | None = None
    hold_reason: HoldReason | None = None
    clock: Callable[[], float] = time.time
    telemetry: Telemetry = field(default_factory=Telemetry)

    def __post_init__(self) -> None:
        """Begin without anything remembered of the queue."""
        self._kinds = kinds_of(self.decider.machines)
        self.wants = Wants()
        self._watch = Watch(self.write)
        self._backoff = Backoff()
        # Until when (epoch) gates hold whose end Slurm does not show, by job id.
        self._holds_until: dict[int, float] = {}
        # Jobs released and gated again, and updates that Slurm refused, so far.
        self._counts: Counter[str] = Counter()
        # The decisions of this round, by the name of the job or task.
        self._decided: dict[str, Build] = {}
        # Slurm's reservations, and when this round began.
        self._reserved: tuple[Reservation, ...] = ()
        self._began = float("-inf")
        # The jobs that had a place in line at the last look, and since when, by their id.
        self._waits_since: dict[int, float] = {}
        self._waiting: dict[str, int] = {}
        self._limits = Limits()
        # After so many seconds Slurm has looked at a job that was released.
        self._look_s = LOOK_S

    async def reconcile(self, snapshot: Snapshot, known: int) -> GatePlan:
        """One round. `known` jobs had been seen to end when the snapshot was asked for."""
        if self.neighbours is not None:
            # Policies look at who runs where: what is decided now is about this very queue.
            jobs = map(about_to_run, snapshot.jobs)
            running = await asyncio.to_thread(self.neighbours.running_in, jobs)
            told = (snapshot.jobs, snapshot.at, snapshot.settings, self.neighbours.took_s)
            coming = await asyncio.to_thread(Coming, *told)
            self.neighbours.take(running, snapshot.began, coming, starts=True)
        met = self._meet(snapshot.jobs)
        self.cache.forget(snapshot.at, met)
        before = dict(self.cache.promises)
        promised = [promise.hold for token, promise in before.items() if token not in met]
        made = await asyncio.to_thread(self._plan, snapshot, promised)
        # Submits were answered meanwhile: what they were promised is not to be released.
        newer = [p.hold for token, p in self.cache.promises.items() if token not in before]
        _withdraw(made, newer)
        self._publish(made, snapshot, known, met, newer)
        await asyncio.to_thread(self._act, made, snapshot, known)
        return made

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows of the slots mode."""
        polled_at, counts = self.cache.polled_at, self._counts
        return {
            "looked_s_ago": round(self.clock() - polled_at, 3) if polled_at > 0 else None,
            "promised": len(self.cache.promises),
            # Ends of jobs behind which no look has begun yet: what they freed is not given out.
            "ends_unseen": self.cache.ended - self.cache.known,
            **self._waiting,
            **{key: counts[key] for key in ("released", "regated", "refused")},
            "mismatched": self._watch.mismatched,
            "loans": dict(self.matcher.lending.counts),
        }

    def _meet(self, queue: Sequence[QueuedJob]) -> set[str]:
        """The tokens of promises whose jobs Slurm shows; writes their decisions to the log."""
        cache, met = self.cache, set[str]()
        for build in cache.observed:
            self.write(build)
        cache.observed.clear()
        for job in queue if cache.promises or cache.gated else ():
            kept = GateRecord.read_from(job.admin_comment)
            if kept is None or not cache.has_promised(kept.token):
                continue
            met.add(kept.token)
            decision = cache.decision(kept.token)
            if decision is not None:
                self.write(of_job(decision, job))
        return met

    def _plan(self, snapshot: Snapshot, promised: Sequence[Hold]) -> GatePlan:
        partitions = snapshot.settings.partitions
        self._look_s = max(LOOK_S, snapshot.settings.look_s)
        last_look, self._began = self._began, self.clock()
        reserved = self._reserved = self._read_reservations()
        nodes = nodes_of(snapshot.nodes, snapshot.active, gpus_by_slot, self._kinds, partitions)
        nodes = with_shared(nodes, snapshot.nodes, reserved, self._began, snapshot.active)
        if snapshot.settings.is_by_core:
            nodes = {name: replace(node, by_core=True) for name, node in nodes.items()}
        wants = self.wants.read(snapshot.jobs, emptied(nodes), snapshot.settings.defaults)
        matcher = self.matcher if self.matcher.refresh(snapshot) else None
        self._limits.follow(snapshot.jobs, {job: want.need for job, want in wants.items()})
        context = GateContext(
            int(self._began),
            snapshot.settings.tiers,
            # Backfill alone may start a job; its work takes time, too.
            max(self.grace_s, snapshot.settings.backfill_s * 3 // 2),
            matcher.lending.settings.ready_s if matcher else None,
            self._backoff.is_paused,
            lease_s=self.lease_s,
            holds_until=self._holds_until,
            reserved=reserved,
            waits_since=self._waits_since,
            last_look=last_look,
            limits=self._limits.known,
            look_s=self._look_s,
            settings=snapshot.settings,
        )
        self._decided = {}
        made = plan(
            snapshot.jobs,
            wants,
            nodes,
            context,
            self._choose,
            promised,
            matcher,
            self._is_held_back,
        )
        self._limits.learn(made.tries)
        since, in_line = self._waits_since, (one.job for one in made.line.waits)
        self._waits_since = {job: since.get(job, self._began) for job in in_line}
        # The cache adds what is promised itself, for as long as each promise lasts.
        made.nodes = nodes
        self._watch.follow([job for job in snapshot.jobs if job.job_id in wants], made)
        return made

    def _publish(
        self,
        made: GatePlan,
        snapshot: Snapshot,
        known: int,
        met: Collection[str],
        newer: Iterable[Hold],
    ) -> None:
        """What submits see from now on. `newer` was promised while the plan was made."""
        holds = (*holds_in(made.nodes, snapshot.jobs, self.clock()), *made.added)
        self.cache.settings = snapshot.settings
        self.cache.reserved = self._reserved
        line = made.line
        for hold in newer:
            line = line.with_hold(hold)
        self.cache.update(with_hold(made.nodes, *made.added), holds, line, snapshot.at, known, met)
        self.cache.limits = self._limits.known
        self._waiting = {state: made.seen[state] for state in GateRecord.STATES}

    def _choose(self, name: str, job: QueuedJob, want: Want, candidates: Sequence[Group]) -> Choice:
        assert want.need is not None
        question = self._question(job, want)
        choice, self._decided[name] = ask(self.decider, question, want.need, candidates)
        names = chain.from_iterable(group.names for group in candidates)
        if isinstance(choice, WaitFor) and self._loses_window(job, names):
            question = replace(question, postponed=self.decider.waiting.max_postponements)
            choice, self._decided[name] = ask(self.decider, question, want.need, candidates)
        return choice

    def _loses_window(self, job: QueuedJob, names: Iterable[str]) -> bool:
        """Whether a job that waits could not be over before a reservation, and now still can.

        `names` are the nodes it may use. It is let go a lease before: gates are looked at by then.
        """
        now, least_s = self.clock(), self._look_s + self.lease_s
        # A floating one stays as far away as it is. What licences the job needs is not known here.
        near = [
            one
            for one in self._reserved
            if "TIME_FLOAT" not in one.flags and 0 <= one.start - now - job.time_limit_s < least_s
        ]
        if not near:
            return False
        mine = set(names)
        return any(one.licenses or not mine.isdisjoint(one.nodes) for one in near)

    def _read_reservations(self) -> tuple[Reservation, ...]:
        try:
            return tuple(self.client.reservations())
        except SlurmError as error:
            # The gates open all the same; the next round asks again.
            logger.warning("slots: reservations: %s", error)
            return ()

    def _question(self, job: QueuedJob, want: Want) -> PlacementQuestion:
        """What is asked about a job, but for its candidates."""
        now = int(self.clock())
        waited = max(0, now - (want.kept.since or now))
        return PlacementQuestion(
            job=job.job_id,
            array=job.array_id,
            uid=job.uid,
            postponed=waited // max(1, self.decider.waiting.step_s),
            waited_s=waited,
            candidates=(),
            account=job.account,
            partition=job.partition,
            hint=hints.hint_in(job.admin_comment),
            interactive=want.kept.interactive,
        )

    def _is_held_back(self, job: QueuedJob, want: Want) -> bool:
        if self.hold_reason is None or want.need is None:
            return False
        shape = Shape(want.need.nodes, want.need.gpus)
        if not self.hold_reason(self._question(job, want), shape):
            return False
        wanted = want.need.partitions
        names = (node.name for node in self.cache.empty.values() if node.partitions & wanted)
        return not self._loses_window(job, names)

    def _act(self, made: GatePlan, snapshot: Snapshot, known: int) -> None:
        self._carry_out(made, snapshot.at)
        now = self.clock()
        self._backoff.pause(self.matcher.act(made, snapshot.jobs), now)
        self._renew(made, known)

    def _carry_out(self, made: GatePlan, read_at: float) -> None:
        """Releases first: they are what people wait for. Slurm was read at `read_at` (epoch)."""
        self._counts["regated"] += made.seen["regated"]
        for release in made.releases:
            if all(self._update([name], step) for name, step in release.steps):
                self._counts["released"] += len(release.jobs)
                for name, job in release.jobs.items():
                    self._watch.released(name, job, self._decided.get(name))
                    self._observe(job, read_at)
            else:
                for name, change in release.undo:
                    self._update([name], change, quiet=True)
        for name, change in made.updates:
            if self._update([name], change) and (build := self._decided.get(name)):
                self.write(build)

    def _observe(self, job: QueuedJob, read_at: float) -> None:
        """How long the release of this job took, and what it had to wait for."""
        now, kept = self.clock(), GateRecord.read_from(job.admin_comment)
        self.telemetry.gate_releases.add(now - read_at)
        self.telemetry.gate_waits.add(now - max(job.submit, kept.begin if kept else 0))
        if kept is not None and kept.loan_made_at:
            self.telemetry.loan_setups.add(now - kept.loan_made_at)

    def _renew(self, made: GatePlan, known: int) -> None:
        """Shut gates again, a part at a time: the next round goes on where a job has ended."""
        now = self.clock()
        for start in range(0, len(made.renewals), RENEWED_AT_ONCE):
            some, now = made.renewals[start : start + RENEWED_AT_ONCE], self.clock()
            is_soon = some[0].until - now < self.lease_s / 2
            if start and (self.cache.ended != known or (start >= MOST_EARLY and not is_soon)):
                break
            for leases in {one.leases for one in some}:
                until = int(now) + leases * self.lease_s
                alike = [one for one in some if one.leases == leases]
                # Slurm refuses those that ended meanwhile, and does the others.
                names = [one.name for one in alike]
                self._update(names, JobUpdate(begin_time=until), quiet=True)
                made.renewed |= {one.job_id: until for one in alike}
        self._holds_until |= made.renewed
        self._holds_until = {job: until for job, until in self._holds_until.items() if until > now}
        self._backoff.forget(now)

    def _update(self, names: Sequence[str], change: JobUpdate, quiet: bool = False) -> bool:
        """One update for all these jobs; whether Slurm took it. `quiet`: a refusal is expected."""
        try:
            self.client.update(names, change)
        except SlurmError as error:
            level = logging.DEBUG if quiet else logging.WARNING
            logger.log(level, "slots: %s: %s", ", ".join(names[:5]), error)
            if not quiet:
                self._counts["refused"] += 1
                self._backoff.refused(names[0], self.clock())
            return False
        if not quiet:
            self._backoff.accepted(names[0])
        return True


def kinds_of(machines: Machines) -> Callable[[str], tuple[str, tuple[int, ...]]]:
    """Tells a node's kind and its slots by socket; both are empty where no topology is known."""

    @cache
    def kind_of(name: str) -> tuple[str, tuple[int, ...]]:
        machine = machines.get(name)
        if machine is None or machine.topology is None:
            return "", ()
        is_known = None not in machine.topology.numa
        masks = domains(machine.topology) if is_known else ()
        sockets = (mask_of(machine.to_slurm(gpus_of(mask))) for mask in masks)
        return f"{machine.topology.shape} {machine.order}", tuple(sockets)

    return kind_of


def _withdraw(made: GatePlan, promised: Sequence[Hold]) -> None:
    """Drop what would take GPUs that a submit was promised meanwhile; the next round decides."""
    taken: Counter[str] = Counter()
    for promise in promised:
        for name, mask in promise.gpus.items():
            taken[name] |= mask

    def is_promised(holds: Sequence[Hold]) -> bool:
        return any(taken[name] & mask for hold in holds for name, mask in hold.gpus.items())

    offered = [offer.holds for _, _, offer in made.offers]
    holds = [release.holds for release in made.releases] + offered
    dropped = [one for one in holds if is_promised(one)]
    if not dropped:
        return
    made.releases = [release for release in made.releases if not is_promised(release.holds)]
    made.offers = [item for item in made.offers if not is_promised(item[2].holds)]
    for hold in chain.from_iterable(dropped):
        made.added.remove(hold)
    made.again = True
