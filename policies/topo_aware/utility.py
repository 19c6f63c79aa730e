"""The utility of a set of GPUs and its three terms (SC17, section 4.3, equations 1-5).

The equations break as printed: t = 0 for one GPU, w = 0 on a full machine, and eq. 4 falls when
interference rises. Here every term is 1 at best and 0 at worst, and the utility is their
weighted mean.

- communication: 1 - (weight / 4) * (t - least t) / (most t - least t), with t of eq. 3 and its
  bounds over all sets of that size on the empty node; `weight` is the job graph's, 4 for the
  smallest batches. Where all sets are equally close the term is 1 and does not count.
- interference: 1 - (I - 1) / (worst - 1), where I is the mean of collocated over solo time (eq. 4
  turned over) of this job and of those with GPUs on the same sockets.
- fragmentation: (1 - w) * (1 - extra sockets / most extra sockets), where w is the mean share of
  GPUs left free on the sockets that the job uses. (Over all sockets, as eq. 5 has it, w would be
  the same wherever the job goes.) The second factor counts the job's own pieces: a job in the
  last GPUs of two sockets leaves nothing free there, but is in two pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from policies.contract.interference import WORST, Interference, Kind
from policies.topo_aware.machine import MachineGraph
from policies.topo_aware.settings import TopoAwareSettings

#: The largest weight of a job graph's edge.
HEAVIEST = 4


class Beside(NamedTuple):
    """A job that runs on the same node: its GPUs there, its kind, GB/s of memory it uses."""

    mask: int
    kind: Kind
    memory_gbps: float = 0.0


#: How many neighbours there are of each kind, by the sockets (a mask) that they touch.
_Near = Mapping[int, Mapping[Kind, int]]


def _near(beside: tuple[Beside, ...], machine: MachineGraph) -> _Near:
    near: dict[int, dict[Kind, int]] = {}
    for job in beside:
        kinds = near.setdefault(machine.touched(job.mask), {})
        kinds[job.kind] = kinds.get(job.kind, 0) + 1
    return near


class Crowd(tuple[Beside, ...]):
    """The neighbours on a node, in their order; many kinds of jobs are asked about on each.

    So what is the same for all of these is found once: its hash, and who is where.
    """

    _hash = 0
    _on: tuple[MachineGraph, _Near] | None = None

    def __hash__(self) -> int:
        """The hash of a tuple, reckoned once: it is asked for at each look."""
        if not self._hash:
            self._hash = super().__hash__()
        return self._hash

    def near(self, machine: MachineGraph) -> _Near:
        """How many there are of each kind by their sockets, on such a node."""
        if self._on is None or self._on[0] is not machine:
            self._on = machine, _near(self, machine)
        return self._on[1]


class JobNeeds(NamedTuple):
    """What matters of a job on one node: its GPUs there, its kind, its edge weight (0-4)."""

    gpus: int
    kind: Kind
    weight: int


class UtilityTerms(NamedTuple):
    """Utility and its terms, each in [0, 1]; 1 is best."""

    utility: float
    communication: float
    interference: float
    fragmentation: float

    def named(self) -> Mapping[str, float]:
        """The three terms as a placement carries them."""
        return {
            "communication": self.communication,
            "interference": self.interference,
            "fragmentation": self.fragmentation,
        }


class SetScorer:
    """Scores sets for one job on one node state; terms that repeat are kept."""

    def __init__(
        self,
        machine: MachineGraph,
        free: int,
        beside: tuple[Beside, ...],
        asked: JobNeeds,
        weights: TopoAwareSettings,
        interference: Interference,
    ) -> None:
        self.machine, self.free, self.beside, self.asked = machine, free, beside, asked
        self.settings, self._interference = weights, interference
        self._near = beside.near(machine) if isinstance(beside, Crowd) else _near(beside, machine)
        self._slowed: dict[int, float] = {}
        self._known: dict[int, UtilityTerms] = {}

    def terms(self, mask: int) -> UtilityTerms:
        """The terms of one set, of the job or of a part of it while it is divided."""
        terms = self._known.get(mask)
        if terms is None:
            terms = self._known[mask] = self._terms(mask)
        return terms

    def _terms(self, mask: int) -> UtilityTerms:
        machine, count = self.machine, mask.bit_count()
        touched = machine.touched(mask)
        calm = self._calm(touched)
        whole = self._whole(mask, touched, count)
        weights = self.settings
        least, most = machine.extremes(count)
        part = weights.interference * calm + weights.fragmentation * whole
        of = weights.interference + weights.fragmentation
        close = 1.0
        if most > least:
            cost = (machine.paths(mask) - least) / (most - least)
            close -= self.asked.weight / HEAVIEST * min(1.0, max(0.0, cost))
            part += weights.communication * close
            of += weights.communication
        # Rounded, so that sets that differ by a symmetry tie to the last bit.
        return UtilityTerms(round(part / of, 9) if of > 0 else 1.0, close, calm, whole)

    def _calm(self, touched: int) -> float:
        """The term of interference for a job on these sockets."""
        calm = self._slowed.get(touched)
        if calm is None:
            factor, own = self._interference.factor, self.asked.kind
            suffered, caused, jobs = 1.0, 0.0, 0
            for sockets, kinds in self._near.items():
                if sockets & touched:
                    for kind, count in kinds.items():
                        suffered = max(suffered, factor(own, kind))
                        caused += count * factor(kind, own)
                        jobs += count
            mean = (suffered + caused) / (jobs + 1)
            calm = self._slowed[touched] = min(1.0, max(0.0, 1.0 - (mean - 1.0) / (WORST - 1.0)))
        return calm

    def _whole(self, mask: int, touched: int, count: int) -> float:
        """The utility's term of fragmentation for a set of GPUs (SC'17, eq. 5), unweighted."""
        machine, left, used = self.machine, 0.0, touched.bit_count()
        for at, socket in enumerate(machine.sockets):
            if touched >> at & 1:
                left += (socket & self.free & ~mask).bit_count() / machine.sizes[at]
        fewest = machine.fewest_sockets(count)
        most = min(count, len(machine.sockets))
        pieces = (used - fewest) / (most - fewest) if most > fewest else 0.0
        return (1.0 - left / used) * (1.0 - pieces)
