"""The start-time veto: a job starts when the plan says so, with the shape it says.

Slurm looks for a job to start the moment another ends; what is to start then was not planned yet.
"""

from __future__ import annotations

from policies.performance import Shape
from slurm_plugin.decide.decide import Decision
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
    """The decision to let the job wait; not written down: there is one for every end of a job."""
    return Decision(WaitFor(WAIT_S, note), "waits by plan", lambda: record(question, note))


def record(question: PlacementQuestion, note: str) -> dict[str, object]:
    """The line of the decision log."""
    return {
        "job": question.job,
        "array": question.array,
        "uid": question.uid,
        "account": question.account,
        "partition": question.partition,
        "hint": question.hint,
        "mode": "enforce",
        "decision": "wait",
        "applied": True,
        "why": "waits by plan",
        "note": note,
        "postponed": question.postponed,
        "waited_s": question.waited_s,
        "candidate_nodes": len(question.candidates),
        "wait_s": WAIT_S,
        "policy": "genie",
        "pattern": "ring",
    }
