"""The bandwidth of a mesh: the narrowest cut, which rings without a common link fill."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from brute_force import rings_that_fit
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import drawn, machine

from gres_topology import NodeTopology
from policies.bandwidth.cables import Cables, cables_mbps, narrowest_cut
from policies.contract.bits import members
from policies.scoring.tables import Tables


def by_hand(mesh: np.ndarray, gpus: tuple[int, ...]) -> int:
    """The narrowest of all cuts of a set, MB/s."""
    least = None
    for size in range(1, len(gpus)):
        for part in combinations(gpus, size):
            rest = [gpu for gpu in gpus if gpu not in part]
            across = int(mesh[np.ix_(part, rest)].sum())
            least = across if least is None else min(least, across)
    assert least is not None
    return least


@pytest.mark.parametrize("name", ["dgx1v", "dgx1p", "mi250x", "mi300x"])
def test_on_eight_gpus_every_cut_is_looked_at(name):
    mesh = cables_mbps(machine(name))
    for k in range(2, 9):
        found = narrowest_cut(mesh, k)
        for row, gpus in enumerate(combinations(range(8), k)):
            assert found[row] == by_hand(mesh, gpus)


def test_on_sixteen_gpus_the_cuts_of_one_and_two_bound_it():
    mesh = cables_mbps(machine("cubemesh-16"))
    found, sets = narrowest_cut(mesh, 6), members(16, 6)
    for row in range(0, len(sets), 97):
        assert found[row] >= by_hand(mesh, tuple(sets[row].tolist()))


@pytest.mark.parametrize("name", ["dgx1v", "dgx1p", "mi250x"])
def test_rings_fill_the_cut_or_all_but_one_link_of_it(name):
    """Rings use each GPU's links in pairs; what an odd cut leaves over takes trees."""
    topology, unit, seen = machine(name), 0, set()
    mesh = cables_mbps(topology)
    unit = int(mesh[mesh > 0].min())
    for k in range(3, 8):
        weakest, cuts = Tables().of(topology, "ring").sets(k).weakest, narrowest_cut(mesh, k)
        for row, gpus in enumerate(combinations(range(8), k)):
            links = mesh[np.ix_(gpus, gpus)] // unit
            if weakest[row] >= unit and links.tobytes() not in seen:
                seen.add(links.tobytes())
                fits = int(cuts[row]) // unit
                assert rings_that_fit(links, fits) >= max(1, fits - 1)


def test_a_whole_dgx1v_has_six_directed_rings():
    """Six links of 25 GB/s at each GPU, all used."""
    topology = machine("dgx1v")
    assert rings_that_fit(cables_mbps(topology) // 25_000, 6) == 6
    table = Tables().of(topology, "ring").sets(8)
    assert table.model == "cables"
    assert table.effbw[0] == pytest.approx(0.83 * 6 * 25)


def test_a_whole_mi300x_uses_seven_links_of_each_gpu():
    assert Tables().of(machine("mi300x"), "ring").sets(8).effbw[0] == pytest.approx(0.83 * 7 * 64)


def test_without_a_ring_of_cables_the_weakest_link_counts():
    """Three of a minsky: a pair and one across the sockets."""
    minsky = machine("minsky")
    table = Tables().of(minsky, "ring").sets(3)
    assert table.model == "cables"
    host = float(np.where(cables_mbps(minsky) > 0, 0, minsky.bandwidth_gbps).max())
    assert table.effbw == pytest.approx(0.83 * host)


@pytest.mark.parametrize(
    ("name", "pattern", "k", "why"),
    [
        ("dgx1v", "tree", 6, "not for tree"),
        ("mi250x", "ring", 2, "3 GPUs or more, not for 2"),
        ("dgx2", "ring", 4, "not for a switch"),
        ("gb200-nvl72", "ring", 4, "up to 16 GPUs, not for 72"),
        ("l40s-pcie", "ring", 4, "not for PCIe alone"),
    ],
)
def test_what_it_does_not_hold_for_is_refused(name, pattern, k, why):
    assert why in (Cables().refusal(machine(name), pattern, k) or "")


def test_a_host_path_as_wide_as_a_cable_is_refused():
    """Nobody could tell a ring of cables from one over the host there."""
    found = Cables().refusal(wide_host(25.0), "ring", 3)
    assert found is not None
    assert "wider than a path over the host" in found
    assert Cables().refusal(wide_host(24.0), "ring", 3) is None


def wide_host(gbps: float) -> NodeTopology:
    """Four GPUs in a ring of single NVLinks, diagonals over the host."""
    kinds = [["NV1" if (a - b) % 2 else "SYS" for b in range(4)] for a in range(4)]
    links = np.array([[25.0 if kind == "NV1" else gbps for kind in row] for row in kinds])
    np.fill_diagonal(links, 0.0)
    rows = tuple(tuple("X" if a == b else kinds[a][b] for b in range(4)) for a in range(4))
    none = (None,) * 4
    return NodeTopology("ring of four", "by a test", rows, links, none, none)


@given(st.integers(3, 7), st.integers(0, 40), st.data())
@settings(max_examples=60)
def test_a_wider_cable_never_lowers_it(gpus, seed, data):
    topology = drawn(gpus, seed)
    i = data.draw(st.integers(1, gpus - 1))
    j = data.draw(st.integers(0, i - 1))
    if not topology.kinds[i][j].startswith("NV"):
        return
    links = np.array(topology.bandwidth_gbps)
    links[i, j] = links[j, i] = links[i, j] + 13
    wider = NodeTopology("wider", "x", topology.kinds, links, topology.numa, topology.cpus)
    for k in range(3, gpus + 1):
        if Cables().refusal(wider, "ring", k) is None:
            found = []
            for one in (topology, wider):
                weakest = Tables().of(one, "ring").sets(k).weakest
                found.append(Cables().effbw_gbps(one, k, weakest))
            assert (found[1] >= found[0] - 1e-9).all()
