"""Answers about shaped jobs: their submit, and whether they may start now.

They come from the last poll of Slurm and what was promised since, never from a call to Slurm. A
job that is in doubt keeps its shape. After the end of a job, which lets Slurm start another at
once, jobs wait until the queue is planned anew.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from policies.contract.scheduling import Planned, Scheduler, Task
from policies.errors import HintError
from policies.genie.algorithm import GeniePaper
from policies.genie.dynamic import Genie
from policies.genie.submit import HINTS, too_late
from policies.performance import Shape
from slurm_plugin.act.enforcement import Enforcement
from slurm_plugin.act.genie import reply
from slurm_plugin.act.genie.domain_snapshot import DomainSnapshot, ShapePromise, planned, shape_of
from slurm_plugin.act.genie.record import ShapeRecord
from slurm_plugin.act.genie.site import ShapedPartition, ShapingSite
from slurm_plugin.act.lending import forms
from slurm_plugin.base.job_notes.shape import ShapeNote
from slurm_plugin.base.log_lines import Placing
from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.base.protocol import Notice, Ok, Pass, Refuse, Submit, SubmitReply, WaitFor
from slurm_plugin.config.sections import Rule
from slurm_plugin.decide.decide import Decision
from slurm_plugin.decide.preferences import HintRefused, Preferences, read_preferences
from slurm_plugin.decide.record import Build, first_keys

logger = logging.getLogger(__name__)

NAME = "genie"
#: By their names in gputopo.yaml.
SCHEDULERS: Mapping[str, Scheduler] = {"genie": Genie(), "genie-paper": GeniePaper()}
#: A submit that Slurm refused later never shows in the queue.
PROMISE_S = 3.0
#: A job that is let start begins within START_S, or lacks something that is not planned (CPUs,
#: memory, a limit). Others then go first for STALL_S, and for twice as long each further time.
START_S, STALL_S, LONGEST_STALL_S = 4.0, 10.0, 300.0
#: A snapshot older than so many polls is not planned on.
MISSED_POLLS = 3
BATCH_ONLY = (
    "gpu-topo: policy: genie chooses the shape of batch jobs; give srun and salloc their GPUs"
    " (--gpus, --gres)"
)
#: A job that waits is woken by the plan, by the end of a job, or by this many seconds.
WAIT_S = 60
BEHIND = "genie: the queue is planned anew"
LATER = "genie: others go first"
#: Above every id of Slurm's: a job that has none yet counts as the last to come.
LAST = 2**62


@dataclass(frozen=True, slots=True)
class Starting:
    """A job that was let start, with its plan until this is carried out.

    Its GPUs come back one by one, and after each of them another plan would be the best.
    """

    plan: Planned
    #: Until when the job should have started; after that it is stalled.
    until: float
    #: For how long others then go first.
    pause: float


@dataclass(slots=True)
class Shaping:
    """Wraps the way of enforcing, and answers for the jobs whose shape GENIE chooses.

    The planning loop fills `snapshots` and `plans`, by domain.
    """

    inner: Enforcement
    site: ShapingSite
    rule: Callable[[str, str, int], Rule]
    separator: str = "/"
    clock: Callable[[], float] = time.time
    scheduler: Scheduler = SCHEDULERS["genie"]
    snapshots: dict[str, DomainSnapshot] = field(default_factory=dict)
    plans: dict[str, dict[int, tuple[int, Planned]]] = field(default_factory=dict)
    promises: dict[str, ShapePromise] = field(default_factory=dict)
    records: dict[str, Build] = field(default_factory=dict)
    starting: dict[int, Starting] = field(default_factory=dict)
    #: Submits and ends of jobs so far, and how many of them the last poll of Slurm has seen.
    events: int = 0
    events_seen: int = -1
    #: How long that poll took.
    poll_took_s: float = 0.0

    def on_submit(self, asked: Submit, not_lent: str = "") -> SubmitReply:
        """The shape, a refusal, or the inner answer where GENIE is not asked."""
        inner = self.inner
        rule = self.rule(asked.partition, asked.account, asked.uid)
        if rule.mode != "enforce" or not asked.hint:
            return Pass() if asked.shape else inner.on_submit(asked, not_lent)
        try:
            preferences = read_preferences(asked.hint, rule)
        except HintRefused as error:
            return Refuse(f"gpu-topo: {error}")
        if preferences.off or preferences.policy != NAME:
            # The bridge says that such a hint has no meaning without GPUs.
            return Pass() if asked.shape else inner.on_submit(asked, not_lent)
        if not asked.shape and not preferences.values.keys() & {key.name for key in HINTS}:
            return inner.on_submit(asked, not_lent)
        if asked.shape and not (asked.slots and asked.slots.batch):
            return Refuse(BATCH_ONLY)
        try:
            return self._shaped(asked, preferences)
        except HintError as error:
            return Refuse(f"gpu-topo: {error}")

    def on_place(self, question: PlacementQuestion) -> Decision:
        """A wait while the plan wants others first; else the inner decision."""
        counts = [node.own.bit_count() for node in question.candidates if node.own]
        note = self.hold_reason(question, shape_of(counts))
        if not note:
            return self.inner.on_place(question)
        reply, reason = WaitFor(WAIT_S, note), "waits by plan"

        def record() -> Placing:
            line = first_keys(question, "enforce", reply, reason)
            line.policy, line.pattern = NAME, "ring"
            return line

        return Decision(reply, reason, record)

    def on_start(self, notice: Notice) -> None:
        """A job has started: until the next poll of Slurm its GPUs count as taken."""
        for snapshot in self.snapshots.values():
            for name, mask in notice.gpus.items():
                if name in snapshot.free and notice.job not in self.starting:
                    left = snapshot.free[name] - mask.bit_count()
                    snapshot.free[name] = max(0, left)

    def hold_reason(self, question: PlacementQuestion, shape: Shape | None) -> str:
        """Why the job is not to start now with this shape; empty where it may, or is not known."""
        domain, now = self.site.domains.get(question.partition), self.clock()
        if domain is None or not self.is_fresh(domain, now):
            return ""
        rule = self.rule(question.partition, question.account, question.uid)
        if rule.mode != "enforce" or not _asks_for_shape(question.hint, rule):
            return ""
        place = self.plans.get(question.partition, {}).get(question.job)
        if place is None:
            return self._unknown(question, shape, now)
        _, plan = place
        if plan.nodes and plan.shape == shape:
            return ""
        is_current = self.events_seen == self.events
        return LATER if is_current else BEHIND

    def forget_all(self) -> None:
        """The clock was set: no time that is kept here is right."""
        self.snapshots.clear()
        self.promises.clear()
        self.starting.clear()

    def is_fresh(self, domain: ShapedPartition, now: float) -> bool:
        """Was Slurm read so lately that shapes can be chosen by it?"""
        snapshot = self.snapshots.get(domain.name)
        # Reading a slow Slurm takes longer than the time between two polls.
        age = MISSED_POLLS * max(self.site.config.poll_s, self.poll_took_s)
        return snapshot is not None and now - snapshot.at <= age

    def status(self) -> Mapping[str, object]:
        """What `gputopo status` shows."""
        return {
            name: {
                "profiles": len(self.site.shelf.models),
                "waiting": len(snapshot.members),
                "running": len(snapshot.running),
                "held": len(snapshot.unshaped),
                "free_gpus": sum(snapshot.free.values()),
            }
            for name, snapshot in self.snapshots.items()
        }

    def plan(self, domain: ShapedPartition, task: Task, now: float) -> Planned:
        """The plan for a job that is not in Slurm's queue yet, among those that are."""
        snapshot = self.snapshots.get(domain.name)
        if snapshot is None or not self.is_fresh(domain, now):
            snapshot = DomainSnapshot(domain)
        ours = [one for one in self.promises.values() if one.until > now]
        same = [one for one in ours if one.task.latency_s.shape == task.latency_s.shape]
        return self.plan_all(snapshot, same, now, [task])[task.job_id][1]

    def plan_all(
        self,
        snapshot: DomainSnapshot,
        promises: Sequence[ShapePromise],
        now: float,
        more: Sequence[Task] = (),
    ) -> dict[int, tuple[int, Planned]]:
        """The plans of a domain's jobs, by job id, with their place in the order."""
        starting, stalled = self.under_way(snapshot, now)
        queue = snapshot.queue(now, promises, starting, stalled, more)
        is_settling = snapshot.is_settling
        return planned(self.scheduler, queue, starting.values(), is_settling=is_settling)

    def under_way(
        self, snapshot: DomainSnapshot, now: float
    ) -> tuple[dict[int, Planned], frozenset[int]]:
        """The waiting jobs that are about to start, and those that are stalled."""
        ids = {member.job.job_id for member in snapshot.members}
        ours = {job: one for job, one in self.starting.items() if job in ids}
        starting = {job: one.plan for job, one in ours.items() if now < one.until}
        stalled = frozenset(
            job for job, one in ours.items() if one.until <= now < one.until + one.pause
        )
        return starting, stalled

    def admit(self, plans: Mapping[int, tuple[int, Planned]], now: float) -> list[int]:
        """Keep each plan until its job should have started; the jobs whose plan is a new one."""
        new = []
        for job_id, (_, plan) in plans.items():
            before = self.starting.get(job_id)
            if not plan.nodes or (before is not None and now < before.until):
                continue
            pause = min(2 * before.pause, LONGEST_STALL_S) if before else STALL_S
            self.starting[job_id] = Starting(plan, now + START_S, pause)
            new.append(job_id)
        return new

    def slurm_knows(self, jobs: Iterable[int], now: float) -> None:
        """Slurm has been told of these starts: the time they have to begin counts from now."""
        for job_id in jobs:
            one = self.starting.get(job_id)
            if one is not None:
                self.starting[job_id] = replace(one, until=now + START_S)

    def _unknown(self, question: PlacementQuestion, shape: Shape | None, now: float) -> str:
        """Why a job that no poll has seen waits; '' unless its submit promised it a later start."""
        # In the slots mode a thread asks, while submits are answered.
        for promise in list(self.promises.values()):
            same = promise.uid == question.uid and promise.hint == question.hint
            if same and promise.until > now and promise.shape == shape:
                return "" if promise.nodes else LATER
        return ""

    def _shaped(self, asked: Submit, preferences: Preferences) -> SubmitReply:
        now = self.clock()
        domain = self.site.domain(asked.partition)
        if asked.change:
            # A new hint of a job that has its shape: the next poll plans by it.
            said = ShapeNote(None)
            self.site.task(LAST, preferences.values, domain, asked.account, said, now)
            return self.inner.on_submit(asked, forms.SHAPED)
        said = fixed_of(asked, domain) if not asked.shape else said_of(asked)
        understood, task = self.site.task(
            LAST + len(self.promises), preferences.values, domain, asked.account, said, now
        )
        late = too_late(task, domain.platform, now)
        if late and domain.rule.late == "refuse":
            return Refuse(f"gpu-topo: deadline: {late}")
        chosen = self.plan(domain, task, now)
        token = secrets.token_hex(5)
        said = replace(said, shape=chosen.shape, token=token)
        notice = "; ".join(filter(None, (self.site.note(understood), late)))
        answered = reply.shaped(
            asked, preferences, said, chosen, notice, self.inner, self.separator
        )
        if isinstance(answered, Ok):
            self.forget_old(now)
            keys = asked.slots
            later = keys is not None and (keys.depends or keys.held or keys.begin > now)
            nodes, until = () if later else chosen.nodes, now + PROMISE_S
            self.promises[token] = ShapePromise(
                asked.uid, preferences.text, task, chosen.shape, nodes, until
            )
            record = ShapeRecord(
                asked, preferences.text, task, chosen, domain.platform, now, said.is_fixed, notice
            )
            self.records[token] = record.build
        return answered

    def forget_old(self, now: float) -> None:
        """Drop promises whose jobs never showed up."""
        for old in [key for key, one in self.promises.items() if one.until <= now]:
            del self.promises[old]
            self.records.pop(old, None)


def _asks_for_shape(hint: str, rule: Rule) -> bool:
    """Is this the hint of a job that is planned here, with or without a shape of its own?"""
    try:
        return "iterations" in read_preferences(hint, rule).values
    except HintRefused:
        return False


def said_of(asked: Submit) -> ShapeNote:
    """The nodes, tasks and CPUs that the user asked for in a job without GPUs."""
    keys = asked.slots
    return ShapeNote(
        None,
        nodes=asked.nodes,
        max_nodes=asked.max_nodes,
        tasks=asked.tasks,
        tasks_per_node=asked.tasks_per_node,
        cpus_per_task=keys.cpus_per_task if keys else 0,
        is_held=keys.held if keys else False,
    )


def fixed_of(asked: Submit, domain: ShapedPartition) -> ShapeNote:
    """The shape of a job that asks for GPUs itself; HintError where it cannot be known."""
    most = domain.platform.gpus_per_node
    gpus = asked.gpus or asked.per_node * max(asked.nodes, 1)
    for nodes in range(max(asked.nodes, 1), domain.platform.nodes + 1):
        if gpus and gpus % nodes == 0 and gpus // nodes <= most:
            return ShapeNote(Shape(nodes, gpus // nodes), is_fixed=True)
    raise HintError(
        f"shape: {gpus or 'an unknown number of'} GPUs; expected as many on each node, at most"
        f" {domain.platform.shapes[-1]} in partition {domain.name}, or none at all: then they are"
        " chosen"
    )
