"""Enforcement on stock Slurm: a job gets exact slots at submit, or waits behind a gate.

Answers come from the board (what the planner last read of Slurm), never from a call to Slurm.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from slurm_plugin.engine.decide import Decider, Decision
from slurm_plugin.engine.wish import Wish, WishError, read_wish
from slurm_plugin.protocol import Ok, Pass, Place, Refuse, Submit, SubmitReply, Use, WaitFor
from slurm_plugin.slots import backfill, demand, question
from slurm_plugin.slots.board import Board
from slurm_plugin.slots.bracket import Bracket
from slurm_plugin.slots.candidates import Need, groups
from slurm_plugin.slots.features import Unsupported
from slurm_plugin.slots.room import emptied, with_hold


class Slots:
    """Places at submit what fits now, gates the rest; `lease_s` is how long a gate holds."""

    name = "slots"

    def __init__(
        self,
        decider: Decider,
        board: Board,
        lease_s: int,
        *,
        clock: Callable[[], float] = time.time,
        token: Callable[[], str] = lambda: secrets.token_hex(6),
    ) -> None:
        self._decider = decider
        self._board = board
        self._lease_s = lease_s
        self._clock = clock
        self._token = token

    def on_submit(self, asked: Submit) -> SubmitReply:
        """Slots, a gate, a refused hint, or Slurm's own choice where slots cannot serve."""
        rule = self._decider.rule(asked.partition, asked.account, asked.uid)
        if rule.mode != "enforce":
            return Pass()
        try:
            wish = read_wish(asked.hint, rule)
        except WishError as error:
            return Refuse(f"gpu-topo: {error}")
        plain = Ok({"set.admin_comment": f"[gpu-topo: {wish.text}]"}) if asked.hint else Pass()
        now = self._clock()
        if asked.slots is None or wish.off or not self._board.is_fresh(now):
            return plain
        if asked.slots.array or asked.slots.het:
            # The plan does not release these yet, and no job may wait for a gate's lapse.
            return plain
        try:
            need = demand.need_of(asked, self._board.room, self._board.default_partition)
            if not groups(need, emptied(self._board.room)):
                return plain
            return self._slots_or_gate(asked, wish, need, now) or plain
        except (demand.Unplaceable, Unsupported, ValueError):
            return plain

    def on_place(self, asked: Place) -> Decision:
        """The decision itself: nothing asks this way here but a dry run."""
        return self._decider.decide(asked)

    def _slots_or_gate(
        self, asked: Submit, wish: Wish, need: Need, now: float
    ) -> SubmitReply | None:
        keys = asked.slots
        assert keys is not None
        later = keys.depends or keys.held or keys.begin > now
        if later:
            return self._gate(asked, wish, now)
        room, holds = self._board.now(now)
        found = groups(need, room)
        if not found:
            return self._gate(asked, wish, now)
        base = Place(
            asked.id, 0, 0, asked.uid, 0, 0, (), asked.account, asked.partition, hint=wish.text
        )
        reply = self._decider.decide(question.ask(base, need, found)).reply
        if isinstance(reply, WaitFor):
            return self._gate(asked, wish, now, reply.note)
        if not isinstance(reply, Use):
            return None
        group, mask = question.answer(reply, found)
        end = now + keys.time_s if keys.time_s else float("inf")
        taken = (1 << len(group.slots)) - 1 if need.exclusive else mask
        hold = need.hold(group.names, taken, end)
        first = self._board.first
        if first and backfill.delays(first, room, holds, hold, with_hold(room, hold), now):
            return self._gate(asked, wish, now)
        token = self._token()
        reply_ok = self._ok(asked, wish, "placed", token, reply.note)
        reply_ok.update(_set(demand.placed(asked, need, group, mask)))
        self._board.promise(token, hold, now)
        return Ok(reply_ok)

    def _gate(self, asked: Submit, wish: Wish, now: float, note: str = "") -> Ok:
        keys = asked.slots
        assert keys is not None
        values = self._ok(asked, wish, "gated", self._token(), note)
        values["set.begin_time"] = str(max(keys.begin, int(now) + self._lease_s))
        return Ok(values)

    @staticmethod
    def _ok(asked: Submit, wish: Wish, state: str, token: str, note: str) -> dict[str, str]:
        said = wish.text + (f" | {note}" if note else "")
        ours = f"[gpu-topo: {said.strip()}] " if said else ""
        bracket = Bracket(state, demand.original(asked, token))
        return {"set.admin_comment": ours + bracket.text()}


def _set(fields: dict[str, str]) -> dict[str, str]:
    return {f"set.{field}": text for field, text in fields.items()}
