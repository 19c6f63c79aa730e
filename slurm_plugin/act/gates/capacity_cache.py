"""What submits are answered from, without a call to Slurm. Times are epochs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from slurm_plugin.act.gates.limits import NOTHING, KnownLimits
from slurm_plugin.decide.record import Build
from slurm_plugin.queue.backfill import WaitingLine
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Hold, Nodes, emptied, with_hold
from slurm_plugin.queue.snapshot import NO_SETTINGS, Settings
from slurm_plugin.slurm.interface import Reservation

#: Seconds for which GPUs are kept for a submit whose job does not show up: Slurm may have refused
#: it, or only tested it.
PROMISE_S = 1.5
#: When this many submits of a user led to no job within this many seconds, the user's submits get
#: gates instead of slots until the next poll: tests of submits must not keep GPUs from others.
MOST_UNMET, UNMET_S = 20, 60.0


@dataclass(frozen=True, slots=True)
class SlotPromise:
    """What a submit was promised; it ends when the cache shows the job as Slurm does."""

    #: Its slots; empty behind a gate.
    hold: Hold
    until: float
    #: Makes the decision's line of the log.
    build: Build | None = None
    #: What a gated job waits for.
    need: Need | None = None
    uid: int = -1


@dataclass(slots=True)
class CapacityCache:
    """Written and read by the event loop alone."""

    #: Figures older than this many seconds are not used; set by the loop that reads them.
    fresh_s: float = float("inf")
    #: When the last poll of Slurm began; -inf: never.
    polled_at: float = float("-inf")
    #: What is free on each node, and what would be free without any job.
    nodes: Nodes = field(default_factory=dict)
    empty: Nodes = field(default_factory=dict)
    holds: tuple[Hold, ...] = ()
    #: Whom no submit may delay, with everything that is promised counted as taken.
    line: WaitingLine = field(default_factory=WaitingLine)
    #: Slurm's reservations, now and to come.
    reserved: tuple[Reservation, ...] = ()
    settings: Settings = NO_SETTINGS
    #: What is known of limits of Slurm's.
    limits: KnownLimits = NOTHING
    #: Promises of slots and of gates, by token: apart, as a submit looks at all those of slots.
    promises: dict[str, SlotPromise] = field(default_factory=dict)
    gated: dict[str, SlotPromise] = field(default_factory=dict)
    #: Decisions that are only to be written down.
    observed: list[Build] = field(default_factory=list)
    #: How many jobs have ended, and how many of these ends a poll has seen. Where they differ, GPUs
    #: came free that the last poll does not show.
    ended: int = 0
    known: int = 0
    #: Is a poll wanted soon? A job may start or be released, or a decision waits to be logged.
    is_awaited: bool = False
    #: Was there a submit that the next poll must see? Those of held or dependent jobs do not count.
    has_news: bool = False
    #: When the last promises of slots to a user ran out unseen, by uid.
    unmet: dict[int, deque[float]] = field(default_factory=dict)

    def end_of(self, partitions: Iterable[str], time_s: int, now: float) -> float:
        """When a job of one of these partitions ends at the latest; `time_s` is 0 without -t."""
        known = self.settings.by_name
        limits = [time_s or (known[name].limit_s if name in known else 0) for name in partitions]
        return now + max(limits) if limits and all(limits) else math.inf

    def is_fresh(self, now: float) -> bool:
        """Was Slurm read lately? Nothing is given or gated on old figures."""
        return now - self.polled_at < self.fresh_s

    def update(
        self,
        nodes: Nodes,
        holds: tuple[Hold, ...],
        line: WaitingLine,
        now: float,
        known: int = 0,
        met: Collection[str] = (),
    ) -> None:
        """Take what a poll has seen, with what it is about to release.

        `known` is what `ended` was when the poll began. The promises in `met` end: the poll has
        seen their jobs, so what they hold is in its figures. Jobs that were gated since then come
        behind those in `line`.
        """
        for token in met:
            self.promises.pop(token, None)
            self.gated.pop(token, None)
        self.nodes, self.holds, self.polled_at = nodes, holds, now
        self.line = line
        taken, held = self.now()
        for promise in self.gated.values():
            if promise.need:
                whose = promise.uid
                self.line = self.line.with_job(promise.need, taken, held, now, uid=whose)
        self.known = known
        self.is_awaited = self.has_news = False
        self.empty = emptied(nodes)

    def promise(
        self,
        token: str,
        hold: Hold,
        now: float,
        build: Build | None = None,
        need: Need | None = None,
        uid: int = -1,
    ) -> None:
        """Keep these slots for a job just submitted; without any, its place in the queue."""
        kept = self.promises if hold.gpus else self.gated
        kept[token] = SlotPromise(hold, now + PROMISE_S, build, need, uid)
        self.line = self.line.with_hold(hold)

    def is_doubted(self, uid: int, now: float) -> bool:
        """Did very many promises to this user come to nothing lately?"""
        times = self.unmet.get(uid)
        return times is not None and len(times) == MOST_UNMET and now - times[0] < UNMET_S

    def has_promised(self, token: str) -> bool:
        """Was this token's job promised something, and has no poll shown the job yet?"""
        return token in self.promises or token in self.gated

    def decision(self, token: str) -> Build | None:
        """What makes this promise's line of the decision log; None from the second time on."""
        for kept in (self.promises, self.gated):
            if (promise := kept.get(token)) is not None:
                kept[token] = replace(promise, build=None)
                return promise.build
        return None

    def forget(self, began: float, met: Collection[str] = ()) -> None:
        """Drop promises to jobs that a poll begun at `began` should have seen and did not.

        Not sooner: a job may appear late, and its slots must not be given twice meanwhile. Those
        in `met` were seen.
        """
        for kept in (self.promises, self.gated):
            late = [t for t, promise in kept.items() if promise.until <= began and t not in met]
            for token in late:
                promise = kept.pop(token)
                if kept is self.promises:
                    times = self.unmet.setdefault(promise.uid, deque(maxlen=MOST_UNMET))
                    times.append(promise.until)
        self.unmet = {u: times for u, times in self.unmet.items() if began - times[-1] < UNMET_S}

    def forget_all(self) -> None:
        """The clock was set: no time that is kept here is right."""
        self.polled_at = float("-inf")
        self.promises.clear()
        self.gated.clear()
        self.unmet.clear()

    def now(self) -> tuple[Nodes, list[Hold]]:
        """The nodes and holds, with everything that is promised counted as taken."""
        promised = [promise.hold for promise in self.promises.values()]
        return with_hold(self.nodes, *promised), [*self.holds, *promised]
