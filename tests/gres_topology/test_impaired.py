"""A node with broken and slow parts is a topology of its own, worth what is left of it."""

import numpy as np
import pytest

from gres_topology import TopologyError, catalog
from gres_topology.impaired import impaired
from gres_topology.pictures import machine_picture
from gres_topology.readers import saved
from gres_topology.slices import declared
from gres_topology.topology import Impairment

DGX1V = catalog.load("dgx1v")


def test_a_slow_link_keeps_its_label_and_a_share_of_its_bandwidth():
    node = impaired(DGX1V, [Impairment((0, 3), 0.5)])
    assert node.kinds[0][3] == "NV2"
    assert node.bandwidth_gbps[0, 3] == node.bandwidth_gbps[3, 0] == 25
    changed = np.argwhere(node.bandwidth_gbps != DGX1V.bandwidth_gbps).tolist()
    assert changed == [[0, 3], [3, 0]]
    assert node.shape != DGX1V.shape
    assert node.healthy is DGX1V


@pytest.mark.parametrize(
    ("machine", "pair", "label"),
    [
        ("dgx1v", (0, 3), "NODE"),
        ("dgx1v", (0, 4), "SYS"),
        ("dgx-a100", (0, 1), "NODE"),
        ("dgx-a100", (0, 7), "SYS"),
    ],
)
def test_a_broken_link_is_the_path_that_others_placed_so_have(machine, pair, label):
    whole = catalog.load(machine)
    node = impaired(whole, [Impairment(pair, 0)])
    assert node.kinds[pair[0]][pair[1]] == label
    assert 0 < node.bandwidth_gbps[pair] < whole.bandwidth_gbps[pair]


def test_a_gpu_with_slow_ports_slows_all_its_links():
    whole = catalog.load("dgx-a100")
    node = impaired(whole, [Impairment((2,), 11 / 12)])
    others = [0, 1, 3, 4, 5, 6, 7]
    left = whole.bandwidth_gbps[2, others] * 11 / 12
    assert node.bandwidth_gbps[2, others] == pytest.approx(left)
    assert node.broken == 0
    both = impaired(whole, [Impairment((2,), 11 / 12), Impairment((5,), 0.5)])
    assert both.bandwidth_gbps[2, 5] == pytest.approx(whole.bandwidth_gbps[2, 5] / 2)


def test_broken_gpus_and_caps_change_no_link_and_yet_the_shape():
    node = impaired(DGX1V, [Impairment((5,), 0), Impairment((), 0.68)])
    assert (node.bandwidth_gbps == DGX1V.bandwidth_gbps).all()
    assert (node.broken, node.lag_tenths, node.lost) == (1 << 5, 3, 0.0)
    assert node.shape != DGX1V.shape


def test_of_a_broken_gpu_all_slices_are():
    whole = impaired(catalog.load("a100-pcie-bridged"), [Impairment((6,), 0)])
    sliced = declared(whole, ["0-5", "6/3g.20gb*2", "7/1g.5gb*7"])
    assert sliced.broken == 0b11 << 6


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Impairment((9,), 0), "GPU 9 broken: DGX-1V has no GPU 9; expected 0 to 7"),
        (Impairment((1, 1), 0.5), "link 1-1 at 50 %: expected a GPU, or a link between two GPUs"),
        (Impairment((1,), 1.5), "expected a share from 0 (broken) to less than 1"),
        (Impairment((), 0.0), "expected a share from 0 (broken) to less than 1"),
    ],
)
def test_parts_that_the_node_has_not_are_refused(part, words):
    with pytest.raises(TopologyError) as refused:
        impaired(DGX1V, [part])
    assert words.replace("DGX-1V", DGX1V.name) in str(refused.value)


def test_a_drawing_shows_the_parts_also_after_a_journey_as_json():
    import json

    node = impaired(DGX1V, [Impairment((0, 3), 0.5), Impairment((5,), 0)])
    again = saved.read(json.dumps(saved.to_dict(node)), name="n", source="s")
    assert again.impairments == node.impairments
    for one in (node, again):
        drawn = machine_picture(one).svg()
        assert "marked: link 0-3 at 50 %" in drawn
        assert "marked: GPU 5 broken" in drawn
        assert drawn.count('class="gt-marked"') == 4, "a link, a GPU, two samples of the legend"
    assert "gt-marked" not in machine_picture(DGX1V).svg()
    assert "impairments" not in saved.to_dict(DGX1V)
