"""What every way of enforcing answers: a submit, and a job about to start.

`Select` and `Slots` decide; where jobs are shaped, `act/genie/shaping.py` wraps one of them.
"""

from __future__ import annotations

from typing import Protocol

from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.base.protocol import Submit, SubmitReply
from slurm_plugin.decide.decide import Decision

#: Seconds for which the bridge may use an answer to a submit again for the very same request.
KEEP_S = 1


class Enforcement(Protocol):
    """Turns the questions of the protocol into replies; never raises."""

    def on_submit(self, asked: Submit, not_lent: str = "") -> SubmitReply:
        """What to change in a job at submit, or why it is refused.

        `not_lent`: why nothing is lent to it, whatever it asks for.
        """

    def on_place(self, question: PlacementQuestion) -> Decision:
        """Which GPUs a job gets now, for how long it waits, or Slurm's own choice."""
