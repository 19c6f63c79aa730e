"""Finds donors for the jobs that may borrow, and carries out what was planned."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gres_topology.features import Unsupported
from policies import Request
from policies.remote import RemoteJob
from policies.remote.r_queue import ExpectedRelease
from slurm_plugin.act.lending import record, take_back
from slurm_plugin.act.lending.choice.batch import Round
from slurm_plugin.act.lending.choice.network_use import (
    UNKNOWN,
    NetworkUse,
    network_loads,
    network_use,
)
from slurm_plugin.act.lending.choice.offer import (
    TOO_SLOW,
    Borrower,
    Offer,
    Refusal,
    SpareCapacity,
    offer,
)
from slurm_plugin.act.lending.choice.solver import Solver, SolverStarting
from slurm_plugin.act.lending.donors import LONGEST_PAUSE_S, SlurmLoans
from slurm_plugin.act.lending.plan import LoanCandidate, LoanPlan
from slurm_plugin.act.lending.take_back import Borrowed
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.records import is_ahead
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.config.sections import Rule, WaitingConfig
from slurm_plugin.decide.preferences import HintRefused, Preferences, read_preferences
from slurm_plugin.decide.record import Build
from slurm_plugin.learn.job_profiles import Remote
from slurm_plugin.queue.candidates import Need, may_use
from slurm_plugin.queue.capacity import Hold, Nodes, end_of
from slurm_plugin.queue.snapshot import Settings, Snapshot
from slurm_plugin.slurm.interface import QueuedJob

logger = logging.getLogger(__name__)

#: Seconds after which a round makes no more loans: gates and other jobs wait for its end.
ROUND_S = 10.0
#: The rule for a job of (partition, account, uid).
RuleOf = Callable[[str, str, int], Rule]


@dataclass
class LoanMatcher:
    """Finds loans for a plan, and carries the plan out; used by one thread at a time."""

    lending: SlurmLoans
    rule: RuleOf
    waiting: WaitingConfig
    #: Takes lines of the decision log.
    write: Callable[[Build], None]
    clock: Callable[[], float]
    #: What the site wrote of its jobs, by the name of the profile.
    profiles: Mapping[str, Remote]

    def __post_init__(self) -> None:
        """Make the solver where one is wanted; it starts when it is first asked."""
        self._solver = Solver(self.lending.settings.solve_s) if self.at_once else None
        self._loads: Mapping[str, float] = {}
        self._site: Settings | None = None
        self._obstacle = ""
        # The jobs for which lent GPUs were taken back.
        self._served: set[int] = set()

    @property
    def at_once(self) -> bool:
        """Are donors chosen for all jobs together (DRMaestro), or job by job?"""
        return self.lending.settings.decider == "drmaestro"

    def refresh(self, snapshot: Snapshot) -> bool:
        """Use this snapshot from now on; whether anything can be lent."""
        settings = self.lending.settings
        if settings.allow and snapshot.settings is not self._site:
            self._site = snapshot.settings
            self._obstacle = self.lending.obstacle(snapshot.settings.config)
            if self._obstacle:
                logger.warning("remote: nothing is lent: %s (docs/remote-setup.md)", self._obstacle)
        is_open = settings.allow and not self._obstacle
        if is_open and self.at_once:
            self._watch_network(snapshot.jobs)
        return is_open

    def _watch_network(self, queue: Sequence[QueuedJob]) -> None:
        """Note how much of each node's network the running loans use."""
        running = []
        for job in queue:
            noted = None if job.state == "PENDING" else self.lending.record_of(job)
            loan = noted.loan if noted else None
            if loan is not None:
                preferences = self._preferences(job)
                use = UNKNOWN if preferences is None else self._use(preferences)
                running.append((loan, use.share))
        self._loads = network_loads(running)

    def borrow(self, jobs: Sequence[LoanCandidate], plan: LoanPlan) -> list[Offer | Refusal | None]:
        """A loan for each of these jobs, or why there is none; None for one that may not borrow."""
        now = int(self.clock())
        borrowers = [self._borrower(candidate, plan, now) for candidate in jobs]
        asking = [one for one in borrowers if isinstance(one, Borrower)]
        if not asking:
            return [one for one in borrowers if not isinstance(one, Borrower)]
        is_auto = any(one.is_auto for one in asking)
        ending = _releases(plan.holds, now) if is_auto else []
        capacity = spare_capacity(plan.nodes, ending, self._loads)
        answers = iter(self._decide(asking, capacity, plan))
        return [next(answers) if isinstance(one, Borrower) else one for one in borrowers]

    def _decide(
        self, jobs: Sequence[Borrower], capacity: SpareCapacity, plan: LoanPlan
    ) -> Sequence[Offer | Refusal | None]:
        settings = self.lending.settings
        if self._solver is None:
            return [offer(job, capacity, settings) for job in jobs]
        most = self.waiting.max_postponements
        try:
            return Round(jobs, capacity, settings, self._solver, most).decide()
        except SolverStarting:
            plan.again = True
            return [None] * len(jobs)

    def _borrower(
        self, candidate: LoanCandidate, plan: LoanPlan, now: int
    ) -> Borrower | Refusal | None:
        """The job as a borrower; None where it, or the site, does not let it borrow now."""
        job, noted, need = candidate.job, candidate.record, candidate.need
        if not noted.may_borrow:
            return None
        preferences = self._preferences(job)
        if preferences is None or is_ahead(noted.next_loan_at, now, LONGEST_PAUSE_S):
            return None
        if self.lending.slow.is_one(job.uid):
            return TOO_SLOW
        step_s = max(1, self.waiting.step_s)
        held = noted.held_by_network_since or now
        use = self._use(preferences)
        one = borrower(need, plan.nodes, self.lending.settings)
        asked = replace(
            one.asked,
            rounds_waited=max(0, now - job.submit) // step_s,
            postponed=max(0, now - held) // step_s,
            sensitivity=use.sensitivity,
            max_slowdown=use.max_slowdown or math.inf,
        )
        limit_s, end = job.time_limit_s or math.inf, end_of(job, now)
        is_auto = preferences.is_auto
        return replace(one, asked=asked, is_auto=is_auto, limit_s=limit_s, end=end, use=use)

    def _preferences(self, job: QueuedJob) -> Preferences | None:
        """What the job prefers where it may borrow; None where it may not."""
        rule = self.rule(job.partition, job.account, job.uid)
        try:
            preferences = read_preferences(hints.hint_in(job.admin_comment), rule)
        except HintRefused:
            return None
        return preferences if rule.mode == "enforce" and preferences.remote else None

    def _use(self, preferences: Preferences) -> NetworkUse:
        return network_use(preferences.profile, self.profiles, self.lending.settings.wires)

    def act(self, plan: LoanPlan, queue: Sequence[QueuedJob]) -> list[str]:
        """End loans, make new ones, then end what is left over of loans.

        Returns the names of the jobs whose loans Slurm refused.
        """
        by_id = {job.job_id: job for job in queue}
        for job, noted, why in plan.broken:
            pause_s = self.lending.give_up(job, noted, why, by_id)
            self.write(record.over(job, noted, why, pause_s))
        for job, noted, refusal in plan.refusals:
            if self.lending.refuse(job, noted, refusal):
                self.write(record.refused(job, noted, refusal))
        for job in plan.splits:
            self.lending.split(job)
        refused = []
        ends = time.monotonic() + ROUND_S
        for job, noted, planned in plan.offers:
            in_time = time.monotonic() < ends
            loan = self.lending.lend(job, noted, planned, plan.nodes) if in_time else None
            if loan is None:
                refused.append(job.name)
            else:
                self.write(record.lent(job, noted, loan, planned.why))
        self._take_back(plan, queue)
        self.lending.tidy(queue)
        for one in self.lending.ledger.ended():
            self.write(record.ended(one))
            self.lending.counts.update(one.counts())
        return refused

    def _take_back(self, plan: LoanPlan, queue: Sequence[QueuedJob]) -> None:
        """Requeue one borrower for the first job that waits, where the site wants that."""
        settings, now, first = self.lending.settings, self.clock(), plan.waits
        if settings.take_back == "no" or plan.first is None or first is None:
            return
        is_open = bool(plan.offers or plan.broken or plan.again) or first.job_id in self._served
        if is_open or now < first.submit + settings.take_back_s:
            return
        try:
            borrowed = list(self._may_be_requeued(queue))
            one = take_back.chosen(plan.first, plan.nodes, borrowed, queue, now)
        except Unsupported:
            return
        if one is None:
            return
        # Whatever comes of it, this job takes nothing back again.
        self._served.add(first.job_id)
        if self.lending.take_back(one.job, one.record, first.name):
            self.write(record.taken_back(one.job, one.record, first.name))

    def _may_be_requeued(self, queue: Sequence[QueuedJob]) -> Iterator[Borrowed]:
        """The running borrowers that allow it, and were not before."""
        for job in queue:
            noted = self.lending.record_of(job) if job.state == "RUNNING" else None
            loan = noted.loan if noted else None
            if noted is None or loan is None or noted.taken_back_at:
                continue
            preferences = self._preferences(job)
            if preferences is not None and preferences.may_be_requeued:
                yield Borrowed(job, noted, loan)

    def close(self) -> None:
        """End what runs beside the engine."""
        if self._solver is not None:
            self._solver.close()


def borrower(need: Need, nodes: Nodes, settings: RemoteConfig) -> Borrower:
    """The job behind a need, with the nodes that it may use, and those on which it may run.

    What it asks of its node's name and GPU model counts for its own node alone: any model that the
    site calls equal may lend.
    """
    models = frozenset(model for kind in need.types for model in settings.like(kind))
    there = replace(need, gpus=1, req_nodes=frozenset(), types=frozenset())
    usable, hosts = set(), set()
    for name, node in nodes.items():
        if not node.gpu_types:
            continue
        like = settings.like(node.model)
        alike = replace(node, features=node.features | like) if len(like) > 1 else node
        if may_use(there, alike) and (not models or not models.isdisjoint(node.gpu_types)):
            usable.add(name)
            if may_use(replace(need, gpus=1), node):
                hosts.add(name)
    only = frozenset(hosts) if len(hosts) < len(usable) else frozenset()
    asked = RemoteJob(Request((need.gpus,)), need.cpus, need.memory_mb, hosts=only)
    return Borrower(asked, frozenset(usable if hosts else ()), partitions=need.partitions)


def spare_capacity(
    nodes: Nodes, releases: Sequence[ExpectedRelease] = (), loads: Mapping[str, float] | None = None
) -> SpareCapacity:
    """What the open nodes have left."""
    lending = {n: node for n, node in nodes.items() if node.is_open and node.gpu_types}
    return SpareCapacity(lending, releases, loads or {})


def _releases(holds: Iterable[Hold], now: float) -> list[ExpectedRelease]:
    """What is given back when, by the jobs' time limits; a job without one never ends."""
    return [
        ExpectedRelease(
            max(0.0, hold.end - now),
            hold.gpus,
            dict.fromkeys(hold.gpus, hold.cpus),
            dict.fromkeys(hold.gpus, hold.memory_mb),
        )
        for hold in holds
        if hold.end < math.inf
    ]
