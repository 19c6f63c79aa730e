"""What Slurm is told about a loan, which differs between the ways of enforcing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from slurm_plugin.job_notes.records import JobRecord
from slurm_plugin.queue.capacity import Node
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob


class LoanUpdates(Protocol):
    """One way of enforcing, as far as loans go. Pure: it only says what to tell Slurm.

    Every `record` is a record of this way's own kind, as `record_of` read it.
    """

    def record_of(self, job: QueuedJob) -> JobRecord | None:
        """Our record in the job's AdminComment, with or without a loan; None without one."""
        ...

    def is_on_loan(self, job: QueuedJob, record: Any) -> bool:
        """Does a job in this state need the donors that it names?"""
        ...

    def meets(self, job: QueuedJob, record: Any, note: str) -> JobUpdate:
        """The update that names the donors in `record` before they start."""
        ...

    def donor(self, parent: int, node: Node, mask: int) -> JobUpdate:
        """The update that gives a donor its GPUs, and lets it start."""
        ...

    def given_up(self, job: QueuedJob, record: Any, note: str) -> Sequence[JobUpdate]:
        """The updates, in this order, that leave the job without the loan that `record` names.

        Where one is refused, none follows.
        """
        ...
