"""How long jobs run: several guesses, drawn alike each time.

Users ask for more than their jobs take. What jobs used of their limits lately says how much more
(Tsafrir, Etsion and Feitelson, IEEE TPDS 18(6), 2007); before any is seen to end, all parts of a
limit are taken to be as likely (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001). Where a user's own
run times (policies/order/durations.py) have been nearer lately, they are guessed by instead.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Sequence
from functools import lru_cache
from operator import itemgetter

#: Futures that are played beside that of middle durations, a prime number.
FUTURES = 5
#: Jobs that ended last of which it is remembered; and of those that are looked at, no user's are
#: more than this part: nobody is to teach what others' jobs are guessed by.
MOST, OF_ONE = 64, 0.25
#: Users of whom it is known whether their own run times tell more.
MOST_USERS = 1000
#: Guesses this near to each other are one (as a part of the longest).
ALIKE = 0.05
#: Own run times are not guessed by before so many jobs show that they are nearer.
FEWEST = 6
#: All parts of a limit are as likely.
UNKNOWN = tuple((at + 0.5) / FUTURES for at in range(FUTURES))


class LimitsUsed:
    """What parts of their time limits the jobs used that ended last."""

    def __init__(self) -> None:
        #: Whose job it was, None where that is not known, and the part.
        self._last: deque[tuple[Hashable, float]] = deque(
            ((None, part) for part in UNKNOWN), maxlen=MOST
        )
        #: What `parts` and `users` say, as long as no other job has ended.
        self._told: list[tuple[float, Hashable]] | None = None
        #: By user whether own run times told more than limits of jobs that had any; the users whose
        #: jobs ended last.
        self._nearer: OrderedDict[Hashable, deque[bool]] = OrderedDict()

    def ended(
        self,
        ran_s: float,
        limit_s: float,
        took_s: Sequence[float] = (),
        user: Hashable = None,
    ) -> None:
        """A job of the user with this limit ran so long; what cannot be is passed over.

        `took_s`: run times of its user's jobs that were known before.
        """
        if not (ran_s >= 0 and limit_s > 0):
            return
        if took_s:
            parts = self.parts()
            by_limit = limit_s * parts[len(parts) // 2]
            by_own = min(limit_s, took_s[len(took_s) // 2])
            nearer = self._nearer.setdefault(user, deque(maxlen=MOST))
            nearer.append(_off_by(by_own, ran_s) < _off_by(by_limit, ran_s))
            self._nearer.move_to_end(user)
            if len(self._nearer) > MOST_USERS:
                self._nearer.popitem(last=False)
        mine = [at for at, (whose, _) in enumerate(self._last) if whose == user]
        if user is not None and len(mine) >= MOST * OF_ONE:
            del self._last[mine[0]]  # else many jobs of one user would drive out all others'
        self._last.append((user, min(1.0, ran_s / limit_s)))
        self._told = None

    def own_are_nearer(self, user: Hashable = None) -> bool:
        """Whether the user's own run times have told more than limits, lately and for most jobs."""
        nearer = self._nearer.get(user, ())
        return len(nearer) >= FEWEST and 2 * sum(nearer) > len(nearer)

    def parts(self) -> tuple[float, ...]:
        """Of the last jobs, the smallest part first; where hardly any tell, any parts besides."""
        return tuple(part for part, _ in self._seen())

    def users(self) -> tuple[Hashable, ...]:
        """Whose job each of `parts` was; None where that is not known."""
        return tuple(user for _, user in self._seen())

    def _seen(self) -> list[tuple[float, Hashable]]:
        if self._told is None:
            newest = [*reversed(self._last)]
            most = _most_of_one([user for user, _ in newest])
            kept: Counter[Hashable] = Counter()
            seen = []
            for user, part in newest:
                kept[user] += 1
                if user is None or kept[user] <= most:
                    seen.append((part, user))
            any_part = UNKNOWN if len(seen) < FUTURES else ()
            seen += [(part, None) for part in any_part]
            self._told = sorted(seen, key=itemgetter(0))
        return self._told


def _most_of_one(users: Sequence[Hashable]) -> int:
    """How many of these jobs may count of one user, so that nobody's are more than `OF_ONE`.

    At least one; None are jobs whose user is not known, and all of those count.
    """
    of_user = Counter(users)
    nobodys = of_user.pop(None, 0)
    most = max(1, min(MOST, int(OF_ONE * len(users))))
    while most > 1 and most > OF_ONE * (nobodys + sum([min(n, most) for n in of_user.values()])):
        most -= 1
    return most


def _bounded(used: Sequence[float], users: Sequence[Hashable]) -> Sequence[float]:
    """Of these parts (ascending) those that count, so that one user's are `OF_ONE` at most.

    Of a user with more, some evenly spread. Where one is too much, any later part is as likely. A
    part counts no lower than what the jobs of more users than `_accomplices` show: else a few could
    have everybody wait for GPUs that by their jobs alone are free in a moment.
    """
    most, of_user = _most_of_one(users), Counter(user for user in users if user is not None)
    if not of_user:
        return used
    seen = [*zip(used, users, strict=True)]
    if max(of_user.values(), default=0) > most:
        met: Counter[Hashable] = Counter()
        kept = []
        for part, user in seen:
            at, count = met[user], of_user[user]
            met[user] += 1
            if count <= most or at * most // count != (at + 1) * most // count:
                kept.append((part, user))
        seen = kept
    if OF_ONE * len(seen) < 1:
        seen += [(seen[0][0] + (1 - seen[0][0]) * part, None) for part in UNKNOWN]
        seen.sort(key=itemgetter(0))
    lowest: dict[Hashable, float] = {}
    for at, (part, user) in enumerate(seen):
        lowest.setdefault(("unknown", at) if user is None else user, part)
    least = sorted(lowest.values())[min(_accomplices(len(lowest)), len(lowest) - 1)]
    return [max(part, least) for part, _ in seen]


def _accomplices(users: int) -> int:
    """So many of them together are not to tell when GPUs come free: a quarter, two at least."""
    return max(2, math.ceil(OF_ONE * users))


def _off_by(guess_s: float, ran_s: float) -> float:
    return abs(math.log((1 + guess_s) / (1 + ran_s)))


def _order(number: int) -> tuple[int, ...]:
    """In which order a job takes its guesses, future by future: each once, any two jobs apart.

    Latin hypercube sampling (McKay, Beckman and Conover 1979), from the permutations
    a * at + b of the numbers below a prime. First the middle one.
    """
    a, b = 1 + number % (FUTURES - 1), number // (FUTURES - 1)
    return (FUTURES // 2, *((a * at + b) % FUTURES for at in range(FUTURES)))


_ORDERS = [_order(number) for number in range(FUTURES * (FUTURES - 1))]
_MIDDLES = [order[:1] for order in _ORDERS]
#: All futures; the first one, and those after it.
EVERY, FIRST, OTHERS = slice(None), slice(0, 1), slice(1, None)


class RunTimes:
    """How long jobs go on to run, in each future."""

    def __init__(
        self,
        used: Sequence[float],
        guesses: bool = True,
        own: bool = False,
        users: Sequence[Hashable] = (),
    ) -> None:
        """Without `guesses` there is the future of middle ones alone.

        `own`: some jobs have run times of their own, and are guessed by them. `users`: whose job
        each of `used` was, as far as that is known.
        """
        self._used, self._own, self._users = used, own, users
        #: The middles of equal shares of what was used, by the first that counts.
        self._middles: dict[int, list[float]] = {}
        middle = self._guesses(0) if used else [1.0]
        differ = own or middle[0] < (1 - ALIKE) * middle[-1]
        self.futures = 1 + FUTURES if guesses and differ else 1
        self._orders = _ORDERS if self.futures > 1 else _MIDDLES

    def _guesses(self, first: int) -> list[float]:
        """The middles of equal shares of those from the first on."""
        used = self._used[first:]
        if self._users:
            # One user's may be all that is left of them.
            used = _bounded(used, self._users[first:])
        guesses = self._middles[first] = [
            used[(2 * at + 1) * len(used) // (2 * FUTURES)] for at in range(FUTURES)
        ]
        return guesses

    def left_s(
        self,
        number: int,
        limit_s: float,
        ran_s: float = 0.0,
        took_s: Sequence[float] = (),
        of: slice = EVERY,
    ) -> Sequence[float]:
        """Seconds that a job still runs, by future; `number` tells the jobs of a question apart.

        First the middle of what is likely; alone where all jobs use about as much. By the run times
        `took_s` (ascending) where one is longer than `ran_s`. A job over its limit, which may be a
        guess or not be kept (OverTimeLimit), runs as long again at most. `of`: of some futures.
        """
        at = number % len(_ORDERS)
        if self._own and took_s and took_s[-1] > ran_s:
            first = bisect_right(took_s, ran_s)
            left = len(took_s) - first
            guesses = [
                took_s[first + (2 * one + 1) * left // (2 * FUTURES)]
                for one in self._orders[at][of]
            ]
            return [max(0.0, min(guess_s, limit_s) - ran_s) for guess_s in guesses]
        most_s = limit_s - ran_s if ran_s < limit_s else ran_s
        if not self._used:
            return [most_s] * len(self._orders[at][of])
        first = bisect_right(self._used, ran_s / limit_s if limit_s > 0 else 1.0)
        if first == len(self._used):
            # Longer than any before: as long again at most.
            longest = min(most_s, ran_s)
            return [longest * (one + 0.5) / FUTURES for one in self._orders[at][of]]
        guesses = self._middles.get(first) or self._guesses(first)
        return [limit_s * guesses[one] - ran_s for one in self._orders[at][of]]


@lru_cache(maxsize=16)
def run_times(
    used: tuple[float, ...], guesses: bool, own: bool = False, users: tuple[Hashable, ...] = ()
) -> RunTimes:
    """The same for questions between which no job ended."""
    return RunTimes(used, guesses, own, users)
