"""Users whose questions take too long: one of them must not keep the engine from all others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

#: Of all time late answers to one user's questions may take so much, and so many seconds at once.
SHARE, AT_ONCE_S = 0.05, 0.5
#: Users that are remembered.
MOST_USERS = 1000


class SlowUsers:
    """What late answers have taken of the engine's time, by user; paid back as time goes by.

    Whoever asked has given up on a late answer, and everybody else's question waited for it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is one that nobody sets."""
        self._clock = clock
        # Seconds that are not paid back, and when that was reckoned.
        self._owed: dict[int, tuple[float, float]] = {}

    def _owes(self, uid: int) -> float:
        owed_s, at = self._owed.get(uid, (0.0, 0.0))
        return max(0.0, owed_s - SHARE * (self._clock() - at))

    def is_one(self, uid: int) -> bool:
        """Are this user's jobs to get Slurm's own choice now?"""
        return uid in self._owed and self._owes(uid) > AT_ONCE_S

    def late(self, uid: int, took_s: float) -> None:
        """An answer came late, and took so much of the processor's time."""
        before_s = self._owes(uid)
        # A first question of its kind may take long once, whoever asks it.
        owed_s = before_s + took_s if before_s else min(took_s, AT_ONCE_S)
        if len(self._owed) >= MOST_USERS:
            self._owed = {one: owed for one, owed in self._owed.items() if self._owes(one)}
        self._owed[uid] = (owed_s, self._clock())
        if owed_s > AT_ONCE_S >= before_s:
            pause_s = (owed_s - AT_ONCE_S) / SHARE
            logger.warning("answers about jobs of user %d take too long: his get Slurm's own choice"
                           " for %.0f s", uid, pause_s)  # fmt: skip
