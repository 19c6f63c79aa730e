"""Enforcement by the select plugin: exact GPUs when the job starts.

At submit the hint is only checked and written into admin_comment, where the plugin finds it at the
start. The answer depends on the request and the configuration alone, so it may be kept.
"""

from __future__ import annotations

from slurm_plugin.act.lending import forms
from slurm_plugin.act.lending.at_start.reservations import LoanReservations
from slurm_plugin.act.lending.at_start.start_loans import MARK
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.base.protocol import KEEP_S, Ok, Pass, Refuse, Submit, SubmitReply, Use, WaitFor
from slurm_plugin.decide.decide import Decider, Decision
from slurm_plugin.decide.preferences import HintRefused, read_preferences

WAITS = "GPUs are kept for a loan"


class Select:
    """Exact GPUs at a job's start; those `reserved` for a loan are not given to others."""

    def __init__(self, decider: Decider, reserved: LoanReservations) -> None:
        self.decider = decider
        self._reserved = reserved

    def on_submit(self, asked: Submit, not_lent: str = "") -> SubmitReply:
        """Refuses a bad hint where the partition is enforced; keeps a good one.

        `not_lent`: why nothing is lent to it, whatever it asks for.
        """
        rule = self.decider.rule(asked.partition, asked.account, asked.uid)
        if rule.mode != "enforce" or not (asked.hint or rule.lends):
            return Pass(keep_s=KEEP_S)
        try:
            preferences = read_preferences(asked.hint, rule)
        except HintRefused as error:
            return Refuse(f"gpu-topo: {error}")
        brackets = [hints.entry(preferences.text, "")] if asked.hint else []
        values = {"keep_s": str(KEEP_S)}
        not_lent = not_lent or _not_lent(asked)
        if not_lent and preferences.asks_for_remote:
            values["message"] = f"gpu-topo: {forms.line(not_lent)}"
        if preferences.remote and not not_lent:
            # The bridge takes both for batch jobs alone: the batch step meets the donors.
            brackets.append(MARK)
            values["env.GPUTOPO_REMOTE"] = "allow"
        if not brackets:
            return Pass(keep_s=KEEP_S)
        return Ok({**values, "set.admin_comment": " ".join(brackets)})

    def on_place(self, question: PlacementQuestion) -> Decision:
        """The decision on the GPUs that are not reserved; a loan's own job gets its share."""
        decider, reserved = self.decider, self._reserved
        mode = decider.rule(question.partition, question.account, question.uid).mode
        if mode != "enforce" or not reserved.is_any:
            return decider.decide(question)
        seen = reserved.answer(question)
        if isinstance(seen, WaitFor):
            return decider.settled(question, seen, WAITS)
        if isinstance(seen, Use):
            return decider.settled(question, seen, "its place is kept")
        decision = decider.decide(seen)
        # Slurm's own choice knows nothing of what is kept.
        wait = reserved.wait(question) if isinstance(decision.reply, Pass) else None
        return decider.settled(question, wait, WAITS) if wait else decision


def _not_lent(asked: Submit) -> str:
    """Why nothing can be lent to it, as far as the submit tells; '' where it may borrow."""
    if asked.nodes > 1 or asked.max_nodes > 1:
        return forms.SEVERAL_NODES
    return "" if max(asked.per_node, asked.gpus) >= 2 else forms.TOO_SMALL
