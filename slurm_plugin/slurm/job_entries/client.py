"""A Slurm client that keeps our entries in AdminComment and the text of others beside each other.

Who reads the queue sees our entries as the engine knows them. What is written holds the others'
text as Slurm had it a moment ago.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gres_topology.slurm_files.network import Networks
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import (
    JobUpdate,
    QueuedJob,
    Reservation,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
)
from slurm_plugin.slurm.job_entries.store import EntryStore

logger = logging.getLogger(__name__)

#: Others' text is read again before an update where it was read longer ago (seconds).
FRESH_S = 0.3
#: A reading that takes long is repeated after so many times as long.
FRESH_SHARE = 10.0


class EntryKeeper:
    """The store of all clients of one engine, with its lock."""

    def __init__(self, store: EntryStore | None = None) -> None:
        self.store = store or EntryStore()
        #: Are comments to be repaired?
        self.may_write: Callable[[], bool] = lambda: True
        #: May this engine change Slurm? An engine beside another slurmctld may else do so.
        self.is_in_charge: Callable[[], bool] = lambda: True
        self.lock = threading.RLock()
        #: The comments of the newest reading, by job, and when that began.
        self.comments: Mapping[int, str] = {}
        self.read_at = float("-inf")
        #: How long the last reading before an update took, in seconds.
        self.took_s = 0.0

    def check(self) -> None:
        """Raises SlurmError where Slurm is not to be changed from here."""
        if not self.is_in_charge():
            raise SlurmError("slurmctld of this host is not in charge: nothing is changed")

    def reopen(self) -> None:
        """Forget what was known when another engine took over, and read what that one wrote."""
        with self.lock:
            self.comments, self.read_at = {}, float("-inf")
            self.store.reopen()

    def close(self) -> None:
        """Write what is new; the engine ends."""
        with self.lock:
            if self.is_in_charge():
                self.store.save(is_last=True)


class EntryClient(SlurmClient):
    """`inner`, with what `keeper` knows."""

    def __init__(self, inner: SlurmClient, keeper: EntryKeeper) -> None:
        self.inner, self.keeper = inner, keeper

    def version(self) -> str:
        """Slurm's version."""
        return self.inner.version()

    def nodes(self) -> list[SlurmNode]:
        """Every node, by name."""
        return self.inner.nodes()

    def jobs(self) -> list[SlurmJob]:
        """Every job the controller holds, by id."""
        return self.inner.jobs()

    def config(self) -> Mapping[str, str]:
        """`scontrol show config`."""
        return self.inner.config()

    def reservations(self) -> list[Reservation]:
        """Every reservation that this user may see; raises SlurmError."""
        return self.inner.reservations()

    def partitions(self) -> list[SlurmPartition]:
        """The partitions."""
        return self.inner.partitions()

    def networks(self) -> Networks:
        """What slurmctld has in force of its topologies."""
        return self.inner.networks()

    def admin_comments(self) -> dict[int, str]:
        """The AdminComment of every job that waits or holds resources, by id."""
        return self.inner.admin_comments()

    def site_factors(self) -> dict[int, int]:
        """The site factors of the waiting jobs that have a priority now, by id."""
        return self.inner.site_factors()

    def queue(self) -> list[QueuedJob]:
        """The queue with our entries as they are known; what others overwrote is put back."""
        keeper = self.keeper
        began = keeper.store.clock()
        jobs = self.inner.queue()
        with keeper.lock:
            keeper.comments = {job.job_id: job.admin_comment for job in jobs}
            keeper.read_at = began
            seen, repairs = keeper.store.take(jobs, began)
            if not keeper.is_in_charge():
                return seen
            for repair in repairs if keeper.may_write() else ():
                if repair.log:
                    logger.warning("%s", repair.log)
                try:
                    self._send([repair.name], JobUpdate(admin_comment=repair.text))
                    keeper.store.repaired(repair)
                except SlurmError as error:
                    # It has ended meanwhile, or the next reading tries again.
                    logger.debug("job %s: %s", repair.name, error)
            keeper.store.save()
        return seen

    def update(self, jobs: Sequence[str], change: JobUpdate) -> None:
        """Change the jobs; an AdminComment of one job keeps the text of others.

        Raises SlurmError, too, where Slurm is not to be changed from here.
        """
        comment, keeper = change.admin_comment, self.keeper
        keeper.check()
        if change.begin_time is not None:
            with keeper.lock:
                for name in jobs:
                    keeper.store.woken(name)
        if comment is None or len(jobs) != 1:
            self._send(jobs, change)
            with keeper.lock:
                for name in jobs:
                    keeper.store.asked(name, change)
            return
        [name] = jobs
        with keeper.lock:
            if change.begin_time is None:
                comment = keeper.store.with_wait(name, comment)
            comments = self._comments()
            sent = keeper.store.to_send(name, comment, comments, keeper.read_at)
            is_taken = False
            try:
                self._send(jobs, replace(change, admin_comment=sent))
                is_taken = True
                keeper.store.asked(name, change)
            finally:
                keeper.store.written(name, comment, sent, is_taken)

    def _send(self, jobs: Sequence[str], change: JobUpdate) -> None:
        """The update, which leaves the jobs as many tasks as they have unless it sets these."""
        if change == JobUpdate() or change.num_tasks is not None:
            self.inner.update(jobs, change)
            return
        with self.keeper.lock:
            groups = self.keeper.store.by_tasks(jobs)
        refused = []
        for tasks, names in groups:
            try:
                self.inner.update(names, replace(change, num_tasks=tasks))
            except SlurmError as error:
                refused.append(str(error))
        if refused:
            raise SlurmError("; ".join(refused[:3]))

    def _comments(self) -> Mapping[int, str]:
        """All jobs' comments, read a moment ago."""
        keeper = self.keeper
        now = keeper.store.clock()
        if now - keeper.read_at > max(FRESH_S, FRESH_SHARE * keeper.took_s):
            try:
                keeper.comments, keeper.read_at = self.inner.admin_comments(), now
                keeper.took_s = keeper.store.clock() - now
            except SlurmError as error:
                logger.debug("AdminComments could not be read again: %s", error)
        return keeper.comments
