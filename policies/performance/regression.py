"""Non-linear regression: damped Gauss-Newton with a prior, which makes a dozen runs enough.

Residuals have a pseudo-Huber loss (Charbonnier et al. 1997): one odd measurement does not bend
the curve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policies.performance.runs import Floats

#: A residual of so many standard deviations begins to count linearly.
HUBER = 2.0
STEPS = 100
TOLERANCE = 1e-7

#: Parameters -> (predictions, Jacobian).
Curve = Callable[[Floats], tuple[Floats, Floats]]


@dataclass(frozen=True, slots=True)
class Prior:
    """What is taken for true of the parameters before anything is measured."""

    mean: Floats
    deviation: Floats
    #: Rows D for which D @ parameters is about 0, in standard deviations.
    smooth: Floats


def fit(curve: Curve, wanted: Floats, prior: Prior, noise: float) -> tuple[Floats, Floats]:
    """The parameters of highest posterior, and the covariance about them (Laplace).

    `noise` is the standard deviation of `wanted` about the curve.
    """
    at = prior.mean.copy()
    damping = 1e-3
    cost = _cost(curve, at, wanted, prior, noise)
    for _ in range(STEPS):
        hessian, slope = _normal(curve, at, wanted, prior, noise)
        step, new, damping = _descend(
            lambda there: _cost(curve, there, wanted, prior, noise),
            at,
            cost,
            hessian,
            slope,
            damping,
        )
        if step is None:
            break
        at += step
        gained, cost = cost - new, new
        if gained < TOLERANCE * cost:
            break
    hessian, _ = _normal(curve, at, wanted, prior, noise)
    return at, np.asarray(np.linalg.inv(hessian), dtype=np.float64)


def _descend(
    cost_of: Callable[[Floats], float],
    at: Floats,
    cost: float,
    hessian: Floats,
    slope: Floats,
    damping: float,
) -> tuple[Floats | None, float, float]:
    """The first damped step that does not climb: (step, its cost, damping for the next)."""
    diagonal = np.diag(np.diag(hessian))
    while damping < 1e8:
        step = np.asarray(np.linalg.solve(hessian + damping * diagonal, slope), dtype=np.float64)
        new = cost_of(at + step)
        if new <= cost:
            return step, new, max(damping / 5, 1e-9)
        damping *= 4
    return None, cost, damping


def _normal(
    curve: Curve, at: Floats, wanted: Floats, prior: Prior, noise: float
) -> tuple[Floats, Floats]:
    """The normal equations' matrix (inverse: covariance) and the downhill direction."""
    predicted, jacobian = curve(at)
    residual = (wanted - predicted) / noise
    weight = 1 / np.sqrt(1 + (residual / HUBER) ** 2)
    scaled = jacobian / noise
    weighted = scaled * weight[:, None]
    hessian: Floats = weighted.T @ scaled + prior.smooth.T @ prior.smooth
    hessian += np.diag(prior.deviation**-2)
    slope: Floats = weighted.T @ residual - (at - prior.mean) / prior.deviation**2
    slope -= prior.smooth.T @ (prior.smooth @ at)
    return hessian, slope


def _cost(curve: Curve, at: Floats, wanted: Floats, prior: Prior, noise: float) -> float:
    residual = (wanted - curve(at)[0]) / noise
    loss = 2 * HUBER**2 * (np.sqrt(1 + (residual / HUBER) ** 2) - 1).sum()
    away = (((at - prior.mean) / prior.deviation) ** 2).sum()
    return float(loss + away + ((prior.smooth @ at) ** 2).sum())
