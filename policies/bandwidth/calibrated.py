"""The bandwidth model `calibrated`: fitted to collectives measured on one kind of machine.

The bandwidth is the weighted sum of a set's features, all in GB/s:

- `pace`: the narrowest link of the set's widest ring;
- `both_ways`: the same where a ring of direct links (NVLink, xGMI) joins three GPUs or more, since
  such a ring runs both ways at once; else 0;
- `throughput`: for the same sets, the direct links that the GPU with fewest has to the others,
  which bound how many edge-disjoint rings there can be.

No weight is negative and the pace's is above zero: every prediction is above zero, and none falls
when a link gets wider.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from gres_topology import NodeTopology
from policies.bandwidth.base import BandwidthModel
from policies.bandwidth.cables import cables_mbps
from policies.contract.bits import EXACT_GPUS, Floats, Ints, members, subsets
from policies.errors import PolicyError
from policies.matching.links import MB_PER_GB, link_mbps
from policies.matching.solved import solved

#: The weights, in the order of the features' columns.
WEIGHTS = ("pace", "both_ways", "throughput")
#: Bounds of every weight: sets that were not measured stay above zero, and a typing error in a
#: file cannot make them too fast by much.
LEAST_PACE, MOST_WEIGHT = 0.1, 4.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted model of one kind of node: a weight per feature.

    Raises PolicyError for a number out of range.
    """

    machine: str
    #: Of the NodeTopology measured.
    shape: str
    #: The fewest and the most GPUs of a measured set.
    sizes: tuple[int, int]
    pace: float
    both_ways: float
    throughput: float

    def __post_init__(self) -> None:
        low, high = self.sizes
        if not 2 <= low <= high <= EXACT_GPUS:
            raise PolicyError(f"sizes {low} to {high}; expected from 2 to {EXACT_GPUS} GPUs")
        for name, value in zip(WEIGHTS, self.weights, strict=True):
            least = LEAST_PACE if name == "pace" else 0.0
            if not least <= value <= MOST_WEIGHT:
                raise PolicyError(f"{name} {value:g}; expected from {least:g} to {MOST_WEIGHT:g}")

    @property
    def weights(self) -> tuple[float, float, float]:
        """One per column of `features`."""
        return self.pace, self.both_ways, self.throughput


#: Calibrations by digest, as `NodeTopology.calibration` names them: a topology keeps the
#: model it was given, whatever is calibrated later.
_KNOWN: dict[str, Calibration] = {}


def remember(calibration: Calibration) -> str:
    """Make a calibration known; the digest to set as `NodeTopology.calibration`."""
    digest = hashlib.sha256(repr(calibration).encode()).hexdigest()[:16]
    _KNOWN[digest] = calibration
    return digest


class CalibratedBandwidth(BandwidthModel):
    """Ring collectives of the sizes that the site's own nccl-tests or rccl-tests measured."""

    name = "calibrated"

    def refusal(self, topology: NodeTopology, pattern: str, k: int) -> str | None:
        """Why the model does not hold for this machine, pattern and size; None if it does."""
        calibration = _KNOWN.get(topology.calibration)
        if calibration is None:
            return f"calibrated holds where gputopo.yaml says so, not for {topology.name}"
        if pattern != "ring":
            return f"calibrated holds for rings, not for {pattern}"
        low, high = calibration.sizes
        if not low <= k <= high:
            return f"calibrated holds for {low} to {high} GPUs, as measured, not for {k}"
        return None

    def effbw_gbps(self, topology: NodeTopology, k: int, weakest: Ints) -> Floats:
        """GB/s for every row of `members(gpus, k)`."""
        design = features(topology, k, weakest)
        most = sums(topology, members(topology.gpus, k))
        return predict(_KNOWN[topology.calibration], design, most)


def features(topology: NodeTopology, k: int, weakest: Ints | None = None) -> Floats:
    """The features of every row of `members(gpus, k)`, GB/s, shape (sets, 3); k >= 2.

    `weakest` is the narrowest link of each set's widest ring, MB/s, where it is known.
    """
    sets, mbps = members(topology.gpus, k), link_mbps(topology)
    pace = _widest_rings(mbps, k) if weakest is None else weakest
    columns = np.zeros((len(sets), len(WEIGHTS)))
    columns[:, 0] = pace / MB_PER_GB
    if k > 2:
        links = cables_mbps(topology)
        columns[:, 1] = _widest_rings(links, k) / MB_PER_GB
        inside = links[sets[:, :, None], sets[:, None, :]].sum(axis=2).min(axis=1)
        columns[:, 2] = np.where(columns[:, 1] > 0, inside / MB_PER_GB, 0.0)
    return columns


def sums(topology: NodeTopology, sets: Ints) -> Floats:
    """Sum of all links inside each set, GB/s."""
    inside: Floats = topology.bandwidth_gbps[sets[:, :, None], sets[:, None, :]]
    return np.asarray(inside.sum(axis=(1, 2)) / 2, dtype=np.float64)


def predict(calibration: Calibration, design: Floats, most: Floats) -> Floats:
    """GB/s by the features; never above `most`, the sum of a set's links."""
    weighted = design @ np.array(calibration.weights)
    return np.asarray(np.minimum(weighted, most), dtype=np.float64)


def _widest_rings(weights: Ints, k: int) -> Ints:
    """Narrowest link of every set's widest ring, MB/s; a link of 0 is none."""
    between = weights[np.triu_indices(len(weights), 1)]
    if (between == between[0]).all():
        return np.full(len(subsets(len(weights), k)), between[0], dtype=np.int64)
    return solved.widest("ring", weights).sums(k)
