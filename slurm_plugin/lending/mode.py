"""What differs between the ways of enforcing: where a job keeps its loan, what a donor asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from slurm_plugin.job_notes.records import JobRecord
from slurm_plugin.queue.capacity import Node
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob


class Mode(Protocol):
    """One way of enforcing, as far as loans go. Pure: it says what to tell Slurm.

    `kept` is always a record of the mode's own kind: what its `kept` read.
    """

    def kept(self, job: QueuedJob) -> JobRecord | None:
        """What the job's AdminComment keeps, with or without a loan; None for nothing of ours."""
        ...

    def is_on_loan(self, job: QueuedJob, kept: Any) -> bool:
        """Does a job in this state need the donors that it names?"""
        ...

    def meets(self, job: QueuedJob, kept: Any, note: str) -> JobUpdate:
        """The update that names the donors in `kept` before they start."""
        ...

    def donor(self, parent: int, node: Node, mask: int) -> JobUpdate:
        """The update that gives a donor its GPUs, and lets it start."""
        ...

    def given_up(self, job: QueuedJob, kept: Any, note: str) -> Sequence[JobUpdate]:
        """The updates, in this order, that leave the job without the loan that `kept` names.

        Where one is refused, none follows.
        """
        ...
