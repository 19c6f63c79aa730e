"""`calibrated`: a model of the step time in which compute and synchronisation overlap.

step = (compute^p + sync^p)^(1/p), p > 1 (Pollux, Qiao et al., OSDI'21, eq. 11): with p near 1
they come one after the other, a large p hides the shorter behind the longer.
- log compute is piecewise linear in log(local batch), with at most KNOTS knots, plus terms in
  log(GPUs/node) and log(nodes).
- log sync has a constant and log(GPUs - 1) on one node; a constant, log(nodes) and log(GPUs/node)
  on several; a further constant and log(GPUs/node) on exactly two, where a ring cannot overlap
  its directions; and log(local batch) everywhere.

The priors, chosen once for all models, decide where little was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from policies.performance import regression
from policies.performance.nouns import (
    INFERENCE,
    NINETY,
    TRAINING,
    Estimate,
    PerformanceModel,
    Shape,
)
from policies.performance.runs import (
    Columns,
    Floats,
    Run,
    check_enough,
    columns,
    columns_of_runs,
    steps_of_runs,
)

KNOTS = 7
#: Standard deviation of measured log(step), as assumed while fitting.
NOISE = 0.08
#: A change of slope at a knot that counts as one standard deviation.
KINK = 2.0
#: The residuals' deviation that is assumed before any is seen, and as how many runs that counts.
RESIDUAL, RESIDUAL_RUNS = 0.10, 5

#: Prior mean and deviation of the parameters behind the knots: compute (2); sync on one node (2),
#: on several (3), on two (2), by batch; p.
_MEAN = (0.0, 0.0, -1.0, 0.5, 0.0, 0.15, 0.25, 0.0, 0.25, 0.0, 0.7)
_DEVIATION = (0.05, 0.05, 2.0, 0.5, 2.0, 0.15, 0.2, 0.3, 0.2, 0.1, 0.5)
#: Those of them that count from the log of the median step on a single GPU.
_LEVELS = (2, 4)
#: log(sync) of a step without synchronisation.
_NONE = -60.0


@dataclass(frozen=True, slots=True)
class CalibratedModel(PerformanceModel):
    """A fitted model; `parameters` are those of the knots, then those of `_MEAN`."""

    kind: ClassVar[str] = "calibrated"
    knots: Floats
    parameters: Floats
    covariance: Floats

    def estimate(self, shape: Shape, batch: int, task: str = TRAINING) -> Estimate:
        """One shape's seconds, and bounds from the parameters' and the residuals' spread."""
        row = columns([(shape.nodes, shape.gpus, shape.local_batch(batch))])
        log, slope = self._log(row, task, self.parameters)
        spread = float((slope @ self.covariance @ slope.T)[0, 0]) + self.deviation**2
        reach, middle = NINETY * spread**0.5, float(log[0])
        return Estimate(*(float(np.exp(middle + off)) for off in (0.0, -reach, reach)))

    def _step_s(self, table: Columns, task: str) -> Floats:
        result: Floats = np.exp(self._log(table, task, self.parameters)[0])
        return result

    def _log(self, table: Columns, task: str, parameters: Floats) -> tuple[Floats, Floats]:
        """log(step) and its slope by every parameter."""
        compute, sync, shared = self._features(table)
        split = compute.shape[1]
        if task == INFERENCE:
            # No synchronisation, nobody to wait for: only the curve over batch sizes.
            compute[:, len(self.knots) :] = 0.0
            shared = np.zeros_like(shared)
        log_compute = compute @ parameters[:split]
        log_sync = np.where(shared, sync @ parameters[split:-1], _NONE)
        power = 1 + np.exp(parameters[-1])
        log: Floats = np.logaddexp(power * log_compute, power * log_sync) / power
        by_compute = np.exp(power * (log_compute - log))
        by_sync = np.exp(power * (log_sync - log))
        by_power = (by_compute * log_compute + by_sync * log_sync - log) / power * (power - 1)
        slope = np.column_stack((compute * by_compute[:, None], sync * by_sync[:, None], by_power))
        return log, slope

    def _features(self, table: Columns) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        nodes, gpus = np.log(table.nodes), np.log(table.gpus)
        per_node = gpus - nodes
        batch = np.log(table.batch)
        one = (table.nodes == 1) & (table.gpus > 1)
        several, two = table.nodes > 1, table.nodes == 2
        compute = np.column_stack((self._basis(batch), per_node, nodes))
        sync = (
            one, one * np.log(np.maximum(table.gpus - 1, 1)),
            several, several * nodes, several * per_node,
            two, two * per_node,
            (one | several) * (batch - self.knots.mean()),
        )  # fmt: skip
        return compute, np.column_stack(sync).astype(np.float64), table.gpus > 1

    def _basis(self, batch: Floats) -> Floats:
        """Hat functions of the knots; above the last one its slope goes on."""
        basis = np.zeros((len(batch), len(self.knots)))
        if len(self.knots) == 1:
            basis[:] = 1.0
            return basis
        at = np.clip(np.searchsorted(self.knots, batch) - 1, 0, len(self.knots) - 2)
        share = (batch - self.knots[at]) / (self.knots[at + 1] - self.knots[at])
        # Below the smallest measured batch a step gets no shorter than it was there.
        share = np.maximum(share, 0.0)
        rows = np.arange(len(batch))
        basis[rows, at], basis[rows, at + 1] = 1 - share, share
        return basis


def fit(runs: Sequence[Run], startup_s: float = 0.0) -> CalibratedModel:
    """The model of these runs; ProfileError where none is on a single GPU."""
    check_enough(runs)
    table = columns_of_runs(runs)
    wanted = np.log(steps_of_runs(runs))
    sizes = np.unique(np.log(table.batch[table.gpus == 1]))
    knots = sizes if len(sizes) <= KNOTS else np.linspace(sizes[0], sizes[-1], KNOTS)
    level = float(np.median(wanted[table.gpus == 1]))
    empty = np.zeros((0, 0))
    most = max(run.local_batch for run in runs)
    blank = CalibratedModel(
        knots, np.zeros(0), empty, deviation=0.0, max_local_batch=most, startup_s=startup_s
    )
    parameters, covariance = regression.fit(
        lambda parameters: blank._log(table, TRAINING, parameters),
        wanted,
        _prior(knots, level),
        NOISE,
    )
    residual = wanted - blank._log(table, TRAINING, parameters)[0]
    deviation = float(
        np.sqrt(
            (residual @ residual + RESIDUAL_RUNS * RESIDUAL**2) / (len(residual) + RESIDUAL_RUNS)
        )
    )
    return replace(blank, parameters=parameters, covariance=covariance, deviation=deviation)


def _prior(knots: Floats, level: float) -> regression.Prior:
    count = len(knots)
    rest = np.array(_MEAN)
    rest[list(_LEVELS)] += level
    mean = np.concatenate((np.full(count, level), rest))
    deviation = np.concatenate((np.full(count, 5.0), _DEVIATION))
    smooth = np.zeros((max(count - 2, 0), len(mean)))
    for row in range(count - 2):
        before, after = 1 / np.diff(knots[row : row + 3])
        smooth[row, row : row + 3] = np.array((before, -before - after, after)) / KINK
    return regression.Prior(mean, deviation, smooth)
