"""How long a job will run, learned from those that ended: quantiles per key, online.

A key is what is known of a job before it starts, from specific to general: its user with account,
name, size and command; its user with the name; its user with the size; its user alone. Each key
keeps its newest run times. An estimate pools those of the most specific key with those of the next
ones until there are enough: users repeat themselves (Tsafrir, Etsion and Feitelson, IEEE TPDS 18,
2007, predict by a user's last two jobs). Nothing is told of a job by others' jobs: nobody is to
teach what they are reckoned with.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple

#: Run times kept per key, the newest.
KEPT = 24
#: Keys kept. Beyond that whoever has most loses the one used longest ago, so that nobody's many
#: names drive out what is known of others.
MOST_KEYS = 50_000
#: Of no key it is told whose it is.
NOBODY: Mapping[bytes, bytes] = MappingProxyType({})
#: Run times that an estimate wants: more specific keys give theirs first.
ENOUGH = 6
#: Steps per doubling of a run time: a byte holds up to 2**31 s.
STEPS = 8
#: Characters of a name or command that count, from either end: scripts' paths differ at the end.
MOST_TEXT = 256


@dataclass(frozen=True, slots=True)
class KnownJob:
    """What is known of a job before it starts. `limit_s`: None where it has none."""

    user: str = ""
    account: str = ""
    name: str = ""
    #: GPUs in all.
    size: int = 0
    command: str = ""
    limit_s: float | None = None

    def pooled(self) -> tuple[bytes, ...]:
        """Its keys, from the most specific to its user's own; none where that is not known."""
        if not self.user:
            return ()
        user, size = _short(self.user), str(self.size)
        name, command = _short(self.name), _short(self.command)
        parts = (
            ("1", user, _short(self.account), name, size, command),
            ("2", user, name, size),
            ("3", user, name),
            ("4", user, size),
            ("5", user),
        )
        return tuple(dict.fromkeys(_key(part) for part in parts))


def _short(text: str) -> str:
    return text if len(text) <= 2 * MOST_TEXT else text[:MOST_TEXT] + text[-MOST_TEXT:]


def _key(parts: Sequence[str]) -> bytes:
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8).digest()


def to_step(seconds: float) -> int:
    """A run time as a byte; below a second, and what is no number, counts as 0 s."""
    if not seconds > 0:
        return 0
    return min(255, round(STEPS * math.log2(1 + seconds)))


def to_seconds(step: int) -> float:
    """The run time of a step."""
    return float(2.0 ** (step / STEPS) - 1)


_SECONDS = tuple(map(to_seconds, range(256)))


@dataclass(frozen=True, slots=True)
class DurationEstimate:
    """Run times of jobs like this one, in steps, ascending; none where nothing is known."""

    steps: tuple[int, ...]
    limit_s: float | None = None

    def quantile(self, share: float, after_s: float = 0.0) -> float | None:
        """Seconds within which that share of such jobs end; None where nothing is known.

        `after_s`: of those that ran for longer than this. Never more than the limit.
        """
        later = self.steps
        if after_s > 0:
            passed = to_step(after_s)
            later = tuple(step for step in later if step > passed)
        if not later:
            return self.limit_s
        at = max(0, math.ceil(share * len(later)) - 1)
        seconds = to_seconds(later[at])
        return seconds if self.limit_s is None else min(seconds, self.limit_s)


@dataclass(slots=True)
class Errors:
    """How far estimates were off, each made before its job ended.

    `ratios[i]`: jobs whose median estimate was off by i steps (i / 8 doublings).
    """

    ratios: list[int] = field(default_factory=lambda: [0] * 256)
    #: Share asked for -> jobs that ended within it.
    within: dict[float, int] = field(default_factory=lambda: dict.fromkeys((0.5, 0.9), 0))

    @property
    def jobs(self) -> int:
        """Jobs with an estimate that ended."""
        return sum(self.ratios)

    def add(self, estimate: DurationEstimate, seconds: float) -> None:
        """A job ended after that time."""
        middle = estimate.quantile(0.5)
        if middle is None:
            return
        self.ratios[abs(to_step(middle) - to_step(seconds))] += 1
        for share in self.within:
            bound = estimate.quantile(share)
            self.within[share] += bound is not None and to_step(seconds) <= to_step(bound)

    def median_ratio(self) -> float | None:
        """Half of all median estimates were off by at most this factor; None without any."""
        left = self.jobs / 2
        for step, count in enumerate(self.ratios):
            left -= count
            if self.jobs and left <= 0:
                return float(2.0 ** (step / STEPS))
        return None

    def coverage(self) -> dict[float, float]:
        """The share of jobs that ended within each quantile; ideal: the quantile itself."""
        jobs = max(1, self.jobs)
        return {share: count / jobs for share, count in self.within.items()}


class Durations:
    """The run times learned so far. Same ends in the same order give the same estimates."""

    def __init__(self) -> None:
        self._newest: OrderedDict[bytes, bytes] = OrderedDict()
        #: Key -> its user's own key, and user's own key -> keys, those used longest ago first.
        self._user: dict[bytes, bytes] = {}
        self._keys_of: dict[bytes, OrderedDict[bytes, None]] = {}
        self.errors = Errors()

    def __len__(self) -> int:
        return len(self._newest)

    def estimate(self, job: KnownJob) -> DurationEstimate:
        """What is known of such a job now."""
        return DurationEstimate(tuple(sorted(self._pool(job.pooled()))), job.limit_s)

    def _pool(self, keys: Sequence[bytes]) -> bytearray:
        """The steps of the most specific key, and of the next ones until there are enough."""
        found = bytearray()
        for key in keys:
            kept = self._newest.get(key, b"")
            found += kept[: KEPT if not found else ENOUGH - len(found)]
            if len(found) >= ENOUGH:
                break
        return found

    def newest_of(self, key: bytes) -> bytes:
        """What a key keeps, another object once it changed."""
        return self._newest.get(key, b"")

    def own_s(self, keys: Sequence[bytes]) -> tuple[float, ...]:
        """Run times by keys that say whose a job is, ascending."""
        return tuple(_SECONDS[step] for step in sorted(self._pool(keys)))

    def ended(self, job: KnownJob, seconds: float, said: DurationEstimate | None = None) -> None:
        """A job ran for that long; a time below 0 or no number is not taken.

        `said`: the estimate that was made before it started, to measure the error by.
        """
        if not 0 <= seconds < math.inf:
            return
        if said is not None:
            self.errors.add(said, seconds)
        step = bytes((to_step(seconds),))
        keys = job.pooled()
        for key in keys:
            self._keep(key, step + self._newest.pop(key, b""), keys[-1])
        self._forget()

    def _keep(self, key: bytes, steps: bytes, user: bytes) -> None:
        """A key was used now, and is this user's."""
        self._newest[key] = steps[:KEPT]
        self._disown(key)
        self._user[key] = user
        self._keys_of.setdefault(user, OrderedDict())[key] = None

    def _disown(self, key: bytes) -> None:
        user = self._user.pop(key, None)
        if user is not None:
            del self._keys_of[user][key]
            if not self._keys_of[user]:
                del self._keys_of[user]

    def _forget(self) -> None:
        while len(self._newest) > MOST_KEYS:
            # Of several that have as many, whoever has been known for longest.
            most = max(self._keys_of, key=lambda user: len(self._keys_of[user]))
            key = next(iter(self._keys_of[most]))
            self._disown(key)
            del self._newest[key]

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """What is kept: key -> steps, the newest first; keys used longest ago first."""
        return iter(self._newest.items())

    def user_of(self, key: bytes) -> bytes:
        """A kept key's user, as that one's own key."""
        return self._user[key]

    def load(self, kept: Mapping[bytes, bytes], users: Mapping[bytes, bytes] = NOBODY) -> None:
        """Take over what `items` and `user_of` gave; beyond `MOST_KEYS` as while learning.

        Keys without a user, as files of earlier versions have them, count as one user's.
        """
        for key, steps in kept.items():
            self._keep(key, steps, users.get(key, b""))
        self._forget()


class _Followed(NamedTuple):
    """A job as it was submitted, and its user's run times when they were last asked for."""

    known: KnownJob
    said: DurationEstimate
    own: tuple[bytes, ...]
    newest: bytes | None = None
    took_s: tuple[float, ...] = ()


@dataclass(slots=True)
class Learning:
    """Learns how long jobs take, each followed from its submit to its end."""

    durations: Durations = field(default_factory=Durations)
    #: User -> when a job of the user's that had passed outlived its prediction last (passing.py).
    outlived: dict[str, float] = field(default_factory=dict)
    _jobs: dict[int, _Followed] = field(default_factory=dict)

    def submitted(self, job_id: int, known: KnownJob) -> DurationEstimate:
        """A job waits from now on; what it is expected to take now, and was the first time."""
        job = self._jobs.get(job_id)
        if job is None:
            said, own = self.durations.estimate(known), known.pooled()
            job = self._jobs[job_id] = _Followed(known, said, own)
        return job.said

    def follows(self, job_id: int) -> bool:
        """Whether the job was submitted and is not gone."""
        return job_id in self._jobs

    def followed(self) -> set[int]:
        """All jobs that were submitted and are not gone."""
        return set(self._jobs)

    def took_s(self, job_id: int) -> tuple[float, ...]:
        """Run times of its user's jobs like it (ascending), anew once another one has ended.

        None before `ENOUGH` of them have.
        """
        job = self._jobs.get(job_id)
        if job is None or not job.own:
            return ()
        newest = self.durations.newest_of(job.own[-1])
        if newest is not job.newest:
            took_s = self.durations.own_s(job.own) if len(newest) >= ENOUGH else ()
            job = self._jobs[job_id] = job._replace(newest=newest, took_s=took_s)
        return job.took_s

    def ended(self, job_id: int, seconds: float | None) -> None:
        """A job is gone after so many seconds; None: nothing is to be learned from it."""
        job = self._jobs.pop(job_id, None)
        if job is not None and seconds is not None:
            self.durations.ended(job.known, seconds, job.said)
