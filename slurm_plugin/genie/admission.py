"""Admission at the start: a shaped job starts when the plan says so, with the shape it says.

Slurm looks for a job to start the moment another ends, before the queue can be planned anew.
"""

from __future__ import annotations

from policies.performance import Shape
from slurm_plugin.decide.decide import Decision
from slurm_plugin.decide.record import first_keys
from slurm_plugin.protocol import WaitFor
from slurm_plugin.question import PlacementQuestion

#: A job that waits is woken by the plan, by the end of a job, or by this many seconds.
WAIT_S = 60
BEHIND = "genie: the queue is planned anew"
LATER = "genie: others go first"


def shape_of(question: PlacementQuestion) -> Shape | None:
    """The shape Slurm would start the job with; None for no symmetric one."""
    counts = [node.own.bit_count() for node in question.candidates if node.own]
    return Shape(len(counts), counts[0]) if counts and len(set(counts)) == 1 else None


def waits(question: PlacementQuestion, note: str) -> Decision:
    """The decision to let the job wait."""
    reply, reason = WaitFor(WAIT_S, note), "waits by plan"

    def record() -> dict[str, object]:
        line = first_keys(question, "enforce", reply, reason)
        return line | {"policy": "genie", "pattern": "ring"}

    return Decision(reply, reason, record)
