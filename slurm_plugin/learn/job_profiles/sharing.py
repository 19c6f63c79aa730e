"""Who has shares of a GPU beside a job of shares (shards, MPS), and how they slow each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from policies import Request, RunningJob
from policies.contract.hint_keys import BATCH, PROFILE
from policies.contract.interference import Interference
from policies.slices import Shares, SharesRoom

#: Hint keys that tell jobs apart.
SAYS_WHAT_IT_IS = {PROFILE.name, BATCH.name}


class Followed(Protocol):
    """The jobs that run, where they are followed."""

    is_wanted: bool

    def sharing(self, node: str) -> Collection[RunningJob]:
        """The jobs with shares of GPUs of this node."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """What the choice among shared GPUs goes by."""

    #: None: nobody is followed.
    neighbours: Followed | None = None
    interference: Callable[[], Interference] = Interference

    def policy_for(self, request: Request, what: str, rooms: Mapping[str, SharesRoom]) -> Shares:
        """The policy for one question; `what` it asks for, in words: `4 shards`.

        Until a job says what it is nobody is followed: reading the queue costs Slurm something.
        """
        beside = self.neighbours
        if beside and SAYS_WHAT_IT_IS & request.options.keys():
            beside.is_wanted = True
        jobs_on = beside.sharing if beside else lambda name: ()
        return Shares(rooms, what, jobs_on, self.interference())


#: Where nobody is followed.
NOBODY_SHARES = Sharing()
