"""What the engine remembers of Slurm between two looks: room, holds, promises, who waits.

Submits are answered from here, never from a call to Slurm. Times are epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_plugin.slots.candidates import Need
from slurm_plugin.slots.room import Hold, Room, with_hold

#: A submit that Slurm refused later, or only tested, never shows in the queue.
PROMISE_S = 5.0


@dataclass(frozen=True, slots=True)
class Promise:
    """Slots given at submit to a job that was not seen in Slurm yet."""

    hold: Hold
    until: float


@dataclass(slots=True)
class Board:
    """`looked` is when Slurm was last read (-inf: never); `first` is the first gated job."""

    fresh_s: float = 15.0
    default_partition: str = ""
    looked: float = float("-inf")
    room: Room = field(default_factory=dict)
    holds: tuple[Hold, ...] = ()
    first: Need | None = None
    promises: dict[str, Promise] = field(default_factory=dict)

    def is_fresh(self, now: float) -> bool:
        """Was Slurm read lately? Nothing is given or gated on old figures."""
        return now - self.looked <= self.fresh_s

    def look(
        self, room: Room, holds: tuple[Hold, ...], first: Need | None, seen: set[str], now: float
    ) -> None:
        """Take what Slurm says; promises to jobs with a `seen` token are the jobs' own now."""
        self.room, self.holds, self.first, self.looked = room, holds, first, now
        for token in seen:
            self.promises.pop(token, None)

    def promise(self, token: str, hold: Hold, now: float) -> None:
        """Keep these slots for a job that is on its way."""
        self.promises[token] = Promise(hold, now + PROMISE_S)

    def now(self, now: float) -> tuple[Room, list[Hold]]:
        """Room and holds with the promises that still count; the others are forgotten."""
        for token in [t for t, promise in self.promises.items() if promise.until <= now]:
            del self.promises[token]
        room, holds = self.room, list(self.holds)
        for promise in self.promises.values():
            room = with_hold(room, promise.hold)
            holds.append(promise.hold)
        return room, holds
