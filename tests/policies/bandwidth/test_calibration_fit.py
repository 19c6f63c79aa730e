"""The fit finds the weights that made the numbers, and stays within its bounds for any."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from brute_force import rings_that_fit
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import drawn, machine

from gres_topology import NodeTopology
from policies.bandwidth.cables import cables_mbps
from policies.bandwidth.calibrated import (
    LEAST_PACE,
    MOST_WEIGHT,
    Calibration,
    features,
    predict,
    remember,
    sums,
)
from policies.bandwidth.calibration_fit import LEAST_SETS, fit
from policies.bandwidth.model import model_for
from policies.errors import PolicyError
from policies.matching.links import link_mbps
from policies.scoring.tables import Tables

SETS = [(0, 3), (0, 1), (0, 5), (0, 2, 3), (0, 1, 5), (0, 1, 2, 3), (0, 1, 4, 5), tuple(range(8))]


def told_by(
    topology: NodeTopology, weights: tuple[float, float, float], sets: list[tuple[int, ...]]
) -> dict[tuple[int, ...], float]:
    """What a machine of these weights would reach, GB/s."""
    made = Calibration(topology.name, topology.shape, (2, 8), *weights)
    found = {}
    for gpus in sets:
        row = features(topology, len(gpus))[[_at(topology.gpus, gpus)]]
        found[gpus] = float(predict(made, row, sums(topology, np.array([gpus])))[0])
    return found


@pytest.mark.parametrize("weights", [(0.8, 0.3, 0.2), (0.7, 0.0, 0.4), (0.9, 0.7, 0.0)])
def test_weights_that_made_the_numbers_are_found_again(weights):
    topology = machine("dgx1v")
    found = fit(topology, told_by(topology, weights, SETS))
    assert found.calibration.weights == pytest.approx(weights, abs=1e-3)
    assert found.errors.max() < 1e-3
    assert found.calibration.sizes == (2, 8)


def test_features_are_what_brute_force_finds():
    """The widest ring by trying all; direct links only for the second and third."""
    topology = machine("dgx1v")
    mbps = link_mbps(topology)
    direct = np.where(mbps >= 25_000, mbps, 0)
    for k in (2, 3, 4, 5):
        rows = features(topology, k)
        pace = Tables().of(topology, "ring").sets(k).weakest
        assert (1000 * rows[:, 0] == pace).all()
        for row, gpus in zip(rows, combinations(range(8), k), strict=True):
            ringed = k > 2 and row[0] >= 25
            inside = direct[np.ix_(gpus, gpus)].sum(axis=0).min() / 1000
            assert list(row[1:]) == ([row[0], inside] if ringed else [0, 0])


def test_sets_that_look_alike_get_the_pace_alone():
    """Behind NVSwitches all pairs are alike: there is no second weight to be had from them."""
    topology = machine("dgx-a100")
    found = fit(topology, {(0, 1): 230.0, (2, 3): 232.0, (4, 5): 229.0, (6, 7): 231.0})
    assert found.calibration.weights[1:] == (0, 0)
    assert found.predicted == pytest.approx([230.5] * 4, rel=0.01)


def test_the_error_of_unseen_sets_shows_what_the_fit_hides():
    topology = machine("dgx1v")
    measured = told_by(topology, (0.8, 0.3, 0.2), SETS)
    measured[0, 1, 2, 3] /= 2  # a link of theirs is broken, say
    found = fit(topology, measured)
    assert found.errors.max() > 0.2
    assert found.unseen.mean() > found.errors.mean()


@settings(max_examples=60)
@given(
    st.integers(2, 8), st.integers(0, 50), st.lists(st.floats(1e-3, 1), min_size=28, max_size=28)
)
def test_no_numbers_lead_out_of_bounds(gpus, seed, shares):
    topology = drawn(gpus, seed)
    sets = [pair for k in (2, 3) for pair in combinations(range(gpus), k)][:28]
    if len(sets) < LEAST_SETS:
        return
    most = {s: float(sums(topology, np.array([s]))[0]) for s in sets}
    measured = {s: share * most[s] for s, share in zip(sets, shares, strict=False)}
    found = fit(topology, measured)
    assert LEAST_PACE <= found.calibration.pace <= MOST_WEIGHT
    assert all(0 <= weight <= MOST_WEIGHT for weight in found.calibration.weights)
    assert (found.predicted > 0).all()
    # No other weights on a grid fit better.
    design = np.stack([features(topology, len(s))[_at(gpus, s)] for s in found.sets])
    target = found.measured

    def error(weights: tuple[float, ...]) -> float:
        return float(np.sum((design @ np.array(weights) / target - 1) ** 2))

    own = error(found.calibration.weights)
    grid = [0.1, 0.4, 0.8, 1.6, 4.0]
    best = min(error((a, b - 0.1, c - 0.1)) for a in grid for b in grid for c in grid)
    assert own <= best + 1e-6


def _at(gpus: int, chosen: tuple[int, ...]) -> int:
    return list(combinations(range(gpus), len(chosen))).index(chosen)


WRONG = [
    ("too few sets", "dgx1v", {(0, 3): 40.0, (0, 1): 20.0, (0, 5): 9.0}, "3 different sets"),
    ("more than the links", "dgx1v", dict.fromkeys(SETS, 300.0), "GPUs 0,1 of dgx1v: 300 GB/s"),
    ("nothing", "dgx1v", dict.fromkeys(SETS, 0.0), "0 GB/s measured; expected above 0"),
    ("no number", "dgx1v", dict.fromkeys(SETS, float("nan")), "nan GB/s measured"),
    ("too many GPUs", "gb200-nvl72", dict.fromkeys(SETS, 300.0), "expected a node of up to 16"),
]


@pytest.mark.parametrize(
    ("name", "measured", "message"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
def test_what_cannot_be_fitted_is_refused(name, measured, message):
    with pytest.raises(PolicyError) as caught:
        fit(machine(name), measured)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pace": 0.0}, "pace 0; expected from 0.1 to 4"),
        ({"pace": float("nan")}, "pace nan"),
        ({"throughput": -0.1}, "throughput -0.1; expected from 0 to 4"),
        ({"both_ways": 1e9}, "both_ways 1e+09; expected from 0 to 4"),
        ({"sizes": (1, 4)}, "sizes 1 to 4; expected from 2 to 16"),
        ({"sizes": (5, 4)}, "sizes 5 to 4"),
    ],
)
def test_no_calibration_of_absurd_weights_can_be_made(changed, message):
    with pytest.raises(PolicyError) as caught:
        replace(Calibration("m", "s", (2, 8), 0.8, 0.1, 0.1), **changed)
    assert message in str(caught.value)


def test_two_calibrations_of_one_machine_never_share_a_table():
    plain = machine("dgx1v")
    first, second = (
        replace(plain, calibration=remember(Calibration("m", plain.shape, (2, 8), w, 0.0, 0.1)))
        for w in (0.8, 0.4)
    )
    assert len({plain.shape, first.shape, second.shape}) == 3
    tables = Tables()
    pair = [tables.of(t, "ring").sets(2) for t in (plain, first, second)]
    assert [table.model for table in pair] == ["mapa-dgx1v", "calibrated", "calibrated"]
    assert pair[1].effbw == pytest.approx(2 * pair[2].effbw)
    assert model_for(plain, "ring", 2).name == "mapa-dgx1v"


def test_a_site_where_disjoint_rings_add_up_is_told_within_a_few_percent():
    """The figures of docs/topology.md: sets of 2 to 6 and 8 GPUs, 87 % of each NVLink ring."""
    topology = machine("dgx1v")
    counts = cables_mbps(topology) // 25_000
    sets = [s for k in (2, 3, 4, 5, 6, 8) for s in combinations(range(8), k)]
    inside = {gpus: counts[np.ix_(gpus, gpus)] for gpus in sets}
    rings = {gpus: rings_that_fit(links, links.sum(axis=1).min()) for gpus, links in inside.items()}
    found = fit(topology, {gpus: 0.87 * 25 * n if n else 10.0 for gpus, n in rings.items()})
    assert found.errors.mean() == pytest.approx(0.03, abs=0.005)
    whole = found.predicted[-1] / found.measured[-1] - 1
    assert whole == pytest.approx(-0.28, abs=0.02)
