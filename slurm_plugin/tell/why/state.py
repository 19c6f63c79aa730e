"""Everything that is known of one waiting job: what an answer is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.queue.snapshot import Settings, Snapshot
from slurm_plugin.slurm.interface import (
    License,
    Limit,
    QueuedJob,
    Reservation,
    SlurmPartition,
)

#: The uid that stands for a user whose jobs the reader may not see. Such a job counts in the
#: queue's order and for what it needs, and no word tells of it more than that it is there.
HIDDEN = -2


def hidden(snapshot: Snapshot, uid: int) -> Snapshot:
    """The snapshot without what tells one job of other users than `uid` from another."""
    jobs = tuple(
        job
        if job.uid == uid
        else replace(
            job,
            name="",
            user="",
            account="",
            job_name="",
            command="",
            job_id=-i,
            array_id=0,
            het_id=0,
            uid=HIDDEN,
        )
        for i, job in enumerate(snapshot.jobs, 1)
    )
    return replace(snapshot, jobs=jobs)


@dataclass(frozen=True, slots=True)
class Extras:
    """What Slurm tells beside the snapshot, for the reasons of waiting jobs."""

    reservations: tuple[Reservation, ...] = ()
    licenses: tuple[License, ...] = ()
    limits: tuple[Limit, ...] = ()
    #: The account above each account.
    parents: Mapping[str, str] = field(default_factory=dict)
    #: Our entries about jobs, where the engine keeps them to itself.
    entries: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WaitingState:
    """One waiting job, and Slurm around it as the user who asks may see it."""

    job: QueuedJob
    #: Jobs, nodes, partitions and settings of one moment.
    snapshot: Snapshot
    extras: Extras = field(default_factory=Extras)
    #: What `gputopo explain` knows of it; empty where nothing was decided.
    story: Mapping[str, Any] = field(default_factory=dict)
    #: Slurm hides other users' jobs from this user (PrivateData).
    hides_jobs: bool = False

    @property
    def now(self) -> float:
        """When all this was so (epoch)."""
        return self.snapshot.at

    @property
    def entries(self) -> str:
        """Our entries about the job: its AdminComment, or the engine's own notes."""
        return self.extras.entries.get(self.job.job_id) or self.job.admin_comment

    @property
    def begins_at(self) -> int:
        """Before this the job is not to start (epoch); its `start` may be what backfill plans."""
        return self.job.eligible or self.job.start

    @property
    def accounts(self) -> tuple[str, ...]:
        """The job's account and those above it, its own first."""
        accounts = [self.job.account]
        while (above := self.extras.parents.get(accounts[-1], "")) and above not in accounts:
            accounts.append(above)
        return tuple(accounts)

    @property
    def partitions(self) -> list[SlurmPartition]:
        """The partitions that the job names, as far as its user may see them."""
        named = self.job.partition.split(",")
        return [one for one in self.snapshot.settings.partitions if one.name in named]


def may_meet_limit(job: QueuedJob, entries: str, settings: Settings) -> bool:
    """May one of Slurm's limits on users, accounts and QOS keep this job? They are read then alone.

    Of a job that the engine put behind its gate again Slurm's reason is not seen any more, and of
    one at which Slurm has not looked yet there is none. `entries` are ours about the job.
    """
    gate = GateRecord.read_from(entries)
    if (gate is not None and gate.tries > 0) or job.reason in ("", "None"):
        return True
    mine = (settings.by_name.get(name) for name in job.partition.split(","))
    is_for_some = any(one and (one.allow_accounts or one.deny_accounts) for one in mine)
    return is_for_some or job.reason.startswith(("Assoc", "QOS", "Max", "Account"))


@dataclass(frozen=True, slots=True)
class WaitReason:
    """One cause; `text` completes a sentence that begins with the job: `waits for 4 free GPUs`."""

    cause: str
    text: str
    #: (title, text) of each fact behind it.
    evidence: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What `why` says of one job: the cause, a sentence, and the facts behind it."""

    job: str
    #: One word for the cause: `fragmentation`, `priority`, `limit` and so on.
    cause: str
    #: A whole sentence.
    sentence: str
    #: (title, text) of each fact behind it.
    evidence: tuple[tuple[str, str], ...] = ()
    #: When it starts as Slurm plans it, and as the time limits of the jobs before it say; epochs,
    #: 0 where that is not known.
    slurm_start: int = 0
    our_start: int = 0
    #: What would start it now, each as a change of the job's options and where it would start.
    sooner: tuple[str, ...] = ()
