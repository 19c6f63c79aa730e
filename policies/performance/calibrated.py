"""`calibrated`: compute and synchronisation overlap; both depend on batch and placement class.

step = (compute^p + sync^p)^(1/p), p > 1: p near 1 is one after the other, large p hides the
shorter behind the longer (the combination of Pollux, Qiao et al., OSDI'21, eq. 11).
- log compute: piecewise linear in log(local batch), at most KNOTS knots with a smoothness
  prior, plus what GPUs of one node and stragglers over nodes add: log(GPUs/node), log(nodes).
- log sync, by placement class: one node: 1, log(GPUs - 1); several nodes: 1, log(nodes),
  log(GPUs/node), and for exactly two nodes (a ring there cannot overlap its directions) 1 and
  log(GPUs/node); everywhere log(local batch).

The priors below were chosen once for all models: they say what a synchronisation looks
like when little was measured, and give way to data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.performance import regression
from policies.performance.nouns import INFERENCE, TRAINING, Estimate, Floats, Shape
from policies.performance.runs import Run, check_enough

KNOTS = 7
#: Standard deviation of log(step) taken for the measurements while fitting.
NOISE = 0.08
#: One kink of slope 2 between two knots is one standard deviation.
KINK = 2.0
#: Two-sided 90 % of a normal distribution, in standard deviations.
NINETY = 1.645
#: What the residuals' deviation is taken for before any is seen, counted as so many runs.
RESIDUAL, RESIDUAL_RUNS = 0.10, 5

#: Prior mean and deviation of what follows the knots; None: the median single-GPU step, log.
#: Order: compute's two; sync of one node (2), of several (3), of two nodes (2), batch; p.
_MEAN = (0.0, 0.0, -1.0, 0.5, 0.0, 0.15, 0.25, 0.0, 0.25, 0.0, 0.7)
_DEVIATION = (0.05, 0.05, 2.0, 0.5, 2.0, 0.15, 0.2, 0.3, 0.2, 0.1, 0.5)
#: Places in the above that are levels in seconds: they move with the model's own step.
_LEVELS = (2, 4)
#: Of a step without synchronisation the logarithm of its seconds.
_NONE = -60.0


@dataclass(frozen=True, slots=True)
class _Table:
    """Runs or shapes as columns."""

    nodes: Floats
    gpus: Floats
    batch: Floats


@dataclass(frozen=True, slots=True)
class CalibratedModel:
    """A fitted model; `deviation` is the residuals' standard deviation of log(step)."""

    knots: Floats
    parameters: Floats
    covariance: Floats
    deviation: float
    max_local_batch: int
    startup_s: float = 0.0
    kind: str = "calibrated"

    def steps_s(self, shapes: Sequence[Shape], batch: int, task: str = TRAINING) -> Floats:
        """Seconds per iteration for each shape."""
        table = _shapes(shapes, batch)
        result: Floats = np.exp(self._log(table, task, self.parameters)[0])
        return result

    def runs_s(self, runs: Sequence[Run]) -> Floats:
        """What the model says of these runs, seconds per iteration."""
        result: Floats = np.exp(self._log(_columns(runs), TRAINING, self.parameters)[0])
        return result

    def estimate(self, shape: Shape, batch: int, task: str = TRAINING) -> Estimate:
        """One shape's seconds, and bounds from the parameters' and the residuals' spread."""
        log, slope = self._log(_shapes([shape], batch), task, self.parameters)
        spread = float((slope @ self.covariance @ slope.T)[0, 0]) + self.deviation**2
        reach, middle = NINETY * spread**0.5, float(log[0])
        return Estimate(*(float(np.exp(middle + off)) for off in (0.0, -reach, reach)))

    def to_dict(self) -> Mapping[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "knots": self.knots.tolist(),
            "parameters": self.parameters.tolist(),
            "covariance": self.covariance.tolist(),
            "deviation": self.deviation,
            "max_local_batch": self.max_local_batch,
            "startup_s": self.startup_s,
        }

    def _log(self, table: _Table, task: str, parameters: Floats) -> tuple[Floats, Floats]:
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

    def _features(self, table: _Table) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        nodes, gpus = np.log(table.nodes), np.log(table.gpus)
        per_node = gpus - nodes
        batch = np.log(table.batch)
        one = (table.nodes == 1) & (table.gpus > 1)
        several, two = table.nodes > 1, table.nodes == 2
        compute = np.column_stack((self._basis(batch), per_node, nodes))
        columns = (
            one, one * np.log(np.maximum(table.gpus - 1, 1)),
            several, several * nodes, several * per_node,
            two, two * per_node,
            (one | several) * (batch - self.knots.mean()),
        )  # fmt: skip
        return compute, np.column_stack(columns).astype(np.float64), table.gpus > 1

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
    table = _columns(runs)
    wanted = np.log(np.array([run.step_s for run in runs]))
    sizes = np.unique(np.log(table.batch[table.gpus == 1]))
    knots = sizes if len(sizes) <= KNOTS else np.linspace(sizes[0], sizes[-1], KNOTS)
    level = float(np.median(wanted[table.gpus == 1]))
    empty = np.zeros((0, 0))
    most = max(run.local_batch for run in runs)
    blank = CalibratedModel(knots, np.zeros(0), empty, 0.0, most, startup_s)
    fitted = regression.fit(
        lambda parameters: blank._log(table, TRAINING, parameters),
        wanted, _prior(knots, level), NOISE,
    )  # fmt: skip
    residual = wanted - blank._log(table, TRAINING, fitted.parameters)[0]
    deviation = float(
        np.sqrt((residual @ residual + RESIDUAL_RUNS * RESIDUAL**2)
                / (len(residual) + RESIDUAL_RUNS))
    )  # fmt: skip
    return replace(
        blank, parameters=fitted.parameters, covariance=fitted.covariance, deviation=deviation
    )


def from_dict(data: Mapping[str, Any]) -> CalibratedModel:
    """A model from what `to_dict` gave."""
    return CalibratedModel(
        np.array(data["knots"], dtype=np.float64),
        np.array(data["parameters"], dtype=np.float64),
        np.array(data["covariance"], dtype=np.float64),
        float(data["deviation"]),
        int(data["max_local_batch"]),
        float(data["startup_s"]),
    )


def _columns(runs: Sequence[Run]) -> _Table:
    return _Table(
        np.array([run.nodes for run in runs], dtype=np.float64),
        np.array([run.gpus for run in runs], dtype=np.float64),
        np.array([run.local_batch for run in runs], dtype=np.float64),
    )


def _shapes(shapes: Sequence[Shape], batch: int) -> _Table:
    return _Table(
        np.array([shape.nodes for shape in shapes], dtype=np.float64),
        np.array([shape.gpus for shape in shapes], dtype=np.float64),
        np.array([shape.local_batch(batch) for shape in shapes], dtype=np.float64),
    )


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
