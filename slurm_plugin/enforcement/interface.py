"""What every way of enforcing answers: a submit, and a job about to start.

Ways of enforcing form a chain: the last one (`Select`, `Slots`) decides, each one around it adds
one concern and passes on what is not about it. serve/setup.py puts the chain together.
"""

from __future__ import annotations

from typing import Protocol

from slurm_plugin.decide.decide import Decision
from slurm_plugin.protocol import Notice, Submit, SubmitReply
from slurm_plugin.question import PlacementQuestion

#: Seconds for which the bridge may use an answer to a submit again for the very same request.
KEEP_S = 1


class Enforcement(Protocol):
    """Turns the questions of the protocol into replies; never raises."""

    def on_submit(self, asked: Submit) -> SubmitReply:
        """What to change in a job at submit, or why it is refused."""

    def on_place(self, question: PlacementQuestion) -> Decision:
        """Which GPUs a job gets now, for how long it waits, or Slurm's own choice."""

    def on_start(self, notice: Notice) -> None:
        """A job started on these GPUs."""


class Wrapper:
    """Passes everything on to `inner`; what derives from it changes one or two of the answers."""

    def __init__(self, inner: Enforcement) -> None:
        self.inner = inner

    def on_submit(self, asked: Submit) -> SubmitReply:
        """The inner one's answer."""
        return self.inner.on_submit(asked)

    def on_place(self, question: PlacementQuestion) -> Decision:
        """The inner one's answer."""
        return self.inner.on_place(question)

    def on_start(self, notice: Notice) -> None:
        """Passed on to the inner one."""
        self.inner.on_start(notice)
