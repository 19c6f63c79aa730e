"""Section 3.3.3 of the thesis: what it prints of Figure 14, and that runs have it."""

from __future__ import annotations

import pytest

from papers.experiments.thesis import rodinia

#: As the text prints them, per cent.
PRINTED = {
    "b+tree": (0.2, 1), "nw": (17, 49), "backprop": (5, 6), "gaussian": (1, 9), "lavamd": (2, 3),
    "pathfinder": (2, 11), "srad": (3, 8),
}  # fmt: skip


@pytest.fixture(scope="module")
def measured():
    return rodinia.run(()).measured


@pytest.mark.parametrize("name", PRINTED)
def test_runs_spend_the_printed_shares_on_the_network(measured, name):
    """Within a tenth of a per cent, as printed."""
    alone, loaded = PRINTED[name]
    assert 100 * measured[name]["network_share_alone"] == pytest.approx(alone, abs=0.1)
    assert 100 * measured[name]["network_share_loaded"] == pytest.approx(loaded, abs=0.1)


def test_every_printed_application_is_there_and_suffers_and_nw_most(measured):
    assert set(measured) == set(PRINTED)
    slowdowns = {name: row["slowdown"] for name, row in measured.items()}
    assert min(slowdowns.values()) > 1
    assert max(slowdowns, key=slowdowns.get) == "nw"


def test_a_neighbour_of_its_kind_is_less_than_a_full_network(measured):
    for row in measured.values():
        assert 1 <= row["slowdown_beside_its_like"] <= row["slowdown"]
