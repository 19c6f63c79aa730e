"""What was computed for kinds of node, as many as their size allows: the last ones asked for.

A site may mark each of hundred nodes in a way of its own. Of nodes of 8 GPUs hundreds of tables
take less memory than a few of those of 16.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from policies.contract.bits import EXACT_GPUS

#: What a small node counts at least, as sets of GPUs: Python's own objects weigh as much.
_LEAST_SETS = 1 << 11

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """Values by key, each for a node of so many GPUs; room for `most` nodes of 16."""

    def __init__(self, most: int) -> None:
        self._room = most << EXACT_GPUS
        self._kept: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        #: Held for a moment only: never while something is computed.
        self._lock = threading.Lock()

    def get(self, key: Hashable, gpus: int, make: Callable[[], Value]) -> Value:
        """The value of that key, made where there is none; two threads may both make it."""
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known[0]
        made = make()
        sets = max(_LEAST_SETS, 1 << min(gpus, EXACT_GPUS))
        with self._lock:
            if key in self._kept:
                return self._kept[key][0]
            self._kept[key] = made, sets
            self._room -= sets
            while self._room < 0:
                self._room += self._kept.popitem(last=False)[1][1]
        return made

    def values(self) -> list[Value]:
        """All of them, as they are now."""
        with self._lock:
            return [value for value, _ in self._kept.values()]

    def clear(self) -> None:
        """Forget all that is kept."""
        with self._lock:
            self._room += sum(sets for _, sets in self._kept.values())
            self._kept.clear()
