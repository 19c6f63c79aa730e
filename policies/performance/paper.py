"""`genie`: the paper's performance model as written (Chen et al., TPDS, eqs. 4-8).

PR = (GPUs - Comm) * sPR(local batch); sPR a quadratic in the local batch (eq. 7); Comm the
average path penalty ((nodes - 1) * GPUs/node + lambda * (GPUs/node - 1)) * gamma / (GPUs - 1)
(eq. 8, which is printed for several nodes and GPUs and holds for one of either, too). gamma
and lambda by linear regression, as the paper says.

Where a rate comes out below FLOOR of a single GPU's measured range it is held there: as
written eq. 5 can turn negative, and then means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.performance.nouns import INFERENCE, TRAINING, Estimate, Floats, Shape
from policies.performance.runs import Run, check_enough

#: Least share of a single GPU's slowest measured rate that a prediction may have.
FLOOR = 0.1


@dataclass(frozen=True, slots=True)
class PaperModel:
    """A fitted model.

    `rate` are the coefficients of eq. 7, highest power first; `gamma` and `gamma_lambda`
    (lambda * gamma) those of eq. 8; `floor` in samples per second; `deviation` is the
    standard deviation of log(step) over the runs it was fitted from.
    """

    rate: Floats
    gamma: float
    gamma_lambda: float
    floor: float
    deviation: float
    max_local_batch: int
    startup_s: float = 0.0
    kind: str = "genie"

    def steps_s(self, shapes: Sequence[Shape], batch: int, task: str = TRAINING) -> Floats:
        """Seconds per iteration: the batch over the processing rate of eq. 5."""
        nodes = np.array([shape.nodes for shape in shapes], dtype=np.float64)
        gpus = np.array([shape.gpus for shape in shapes], dtype=np.float64)
        result: Floats = self._step(nodes, gpus, batch / gpus, task)
        return result

    def runs_s(self, runs: Sequence[Run]) -> Floats:
        """What the model says of these runs, seconds per iteration."""
        nodes, gpus, local, _ = _columns(runs)
        return self._step(nodes, gpus, local, TRAINING)

    def estimate(self, shape: Shape, batch: int, task: str = TRAINING) -> Estimate:
        """One shape's seconds; bounds from the residuals alone (the paper gives none)."""
        step = float(self.steps_s([shape], batch, task)[0])
        reach = np.exp(1.645 * self.deviation)
        return Estimate(step, float(step / reach), float(step * reach))

    def to_dict(self) -> Mapping[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "rate": self.rate.tolist(),
            "gamma": self.gamma,
            "gamma_lambda": self.gamma_lambda,
            "floor": self.floor,
            "deviation": self.deviation,
            "max_local_batch": self.max_local_batch,
            "startup_s": self.startup_s,
        }

    def _step(self, nodes: Floats, gpus: Floats, local: Floats, task: str) -> Floats:
        single = np.maximum(np.polyval(self.rate, local), self.floor)
        away, beside = _paths(nodes, gpus)
        comm = 0.0 if task == INFERENCE else self.gamma * away + self.gamma_lambda * beside
        result: Floats = local * gpus / np.maximum((gpus - comm) * single, self.floor)
        return result


def _columns(runs: Sequence[Run]) -> tuple[Floats, Floats, Floats, Floats]:
    return (
        np.array([run.nodes for run in runs], dtype=np.float64),
        np.array([run.gpus for run in runs], dtype=np.float64),
        np.array([run.local_batch for run in runs], dtype=np.float64),
        np.array([run.step_s for run in runs], dtype=np.float64),
    )


def _paths(nodes: Floats, gpus: Floats) -> tuple[Floats, Floats]:
    """What gamma and lambda * gamma are multiplied by in eq. 8."""
    per_node = gpus / nodes
    others = np.maximum(gpus - 1, 1)
    return (nodes - 1) * per_node / others, (per_node - 1) / others


def fit(runs: Sequence[Run], startup_s: float = 0.0) -> PaperModel:
    """Eq. 7 from the single-GPU runs, then eq. 8 from the others."""
    check_enough(runs)
    nodes, gpus, local, steps = _columns(runs)
    alone = gpus == 1
    rates = local[alone] / steps[alone]
    degree = min(2, len(np.unique(local[alone])) - 1)
    rate = np.polyfit(local[alone], rates, degree)
    floor = FLOOR * float(rates.min())
    gamma = gamma_lambda = 0.0
    if not alone.all():
        spread = ~alone
        single = np.maximum(np.polyval(rate, local[spread]), floor)
        penalty = gpus[spread] - local[spread] * gpus[spread] / steps[spread] / single
        paths = np.column_stack(_paths(nodes[spread], gpus[spread]))
        gamma, gamma_lambda = map(float, np.linalg.lstsq(paths, penalty, rcond=None)[0])
    model = PaperModel(rate, gamma, gamma_lambda, floor, 0.0, int(local.max()), startup_s)
    residual = np.log(model._step(nodes, gpus, local, TRAINING) / steps)
    deviation = float(np.sqrt(np.mean(residual**2)))
    return PaperModel(rate, gamma, gamma_lambda, floor, deviation, int(local.max()), startup_s)


def from_dict(data: Mapping[str, Any]) -> PaperModel:
    """A model from what `to_dict` gave."""
    return PaperModel(
        np.array(data["rate"], dtype=np.float64),
        float(data["gamma"]),
        float(data["gamma_lambda"]),
        float(data["floor"]),
        float(data["deviation"]),
        int(data["max_local_batch"]),
        float(data["startup_s"]),
    )
