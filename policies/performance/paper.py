"""`genie`: the paper's performance model as written (Chen et al., TPDS, eqs. 4-8).

PR = (GPUs - Comm) * sPR(local batch); sPR is a quadratic in the local batch (eq. 7); Comm is the
average path penalty ((nodes - 1) * GPUs/node + lambda * (GPUs/node - 1)) * gamma / (GPUs - 1)
(eq. 8, which is printed for several nodes and GPUs and used for one of either, too). gamma and
lambda come from a linear regression, as in the paper.

Eq. 5 as written can turn negative: no rate is taken for less than FLOOR of a single GPU's slowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

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
    columns_of_runs,
    steps_of_runs,
)

#: Least share of a single GPU's slowest measured rate that a prediction may have.
FLOOR = 0.1


@dataclass(frozen=True, slots=True)
class PaperModel(PerformanceModel):
    """GENIE's model of a job's speed, fitted to measured runs (eq. 7 and 8)."""

    kind: ClassVar[str] = "genie"
    #: Coefficients of eq. 7, highest power first.
    rate: Floats
    #: gamma and lambda * gamma of eq. 8.
    gamma: float
    gamma_lambda: float
    #: The least rate of a prediction, samples per second.
    floor: float

    def estimate(self, shape: Shape, batch: int, task: str = TRAINING) -> Estimate:
        """One shape's seconds; bounds from the residuals alone (the paper gives none)."""
        step = float(self.steps_s([shape], batch, task)[0])
        reach = np.exp(NINETY * self.deviation)
        return Estimate(step, float(step / reach), float(step * reach))

    def _local_batch(self, shape: Shape, batch: int) -> float:
        return batch / shape.gpus

    def _step_s(self, table: Columns, task: str) -> Floats:
        """The batch over the processing rate of eq. 5."""
        nodes, gpus, local = table
        single = np.maximum(np.polyval(self.rate, local), self.floor)
        away, beside = _paths(nodes, gpus)
        comm = 0.0 if task == INFERENCE else self.gamma * away + self.gamma_lambda * beside
        result: Floats = local * gpus / np.maximum((gpus - comm) * single, self.floor)
        return result


def _paths(nodes: Floats, gpus: Floats) -> tuple[Floats, Floats]:
    """What gamma and lambda * gamma are multiplied by in eq. 8."""
    per_node = gpus / nodes
    others = np.maximum(gpus - 1, 1)
    return (nodes - 1) * per_node / others, (per_node - 1) / others


def fit(runs: Sequence[Run], startup_s: float = 0.0) -> PaperModel:
    """Eq. 7 from the single-GPU runs, then eq. 8 from the others."""
    check_enough(runs)
    table, steps = columns_of_runs(runs), steps_of_runs(runs)
    nodes, gpus, local = table
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
    model = PaperModel(
        rate,
        gamma,
        gamma_lambda,
        floor,
        deviation=0.0,
        max_local_batch=int(local.max()),
        startup_s=startup_s,
    )
    residual = np.log(model._step_s(table, TRAINING) / steps)
    deviation = float(np.sqrt(np.mean(residual**2)))
    return replace(model, deviation=deviation)
