"""xpu-smi's matrix of tiles, as the user guide prints it, and damaged."""

from pathlib import Path

import pytest

import gres_topology
from gres_topology import TopologyError, catalog, difference, links
from gres_topology.readers import xpu_smi
from gres_topology.slurm_files import gres_file

ASSETS = Path(__file__).parents[1] / "assets"
TWO = (ASSETS / "xpu-smi-two-gpus.txt").read_text()
SIX = (ASSETS / "own-xpu-smi-max1550-six.txt").read_text()


def read(text):
    return gres_topology.read(text, name="node", source="node.txt")


def test_tiles_are_read_as_their_gpus():
    found = read(TWO)
    assert found.kinds == (("X", "XL32"), ("XL32", "X"))
    # Eight ports of four lanes, 27.2 GB/s each way.
    assert found.bandwidth_gbps[0, 1] == pytest.approx(8 * 27.2, rel=0.001)
    assert found.numa == (0, 1)
    assert found.cpus[1] == (*range(24, 48), *range(72, 96))
    assert (found.model, found.pci) == (None, (None, None))


def test_models_and_addresses_come_from_the_discovery():
    found = read(SIX)
    assert found.model == "Intel(R) Data Center GPU Max 1550"
    assert found.pci[4] == "0001:42:00.0"
    assert {label for row in found.kinds for label in row} == {"X", "XL8"}
    assert gres_file.type_of(found.model) == "max_1550"
    assert gres_file.link_counts(found, 1) == (8, -1, 8, 8, 8, 8)


def test_the_catalogs_node_is_the_one_that_the_tool_shows():
    assert difference(catalog.load("aurora"), read(SIX)) == []


@pytest.mark.parametrize(
    ("old", "new", "label"),
    [("XL*    |XL16", "NODE   |PXB ", "PXB"), ("XL*    |XL16", "SYS    |SYS ", "SYS"),
     ("XL*    |XL16", "XL*    |XL* ", "N/A")],
)  # fmt: skip
def test_pairs_without_lanes_go_by_the_nearest_path(old, new, label):
    text = TWO.replace(old, new).replace("XL16   |XL* ", "{:<7}|{:<4}".format(*swapped(new)))
    assert read(text).kinds[0][1] == label


def swapped(words):
    return [word.strip() for word in reversed(words.split("|"))]


def test_one_tile_a_gpu():
    text = (
        "         GPU 0/0|GPU 1/0|CPU Affinity\n"
        "GPU 0/0 |S      |XL8    |0-23\n"
        "GPU 1/0 |XL8    |S      |\n"
    )
    found = read(text)
    assert found.kinds[0][1] == "XL8"
    assert found.cpus == (tuple(range(24)), None)
    assert found.numa == (0, None)


def test_columns_between_blanks_with_titles_and_a_table_of_devices():
    found = read((ASSETS / "own-xpu-smi-b60-eight.txt").read_text())
    assert found.kinds[0] == ("X", *["NODE"] * 3, *["SYS"] * 4)
    assert found.cpus[0] == (*range(128), *range(256, 384))
    assert found.numa == (0, 0, 0, 0, 1, 1, 1, 1)
    assert found.model == "Intel(R) Arc(TM) Pro B60 Graphics"
    assert found.pci[7] == "0000:87:00.0"


def test_columns_between_blanks_of_two_gpus_and_of_two_tiles():
    """Two Max 1100 as newer releases print them; the user guide's own matrix without its bars."""
    text = (
        "         GPU 0/0  GPU 1/0  CPU Affinity\n"
        "GPU 0/0  S        XL24     0-143\n"
        "GPU 1/0  XL24     S        0-143\n"
    )
    found = read(text)
    assert (found.kinds[0], found.numa) == (("X", "XL24"), (0, 0))
    assert found.cpus == (tuple(range(144)),) * 2
    assert read(TWO.replace("|", " ")).kinds == read(TWO).kinds
    assert read(text.replace("CPU Affinity", "").replace("0-143", "")).kinds == found.kinds


def test_a_text_without_a_matrix_is_refused():
    """What collecting hands over was not looked at before."""
    with pytest.raises(TopologyError, match=r"^n1: no header line of GPU 0/0; expected xpu-smi"):
        xpu_smi.read("Error: level zero\n", name="n1", source="n1")


def line(number, old, new):
    lines = TWO.split("\n")
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new, 1)
    return "\n".join(lines)


DAMAGED = [
    ("no link", line(5, "XL16", "WIFI"), "line 5: cell GPU 0/0-GPU 1/1: 'WIFI'; expected S"),
    ("other lanes one way", line(8, "XL16", "XL8 "), "line 5: cell GPU 0/0-GPU 1/1 is XL16"),
    ("itself elsewhere", line(5, "XL*", "S  "), "'S' of these two"),
    ("lanes to itself", line(5, "S  ", "XL8"), "'XL8' of these two"),
    ("tiles of one GPU by links", line(5, "MDF", "XL8"), "GPU 0/0-GPU 0/1: 'XL8' of these two"),
    ("other GPUs' tiles in one package", line(5, "XL*", "MDF"), "'MDF' of these two"),
    ("a row less", TWO.replace(TWO.split("\n")[7] + "\n", ""), "line 7: no row for GPU 1/1"),
    ("a row twice", line(6, "GPU 0/1 |", "GPU 0/0 |"), "line 6: row GPU 0/0 is no column"),
    ("a row of nobody", line(6, "GPU 0/1 |", "GPU 7/1 |"), "line 6: row GPU 7/1 is no column"),
    ("a cell less", line(5, "S      |", ""), "line 5: cell GPU 0/0-GPU 0/0"),
    ("cut", "\n".join(TWO.split("\n")[:5])[:-30], "line 5: 2 cells; expected 4"),
    ("a column twice", line(4, "GPU 0/1", "GPU 0/0"), "line 4: a tile is named twice"),
    ("cut within a row of blanks", TWO.replace("|", " ")[:-30], "line 8: 2 cells; expected 4"),
    ("two matrices", TWO + TWO, "a second matrix begins"),
    ("CPUs in words", line(5, "0-23,48-71", "all"), "line 5: CPU Affinity"),
    ("half of the discovery", SIX[:-40], "expected whole JSON of xpu-smi discovery -j"),
    ("a discovery of words", TWO + '{"device_list": ["a"]}', "line 9: no list of devices"),
]


@pytest.mark.parametrize(("sentence", "text", "told"), DAMAGED, ids=[d[0] for d in DAMAGED])
def test_a_damaged_report_is_refused_with_its_line(sentence, text, told):
    with pytest.raises(TopologyError) as caught:
        read(text)
    assert told in str(caught.value)
    assert str(caught.value).startswith("node.txt line ")
    assert "\n" not in str(caught.value)


def test_lanes_are_links_of_their_own_family():
    assert links.canonical("XL16") == "XL16"
    assert links.link_count("XL16") == 16
    assert links.is_direct("XL4")
    assert links.canonical("XL*") is None
