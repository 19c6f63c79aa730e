"""Enforcement on stock Slurm: a job gets exact slots at submit, or waits behind a gate.

Answers come from the capacity cache, never from a call to Slurm.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from gres_topology.features import Unsupported
from policies import LooksAt
from slurm_plugin.act.gates.admission import APART, PREEMPTS, UNEVEN
from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.act.gates.limits import NOT_STARTED, meets_limit
from slurm_plugin.act.gates.plan import Choice, ChosenSlots
from slurm_plugin.act.gates.question import ask
from slurm_plugin.act.gates.slot_request import (
    check_tasks,
    demand_of_submit,
    placed,
    record_of,
    with_defaults,
)
from slurm_plugin.act.lending import forms
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.records import GATED, PLACED
from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.base.protocol import (
    KEEP_S,
    Ok,
    Pass,
    Refuse,
    SlotsKeys,
    Submit,
    SubmitReply,
    WaitFor,
)
from slurm_plugin.decide.decide import Decider, Decision
from slurm_plugin.decide.preferences import HintRefused, Preferences, read_preferences
from slurm_plugin.decide.record import Build
from slurm_plugin.queue.candidates import Group, Need, as_slurms, groups, is_even, open_groups
from slurm_plugin.queue.capacity import Hold
from slurm_plugin.queue.demand import Asked, Unplaceable, Whose, check_served, need_of
from slurm_plugin.queue.slurms_choice import are_apart, can_start
from slurm_plugin.queue.snapshot import is_up, would_start

#: Decisions of partitions that are only observed, kept until the next poll writes them.
MAX_OBSERVED = 1000


@dataclass(frozen=True, slots=True)
class _Submission:
    """One submit, with what its answer goes by."""

    asked: Submit
    keys: SlotsKeys
    preferences: Preferences
    now: float
    #: Why nothing is lent to it, whatever it asks for.
    never_lent: str = ""

    @property
    def is_later(self) -> bool:
        """Is it not to start at once, by the user's own word?"""
        return _is_put_off(self.keys) or self.keys.begin > self.now

    @property
    def not_lent(self) -> str:
        """Why nothing can be lent to it; '' where it may borrow."""
        if not self.preferences.remote:
            return "it does not ask for it"
        keys = self.keys
        asked = demand_of_submit(self.asked, "")
        return self.never_lent or forms.obstacle(asked, is_batch=keys.batch, is_het=keys.het)

    def question(self, default_partition: str) -> PlacementQuestion:
        """What a policy is asked, but for the candidates."""
        asked = self.asked
        return PlacementQuestion(
            job=0,
            array=0,
            uid=asked.uid,
            postponed=0,
            waited_s=0,
            candidates=(),
            account=asked.account,
            partition=asked.partition or default_partition,
            hint=self.preferences.text,
            interactive=not self.keys.batch,
        )

    def comment(self, state: str, token: str, note: str, since: int = 0) -> dict[str, str]:
        """The reply's keys that tell of the job's gate or slots."""
        not_lent = self.not_lent
        kept = record_of(self.asked, token, state, since=since, may_borrow=not not_lent)
        said = hints.entry(self.preferences.text, note)
        values = {"set.admin_comment": f"{said} {kept.text()}".strip()}
        if not not_lent:
            # The batch step's TaskProlog looks for donors only where the variable is set.
            values["env.GPUTOPO_REMOTE"] = "allow"
        elif self.preferences.asks_for_remote:
            values["message"] = f"gpu-topo: {forms.line(not_lent)}"
        return values


class Slots:
    """Places at submit what fits now, gates the rest; `lease_s` is how long a gate holds.

    `at_once` False: no job gets its slots at submit. Its record would stand in AdminComment until
    somebody sees the job run, and a release takes it away.
    """

    def __init__(
        self,
        decider: Decider,
        cache: CapacityCache,
        lease_s: int,
        *,
        at_once: bool = True,
        clock: Callable[[], float] = time.time,
        token: Callable[[], str] = lambda: secrets.token_hex(6),
    ) -> None:
        self.decider = decider
        self.cache = cache
        self._lease_s = lease_s
        self._at_once = at_once
        self._clock = clock
        self._token = token

    def on_submit(self, asked: Submit, not_lent: str = "") -> SubmitReply:
        """Slots, a gate, a refused hint, or Slurm's own choice where slots cannot serve.

        `not_lent`: why nothing is lent to it, whatever it asks for.
        """
        self.cache.has_news |= asked.slots is None or not _is_put_off(asked.slots)
        rule = self.decider.rule(asked.partition, asked.account, asked.uid)
        if rule.mode == "off":
            return Pass(keep_s=KEEP_S)
        try:
            preferences = read_preferences(asked.hint, rule)
        except HintRefused as error:
            return Refuse(f"gpu-topo: {error}") if rule.mode == "enforce" else Pass()
        if asked.slots is None:
            # A changed hint: the job has its place, or its gate, already.
            said = hints.entry(preferences.text, "") if rule.mode == "enforce" else ""
            return Ok({"set.admin_comment": said}) if said else Pass()
        job = _Submission(asked, asked.slots, preferences, self._clock(), not_lent)
        try:
            job = self._with_defaults(job)
            need = self._need(job)
            if rule.mode != "observe":
                return self._slots_or_gate(job, need)
            self._observe(job, need)
            return Pass()
        except Unsupported as error:
            why = f"the constraint {error} cannot be judged"
        except (Unplaceable, ValueError) as error:
            why = str(error)
        if rule.mode != "enforce":
            return Pass()
        note = f"Slurm's own choice: {why}"
        values = {"set.admin_comment": hints.entry(preferences.text, note)}
        if preferences.asks_for_remote:
            values["message"] = f"gpu-topo: {forms.line(_not_lent(job, why))}"
        return Ok(values)

    def on_place(self, question: PlacementQuestion) -> Decision:
        """The decision itself: nothing asks this way here but a dry run."""
        return self.decider.decide(question)

    def _with_defaults(self, job: _Submission) -> _Submission:
        cache = self.cache
        partitions = job.asked.partition or cache.settings.default_partition
        keys = with_defaults(job.keys, partitions, cache.settings.defaults)
        if cache.settings.tracks_memory and (keys.mem_all or not keys.says_memory):
            raise Unplaceable("it gets all memory of its nodes (--mem)")
        return replace(job, asked=replace(job.asked, slots=keys), keys=keys)

    def _need(self, job: _Submission) -> Need:
        """What the job needs; raises Unplaceable, saying why it is left to Slurm."""
        if job.preferences.off:
            raise Unplaceable("opted out by hint")
        if not self.cache.is_fresh(job.now):
            raise Unplaceable("Slurm's queue was not read lately")
        asked = demand_of_submit(job.asked, self.cache.settings.default_partition)
        need = need_of(asked, self.cache.empty)
        check_tasks(asked, need)
        check_served(need, self.cache.empty)
        return need

    def _observe(self, job: _Submission, need: Need) -> None:
        """Decide as if it were enforced; the next poll writes it down."""
        nodes, _ = self.cache.now()
        candidates = groups(need, nodes)
        if candidates and len(self.cache.observed) < MAX_OBSERVED:
            self.cache.observed.append(self._ask(job, need, candidates)[1])

    def _ask(self, job: _Submission, need: Need, candidates: list[Group]) -> tuple[Choice, Build]:
        return ask(
            self.decider, job.question(self.cache.settings.default_partition), need, candidates
        )

    def _slots_or_gate(self, job: _Submission, need: Need) -> Ok:
        """Raises Unplaceable where it is left to Slurm."""
        cache, keys, now = self.cache, job.keys, job.now
        if need.partitions & cache.settings.preempting:
            # Behind a gate it could push nobody aside; with slots it would have to push the
            # jobs of exactly those GPUs.
            raise Unplaceable(PREEMPTS)
        if need.partitions & cache.settings.unlike_sharing:
            raise Unplaceable("jobs of other partitions may share cores there (OverSubscribe)")
        if why := cache.settings.why_slurms(need.partitions, need.nodes):
            raise Unplaceable(why)
        if keys.closes or need.partitions & cache.settings.closing:
            # Slurm packs a user's jobs on nodes that are hers; ours would close other ones.
            raise Unplaceable("the job closes its nodes to other users")
        if not would_start(need.partitions, keys.time_s, job.asked.nodes, cache.settings.by_name):
            raise Unplaceable(NOT_STARTED)
        able = frozenset(
            name
            for name in need.partitions
            if would_start([name], keys.time_s, job.asked.nodes, cache.settings.by_name)
        )
        if able != need.partitions:
            # On nodes of the others alone Slurm would refuse it.
            need = replace(need, partitions=able)
        nodes, _ = cache.now()
        end = cache.end_of(need.partitions, keys.time_s, now)
        looked_in = cache.settings.first_of(job.asked.partition, able)
        candidates, why = open_groups(need, nodes, cache.reserved, now, end, looked_in)
        if why:
            raise Unplaceable(why)
        if why := self._kept_by_slurm(job, need, end):
            return self._gate(job, why, keep=True)
        if not candidates:
            # Rather now with other GPUs on each node than later with the same ones.
            if are_apart(need, nodes) and not keys.het:
                raise Unplaceable(APART)
            # The next look may find donors, or leave it to Slurm, which spreads it.
            is_due = not job.not_lent or can_start(need, as_slurms(nodes))
            cache.is_awaited |= is_due and not job.is_later
            first = None if job.is_later else need
            return self._gate(job, _waits_for(need), need=first, keep=True)
        is_doubted = cache.is_doubted(job.asked.uid, now)
        is_together = keys.array or keys.het
        if job.is_later or is_together or is_doubted or self._waits_for_poll(job):
            # The tasks of an array would all get the same slots. Components start together or
            # not at all. After submits that came to nothing, a user's jobs have to be seen first.
            cache.is_awaited |= not job.is_later
            return self._gate(job, keep=_is_put_off(keys))
        choice, record = self._ask(job, need, candidates)
        if isinstance(choice, WaitFor):
            return self._gate(job, choice.note, record, since=int(now))
        if isinstance(choice, Pass):
            raise Unplaceable(choice.note)
        group, mask = choice.group, choice.mask
        if not is_even(need, nodes[group.own], mask):
            raise Unplaceable(UNEVEN)
        hold = need.hold(group.names, nodes[group.own].all_gpus if need.exclusive else mask, end)
        if cache.line.is_delayed_by(hold):
            return self._gate(job, "waits behind jobs that came first", keep=True)
        return self._place(job, need, choice, hold, record)

    def _kept_by_slurm(self, job: _Submission, need: Need, end: float) -> str:
        """Why Slurm would not start the job now, whatever is free; '' where nothing is known."""
        cache, asked = self.cache, job.asked
        if not is_up(need.partitions, cache.settings.by_name):
            return "waits until its partition is up"
        partition = asked.partition or cache.settings.default_partition
        whose = Whose(asked.uid, asked.account, "", partition, "")
        time_s = 0 if math.isinf(end) else round(end - job.now)
        is_limited = meets_limit(cache.limits, whose, Asked.of(need, time_s))
        return "waits behind one of Slurm's limits" if is_limited else ""

    def _place(
        self, job: _Submission, need: Need, choice: ChosenSlots, hold: Hold, record: Build
    ) -> Ok:
        """Exactly these slots, which are promised until the job is seen in Slurm."""
        token = self._token()
        values = job.comment(PLACED, token, choice.note)
        kept = record_of(job.asked, token)
        given = placed(kept, job.asked.tasks, need, choice.group, choice.mask)
        values |= given.at_submit()
        self.cache.promise(token, hold, job.now, record, uid=job.asked.uid)
        self.cache.is_awaited = True
        return Ok(values)

    def _waits_for_poll(self, job: _Submission) -> bool:
        """Is it worth waiting for the next poll?

        Yes where GPUs came free since the last one, where no slots are given at submit, and for a
        policy that asks who runs beside whom while a job is about to start that no poll has seen.
        """
        if self.cache.ended != self.cache.known or not self._at_once:
            return True
        policy = self.decider.get_policy(job.preferences.policy)
        return bool(self.cache.promises) and LooksAt.RUNNING_JOBS in policy.looks_at

    def _gate(
        self,
        job: _Submission,
        note: str = "",
        record: Build | None = None,
        *,
        since: int = 0,
        need: Need | None = None,
        keep: bool = False,
    ) -> Ok:
        """The job waits behind a gate, whatever changes meanwhile.

        With `keep` the bridge gates equal submits of the next second in the same way, so that a
        burst of them asks once; the polls after a job's end go on for longer than that. Components
        of a heterogeneous job are never kept: they are placed together. Raises Unplaceable for a
        job that Slurm would refuse with a begin time.
        """
        if job.keys.immediate:
            raise Unplaceable("it is to start at once or not at all")
        if job.keys.deadline:
            raise Unplaceable("a begin time may be too late for its deadline")
        if need is not None:
            # Known at once: the next submit may come before the next poll.
            line, uid = self.cache.line, job.asked.uid
            self.cache.line = line.with_job(need, *self.cache.now(), job.now, uid=uid)
        token = self._token()
        values = job.comment(GATED, token, note, since)
        # No longer: Slurm refuses a begin time that is too late for a deadline at submit alone.
        values["set.begin_time"] = str(max(job.keys.begin, int(job.now) + self._lease_s))
        # Nothing is promised; the next poll writes the decision down once the job has its id.
        self.cache.promise(token, Hold(), job.now, record, need, job.asked.uid)
        # Whoever asks for the reason is not to wait for it.
        self.cache.is_awaited |= record is not None
        if keep and not job.keys.het:
            values |= {"keep_s": str(KEEP_S), "token": token}
        return Ok(values)


def _not_lent(job: _Submission, why: str) -> str:
    """Why nothing is lent to a job that is left to Slurm."""
    try:
        return job.not_lent or why
    except (Unplaceable, ValueError):
        return why


def _is_put_off(keys: SlotsKeys) -> bool:
    """Does the job wait for something that nobody tells the engine of?"""
    return keys.depends or keys.held


def _waits_for(need: Need) -> str:
    if need.spread and need.spread.gpus:
        return f"waits for {need.spread.gpus} free GPUs"
    each = f" on each of {need.nodes} nodes" if need.nodes > 1 else " on one node"
    return f"waits for {need.gpus} free GPU{'s' if need.gpus > 1 else ''}{each}"
