"""Lines of the decision log about shapes: what was chosen, of which candidates, why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.contract.scheduling import Planned, Platform, Task
from policies.genie.submit import ShapeCandidate, candidates
from slurm_plugin.base.log_lines import ShapeChoice, ShapeLine
from slurm_plugin.base.protocol import Submit
from slurm_plugin.slurm.interface import QueuedJob

#: Candidates written down, the best first; the chosen one always.
MAX_CANDIDATES = 16


@dataclass(frozen=True, slots=True)
class ShapeRecord:
    """The choice of one shape, for the job of a submit or of Slurm's queue, with its hint."""

    asked: Submit | QueuedJob
    hint: str
    task: Task
    chosen: Planned
    platform: Platform
    now: float
    is_fixed: bool = False
    note: str = ""

    def build(self) -> ShapeLine:
        """The line; of a submit without the job's id."""
        shape = self.chosen.shape
        ranked = candidates(self.task, self.platform, self.now)
        shown = [one for at, one in enumerate(ranked) if at < MAX_CANDIDATES or one.shape == shape]
        return ShapeLine(
            shape=str(shape),
            why=self._why(ranked),
            note=self.note,
            service=self.task.service,
            deadline=round(self.task.deadline_s),
            allowance_s=round(self.chosen.allowance_s, 1),
            starts=bool(self.chosen.nodes),
            shapes=tuple(
                ShapeChoice(
                    shape=str(one.shape),
                    latency_s=round(one.latency_s, 3),
                    cost=round(one.cost, 4),
                    ratio=float(f"{one.ratio:.6g}"),
                    in_time=one.is_in_time,
                )
                for one in shown
            ),
            shapes_left_out=len(ranked) - len(shown),
            uid=self.asked.uid,
            account=self.asked.account,
            partition=self.asked.partition,
            hint=self.hint,
            policy="genie",
        )

    def _why(self, ranked: Sequence[ShapeCandidate]) -> str:
        if self.is_fixed:
            return "the user's own shape"
        best = next((one for one in ranked if one.is_in_time), ranked[0] if ranked else None)
        in_time = any(one.is_in_time for one in ranked)
        what = "of those in time" if in_time else "of all: none is in time"
        if best is None or best.shape == self.chosen.shape:
            return f"the highest cost-effective ratio {what}"
        if self.chosen.nodes:
            return f"the highest cost-effective ratio of what fits now ({best.shape} does not)"
        return f"the highest cost-effective ratio {what}, predictions taken 10 % longer"
