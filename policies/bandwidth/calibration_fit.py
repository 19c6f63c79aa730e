"""Fits the model `calibrated` to measured sets of GPUs, and says how well it tells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from gres_topology import NodeTopology
from policies.bandwidth.calibrated import (
    LEAST_PACE,
    MOST_WEIGHT,
    WEIGHTS,
    Calibration,
    features,
    predict,
    sums,
)
from policies.contract.bits import EXACT_GPUS, Floats, mask_of, members, subsets
from policies.errors import PolicyError

#: Fewer sets than this tell nothing: three weights fit any three numbers.
LEAST_SETS = 4
#: What a log may claim over the sum of a set's links before it is another machine's.
TOLERANCE = 1.1

Gpus = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """A calibration and how well it tells what was measured, one entry per set.

    `measured` and `predicted` are GB/s; `errors` are relative, and `unseen` the same where
    each set is predicted from the others alone.
    """

    calibration: Calibration
    sets: tuple[Gpus, ...]
    measured: Floats
    predicted: Floats
    errors: Floats
    unseen: Floats


def fit(topology: NodeTopology, measured: Mapping[Gpus, float]) -> Fit:
    """The model nearest to what was measured: GPUs (ascending) -> GB/s.

    Least squares of the relative errors, weights within their bounds. Raises PolicyError
    for a node of more GPUs than tables hold, fewer than `LEAST_SETS` sets, or a bandwidth
    that the machine's links cannot carry.
    """
    if topology.gpus > EXACT_GPUS:
        raise PolicyError(
            f"{topology.name} has {topology.gpus} GPUs; expected a node of up to {EXACT_GPUS}"
        )
    if len(measured) < LEAST_SETS:
        raise PolicyError(
            f"{len(measured)} different sets of GPUs measured; expected at least {LEAST_SETS},"
            " better one of each size and each kind of link"
        )
    sets = tuple(sorted(measured, key=lambda gpus: (len(gpus), gpus)))
    rows = [_row(topology, gpus) for gpus in sets]
    design, most = np.stack([row for row, _ in rows]), np.array([total for _, total in rows])
    target = np.array([measured[gpus] for gpus in sets], dtype=np.float64)
    _check(topology, sets, target, most)
    sizes = min(map(len, sets)), max(map(len, sets))

    def solved(kept: Floats, wanted: Floats) -> Calibration:
        return Calibration(topology.name, topology.shape, sizes, *_weights(kept, wanted))

    calibration = solved(design, target)
    predicted = predict(calibration, design, most)
    unseen = np.zeros(len(sets))
    for at in range(len(sets)):
        others = np.arange(len(sets)) != at
        from_others = predict(solved(design[others], target[others]), design[[at]], most[[at]])
        unseen[at] = abs(from_others[0] / target[at] - 1)
    return Fit(calibration, sets, target, predicted, np.abs(predicted / target - 1), unseen)


def _row(topology: NodeTopology, gpus: Gpus) -> tuple[Floats, float]:
    """The features and the sum of all links of one set, GB/s."""
    k = len(gpus)
    at = int(np.flatnonzero(subsets(topology.gpus, k) == mask_of(gpus))[0])
    total = sums(topology, members(topology.gpus, k)[[at]])[0]
    return features(topology, k)[at], float(total)


def _check(topology: NodeTopology, sets: tuple[Gpus, ...], target: Floats, most: Floats) -> None:
    for gpus, gbps, limit in zip(sets, target, most, strict=True):
        if not 0 < gbps <= TOLERANCE * limit:
            raise PolicyError(
                f"GPUs {','.join(map(str, gpus))} of {topology.name}: {gbps:g} GB/s measured;"
                f" expected above 0 and at most {limit:g}, the sum of their links: a log of"
                " another machine, or a topology with too low bandwidths"
            )


def _weights(design: Floats, target: Floats) -> tuple[float, float, float]:
    """The weights of least relative squared error within their bounds.

    The problem is convex: at its best some weights are free and each other one is at one of
    its bounds. With three weights all cases are tried, few free ones first, so that features
    the measured sets do not tell apart are left out.
    """
    scaled = design / target[:, None]
    bounds = [(LEAST_PACE if name == "pace" else 0.0, MOST_WEIGHT) for name in WEIGHTS]
    best, least = np.array([low for low, _ in bounds]), np.inf
    cases = sorted(product((0, 1, None), repeat=len(bounds)), key=lambda case: case.count(None))
    for case in cases:
        weights = np.array([0.0 if at is None else bounds[i][at] for i, at in enumerate(case)])
        free = [i for i, at in enumerate(case) if at is None]
        if free:
            columns = scaled[:, free]
            if np.linalg.matrix_rank(columns, tol=1e-6 * float(np.linalg.norm(columns))) < len(
                free
            ):
                continue
            weights[free] = np.linalg.lstsq(columns, 1 - scaled @ weights, rcond=None)[0]
            if any(not bounds[i][0] <= weights[i] <= bounds[i][1] for i in free):
                continue
        error = float(np.sum((scaled @ weights - 1) ** 2))
        if error < least - 1e-9:
            best, least = weights, error
    return float(best[0]), float(best[1]), float(best[2])
