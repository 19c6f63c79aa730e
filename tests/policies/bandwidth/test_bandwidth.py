"""What the bandwidth models promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import drawn, machine

from policies.bandwidth.model import MapaDgx1v, Rings, eq2, model_for, ring_orders
from policies.scoring.tables import Tables


@pytest.mark.parametrize(
    ("links", "expected_gbps"),
    [((2, 1, 0), 57.86), ((1, 0, 0), 39.08), ((0, 1, 0), 21.61), ((0, 0, 1), 10.09)],
    ids=["the best three", "a double NVLink", "a single NVLink", "PCIe"],
)
def test_eq2_gives_the_printed_values(links, expected_gbps):
    assert eq2(*links) == pytest.approx(expected_gbps, abs=0.005)


@pytest.mark.parametrize(("k", "rings"), [(2, 1), (3, 1), (4, 3), (5, 12)])
def test_every_ring_is_listed_once(k, rings):
    assert len(ring_orders(k)) == rings


@pytest.mark.parametrize(
    ("name", "pattern", "k", "why"),
    [
        pytest.param("dgx1v", "all-to-all", 5, "rings", id="not for complete graphs"),
        pytest.param("dgx1v", "ring", 8, "2 to 5 GPUs", id="not for eight GPUs"),
        pytest.param("dgx1v", "ring", 1, "2 to 5 GPUs", id="not for one GPU"),
        pytest.param("dgx1p", "ring", 2, "not for NV1 at 20", id="not for NVLink 1"),
        pytest.param("dgx-a100", "ring", 2, "not for NV12", id="not for NVSwitch"),
        pytest.param("mi250x", "ring", 2, "not for XGMI", id="not for xGMI"),
        pytest.param("l40s-pcie", "ring", 2, "PCIe alone", id="not for PCIe alone"),
    ],
)
def test_the_regression_refuses_what_it_was_not_fitted_on(name, pattern, k, why):
    topology = machine(name)
    assert why in (MapaDgx1v().refusal(topology, pattern, k) or "")
    assert model_for(topology, pattern, k).name != "mapa-dgx1v"


def test_the_link_agnostic_model_prefers_eight_double_links_to_pcie():
    """Eq. 2 scores four single links and four PCIe hops above eight double links."""
    assert eq2(0, 4, 4) > eq2(8, 0, 0)
    weakest = np.array([50_000, 12_000])
    fast, slow = Rings().effbw_gbps(machine("dgx1v"), 8, weakest)
    assert fast > slow


@given(st.integers(2, 6), st.integers(0, 50), st.data())
def test_a_wider_link_never_lowers_the_link_agnostic_model(gpus, seed, data):
    topology = drawn(gpus, seed)
    i = data.draw(st.integers(1, gpus - 1))
    j = data.draw(st.integers(0, i - 1))
    links = np.array(topology.bandwidth_gbps)
    links[i, j] = links[j, i] = links[i, j] + 13
    wider = type(topology)("wider", "x", topology.kinds, links, topology.numa, topology.cpus)
    for k in range(2, gpus + 1):
        before = Tables().of(topology, "chain").sets(k).effbw
        after = Tables().of(wider, "chain").sets(k).effbw
        assert (before >= 0).all()
        assert (after >= before).all()
