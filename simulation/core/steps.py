"""How far a long calculation has come, for a progress bar.

Loops lie inside loops: seeds, policies, jobs. Each says how many steps it has and how many are
done; a watcher gets the share of the whole that is done. Without a watcher nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

#: A smaller gain is not reported: a terminal shows a thousand steps at most.
LEAST = 1 / 1000


@dataclass(slots=True)
class _Loop:
    """One loop that goes on; steps that take longer weigh more."""

    total: float
    done: float = 0.0
    #: The weight of the step that is at work.
    step: float = 1.0


@dataclass(slots=True)
class _Watch:
    report: Callable[[float], None]
    #: From the outermost loop to the innermost.
    loops: list[_Loop] = field(default_factory=list)
    reported: float = 0.0

    def tell(self) -> None:
        """Report the share that is done, from 0 to 1; it never falls."""
        share, part = 0.0, 1.0
        for loop in self.loops:
            share += part * loop.done / loop.total
            part *= loop.step / loop.total
        if share >= self.reported + LEAST:
            self.reported = share
            self.report(share)


_WATCH: ContextVar[_Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(report: Callable[[float], None]) -> Iterator[None]:
    """While this is open, `report` gets the share of the outermost loop that is done."""
    before = _WATCH.set(_Watch(report))
    try:
        yield
    finally:
        _WATCH.reset(before)


@contextmanager
def counted(total: int) -> Iterator[Callable[[int], None]]:
    """A loop of `total` steps; what it gives is to be called with the number of those done."""
    watch = _WATCH.get()
    if watch is None or total < 1:
        yield lambda done: None
        return
    loop = _Loop(total)

    def tell(done: int) -> None:
        loop.done = done
        watch.tell()

    depth = len(watch.loops)
    watch.loops.append(loop)
    try:
        yield tell
    finally:
        del watch.loops[depth:]


def each(items: Collection[T], weights: Sequence[float] = ()) -> Iterator[T]:
    """The items, each one step; `weights` says how long each takes, in any unit, else all alike."""
    watch = _WATCH.get()
    if watch is None or not items:
        yield from items
        return
    loop = _Loop(sum(weights) or len(items))
    depth = len(watch.loops)
    watch.loops.append(loop)
    try:
        for item, weight in zip(items, weights or [1.0] * len(items), strict=True):
            loop.step = weight
            yield item
            loop.done += weight
            watch.tell()
    finally:
        del watch.loops[depth:]
