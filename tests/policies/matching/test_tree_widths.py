"""Bit masks find the same widest trees as the solver that knows sums."""

from __future__ import annotations

import numpy as np
import pytest
from machines import drawn, machine

from policies.matching.links import FORBIDDEN, at_least, link_mbps
from policies.matching.solved import solver_for
from policies.matching.solvers import NARROWEST, SUM
from policies.matching.tree_solver import TreeSolver
from policies.matching.tree_widths import MOST_WIDTHS, TreeWidths, fits_masks


def many_widths(gpus: int, widths: int, seed: int) -> np.ndarray:
    """Links of that many widths, thrown at random; each stands somewhere."""
    draw = np.random.default_rng(seed)
    upper = np.triu_indices(gpus, 1)
    links = np.zeros((gpus, gpus), dtype=np.int64)
    values = np.concatenate([np.arange(widths), draw.integers(0, widths, len(upper[0]) - widths)])
    links[upper] = 1000 * (1 + draw.permutation(values))
    return links + links.T


SMALL = {
    **{name: link_mbps(machine(name)) for name in ("minsky", "mi250x", "summit", "dgx1v")},
    "a100-pcie-bridged": link_mbps(machine("a100-pcie-bridged")),
    **{f"{widths} widths": many_widths(7, widths, widths) for widths in (1, 2, 3, 4, 5, 6, 9)},
    **{f"drawn {seed}": link_mbps(drawn(9, seed)) for seed in range(5)},
}


@pytest.mark.parametrize("weights", SMALL.values(), ids=SMALL)
def test_every_set_of_a_small_machine(weights):
    """Four widths above the narrowest share a number; five need a second one."""
    assert fits_masks(weights)
    plain = TreeSolver(weights, NARROWEST)
    for k in range(2, len(weights) + 1):
        assert (TreeWidths(weights).sums(k) == plain.sums(k)).all(), k


@pytest.mark.parametrize("name", ["torus-16", "cubemesh-16", "dgx2"])
@pytest.mark.parametrize("k", [2, 5, 8, 11, 16])
def test_every_set_of_a_large_machine_with_and_without_symmetries(name, k):
    weights = link_mbps(machine(name))
    assert (TreeWidths(weights).sums(k) == TreeSolver(weights, NARROWEST).sums(k)).all()


def test_who_solves_what():
    weights = link_mbps(machine("dgx1v"))
    assert isinstance(solver_for("tree", weights, NARROWEST), TreeWidths)
    assert isinstance(solver_for("tree", weights, SUM), TreeSolver)
    too_many = many_widths(8, MOST_WIDTHS + 2, 1)
    assert isinstance(solver_for("tree", too_many, NARROWEST), TreeSolver)
    limited = at_least(weights, 50_000)
    assert limited.min() == FORBIDDEN
    assert isinstance(solver_for("tree", limited, NARROWEST), TreeSolver)


def test_memory_is_told():
    found = TreeWidths(link_mbps(machine("torus-16")))
    assert found.size_bytes() == 0
    found.sums(9)
    assert 0 < found.size_bytes() < 8 << 20
