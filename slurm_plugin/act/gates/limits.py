"""Limits of Slurm's that a release ran into, and which other jobs they hold for.

Slurm names no limit of a job behind its gate: only a release shows one. Without what is kept here
each of a user's jobs would be tried in turn, and keep its slots from others meanwhile.

A job that fits nowhere is not released, and yet others wait for it. So Slurm checks its limits: its
gate opens though it has no slots, until Slurm has planned its start or named a limit.

Jobs may be as unlike as their user likes. So what came to nothing counts against all of a user's
jobs, too, for a short time: others get what is free before the next one is tried.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.demand import ABOUT_ACCESS, Asked, Whose, lacks_only_room
from slurm_plugin.slurm.interface import QueuedJob

#: Why a job is left to Slurm that is beyond what its partition allows.
NOT_STARTED = "its partition would not start it"
#: The first pause, in seconds; it doubles with every further try up to the longest.
FIRST_S, LONGEST_S = 1, 300
#: So many requests that met a limit are kept of each user's jobs; of more the oldest is forgotten.
MOST_OF_EACH = 16
#: After so many seconds Slurm has looked at a job, its backfill included, whatever its settings.
LOOK_S = 150
#: The longest pause after a release of a user's that came to nothing, for all of the user's jobs.
LONGEST_DOUBT_S = 30
#: So many seconds after Slurm began to check a request it checks it again; so long a user's jobs
#: hold nobody back after one of them met a limit in a check.
CHECKED_S = 300

# A minimum (QOSMinGRES) holds for no job that asks for more, and MaxPoweredUpNodes for none whose
# nodes are on: these are not among them.
_OF_OTHERS_TOO = re.compile(r"(Assoc|QOS)(?!Min)|Max\w*Per|Licenses|Partition|Account|Invalid")


class Pause(NamedTuple):
    """A request that met a limit is not tried again before `until` (epoch)."""

    until: int
    #: How long it was paused the last time, in seconds.
    length_s: int


#: What a job asks for, and whose it is.
Request = tuple[Whose, Asked]
#: Every request that met a limit, by whose it is.
Pauses = Mapping[Whose, Mapping[Asked, Pause]]


class Check(NamedTuple):
    """Slurm checks a request's limits since that time (epoch), or did."""

    since: int
    #: Slurm has planned the start of such a job: no limit keeps it.
    is_passed: bool = False


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """What is known of limits. Never changed, but replaced."""

    pauses: Pauses = field(default_factory=dict)
    checks: Mapping[Request, Check] = field(default_factory=dict)
    #: Users of whom a release came to nothing since the last one that started, by uid.
    doubts: Mapping[int, Pause] = field(default_factory=dict)
    #: Until when (epoch) users' unchecked jobs hold nobody back, by uid.
    no_place: Mapping[int, int] = field(default_factory=dict)


#: Where nothing was tried yet.
NOTHING = KnownLimits()


def holds_for_others(reason: str) -> bool:
    """Does a waiting job's reason name a limit that other jobs of its user meet, too?"""
    return bool(_OF_OTHERS_TOO.match(reason)) or reason.startswith(ABOUT_ACCESS)


@dataclass
class Tries:
    """Which jobs of one plan may be tried, as to limits, and which hold others back.

    Where a job met a limit, none that asks for as much is tried until its pause is over, and then
    one at a time. One that asks for less may have room below the limit. Of a user of whom a release
    came to nothing one job is tried at a time, after a pause, until one starts.
    """

    now: int
    known: KnownLimits = NOTHING
    #: How long Slurm takes to look at a job, and how far ahead it plans (seconds).
    look_s: int = LOOK_S
    window_s: int = 86400
    #: Does Slurm plan starts at all?
    backfills: bool = True
    #: What met a limit in this plan.
    met: list[Request] = field(default_factory=list)
    #: The checks, those of this plan, too.
    checks: dict[Request, Check] = field(default_factory=dict)
    #: Users of whom a release came to nothing, and who met a limit in a check, in this plan.
    failed: set[int] = field(default_factory=set)
    limited: set[int] = field(default_factory=set)
    _under_way: set[Whose] = field(default_factory=set)
    _trying: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.checks.update(self.known.checks)

    def is_closed(self, job: QueuedJob, need: Need | None) -> bool:
        """Would the job meet a limit, as far as is known?"""
        pauses, doubts = self.known.pauses, self.known.doubts
        if need is None or not (pauses or doubts or self.met or self.failed):
            return False
        uid = job.uid
        # Where a pause is to last longer than any is, the clock was set back.
        if uid in self.failed or (uid in doubts and uid in self._trying):
            return True
        if uid in doubts and 0 < doubts[uid].until - self.now <= LONGEST_DOUBT_S:
            return True
        whose, asked = Whose.of(job), Asked.of(need, job.time_limit_s)
        if any(one == whose and asked.covers(other) for one, other in self.met):
            return True
        found = _of_as_little(pauses, whose, asked)
        is_tried = bool(found) and whose in self._under_way
        return is_tried or any(0 < one.until - self.now <= LONGEST_S for one in found)

    def begin(self, job: QueuedJob, need: Need | None) -> None:
        """The job has slots and is to start now."""
        self._trying.add(job.uid)
        if self.known.pauses and need is not None:
            whose = Whose.of(job)
            if _of_as_little(self.known.pauses, whose, Asked.of(need, job.time_limit_s)):
                self._under_way.add(whose)

    def fail(self, job: QueuedJob, need: Need | None) -> None:
        """Slurm did not start the job on its slots."""
        # One that Slurm put back, or that somebody holds, may well have started.
        if not job.held and job.eligible <= self.now:
            self.failed.add(job.uid)
        if need is not None and holds_for_others(job.reason):
            self.met.append(request_of(job, need))

    def has_place(self, job: QueuedJob, need: Need) -> bool:
        """May others have to wait for the job, which fits nowhere now?"""
        check = self.checks.get(request_of(job, need))
        age = self.now - check.since if check else CHECKED_S
        # A check from the future is one from before the clock was set back.
        if check and 0 <= age < CHECKED_S:
            if check.is_passed:
                return True
            if age >= self.look_s:
                # Slurm itself keeps no room for what it does not come to.
                return not self.backfills
        return not 0 < self.known.no_place.get(job.uid, 0) - self.now <= CHECKED_S

    def begin_check(self, job: QueuedJob, need: Need | None) -> bool:
        """Others wait for the job: is Slurm to check its limits from now on?"""
        if need is None:
            return False
        request = request_of(job, need)
        check = self.checks.get(request)
        if check and 0 <= self.now - check.since < CHECKED_S:
            return False
        self.checks[request] = Check(self.now)
        return True

    def is_being_checked(self, job: QueuedJob, need: Need | None) -> bool:
        """Is the job's gate open for Slurm to check its limits, which is not done yet?

        Backfill gives a job that it plans a start to come, once it has checked its limits; not so
        a start beyond all that it plans.
        """
        if need is None or not self.checks or job.eligible > self.now:
            return False
        request = request_of(job, need)
        check = self.checks.get(request)
        if check is None or check.is_passed:
            return False
        if not lacks_only_room(job, "BeginTime"):
            if holds_for_others(job.reason):
                self.met.append(request)
                self.limited.add(job.uid)
            return False
        if self.now < job.start < self.now + self.window_s:
            self.checks[request] = check._replace(is_passed=True)
            return False
        return 0 <= self.now - check.since < self.look_s


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
        self.known = NOTHING
        # Jobs that held something in the last round, with their users and accounts.
        self._active: dict[int, tuple[int, str]] = {}
        # Users whose pause an end has shortened already: only once each.
        self._shortened: set[int] = set()

    def follow(self, jobs: Collection[QueuedJob], needs: Mapping[int, Need | None]) -> None:
        """Take which jobs started and ended since the last round; `needs` are by job id.

        After an end of a job of the same user or account the next try need not wait: there may be
        room below the limit. Once a job has started, those that ask for less wait no more.
        """
        active = [job for job in jobs if job.state != "PENDING"]
        before, self._active = self._active, {job.job_id: (job.uid, job.account) for job in active}
        known = self.known
        if known == NOTHING:
            return
        ended = [before[job_id] for job_id in before.keys() - self._active.keys()]
        uids, accounts = {uid for uid, _ in ended}, {account for _, account in ended if account}
        waiting = {Whose.of(job) for job in jobs if job.state == "PENDING"}
        users = {whose.uid for whose in waiting}
        mates = {one.uid for one in waiting if one.uid in uids or one.account in accounts}
        kept = {whose: dict(known.pauses[whose]) for whose in waiting & known.pauses.keys()}
        for whose, pauses in kept.items():
            if whose.uid in uids or whose.account in accounts:
                kept[whose] = {asked: one._replace(until=0) for asked, one in pauses.items()}
        doubts = {uid: one for uid, one in known.doubts.items() if uid in users}
        for uid in (mates & doubts.keys()) - self._shortened:
            doubts[uid] = doubts[uid]._replace(until=0)
            self._shortened.add(uid)
        for job in active:
            need = needs.get(job.job_id)
            if job.job_id not in before and need is not None:
                _free(kept, Whose.of(job), Asked.of(need, job.time_limit_s))
                doubts.pop(job.uid, None)
        self._shortened &= doubts.keys()
        self.known = KnownLimits(
            {whose: pauses for whose, pauses in kept.items() if pauses},
            {one: check for one, check in known.checks.items() if one[0] in waiting},
            doubts,
            {uid: until for uid, until in known.no_place.items() if uid in users},
        )

    def learn(self, tries: Tries) -> None:
        """Pause what met a limit, or came to nothing."""
        now, known = tries.now, self.known
        pauses = {whose: dict(found) for whose, found in known.pauses.items()}
        checks, doubts = dict(tries.checks), dict(known.doubts)
        for uid in tries.failed:
            doubts[uid] = _longer(doubts.get(uid), now, LONGEST_DOUBT_S)
        for whose, asked in dict.fromkeys(tries.met):
            mine = pauses.setdefault(whose, {})
            # The next turn is another job's.
            doubt = doubts.get(whose.uid)
            least_s = 2 * doubt.length_s if doubt else 0
            mine[asked] = _longer(mine.pop(asked, None), now, LONGEST_S, least_s)
            checks.pop((whose, asked), None)
            if len(mine) > MOST_OF_EACH:
                del mine[next(iter(mine))]
        self._shortened -= tries.failed
        no_place = {**known.no_place, **dict.fromkeys(tries.limited, now + CHECKED_S)}
        self.known = KnownLimits(pauses, checks, doubts, no_place)


def _longer(last: Pause | None, now: int, longest_s: int, least_s: int = 0) -> Pause:
    """The first pause, or twice as long a one as the last."""
    length_s = min(longest_s, max(2 * last.length_s if last else FIRST_S, least_s))
    return Pause(now + length_s, length_s)


def _free(pauses: Mapping[Whose, dict[Asked, Pause]], own: Whose, had: Asked) -> None:
    """Forget the pauses of what asked for no more than this job, which has started."""
    for whose, found in pauses.items():
        # Of several partitions, or QOS, a job keeps the one that it starts in.
        is_one = own.partition in whose.partition.split(",") and own.qos in whose.qos.split(",")
        if is_one and whose._replace(partition=own.partition, qos=own.qos) == own:
            for asked in [asked for asked in found if had.covers(asked)]:
                del found[asked]


def meets_limit(known: KnownLimits, own: Whose, asked: Asked) -> bool:
    """Did a job of a submit's user, account and partition that asked for no more meet a limit?

    What a submit does not tell, its QOS for one, counts as the same. Jobs of a user of whom a
    release came to nothing wait for their turn, too.
    """
    return own.uid in known.doubts or any(
        whose[:2] == own[:2] and whose.partition == own.partition and asked.covers(other)
        for whose, found in known.pauses.items()
        for other in found
    )
