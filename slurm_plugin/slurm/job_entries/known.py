"""What is known of each job in the queue, and of updates by names that no reading has shown."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_plugin.slurm import array_tasks
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.slurm.job_entries.issued import bound
from slurm_plugin.slurm.job_entries.saved import JobEntries

#: Former entries of a job that are remembered.
MOST_PAST = 4


@dataclass(slots=True)
class KnownEntries:
    """What is known of a job in the queue."""

    entries: JobEntries
    #: The field as Slurm was last known to have it.
    comment: str = ""
    #: When an update of ours last ended (by the store's clock): older readings may not show it.
    written_at: float = float("-inf")
    #: Entries of updates that failed: Slurm may have taken them all the same.
    tried: list[dict[str, str]] = field(default_factory=list)
    is_logged: bool = False
    #: Entries of updates that were taken, but for the last: Slurm may have lost that one.
    past: list[dict[str, str]] = field(default_factory=list)
    #: The GPUs per node and per job that the last update about them asked for.
    asked: tuple[str | None, str | None] = (None, None)
    #: The job's comment as the engine is to see it.
    shown: str = ""
    #: How many tasks each update of the job is to name; None where it need not (`tasks_to_name`).
    tasks: int | None = None
    #: What Slurm showed of the job then; None where something is still to be done about it.
    fingerprint: tuple[object, ...] | None = None

    def take(self, ours: dict[str, str], comment: str | None, at: float) -> None:
        """Slurm took an update that ended then; `comment` is what was sent, None for nothing."""
        self.past = [*self.past, self.entries.ours][-MOST_PAST:]
        self.entries.ours = dict(ours)
        self.wrote(comment, at)

    def wrote(self, comment: str | None, at: float) -> None:
        """An update with these entries ended then: no reading from before that tells of them."""
        self.comment = self.comment if comment is None else comment
        self.written_at, self.fingerprint = at, None


def fingerprint(job: QueuedJob) -> tuple[object, ...]:
    """What changes where something is to be done about a job's comment."""
    return job.uid, job.state, job.submit, job.admin_comment


@dataclass(frozen=True, slots=True)
class Unnamed:
    """An update that Slurm took, by a name that no reading had shown."""

    ours: dict[str, str]
    comment: str | None
    #: When it ended (by the store's clock).
    at: float


class UnnamedUpdates:
    """Updates of tasks that were part of an array's record when the queue was read.

    Each task gets a record of its own by that, but for the last ones: they keep the array's, which
    is a job that is known already.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Unnamed] = {}
        #: Those that were for several tasks.
        self._wide: dict[str, Unnamed] = {}
        self._times: set[float] = set()

    def add(self, name: str, one: Unnamed) -> None:
        """Remember the update of `name`."""
        of_kind = self._wide if "[" in name else self._by_name
        of_kind[name] = one
        bound(of_kind)
        self._times.add(one.at)

    def of(self, job: QueuedJob) -> Unnamed | None:
        """The last update that was for this job, or for tasks of which it is some."""
        fitting = [one for name, one in self._wide.items() if array_tasks.is_part(job.name, name)]
        if job.name in self._by_name:
            fitting.append(self._by_name[job.name])
        return max(fitting, key=lambda one: one.at, default=None)

    def inherited(self, array: KnownEntries) -> tuple[dict[str, str], float]:
        """What an array's record held when a task was split off it, and since when."""
        # An update of the tasks that were left over was none of this one.
        if array.written_at in self._times:
            return dict(array.past[-1]), float("-inf")
        return dict(array.entries.ours), array.written_at

    def forget(self, began: float) -> None:
        """A reading that began then shows the jobs of earlier updates by their names."""
        for some in (self._by_name, self._wide):
            for name in [name for name, one in some.items() if one.at < began]:
                del some[name]
        self._times = {at for at in self._times if at >= began}
