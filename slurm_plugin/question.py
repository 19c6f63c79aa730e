"""What every placement begins with: a job about to start, and the nodes where it could.

A `place` line of slurmctld is one (`Place` in protocol.py); in the slots mode enforcement and gates
build their own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A node where the job could start. GPU sets are masks: bit i is Slurm's GPU i."""

    name: str
    #: How many GPUs the node has.
    total: int
    #: The GPUs that the job may take.
    free: int
    #: The GPUs that Slurm itself would take; 0 where it would not use the node.
    own: int
    #: Slurm's node Weight: the lowest goes first.
    weight: int


@dataclass(frozen=True, slots=True)
class PlacementQuestion:
    """Which GPUs a job gets now."""

    #: Its id; 0 for a job that is only being submitted.
    job: int
    #: The id of its array; 0 where it is in none.
    array: int
    #: Its user.
    uid: int
    #: How often a policy let it wait before.
    postponed: int
    #: Seconds since the first of these waits.
    waited_s: int
    candidates: tuple[CandidateNode, ...]
    account: str = ""
    partition: str = ""
    #: The user's hint, as written.
    hint: str = ""
