"""What the engine remembers of Slurm between two looks: room, holds, promises, who waits.

Submits are answered from here, never from a call to Slurm. Times are epochs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from slurm_plugin.decide.record import Build
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Hold, Nodes, emptied, with_hold

#: A submit that Slurm refused later, or only tested, never shows in the queue; another one does
#: as soon as Slurm has its locks.
PROMISE_S = 1.5
#: So many promises to one user within so many seconds that came to nothing, and the user's jobs are
#: gated until the next look: submits that are only tested must not keep the GPUs from others.
MOST_UNMET, UNMET_S = 20, 60.0


@dataclass(frozen=True, slots=True)
class SlotPromise:
    """What a submit was told: its slots (none behind a gate), and the decision's log line.

    `need` is what it waits for where there was no room. Until the job is seen in Slurm, and then it
    is the job's own.
    """

    hold: Hold
    until: float
    build: Build | None = None
    need: Need | None = None
    uid: int = -1


@dataclass(slots=True)
class CapacityCache:
    """`looked` is when the last look at Slurm began (-inf: never); `first` is the first gated job.

    Jobs of the partitions `preempting` may push others aside once they are eligible, which a
    gate would forbid. `promises` are of jobs that were given slots, `gated` of those behind gates:
    apart, because every submit goes through the first and a burst fills the second. `observed` are
    decisions that were only to be written down;
    `ended` counts the jobs known to have ended, `known` those that a look has seen the end of.
    `is_awaited`: a job is about to start, or gated only until the next look, which may release it
    at once, or a decision is to be written down. `has_news`: a submit since
    the last look may matter to it; that of a held or dependent job does not. `unmet` is when the
    last promises of slots to a user ran out unseen, by uid.
    """

    fresh_s: float = 15.0
    default_partition: str = ""
    looked: float = float("-inf")
    room: Nodes = field(default_factory=dict)
    empty: Nodes = field(default_factory=dict)
    holds: tuple[Hold, ...] = ()
    first: Need | None = None
    preempting: frozenset[str] = frozenset()
    promises: dict[str, SlotPromise] = field(default_factory=dict)
    gated: dict[str, SlotPromise] = field(default_factory=dict)
    observed: list[Build] = field(default_factory=list)
    ended: int = 0
    known: int = 0
    is_awaited: bool = False
    has_news: bool = False
    unmet: dict[int, deque[float]] = field(default_factory=dict)

    def is_fresh(self, now: float) -> bool:
        """Was Slurm read lately? Nothing is given or gated on old figures."""
        return now - self.looked <= self.fresh_s

    @property
    def has_promised(self) -> bool:
        """Are slots kept for jobs that no look has seen yet?"""
        return bool(self.promises)

    @property
    def is_behind(self) -> bool:
        """Did jobs end of which no look knows yet? There may be better GPUs than it shows."""
        return self.ended != self.known

    def look(
        self, room: Nodes, holds: tuple[Hold, ...], first: Need | None, now: float, known: int = 0
    ) -> None:
        """Take what a look found, what it is about to release included.

        `known` is what `ended` was when the look began. A job that was gated since is first where
        the look saw none.
        """
        coming = (promise.need for promise in self.gated.values() if promise.need)
        self.first = first or next(coming, None)
        self.room, self.holds, self.looked = room, holds, now
        self.known = known
        self.is_awaited = self.has_news = False
        self.empty = emptied(room)

    def promise(
        self,
        token: str,
        hold: Hold,
        now: float,
        build: Build | None = None,
        need: Need | None = None,
        uid: int = -1,
    ) -> None:
        """Keep these slots for a job that is on its way, or its place in front of others."""
        kept = self.promises if hold.gpus else self.gated
        kept[token] = SlotPromise(hold, now + PROMISE_S, build, need, uid)

    def is_doubted(self, uid: int, now: float) -> bool:
        """Did very many promises to this user come to nothing lately?"""
        times = self.unmet.get(uid)
        return times is not None and len(times) == MOST_UNMET and now - times[0] < UNMET_S

    def met(self, token: str) -> SlotPromise | None:
        """The promise to a job that Slurm shows now: it is the job's own."""
        return self.promises.pop(token, None) or self.gated.pop(token, None)

    def forget(self, began: float) -> None:
        """Drop promises to jobs that a look begun at `began` should have seen and did not.

        Not sooner: a job may appear right after its promise ran out, and its slots must not be
        given twice meanwhile.
        """
        for kept in (self.promises, self.gated):
            for token in [t for t, promise in kept.items() if promise.until <= began]:
                promise = kept.pop(token)
                if kept is self.promises:
                    times = self.unmet.setdefault(promise.uid, deque(maxlen=MOST_UNMET))
                    times.append(promise.until)
        self.unmet = {u: times for u, times in self.unmet.items() if began - times[-1] < UNMET_S}

    def forget_all(self) -> None:
        """The clock was set: no time that is kept here is right."""
        self.looked = float("-inf")
        self.promises.clear()
        self.gated.clear()
        self.unmet.clear()

    def now(self) -> tuple[Nodes, list[Hold]]:
        """Room and holds with what is promised taken."""
        room, holds = self.room, list(self.holds)
        for promise in self.promises.values():
            room = with_hold(room, promise.hold)
            holds.append(promise.hold)
        return room, holds
