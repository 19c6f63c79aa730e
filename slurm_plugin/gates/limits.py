"""Limits of Slurm's that a release ran into, and which other jobs they hold for.

Slurm names no limit of a job behind its gate: only a release shows one. Without what is kept here
each of a user's jobs would be tried in turn, and keep its slots from others meanwhile.

A job that fits nowhere is not released, and yet others wait for it. So Slurm checks its limits: its
gate opens though it has no slots, until Slurm has planned its start or named a limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.demand import ABOUT_ACCESS, lacks_only_room
from slurm_plugin.queue.snapshot import CLOSED
from slurm_plugin.slurm.interface import QueuedJob, SlurmPartition

#: Why a job is left to Slurm that is beyond what its partition allows.
NOT_STARTED = "its partition would not start it"
#: The first pause, in seconds; it doubles with every further try up to the longest.
FIRST_S, LONGEST_S = 1, 300
#: So many requests that met a limit are kept of each user's jobs; of more the oldest is forgotten.
MOST_OF_EACH = 16
#: After so many seconds Slurm has looked at a job whose gate is open, its backfill included, which
#: rounds times (bf_interval, bf_max_time and bf_resolution where nothing is said).
LOOK_S = 150
#: So many seconds after Slurm began to check a request it checks it again, and so long is the first
#: pause of one that met a limit then: each time others wait for what they may not.
CHECKED_S, CHECK_PAUSE_S = 300, 60

# A minimum (QOSMinGRES) holds for no job that asks for more, and MaxPoweredUpNodes for none whose
# nodes are on: these are not among them.
_OF_OTHERS_TOO = re.compile(r"(Assoc|QOS)(?!Min)|Max\w*Per|Licenses|Partition|Account|Invalid")


class Whose(NamedTuple):
    """Jobs that are equal in this have the same limits. As Slurm writes them, '' for none."""

    uid: int
    account: str
    qos: str
    partition: str
    licenses: str

    @classmethod
    def of(cls, job: QueuedJob) -> Whose:
        """Those of a job."""
        return cls(job.uid, job.account, job.qos, job.partition, job.licenses)


class Asked(NamedTuple):
    """What a job asks for in all, as far as there are limits of it."""

    nodes: int
    gpus: int
    cpus: int
    memory_mb: int
    #: inf where it has no time limit.
    time_s: float

    @classmethod
    def of(cls, need: Need, time_s: int) -> Asked:
        """What a job with this need asks for; `time_s` is 0 for no time limit."""
        nodes = need.nodes
        amounts = nodes * need.gpus, nodes * need.cpus, nodes * need.memory_mb
        return cls(nodes, *amounts, time_s or math.inf)

    def covers(self, other: Asked) -> bool:
        """Does it ask for no less of anything?"""
        return all(mine >= theirs for mine, theirs in zip(self, other, strict=True))


class Pause(NamedTuple):
    """A request that met a limit is not tried again before `until` (epoch)."""

    until: int
    #: How long it was paused the last time, in seconds.
    length_s: int


#: What a job asks for, and whose it is.
Request = tuple[Whose, Asked]
#: Every request that met a limit, by whose it is.
Pauses = Mapping[Whose, Mapping[Asked, Pause]]


def holds_for_others(reason: str) -> bool:
    """Does a waiting job's reason name a limit that other jobs of its user meet, too?"""
    return bool(_OF_OTHERS_TOO.match(reason)) or reason.startswith(ABOUT_ACCESS)


@dataclass
class Tries:
    """Which jobs of one plan may be tried, as to limits.

    Where a job met a limit, none that asks for as much is tried until its pause is over, and then
    one at a time. One that asks for less may have room below the limit.
    """

    pauses: Pauses
    now: int
    #: What met a limit in this plan.
    met: list[Request] = field(default_factory=list)
    #: Which requests Slurm checks or did, and since when (epoch).
    checks: dict[Request, int] = field(default_factory=dict)
    _under_way: set[Whose] = field(default_factory=set)

    def is_closed(self, job: QueuedJob, need: Need | None) -> bool:
        """Would the job meet a limit, as far as is known?"""
        if need is None or not (self.pauses or self.met):
            return False
        whose, asked = Whose.of(job), Asked.of(need, job.time_limit_s)
        if any(one == whose and asked.covers(other) for one, other in self.met):
            return True
        pauses = _of_as_little(self.pauses, whose, asked)
        is_tried = bool(pauses) and whose in self._under_way
        # Where a pause is to last longer than any is, the clock was set back.
        return is_tried or any(0 < one.until - self.now <= LONGEST_S for one in pauses)

    def begin(self, job: QueuedJob, need: Need | None) -> None:
        """The job has slots and is to start now."""
        if self.pauses and need is not None:
            whose = Whose.of(job)
            if _of_as_little(self.pauses, whose, Asked.of(need, job.time_limit_s)):
                self._under_way.add(whose)

    def fail(self, job: QueuedJob, need: Need | None) -> None:
        """Slurm did not start the job on its slots."""
        if need is not None and holds_for_others(job.reason):
            self.met.append(request_of(job, need))

    def is_unchecked(self, job: QueuedJob, need: Need | None) -> bool:
        """Was the job's request not checked by Slurm of late?"""
        if need is None:
            return False
        since = self.checks.get(request_of(job, need))
        # A check from the future is one from before the clock was set back.
        return since is None or not 0 <= self.now - since < CHECKED_S

    def is_being_checked(self, job: QueuedJob, need: Need | None) -> bool:
        """Is the job's gate open for Slurm to check its limits, which is not done yet?

        Backfill gives a job that it plans a start to come, once it has checked its limits.
        """
        if need is None or not self.checks or job.eligible > self.now or job.start > self.now:
            return False
        since = self.checks.get(request_of(job, need))
        in_time = since is not None and 0 <= self.now - since < LOOK_S
        return in_time and lacks_only_room(job, "BeginTime")

    def end_check(self, job: QueuedJob, need: Need | None) -> None:
        """Take what Slurm says of a job whose gate is open, but that has no slots."""
        if need is not None and job.eligible <= self.now and request_of(job, need) in self.checks:
            self.fail(job, need)


def request_of(job: QueuedJob, need: Need) -> Request:
    """What a job with this need asks for, and whose it is."""
    return Whose.of(job), Asked.of(need, job.time_limit_s)


def _of_as_little(pauses: Pauses, whose: Whose, asked: Asked) -> list[Pause]:
    """The pauses of jobs that asked for as much or less."""
    found = pauses.get(whose)
    return [one for other, one in found.items() if asked.covers(other)] if found else []


class Limits:
    """Remembers from round to round; after a restart of the engine it is learned anew."""

    def __init__(self) -> None:
        #: Never changed, but replaced.
        self.pauses: Pauses = {}
        #: The same, of the checks of `Tries`.
        self.checks: Mapping[Request, int] = {}
        # Jobs that held something in the last round, with their users and accounts.
        self._active: dict[int, tuple[int, str]] = {}

    def follow(self, jobs: Collection[QueuedJob], needs: Mapping[int, Need | None]) -> None:
        """Take which jobs started and ended since the last round; `needs` are by job id.

        After an end of a job of the same user or account the next try need not wait: there may be
        room below the limit. Once a job has started, those that ask for less wait no more.
        """
        active = [job for job in jobs if job.state != "PENDING"]
        before, self._active = self._active, {job.job_id: (job.uid, job.account) for job in active}
        if not (self.pauses or self.checks):
            return
        ended = [before[job_id] for job_id in before.keys() - self._active.keys()]
        uids, accounts = {uid for uid, _ in ended}, {account for _, account in ended if account}
        waiting = {Whose.of(job) for job in jobs if job.state == "PENDING"}
        kept = {whose: dict(self.pauses[whose]) for whose in waiting & self.pauses.keys()}
        for whose, pauses in kept.items():
            if whose.uid in uids or whose.account in accounts:
                kept[whose] = {asked: one._replace(until=0) for asked, one in pauses.items()}
        for job in active:
            need = needs.get(job.job_id)
            if job.job_id not in before and need is not None:
                _free(kept, Whose.of(job), Asked.of(need, job.time_limit_s))
        self.pauses = {whose: pauses for whose, pauses in kept.items() if pauses}
        self.checks = {one: since for one, since in self.checks.items() if one[0] in waiting}

    def learn(
        self, met: Iterable[Request], now: int, checks: Mapping[Request, int] | None = None
    ) -> None:
        """Pause what met a limit. `checks` are those of `Tries`."""
        pauses = {whose: dict(found) for whose, found in self.pauses.items()}
        checks = dict(checks or {})
        for whose, asked in dict.fromkeys(met):
            mine = pauses.setdefault(whose, {})
            last = mine.pop(asked, None)
            first_s = CHECK_PAUSE_S if checks.pop((whose, asked), 0) else FIRST_S
            length_s = min(LONGEST_S, 2 * last.length_s) if last else first_s
            mine[asked] = Pause(now + length_s, length_s)
            if len(mine) > MOST_OF_EACH:
                del mine[next(iter(mine))]
        self.pauses, self.checks = pauses, checks


def _free(pauses: Mapping[Whose, dict[Asked, Pause]], own: Whose, had: Asked) -> None:
    """Forget the pauses of what asked for no more than this job, which has started."""
    for whose, found in pauses.items():
        # Of several partitions, or QOS, a job keeps the one that it starts in.
        is_one = own.partition in whose.partition.split(",") and own.qos in whose.qos.split(",")
        if is_one and whose._replace(partition=own.partition, qos=own.qos) == own:
            for asked in [asked for asked in found if had.covers(asked)]:
                del found[asked]


def meets_limit(pauses: Pauses, own: Whose, asked: Asked) -> bool:
    """Did a job of a submit's user, account and partition that asked for no more meet a limit?

    What a submit does not tell, its QOS for one, counts as the same.
    """
    return any(
        whose[:2] == own[:2] and whose.partition == own.partition and asked.covers(other)
        for whose, found in pauses.items()
        for other in found
    )


def would_start(
    names: Iterable[str], time_s: int, nodes: int, partitions: Mapping[str, SlurmPartition]
) -> bool:
    """Could one of these partitions ever start a job of this time limit (0: none) and size?

    One that is down is not asked about: it comes up again.
    """
    found = [partitions[name] for name in names if name in partitions]
    return not found or any(
        not (0 < one.max_time_s < time_s) and not (0 < one.max_nodes < nodes) for one in found
    )


def is_up(names: Iterable[str], partitions: Mapping[str, SlurmPartition]) -> bool:
    """Does one of these partitions start jobs now?"""
    found = [partitions[name] for name in names if name in partitions]
    return not found or any(one.state not in CLOSED for one in found)
