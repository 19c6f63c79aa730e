"""What a machine's picture shows, found in its SVG by its classes and texts."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from gres_topology import NodeTopology, TopologyError, catalog, find
from gres_topology.pictures import BUSY, Marks, machine_picture, theme, write

DGX1V = catalog.load("dgx1v")
HOSTILE = "</text><script>alert('x')</script>&\"\x00\x1b\ud800"


def svg_of(topology, marks=None, *, is_inline=False, **look):
    return machine_picture(topology, marks, **look).svg(is_inline=is_inline)


def tree(text):
    return ElementTree.fromstring(text)


def texts(text):
    return [found.text for found in tree(text).iter("{http://www.w3.org/2000/svg}text")]


def of_class(text, name):
    return [found for found in tree(text).iter() if found.get("class") == f"gt-{name}"]


def middles(text, count):
    """GPU -> the place of its number."""
    found = {}
    for part in tree(text).iter("{http://www.w3.org/2000/svg}text"):
        if part.get("font-weight") == "bold":
            found[part.text] = (float(part.get("x")), float(part.get("y")))
    assert len(found) == count
    return found


@pytest.mark.parametrize("machine", catalog.names())
def test_every_gpu_has_a_place_of_its_own_in_every_machine(machine):
    topology = catalog.load(machine)
    for is_small in (False, True):
        places = middles(svg_of(topology, is_small=is_small), topology.gpus).values()
        for (x, y), (u, v) in combinations(places, 2):
            assert abs(x - u) >= 60 or abs(y - v) >= 50


@pytest.mark.parametrize("machine", catalog.names())
def test_gpus_lie_in_the_box_of_their_numa_node(machine):
    topology = catalog.load(machine)
    svg = svg_of(topology)
    assert_each_in_its_box(topology, svg)


def assert_each_in_its_box(topology, svg):
    sides = ("x", "y", "width", "height")
    boxes = [[float(box.get(side)) for side in sides] for box in of_class(svg, "group")]
    places = middles(svg, topology.gpus)
    numas = list(dict.fromkeys(topology.numa))
    for gpu, numa in enumerate(topology.numa):
        x, y = places[str(gpu)]
        inside = [
            at
            for at, (left, top, width, height) in enumerate(boxes)
            if left < x < left + width and top < y < top + height
        ]
        assert inside == [numas.index(numa)]


def test_uneven_numa_nodes_are_boxes_beside_each_other():
    """Nine GPUs in one NUMA node and three of one each: on an ellipse its box would hold all."""
    report = Path(__file__).parent.parent / "assets" / "rocm-smi-partitions.txt"
    svg = svg_of(find(str(report)))
    assert_each_in_its_box(find(str(report)), svg)
    assert "XGMI (xGMI): 50 GB/s" in texts(svg)


def test_links_are_as_wide_as_their_bandwidth_and_the_commonest_path_is_only_named():
    svg = svg_of(DGX1V)
    widths = sorted({float(link.get("stroke-width")) for link in of_class(svg, "nvlink")})
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.2)
    # Sixteen links of the hybrid cube mesh and two lines of the key; no line for 12 pairs over SYS.
    assert len(of_class(svg, "nvlink")) == 16 + 2
    assert "SYS (across sockets): 12 GB/s, every other pair" in texts(svg)


def test_where_all_pairs_are_alike_there_is_one_hub():
    svg = svg_of(catalog.load("dgx-h100"))
    assert len(of_class(svg, "hub")) == 1
    assert "NV18 (NVLink): 450 GB/s, every pair" in texts(svg)


def test_a_large_domain_has_no_lines_between_gpus():
    svg = svg_of(catalog.load("gb200-nvl72"), Marks(chosen=range(72)))
    assert len(of_class(svg, "nvlink")) == 1
    assert of_class(svg, "ring") == []
    assert len(of_class(svg, "rank")) == 72 + 1


def test_a_ring_is_drawn_hop_by_hop_with_its_slowest_one():
    svg = svg_of(DGX1V, Marks(chosen=(0, 3, 2)))
    # Three hops and a line of the key.
    assert len(of_class(svg, "ring")) == 4
    assert "25 GB/s" in texts(svg)
    assert "ranks on 0, 3, 2. slowest hop 25 GB/s" in svg


def test_other_patterns_are_drawn_by_their_pairs():
    svg = svg_of(DGX1V, Marks(chosen=(0, 1, 2, 3), hops=[(0, 1), (1, 0), (0, 2)]))
    assert len(of_class(svg, "ring")) == 2 + 1


def test_each_holder_has_a_colour_and_a_pattern_and_the_free_have_none():
    svg = svg_of(DGX1V, Marks(held={0: "job 1", 1: "job 2", 2: BUSY}))
    looks = {name: len(of_class(svg, name)) for name in ("job0", "job1", "busy", "free")}
    # One more of each in the key, and four NICs that are outlined as free GPUs are.
    assert looks == {"job0": 2, "job1": 2, "busy": 2, "free": 5 + 1 + 4}
    assert texts(svg).count("job 2") == 2


def test_the_key_names_no_more_holders_than_one_reads():
    held = {gpu: f"job {gpu}" for gpu in range(72)}
    svg = svg_of(catalog.load("gb200-nvl72"), Marks(held=held))
    assert texts(svg).count("job 19") == 2
    assert texts(svg).count("job 20") == 1
    assert "and 52 more" in texts(svg)


def test_a_job_looks_the_same_in_several_pictures():
    styles = {"job 9": 4}
    for held in ({0: "job 1", 1: "job 9"}, {5: "job 9"}):
        assert len(of_class(svg_of(DGX1V, Marks(held=held, styles=styles)), "job4")) == 2


def test_what_slurm_would_have_taken_is_outlined():
    svg = svg_of(DGX1V, Marks(chosen=(0, 3), beside=(0, 1)))
    assert len(of_class(svg, "beside")) == 2 + 1
    assert "Slurm's own choice" in texts(svg)


def test_gpus_are_called_as_slurm_calls_them():
    svg = svg_of(catalog.load("minsky"), Marks(names=(3, 2, 1, 0), chosen=(0, 1)))
    assert set(middles(svg, 4)) == {"0", "1", "2", "3"}
    assert "ranks on 3, 2" in svg


def test_names_from_users_stay_text():
    marks = Marks(held={0: HOSTILE}, beside=(1,), beside_means=HOSTILE, notes={0: [HOSTILE]})
    svg = svg_of(DGX1V, marks, title=HOSTILE)
    tree(svg)
    assert "<script" not in svg
    svg.encode()


def test_a_picture_has_a_name_and_a_description_and_no_style_of_its_own_inline():
    svg = svg_of(DGX1V, Marks(held={2: "job 7"}), title="dgx1", is_inline=True)
    root = tree(svg)
    assert (root.get("role"), root.get("aria-label")) == ("img", "dgx1")
    assert root[0].text == "dgx1"
    assert "job 7 holds 2" in root[1].text
    assert "<style" not in svg
    assert " style=" not in svg


def test_every_class_of_a_picture_has_a_rule():
    marks = Marks(held={0: "a", 1: BUSY}, chosen=(0, 3), beside=(4,), notes={0: ["text"]})
    used = set(re.findall(r'class="gt-([\w-]+)"', svg_of(DGX1V, marks)))
    assert {name for name in used if f".gt-{name}{{" not in theme.css()} == set()


def test_a_machine_without_gpus_is_refused():
    with pytest.raises(TopologyError, match="bare: no GPUs, so nothing to draw"):
        svg_of(NodeTopology("bare", "a test", (), np.zeros((0, 0)), (), ()))


def test_files_are_svg_or_png(tmp_path, monkeypatch):
    picture = machine_picture(DGX1V)
    write(picture, tmp_path / "a.svg")
    tree((tmp_path / "a.svg").read_text())
    with pytest.raises(TopologyError, match=r"a.gif: expected a file to write, .svg or .png"):
        write(picture, tmp_path / "a.gif")
    monkeypatch.setitem(__import__("sys").modules, "cairosvg", None)
    with pytest.raises(
        TopologyError, match=r"apt-get install python3-cairosvg, or pip .*\[plot\]'"
    ):
        write(picture, tmp_path / "a.png")


def test_a_png_has_colours(tmp_path):
    try:
        import cairosvg  # noqa: F401
    except (ImportError, OSError):
        pytest.skip("the extra `plot`, or libcairo2, is not installed")
    write(machine_picture(DGX1V), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
