"""What jobs communicate that say nothing: learned from how long they ran on which GPUs.

A job that communicates for a share c of its time takes 1 + c x as long as on the best GPUs, x being
1 / share of the ideal bandwidth - 1 (Amdahl, `run_s`). How long it would have taken there nobody
knows; but the logarithm of what it used of its limit is, apart from chance, one figure for all of
a user's jobs of a size on a kind of node, plus log(1 + c x). What is left of the squares says how
likely each c is (normal errors of unknown variance, by Jeffreys' prior).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gres_topology import NodeTopology
from policies.horizon.futures import is_told_apart
from policies.horizon.run_times import OF_ONE
from policies.patterns.pattern import fitting
from policies.scoring.objectives import EFFBW, ideal_share
from policies.scoring.tables import Tables, is_tabulated, tables

#: What jobs may communicate: each as likely before any ended, and their mean is the usual (0.3).
VALUES = np.array([0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
#: Jobs of a user that are remembered, the last ones, and users, those whose jobs ended last.
MOST, MOST_USERS = 128, 256
#: Nothing is told before so many ended.
FEWEST = 32
#: Run times that are more alike than this (standard deviation of their logarithm) prove no more.
ALIKE = 0.1
#: Who used up so much of the limit was ended by it, most likely, or runs for as long as it may.
ALL = 0.98
#: Steps in which it is told: what nodes are ranked by is remembered.
STEP = 0.05


class _Ended(NamedTuple):
    """What a job that ended tells of the communication of jobs like it."""

    #: Its size and kind of node.
    of: tuple[str, int]
    #: 1 / share of the ideal bandwidth - 1.
    lacks: float
    #: Logarithm of the part of its limit that it ran.
    part: float


class UsualCommunication:
    """What the jobs communicate that ended last and did not say it."""

    def __init__(self, tables: Tables = tables) -> None:
        self._tables = tables
        self._last: OrderedDict[Hashable, deque[_Ended]] = OrderedDict()
        #: By user, how likely each value is (logarithm).
        self._likely: dict[Hashable, NDArray[np.float64]] = {}
        self._ended = 0
        #: The mean of what is likely; None while hardly any job has ended.
        self.share: float | None = None

    def ended(
        self,
        topology: NodeTopology,
        mask: int,
        pattern: str,
        ran_s: float,
        limit_s: float,
        user: Hashable = None,
    ) -> None:
        """A job ended that did not say what it communicates; its GPUs (mask) were of one node.

        Passed over where nothing is learned from it, or not in a moment: all GPUs are linked alike,
        they are not those of this topology, its sets are not tabulated, or the job used up its
        limit.
        """
        gpus = mask.bit_count()
        is_known = gpus > 1 and not mask >> topology.gpus and is_told_apart(topology)
        if not (is_known and 0 < ran_s < ALL * limit_s):
            return
        pattern = fitting(pattern, gpus)
        if not is_tabulated(topology, pattern):
            return
        best = self._tables.first(topology, pattern, gpus, mask, EFFBW)
        ideal = self._tables.ideal_effbw_gbps(topology.healthy or topology, pattern, gpus)
        share = max(0.01, ideal_share(best.effbw_gbps, ideal))
        last = self._last.setdefault(user, deque(maxlen=MOST))
        self._last.move_to_end(user)
        last.append(_Ended((topology.shape, gpus), 1 / share - 1, log(ran_s / limit_s)))
        if len(self._last) > MOST_USERS:
            gone, _ = self._last.popitem(last=False)
            del self._likely[gone]
        self._likely[user] = _likely(last)
        self._ended += 1
        if self._ended >= FEWEST:
            self.share = self._mean()

    def _mean(self) -> float | None:
        likely = np.array([*self._likely.values()])
        # How far each user's jobs tell the values apart.
        apart = np.ptp(likely, axis=1)
        if np.count_nonzero(apart) * OF_ONE < 1:
            return None  # nobody is to tell more than that part, so it takes four
        most = _bound(apart)
        kept = np.minimum(1.0, most / np.maximum(apart, 1e-9)) @ likely
        odds = np.exp(kept - kept.max())
        return round(round(float(odds @ VALUES / odds.sum()) / STEP) * STEP, 2)


def _likely(last: deque[_Ended]) -> NDArray[np.float64]:
    """How likely a user's jobs make each value (logarithm, but for a constant)."""
    number: dict[tuple[str, int], int] = {}
    of = np.array([number.setdefault(one.of, len(number)) for one in last])
    lacks = np.array([one.lacks for one in last])
    left = np.array([one.part for one in last]) - np.log1p(VALUES[:, None] * lacks)
    count = np.bincount(of)
    means = np.array([np.bincount(of, row) for row in left]) / count
    freedom = len(last) - len(number)
    squares = ((left - means[:, of]) ** 2).sum(axis=1) + freedom * ALIKE**2
    return -freedom / 2 * np.log(squares) if freedom else np.zeros(len(VALUES))


def _bound(apart: NDArray[np.float64]) -> float:
    """The largest bound with which nobody has more than `OF_ONE` of all."""
    low, high = 0.0, float(apart.max())
    for _ in range(30):
        middle = (low + high) / 2
        if middle <= OF_ONE * np.minimum(apart, middle).sum() + 1e-9:
            low = middle
        else:
            high = middle
    return low
