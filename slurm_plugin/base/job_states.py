"""Slurm's words for a job's state, read in one way: by the engine and by the program on the nodes.

JSON has the base state first and its flags after it; tables and `scontrol show job` have one flag
in its place (src/common/slurm_protocol_defs.c, job_state_string).
"""

from __future__ import annotations

from collections.abc import Sequence

#: The states in which a job waits or holds resources; a finished one is none of the queue.
QUEUE_STATES = ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING")
#: States in which a job is over; in any other it goes on.
ENDED = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL",
     "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT")
)  # fmt: skip
#: Flags of a job that holds nothing here, whatever its base state: it runs on another cluster of a
#: federation, or it has ended and a burst buffer copies its data (after COMPLETING).
GONE = frozenset(("REVOKED", "STAGE_OUT"))
#: Flags of a job that was requeued and waits again; a table shows them in place of its state.
REQUEUED = frozenset(
    ("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "EXPEDITING")
)


def queue_state(state: Sequence[str]) -> str:
    """The one word of QUEUE_STATES for a state and its flags; '' for a job that is over.

    A word that no release has had yet is taken for a state in which the job holds what it has.
    """
    for word in ("COMPLETING", "CONFIGURING"):
        if word in state:
            return word
    base = state[0] if state else ""
    if base in ENDED or GONE.intersection(state):
        return ""
    if base in QUEUE_STATES or not base:
        return base
    return "PENDING" if base in REQUEUED else "RUNNING"
