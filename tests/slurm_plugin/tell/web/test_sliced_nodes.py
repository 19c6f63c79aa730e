"""A node with MIG slices as the page draws it: its GPUs, each called by its slices."""

from types import SimpleNamespace
from typing import Any

import pytest

from gres_topology import catalog
from gres_topology.slices import declared
from slurm_plugin.decide.machines import Machine
from slurm_plugin.tell.web.details import Details

WHOLE = catalog.load("a100-pcie-bridged")
SLICED = declared(WHOLE, ["0-5", "6/3g.20gb*2", "7/1g.5gb*7"])
MIG = Machine(WHOLE, SLICED.parents, sliced=Machine(SLICED), whole=0b111111)


def drawn(holders: dict[int, str], chosen: tuple[int, ...]) -> str:
    reading: Any = SimpleNamespace()
    sources: Any = SimpleNamespace(machines={"mig1": MIG})
    (picture,) = Details(sources, reading)._picture(
        "mig1", "title", holders, chosen, pattern="ring"
    )
    return picture["svg"]


def test_a_gpu_is_called_by_its_slices_and_may_have_several_holders():
    svg = drawn({0: "job 1", 6: "job 2", 7: "job 2", 8: "job 3", 9: "job 4"}, ())
    assert ">6-7<" in svg
    assert ">8-14<" in svg
    assert "job 1" in svg
    assert "job 2" in svg
    assert "several jobs" in svg
    assert "job 3" not in svg


@pytest.mark.parametrize(("chosen", "has_ring"), [((0, 2), True), ((6, 8), False)])
def test_slices_have_no_ring(chosen, has_ring):
    assert ('class="gt-ring"' in drawn({}, chosen)) is has_ring
