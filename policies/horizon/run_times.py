"""How long jobs run of what their time limits allow: several guesses, drawn alike each time.

Users ask for more than their jobs take. What jobs used of their limits lately says how much more
(Tsafrir, Etsion and Feitelson, IEEE TPDS 18(6), 2007); before any is seen to end, all parts of a
limit are taken to be as likely (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from functools import lru_cache

#: Futures that are played beside that of middle durations, a prime number.
FUTURES = 5
#: Jobs that ended last of which it is remembered.
MOST = 64
#: Guesses this near to each other are one (as a part of the longest).
ALIKE = 0.05


class LimitsUsed:
    """What parts of their time limits the jobs used that ended last."""

    def __init__(self) -> None:
        self._last = deque(((at + 0.5) / FUTURES for at in range(FUTURES)), maxlen=MOST)
        self._sorted: tuple[float, ...] | None = None

    def ended(self, ran_s: float, limit_s: float) -> None:
        """A job with this limit ran so long; what cannot be is passed over."""
        if ran_s >= 0 and limit_s > 0:
            self._last.append(min(1.0, ran_s / limit_s))
            self._sorted = None

    def parts(self) -> tuple[float, ...]:
        """Of the last jobs, the smallest part first."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self._last))
        return self._sorted


def _order(number: int) -> tuple[int, ...]:
    """In which order a job takes its guesses, future by future: each once, any two jobs apart.

    Latin hypercube sampling (McKay, Beckman and Conover 1979), from the permutations
    a * at + b of the numbers below a prime. First the middle one.
    """
    a, b = 1 + number % (FUTURES - 1), number // (FUTURES - 1)
    return (FUTURES // 2, *((a * at + b) % FUTURES for at in range(FUTURES)))


_ORDERS = [_order(number) for number in range(FUTURES * (FUTURES - 1))]


class RunTimes:
    """How long jobs go on to run, in each future."""

    def __init__(self, used: Sequence[float], guesses: bool = True) -> None:
        """Without `guesses` there is the future of middle ones alone."""
        self._used = used
        #: The middles of equal shares of what was used, by the first that counts.
        self._middles: dict[int, list[float]] = {}
        #: The same for a job's number, in the order of the futures.
        self._in_order: dict[tuple[int, int], list[float]] = {}
        middle = self._guesses(0) if used else [1.0]
        differ = middle[0] < (1 - ALIKE) * middle[-1]
        self.futures = 1 + FUTURES if guesses and differ else 1

    def _guesses(self, first: int) -> list[float]:
        """The middles of equal shares of those from the first on."""
        known = self._middles.get(first)
        if known is None:
            used, left = self._used, len(self._used) - first
            known = self._middles[first] = [
                used[first + (2 * at + 1) * left // (2 * FUTURES)] for at in range(FUTURES)
            ]
        return known

    def left_s(self, number: int, limit_s: float, ran_s: float = 0.0) -> Sequence[float]:
        """Seconds that a job still runs, by future; `number` tells the jobs of a question apart.

        First the middle of what is likely; alone where all jobs use about as much.
        """
        return [self.one_s(future, number, limit_s, ran_s) for future in range(self.futures)]

    def one_s(self, future: int, number: int, limit_s: float, ran_s: float = 0.0) -> float:
        """The same in one future."""
        if not self._used:
            return max(0.0, limit_s - ran_s)
        first = bisect_right(self._used, ran_s / limit_s if limit_s > 0 else 1.0)
        at = number % len(_ORDERS)
        if first == len(self._used):
            # Longer than any before: as long again at most.
            longest = min(max(0.0, limit_s - ran_s), ran_s)
            return longest * (_ORDERS[at][future] + 0.5) / FUTURES
        parts = self._in_order.get((first, at))
        if parts is None:
            guesses = self._guesses(first)
            parts = self._in_order[first, at] = [guesses[one] for one in _ORDERS[at]]
        return limit_s * parts[future] - ran_s


@lru_cache(maxsize=16)
def run_times(used: tuple[float, ...], guesses: bool) -> RunTimes:
    """The same for questions between which no job ended."""
    return RunTimes(used, guesses)
