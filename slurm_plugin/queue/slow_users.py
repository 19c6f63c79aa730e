"""Users whose jobs take too long to serve: one of them must not keep the engine from all others."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import NamedTuple

logger = logging.getLogger(__name__)

#: Of all time what is late for one user may take so much, and so many seconds at once.
SHARE, AT_ONCE_S = 0.05, 0.5
#: What a single one takes beyond that is forgiven once in so long: the first of its kind may take
#: long, whoever it is for.
FORGIVES_EVERY_S = 3600.0
#: Users that are remembered.
MOST_USERS = 1000


class _Debt(NamedTuple):
    owed_s: float  # seconds of the engine's time that were not paid back at `at`
    at: float
    forgiven_at: float


class SlowUsers:
    """What was late for a user's jobs and others waited for, by user; paid back as time goes by.

    `what` begins the line that is logged once a user owes too much; `what_then` ends it.
    `clock` is one that nobody sets.
    """

    def __init__(
        self, what: str, what_then: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._what_then = what, what_then
        self._clock = clock
        # Who was late longest ago comes first.
        self._debts: dict[int, _Debt] = {}

    def _owes(self, uid: int) -> float:
        debt = self._debts.get(uid)
        return max(0.0, debt.owed_s - SHARE * (self._clock() - debt.at)) if debt else 0.0

    def is_one(self, uid: int) -> bool:
        """Does this user owe so much that nothing more is to be done for the user's jobs now?"""
        return self._owes(uid) > AT_ONCE_S

    def late(self, uid: int, took_s: float) -> None:
        """Something was late, and took so many seconds."""
        now, before_s, debt = self._clock(), self._owes(uid), self._debts.pop(uid, None)
        owed_s, forgiven_at = before_s + took_s, debt.forgiven_at if debt else -math.inf
        if not before_s and owed_s > AT_ONCE_S and now - forgiven_at >= FORGIVES_EVERY_S:
            owed_s, forgiven_at = AT_ONCE_S, now
        if len(self._debts) >= MOST_USERS:
            del self._debts[self._least_missed()]
        self._debts[uid] = _Debt(owed_s, now, forgiven_at)
        if owed_s > AT_ONCE_S >= before_s:
            pause_s = (owed_s - AT_ONCE_S) / SHARE
            say = "%s of user %d take too long: %s for %.0f s"
            logger.warning(say, self._what, uid, self._what_then, pause_s)

    def _least_missed(self) -> int:
        """Who was late longest ago: of those who owe nothing, if there are any."""
        return next((uid for uid in self._debts if not self._owes(uid)), next(iter(self._debts)))
