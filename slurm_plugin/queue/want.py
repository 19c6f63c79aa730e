"""What a waiting job of ours wants."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_plugin.admin_comment import Bracket
from slurm_plugin.protocol import Submit
from slurm_plugin.queue.candidates import Need


@dataclass(frozen=True, slots=True)
class Want:
    """One job with our bracket: its submit as it was and its need.

    `problem` is why slots cannot serve it (then there is no need), '' where they can.
    """

    kept: Bracket
    asked: Submit | None = None
    need: Need | None = None
    problem: str = ""

    @property
    def own_begin(self) -> int:
        """The user's own --begin (epoch), 0 without."""
        return self.kept.number("begin")
