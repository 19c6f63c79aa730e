"""Enforcement on stock Slurm: a job gets exact slots at submit, or waits behind a gate.

Answers come from the cache (what the planner last read of Slurm), never from a call to Slurm.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from policies import LooksAt
from slurm_plugin.decide.decide import Decider, Decision
from slurm_plugin.decide.preferences import HintRefused, Preferences, read_preferences
from slurm_plugin.decide.record import Build
from slurm_plugin.enforcement.interface import KEEP_S
from slurm_plugin.gates.admission import APART, UNEVEN
from slurm_plugin.gates.capacity_cache import CapacityCache
from slurm_plugin.gates.plan import Choice, Left, Waits
from slurm_plugin.gates.question import ask
from slurm_plugin.gates.slot_request import demand_of_submit, placed, record_of
from slurm_plugin.job_notes import hints
from slurm_plugin.job_notes.records import GATED, PLACED
from slurm_plugin.lending.borrowing import may_borrow
from slurm_plugin.protocol import Notice, Ok, Pass, Refuse, Submit, SubmitReply
from slurm_plugin.question import PlacementQuestion
from slurm_plugin.queue import backfill
from slurm_plugin.queue.candidates import Group, Need, are_apart, groups, is_even
from slurm_plugin.queue.capacity import Hold
from slurm_plugin.queue.demand import Unplaceable, need_of
from slurm_plugin.queue.features import Unsupported
from slurm_plugin.slots_keys import SlotsKeys

#: Decisions of partitions that are only observed, kept until the next look writes them.
MAX_OBSERVED = 1000


class Slots:
    """Places at submit what fits now, gates the rest; `lease_s` is how long a gate holds."""

    def __init__(
        self,
        decider: Decider,
        cache: CapacityCache,
        lease_s: int,
        *,
        clock: Callable[[], float] = time.time,
        token: Callable[[], str] = lambda: secrets.token_hex(6),
    ) -> None:
        self.decider = decider
        self.cache = cache
        self._lease_s = lease_s
        self._clock = clock
        self._token = token

    def on_submit(self, asked: Submit) -> SubmitReply:
        """Slots, a gate, a refused hint, or Slurm's own choice where slots cannot serve."""
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
        answer, why = self._answer(asked, preferences, rule.mode)
        if answer is not None:
            return answer
        if rule.mode != "enforce":
            return Pass()
        note = f"Slurm's own choice: {why}"
        return Ok({"set.admin_comment": hints.entry(preferences.text, note)})

    def _answer(
        self, asked: Submit, preferences: Preferences, mode: str
    ) -> tuple[SubmitReply | None, str]:
        """Slots or a gate; else None, and why it is Slurm's own choice."""
        now = self._clock()
        if preferences.off:
            return None, "opted out by hint"
        if not self.cache.is_fresh(now):
            return None, "Slurm's queue was not read lately"
        try:
            wanted = demand_of_submit(asked, self.cache.default_partition)
            need = need_of(wanted, self.cache.empty)
            if not groups(need, self.cache.empty):
                return None, "no node can ever serve it"
            if mode == "observe":
                self._observe(asked, preferences, need)
                return None, ""
            return self._slots_or_gate(asked, preferences, need, now)
        except Unsupported as error:
            return None, f"the constraint {error} cannot be judged"
        except (Unplaceable, ValueError) as error:
            return None, str(error)

    def on_place(self, question: PlacementQuestion) -> Decision:
        """The decision itself: nothing asks this way here but a dry run."""
        return self.decider.decide(question)

    def on_start(self, notice: Notice) -> None:
        """Nothing: the next look at the queue shows it."""

    def _observe(self, asked: Submit, preferences: Preferences, need: Need) -> None:
        room, _ = self.cache.now()
        found = groups(need, room)
        if found and len(self.cache.observed) < MAX_OBSERVED:
            self.cache.observed.append(self._ask(asked, preferences, need, found)[1])

    def _ask(
        self, asked: Submit, preferences: Preferences, need: Need, found: list[Group]
    ) -> tuple[Choice, Build]:
        job = PlacementQuestion(
            job=0,
            array=0,
            uid=asked.uid,
            postponed=0,
            waited_s=0,
            candidates=(),
            account=asked.account,
            partition=asked.partition or self.cache.default_partition,
            hint=preferences.text,
        )
        return ask(self.decider, job, need, found)

    def _slots_or_gate(
        self, asked: Submit, preferences: Preferences, need: Need, now: float
    ) -> tuple[SubmitReply | None, str]:
        """As `_answer`."""
        keys = asked.slots
        assert keys is not None
        if need.partitions & self.cache.preempting:
            # Behind a gate it could push nobody aside; with slots it would have to push the
            # jobs of exactly those GPUs.
            return None, "the partition may preempt others"
        room, holds = self.cache.now()
        found = groups(need, room)
        later = _is_put_off(keys) or keys.begin > now
        if not found:
            # Rather now with other GPUs on each node than later with the same ones.
            if are_apart(need, room) and not keys.het:
                return None, APART
            # Known at once: the next submit may come before the next look.
            first = None if later else need
            self.cache.first = self.cache.first or first
            note = _waits_for(need)
            return self._gate(asked, preferences, now, note, need=first, keep=True), ""
        is_doubted = self.cache.is_doubted(asked.uid, now)
        if later or keys.array or keys.het or is_doubted or self._looks_first(preferences):
            # The tasks of an array would all get the same slots; components start together or
            # not at all; jobs of one whose submits come to nothing have to be seen first.
            self.cache.is_awaited |= not later
            return self._gate(asked, preferences, now, "", keep=_is_put_off(keys)), ""
        choice, record = self._ask(asked, preferences, need, found)
        if isinstance(choice, Waits):
            return self._gate(asked, preferences, now, choice.note, record, since=True), ""
        if isinstance(choice, Left):
            return None, choice.note
        group, mask = choice.group, choice.mask
        if not is_even(need, room[group.own], mask):
            return None, UNEVEN
        end = now + keys.time_s if keys.time_s else float("inf")
        taken = room[group.own].all_gpus if need.exclusive else mask
        hold = need.hold(group.names, taken, end)
        first = self.cache.first
        if first and backfill.delays(first, room, holds, [hold], now):
            note = "waits behind jobs that came first"
            return self._gate(asked, preferences, now, note, keep=True), ""
        token = self._token()
        values = self._comment(asked, preferences, PLACED, token, choice.note)
        values.update(_set(placed(record_of(asked, token), asked.tasks, need, group, mask)))
        self.cache.promise(token, hold, now, record, uid=asked.uid)
        self.cache.is_awaited = True
        return Ok(values), ""

    def _looks_first(self, preferences: Preferences) -> bool:
        """Is a moment's wait for the next look worth it?

        For GPUs that came free a moment ago; and for a policy that goes by who runs beside
        whom, while somebody is on his way.
        """
        if self.cache.is_behind:
            return True
        policy = self.decider.get_policy(preferences.policy)
        return self.cache.has_promised and LooksAt.RUNNING_JOBS in policy.looks_at

    def _gate(
        self,
        asked: Submit,
        preferences: Preferences,
        now: float,
        note: str,
        build: Build | None = None,
        since: bool = False,
        need: Need | None = None,
        keep: bool = False,
    ) -> Ok:
        """Behind the gate a job is safe whatever changes meanwhile.

        With `keep` the bridge may gate equal submits of the next moment in the same way, so that a
        burst of them asks once: when GPUs come free, a look reads the whole queue, and again when
        the answer is used no more (the last of the pace's echoes). Not the components of a
        heterogeneous job, which are looked at together.
        """
        keys, token = asked.slots, self._token()
        assert keys is not None
        began = int(now) if since else 0
        values = self._comment(asked, preferences, GATED, token, note, began)
        values["set.begin_time"] = str(max(keys.begin, int(now) + self._lease_s))
        # Nothing is promised; the next look writes the decision down once the job has its id.
        self.cache.promise(token, Hold(), now, build, need)
        # Whoever asks for the reason is not to wait for it.
        self.cache.is_awaited |= build is not None
        if keep and not keys.het:
            values |= {"keep_s": str(KEEP_S), "token": token}
        return Ok(values)

    @staticmethod
    def _comment(
        asked: Submit,
        preferences: Preferences,
        state: str,
        token: str,
        note: str,
        since: int = 0,
    ) -> dict[str, str]:
        # The batch step's TaskProlog looks for donors only where this is set.
        borrows = (
            {"env.GPUTOPO_REMOTE": "allow"} if preferences.remote and _could_borrow(asked) else {}
        )
        kept = record_of(asked, token, state, since=since, may_borrow=bool(borrows))
        said = hints.entry(preferences.text, note)
        return {"set.admin_comment": f"{said} {kept.text()}".strip(), **borrows}


def _is_put_off(keys: SlotsKeys) -> bool:
    """Does it wait for something that nobody tells the engine of?"""
    return keys.depends or keys.held


def _could_borrow(asked: Submit) -> bool:
    keys = asked.slots
    return (
        keys is not None
        and keys.batch
        and not (keys.array or keys.het or keys.overcommit)
        and may_borrow(demand_of_submit(asked, ""))
    )


def _waits_for(need: Need) -> str:
    each = f" on each of {need.nodes} nodes" if need.nodes > 1 else " on one node"
    return f"waits for {need.gpus} free GPU{'s' if need.gpus > 1 else ''}{each}"


def _set(fields: dict[str, str]) -> dict[str, str]:
    return {f"set.{field}": text for field, text in fields.items()}
