"""Enforcement by the select plugin: exact GPUs when the job starts, nothing at submit.

At submit the hint is only checked and written into admin_comment, where the plugin finds
it at start time.
"""

from __future__ import annotations

from slurm_plugin.engine.decide import Decider, Decision
from slurm_plugin.engine.wish import WishError, read_wish
from slurm_plugin.protocol import Ok, Pass, Place, Refuse, Submit, SubmitReply

#: Seconds for which the bridge may use an answer again for the very same request. The
#: answer depends on the request and the configuration alone, so all that a longer time
#: would cost is the delay until a reload is felt.
KEEP_S = 1


class Select:
    """The recommended way: `slurm_plugin/select` asks at the moment a job starts."""

    name = "select"

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def on_submit(self, asked: Submit) -> SubmitReply:
        """Refuses a bad hint where the partition is enforced; keeps a good one."""
        rule = self._decider.rule(asked.partition, asked.account, asked.uid)
        if not asked.hint or rule.mode != "enforce":
            return Pass(keep_s=KEEP_S)
        try:
            wish = read_wish(asked.hint, rule)
        except WishError as error:
            return Refuse(f"gpu-topo: {error}")
        return Ok({"keep_s": str(KEEP_S), "set.admin_comment": f"[gpu-topo: {wish.text}]"})

    def on_place(self, asked: Place) -> Decision:
        """The decision, unchanged: the plugin takes exact GPUs."""
        return self._decider.decide(asked)
