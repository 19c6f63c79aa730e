"""GPUs that are reserved for loans which are being made.

Other jobs do not see these GPUs; a job that Slurm would start on them waits. Each reservation ends
by itself. When the engine stops, its reservations are gone, and the loans fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from policies.contract.bits import lowest_bits
from slurm_plugin.base.placement import CandidateNode, PlacementQuestion
from slurm_plugin.base.protocol import Use, WaitFor

#: The longest such wait in seconds: short, so that it ends soon after the loan is settled.
WAIT_S = 10
NOTE = "GPUs are kept for job {}, which meets its donors"
MOVED_NOTE = "GPUs are kept for job {}, which is moved there"
#: A moved job is asked about again so soon, in seconds, where its place is not free yet.
MOVED_S = 5


@dataclass(frozen=True, slots=True)
class LoanReservation:
    """What is reserved for one loan."""

    #: Job id -> what this job of the loan is answered at its start: its GPUs, all on one node.
    shares: Mapping[int, Use]
    #: An epoch.
    until: float

    def on(self, node: str) -> int:
        """The mask of GPUs that are reserved on a node."""
        mask = 0
        for share in self.shares.values():
            mask |= share.nodes.get(node, 0)
        return mask


@dataclass(slots=True)
class LoanReservations:
    """The GPUs that are kept for loans and moved jobs that have not started yet."""

    clock: Callable[[], float] = time.time
    #: By the borrower's id. One thread writes and another reads: it is replaced, never changed.
    by_borrower: Mapping[int, LoanReservation] = field(default_factory=dict)
    #: By the id of a job that is moved, its new place; replaced as well, by a thread of its own.
    moved: Mapping[int, LoanReservation] = field(default_factory=dict)

    @property
    def is_any(self) -> bool:
        """Whether anything is reserved."""
        return bool(self.by_borrower or self.moved)

    def answer(self, asked: PlacementQuestion) -> PlacementQuestion | Use | WaitFor:
        """The question without the GPUs that are reserved for others.

        A wait where Slurm could start the job on nothing else. For a job of a loan its own GPUs.
        """
        reservations = self._valid()
        for one in reservations.values():
            if asked.job in one.shares:
                share = one.shares[asked.job]
                return _there(asked, share) if asked.job in self.moved else _own(asked, share)
        reserved = self._masks(reservations)
        nodes, missing = [], []
        for node in asked.candidates:
            free = node.free & ~reserved.get(node.name, 0)
            count = node.own.bit_count()
            own = node.own & free
            own |= lowest_bits(free & ~own, count - own.bit_count())
            if own.bit_count() < count:
                missing.append(count)
                own = 0
            nodes.append(replace(node, free=free, own=own))
        if asked.others is not None and not _moved_to_others(nodes, missing, asked, reserved):
            return self.wait(asked) or asked
        if asked.others is None and missing and not _moved(nodes, missing):
            return self.wait(asked) or asked
        return replace(asked, candidates=tuple(nodes), reserved=reserved)

    @staticmethod
    def _masks(reservations: Mapping[int, LoanReservation]) -> dict[str, int]:
        """The GPUs that are reserved, by node."""
        masks: dict[str, int] = {}
        for one in reservations.values():
            for share in one.shares.values():
                for name, mask in share.nodes.items():
                    masks[name] = masks.get(name, 0) | mask
        return masks

    def wait(self, asked: PlacementQuestion) -> WaitFor | None:
        """A wait where Slurm's own choice would take GPUs that are reserved for others."""
        for job, one in self._valid().items():
            touches = any(one.on(node.name) & node.own for node in asked.candidates)
            if touches and asked.job not in one.shares:
                seconds = min(WAIT_S, int(one.until - self.clock()) + 1)
                note = MOVED_NOTE if job in self.moved else NOTE
                return WaitFor(max(1, seconds), note.format(job))
        return None

    def _valid(self) -> dict[int, LoanReservation]:
        now = self.clock()
        reserved = {**self.by_borrower, **self.moved}
        return {job: one for job, one in reserved.items() if one.until > now}


def _own(asked: PlacementQuestion, share: Use) -> PlacementQuestion | Use:
    """The job's share if it is free and Slurm starts the job as planned; else the question."""
    own = {node.name: node.own.bit_count() for node in asked.candidates if node.own}
    free = {node.name: node.free for node in asked.candidates}
    is_free = all(not mask & ~free.get(name, 0) for name, mask in share.nodes.items())
    is_meant = own == {name: mask.bit_count() for name, mask in share.nodes.items()}
    return share if is_free and is_meant else asked


def _there(asked: PlacementQuestion, share: Use) -> Use | WaitFor:
    """A moved job's place, whichever node Slurm would take; a wait until it is free."""
    free = {node.name: node.free for node in asked.candidates}
    counts = sorted(node.own.bit_count() for node in asked.candidates if node.own)
    for name, mask in share.nodes.items():
        known = free.get(name)
        if known is None and asked.others is not None:
            known = asked.others.free_on(name)
        if counts != [mask.bit_count()] or mask & ~(known or 0):
            return WaitFor(MOVED_S, f"its new place on {name} is not free yet")
    return share


def _moved_to_others(
    nodes: list[CandidateNode],
    missing: list[int],
    asked: PlacementQuestion,
    reserved: Mapping[str, int],
) -> bool:
    """As `_moved`, to nodes that the question does not list; these are then listed, too."""
    assert asked.others is not None
    for count in sorted(missing, reverse=True):
        listed = {node.name for node in nodes}
        other = asked.others.stand_in(count, reserved, listed)
        if other is None:
            return False
        nodes.append(replace(other, own=lowest_bits(other.free, count)))
    return True


def _moved(nodes: list[CandidateNode], missing: list[int]) -> bool:
    """Replace nodes that Slurm chose by others, lowest weight first; whether there are enough."""
    order = sorted(range(len(nodes)), key=lambda i: (nodes[i].weight, nodes[i].name))
    for count in sorted(missing, reverse=True):
        at = next(
            (i for i in order if not nodes[i].own and nodes[i].free.bit_count() >= count), None
        )
        if at is None:
            return False
        nodes[at] = replace(nodes[at], own=lowest_bits(nodes[at].free, count))
    return True
