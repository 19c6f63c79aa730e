"""Our two small fits end where SciPy's general ones do; SciPy itself is no dependency."""

from __future__ import annotations

import numpy as np
import pytest

from policies.bandwidth.calibrated import LEAST_PACE, MOST_WEIGHT
from policies.bandwidth.calibration_fit import _weights
from policies.performance.regression import Prior, _cost, fit

optimize = pytest.importorskip("scipy.optimize")
SEEDS = range(8)


def decay(x):
    """Parameters (a, b, c) -> a + b * exp(-c * x), with its Jacobian."""

    def curve(at):
        fallen = np.exp(-at[2] * x)
        return at[0] + at[1] * fallen, np.stack([np.ones_like(x), fallen, -at[1] * x * fallen], 1)

    return curve


@pytest.mark.parametrize("seed", SEEDS)
def test_the_regression_finds_the_posterior_that_scipy_finds(seed):
    """One measurement in ten is odd, so that the loss is not the square one."""
    draw = np.random.default_rng(seed)
    x, noise = np.linspace(0, 3, 30), 0.05
    wanted = decay(x)(np.array([1.0, 2.0, 1.3]))[0] + draw.normal(0, noise, x.size)
    wanted[::10] += 1.0
    prior = Prior(np.array([0.8, 1.5, 1.0]), np.full(3, 1.0), np.array([[0.1, -0.1, 0.0]]))
    found, _ = fit(decay(x), wanted, prior, noise)
    theirs = optimize.minimize(
        lambda at: _cost(decay(x), at, wanted, prior, noise), prior.mean, tol=1e-10
    )
    ours_cost = _cost(decay(x), found, wanted, prior, noise)
    assert ours_cost <= theirs.fun * (1 + 1e-4)
    assert found == pytest.approx(theirs.x, abs=2e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_calibrations_weights_are_scipys_bounded_least_squares(seed):
    """Some truths lie outside the bounds, so that weights end at them."""
    draw = np.random.default_rng(seed)
    design = draw.uniform(1, 50, (12, 3))
    truth = draw.uniform([LEAST_PACE, -0.3, -0.3], [1.0, 0.8, 0.8])
    target = np.maximum(1.0, design @ truth * draw.normal(1, 0.05, 12))
    scaled = design / target[:, None]
    low, high = [LEAST_PACE, 0.0, 0.0], [MOST_WEIGHT] * 3
    theirs = optimize.lsq_linear(scaled, np.ones(12), bounds=(low, high), tol=1e-12)
    ours = np.array(_weights(design, target))
    assert np.sum((scaled @ ours - 1) ** 2) <= 2 * theirs.cost * (1 + 1e-6) + 1e-9
    assert ours == pytest.approx(theirs.x, abs=1e-4)
