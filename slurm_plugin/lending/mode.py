"""What differs between the ways of enforcing: where a job keeps its loan, what a donor asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slurm_plugin.admin_comment import Bracket
from slurm_plugin.queue.capacity import Node
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob


class Mode(Protocol):
    """One way of enforcing, as far as loans go. Pure: it says what to tell Slurm."""

    def kept(self, job: QueuedJob) -> Bracket | None:
        """What the job's AdminComment keeps, with or without a loan; None for nothing of ours."""
        ...

    def is_on_loan(self, job: QueuedJob, kept: Bracket) -> bool:
        """Does a job in this state need the donors that it names?"""
        ...

    def meets(self, job: QueuedJob, kept: Bracket, note: str) -> JobUpdate:
        """The update that names the donors in `kept` before they start."""
        ...

    def donor(self, parent: int, node: Node, mask: int) -> JobUpdate:
        """The update that gives a donor its GPUs, and lets it start."""
        ...

    def given_up(self, job: QueuedJob, kept: Bracket, note: str) -> Sequence[JobUpdate]:
        """The updates, in this order, that leave the job without the loan that `kept` names.

        Where one is refused, none follows.
        """
        ...
