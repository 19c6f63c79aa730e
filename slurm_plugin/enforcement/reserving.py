"""Keeps GPUs for loans in the making: other jobs do not see them, or wait."""

from __future__ import annotations

from slurm_plugin.decide.decide import Decider, Decision
from slurm_plugin.enforcement.interface import Enforcement, Wrapper
from slurm_plugin.lending.at_start.reservations import Reservations
from slurm_plugin.protocol import Pass, Use, WaitFor
from slurm_plugin.question import PlacementQuestion

WAITS = "GPUs are kept for a loan"


class Reserving(Wrapper):
    """Around `Select`. `reserved` are the GPUs that loans in the making are to have."""

    def __init__(self, inner: Enforcement, decider: Decider, reserved: Reservations) -> None:
        super().__init__(inner)
        self._decider = decider
        self._reserved = reserved

    def on_place(self, question: PlacementQuestion) -> Decision:
        """The inner decision on the GPUs that are left; for a loan's own job its share of them."""
        mode = self._decider.rule(question.partition, question.account, question.uid).mode
        if mode != "enforce" or self._reserved.is_empty:
            return self.inner.on_place(question)
        seen = self._reserved.answer(question)
        if isinstance(seen, WaitFor):
            return self._decider.settled(question, seen, WAITS)
        if isinstance(seen, Use):
            return self._decider.settled(question, seen, "its share of a loan")
        decision = self.inner.on_place(seen)
        # Slurm's own choice knows nothing of what is kept.
        wait = self._reserved.wait(question) if isinstance(decision.reply, Pass) else None
        return self._decider.settled(question, wait, WAITS) if wait else decision
