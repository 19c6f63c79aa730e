"""No bandwidth model says anything absurd about any machine of the catalog."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from machines import machine

from gres_topology import NodeTopology, catalog
from policies.bandwidth.calibrated import Calibration, remember, sums
from policies.bandwidth.model import model_for
from policies.contract.bits import EXACT_GPUS, members
from policies.matching import large
from policies.matching.links import RING_EFFICIENCY, link_mbps
from policies.scoring.tables import TOP, Tables, is_tabulated

#: On larger machines every pattern beyond the first costs seconds of tables.
PATTERNS = {
    8: ("ring", "tree", "chain", "star", "all-to-all"),
    16: ("ring", "tree", "star"),
    72: ("ring", "chain"),
}
CASES = [
    pytest.param(name, pattern, id=f"{name}, {pattern}")
    for name in catalog.names()
    for pattern in PATTERNS[min(size for size in PATTERNS if machine(name).gpus <= size)]
]
#: Sets looked at of each size.
SAMPLES = 300
FULL = (1 << 72) - 1


@cache
def narrowed(name: str, seed: int) -> NodeTopology:
    """The machine with a third of its links at half their width."""
    topology = machine(name)
    draw = np.random.default_rng(seed)
    half = draw.random((topology.gpus, topology.gpus)) < 1 / 3
    half = np.triu(half, 1)
    links = np.where(half | half.T, topology.bandwidth_gbps / 2, topology.bandwidth_gbps)
    return replace(topology, name=f"{name}-narrowed", bandwidth_gbps=links)


def sizes(topology: NodeTopology) -> list[int]:
    return sorted({*range(2, min(8, topology.gpus) + 1), topology.gpus} - {1})


def sampled(topology: NodeTopology, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers and GPUs of some k-subsets, the same ones each time."""
    sets = members(topology.gpus, k)
    draw = np.random.default_rng(k)
    rows = np.sort(draw.permutation(len(sets))[:SAMPLES])
    return rows, sets[rows]


def worth(topology: NodeTopology, pattern: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """For every size: the sets looked at and their effective bandwidth, GB/s."""
    if topology.gpus > EXACT_GPUS:
        found = [large.find(topology, pattern, k, FULL, TOP) for k in (2, 3, 5, 8, topology.gpus)]
        return [
            (np.array([s.order for s in sets]), np.array([s.effbw_gbps for s in sets]))
            for sets in found
        ]
    assert is_tabulated(topology, pattern)
    tables = Tables().of(topology, pattern)
    pairs = [(sampled(topology, k), tables.sets(k).effbw) for k in sizes(topology)]
    return [(sets, effbw[rows]) for (rows, sets), effbw in pairs]


@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_every_set_has_a_bandwidth_above_zero_and_below_the_sum_of_its_links(name, pattern):
    """All GPUs of the catalog's machines reach each other, by PCIe at least."""
    topology = machine(name)
    assert (link_mbps(topology)[~np.eye(topology.gpus, dtype=bool)] > 0).all()
    for sets, effbw in worth(topology, pattern):
        assert np.isfinite(effbw).all()
        assert (effbw > 0).all()
        assert (effbw <= sums(topology, sets) + 1e-9).all()


@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_no_set_gains_by_narrower_links(name, pattern):
    """Where one model tells both: numbers of two models are not compared."""
    topology, narrower = machine(name), narrowed(name, 1)
    before, after = worth(topology, pattern), worth(narrower, pattern)
    compared = 0
    for (sets, wide), (_, narrow) in zip(before, after, strict=True):
        k = sets.shape[1]
        if model_for(topology, pattern, k) is model_for(narrower, pattern, k):
            compared += 1
            if topology.gpus > EXACT_GPUS:
                wide, narrow = wide.max(), narrow.max()  # not the same sets
            assert np.all(narrow <= wide + 1e-9)
    assert compared or topology.gpus <= 6


@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_the_regression_is_used_only_where_it_was_fitted(name, pattern):
    """Volta with NVLink 2: the DGX-1V and machines of the same links, rings of 2 to 5 GPUs."""
    topology = machine(name)
    for k in sizes(topology):
        told = model_for(topology, pattern, k).name
        direct = {kind for row in topology.kinds for kind in row if kind.startswith(("NV", "XG"))}
        fitted = (
            pattern == "ring"
            and k <= 5
            and direct
            and direct <= {"NV1", "NV2"}
            and "V100" in (topology.model or "")
        )
        assert (told == "mapa-dgx1v") == bool(fitted)


#: Machines whose GPUs have NVLink or xGMI cables to each other; the others have a switch or none.
MESHES = {"a100-pcie-bridged", "ac922", "aurora", "cubemesh-16", "dgx1p", "dgx1v", "gh200-quad",
          "hgx-a100-4", "mi250x", "mi300a", "mi300x", "mi325x", "mi355x", "minsky", "polaris",
          "summit", "torus-16"}  # fmt: skip


@pytest.mark.parametrize("name", catalog.names())
def test_several_rings_are_counted_on_meshes_only(name):
    """NVSwitch, PCIe alone, two GPUs and patterns other than rings are left to one ring."""
    topology = machine(name)
    for pattern in ("ring", "tree", "all-to-all"):
        for k in range(2, min(topology.gpus, 8) + 1):
            told = model_for(topology, pattern, k).name
            if told != "mapa-dgx1v":
                counted = pattern == "ring" and k > 2 and name in MESHES
                assert told == ("cables" if counted else "rings"), (pattern, k)


@pytest.mark.parametrize("name", sorted(MESHES))
def test_more_cables_never_count_less_than_one_ring_of_them(name):
    topology = machine(name)
    tables = Tables().of(topology, "ring")
    for k in sizes(topology):
        table = tables.sets(k)
        if table.model == "cables":
            one_ring = RING_EFFICIENCY * table.weakest / 1000
            assert (table.effbw >= one_ring - 1e-9).all()


#: Weights at their bounds, where a prediction would be most absurd, and plausible ones.
WEIGHTS = [(0.1, 0.0, 0.0), (4.0, 4.0, 4.0), (0.1, 4.0, 0.0), (0.1, 0.0, 4.0), (0.8, 0.3, 0.2)]
CALIBRATED = [
    pytest.param(name, weights, id=f"{name}, {weights}")
    for name in catalog.names()
    if 2 <= machine(name).gpus <= EXACT_GPUS
    for weights in WEIGHTS
]


def calibrated(topology: NodeTopology, weights: tuple[float, float, float]) -> NodeTopology:
    """The machine with a calibration for every size."""
    sizes = 2, topology.gpus
    made = Calibration(topology.name, topology.shape, sizes, *weights)
    return replace(topology, calibration=remember(made))


@pytest.mark.parametrize(("name", "weights"), CALIBRATED)
def test_whatever_is_calibrated_no_bandwidth_is_absurd(name, weights):
    """Above zero, never above the sum of a set's links, and no gain by narrower links."""
    topology = calibrated(machine(name), weights)
    narrower = calibrated(narrowed(name, 1), weights)
    for k in sizes(topology):
        assert model_for(topology, "ring", k).name == "calibrated"
    before, after = worth(topology, "ring"), worth(narrower, "ring")
    for (sets, wide), (_, narrow) in zip(before, after, strict=True):
        assert np.isfinite(wide).all()
        assert (wide > 0).all()
        assert (wide <= sums(topology, sets) + 1e-9).all()
        assert (narrow <= wide + 1e-9).all()


@pytest.mark.parametrize(("name", "weights"), CALIBRATED)
def test_a_calibration_says_nothing_about_what_was_not_measured(name, weights):
    topology = machine(name)
    made = Calibration(topology.name, topology.shape, (2, 2), *weights)
    measured = replace(topology, calibration=remember(made))
    for k in sizes(topology):
        told = model_for(measured, "ring", k).name
        assert told == ("calibrated" if k == 2 else model_for(topology, "ring", k).name)
        assert model_for(measured, "tree", k).name == "rings"
