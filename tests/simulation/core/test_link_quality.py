"""What a set of GPUs is worth, by its best ring."""

from __future__ import annotations

import pytest

from gres_topology.catalog import load
from simulation import SimulationError
from simulation.core.link_quality import judge

DGX = {"n1": load("dgx1v")}


@pytest.mark.parametrize(
    ("gpus", "share", "hop"),
    [
        ((0, 3), 1.0, False),
        ((0, 1), 21.61 / 39.08, False),
        ((0, 5), 10.09 / 39.08, True),
        ((0, 2, 3), 1.0, False),
        ((0, 1, 2, 3, 4), 53.61 / 53.61, True),
        ((0, 2, 3, 4, 6), 51.80 / 53.61, False),
        ((4,), 1.0, False),
    ],
    ids=["double", "single", "PCIe", "three", "five by eq. 2", "five without PCIe", "one GPU"],
)
def test_the_judge_on_a_dgx1v(gpus, share, hop):
    verdict = judge(DGX["n1"], gpus)
    assert verdict.share == pytest.approx(share, abs=2e-3)
    assert verdict.pcie_hop is hop


@pytest.mark.parametrize("gpus", [(), (8,), (0, 9)], ids=["none", "no such", "one of two"])
def test_the_judge_refuses_gpus_that_do_not_exist(gpus):
    with pytest.raises(SimulationError, match="no such GPU set"):
        judge(DGX["n1"], gpus)
