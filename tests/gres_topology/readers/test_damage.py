"""Truncated and altered reports: the same topology or one clear line, never anything else."""

import os
import re
from pathlib import Path

import pytest

import gres_topology
from gres_topology import TopologyError

ASSETS = Path(__file__).parents[1] / "assets"
FILES = sorted(f for f in ASSETS.glob("*.txt") if "p2p" not in f.name)
MATRICES = [f for f in FILES if re.match(r"(own-(?!nccl|rccl|hwloc|rocm|xpu)|nvidia-smi)", f.name)]
ROCM = [f for f in FILES if "rocm" in f.name]
XPU = [f for f in FILES if "xpu" in f.name]


def outcome(text):
    """The topology, or None where a TopologyError of one line was raised."""
    try:
        return gres_topology.read(text + "\n", name="n", source="node.txt")
    except TopologyError as error:
        message = str(error)
    assert "\n" not in message
    return None


def what_matters(topology):
    """Everything but names: NICs lose theirs with the legend that names them."""
    return (
        topology.kinds,
        topology.bandwidth_gbps.tolist(),
        topology.numa,
        topology.cpus,
        topology.pci,
        [nic.kinds for nic in topology.nics],
        topology.numa_nodes,
    )


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_file_cut_at_any_line_is_the_same_machine_or_refused(path):
    text = path.read_text()
    whole = what_matters(outcome(text))
    lines = text.split("\n")
    # Long XML files are all alike in the middle: every line of the first and last 60, else a few.
    step = max(1, len(lines) // 120)
    cuts = {*range(0, len(lines), step), *range(min(60, len(lines)))}
    for cut in sorted(cuts):
        found = outcome("\n".join(lines[:cut]))
        # What follows the link matrix of rocm-smi and xpu-smi is optional: a cut only loses it.
        if found is not None and path not in [*ROCM, *XPU]:
            assert what_matters(found) == whole, f"cut after line {cut}"
        elif found is not None:
            assert what_matters(found)[:2] == whole[:2], f"cut after line {cut}"


@pytest.mark.parametrize("path", MATRICES, ids=lambda p: p.stem)
@pytest.mark.parametrize("value", ["NV3", "PXB", "X", "junk", ""])
def test_a_link_cell_altered_is_noticed(path, value):
    text = path.read_text()
    cells = [
        m
        for m in re.finditer(r"(?<=\s)(NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|X)(?=\s)", text)
        if re.match(r"\s*(GPU\d|NIC\d|mlx5_\d)", text[text.rfind("\n", 0, m.start()) + 1 :])
    ]
    assert cells
    gpus = outcome(text).gpus
    for cell in cells[:: max(1, len(cells) // 60)]:
        if cell.group() == value or (value == "X" and gpus == 1):
            continue
        assert outcome(text[: cell.start()] + value + text[cell.end() :]) is None, cell


@pytest.mark.parametrize("path", ROCM, ids=lambda p: p.stem)
@pytest.mark.parametrize("value", ["XGMI", "PCIE", "7", "0", "junk"])
def test_a_cell_of_rocm_smi_altered_is_noticed(path, value):
    text = path.read_text()
    rows = list(re.finditer(r"^GPU\d+ .*$", text, re.M))
    assert rows
    for row in rows:
        cells = list(re.finditer(r"\S+", row.group()))[1:]
        for cell in cells[:: max(1, len(cells) // 4)]:
            if cell.group() == value:
                continue
            at = row.start() + cell.start()
            assert outcome(text[:at] + value + text[at + len(cell.group()) :]) is None, cell


@pytest.mark.parametrize(
    "path", [f for f in FILES if "own-nccl" in f.name or "rccl" in f.name], ids=lambda p: p.stem
)
def test_a_link_of_nccl_altered_at_one_end_is_noticed(path):
    text = path.read_text()
    links = list(re.finditer(r'<(?:nvlink|xgmi)[^>]*count="(\d+)"', text))
    buses = list(re.finditer(r'busid="([^"]*)"', text))
    assert links
    assert buses
    for found in links:
        if "0x0680" in text[found.start() : found.end() + 30]:
            continue  # the links to one of several switches may differ
        at = found.start(1)
        assert outcome(text[:at] + "9" + text[at + 1 :]) is None
        assert outcome(text[:at] + "two" + text[at + 1 :]) is None
    for found in buses:
        assert outcome(text[: found.start(1)] + "junk" + text[found.end(1) :]) is None or (
            "nic" in text[found.end() : found.end() + 200]
            or "0x0604" in text[found.end() : found.end() + 40]
        )


@pytest.mark.parametrize("name", ["hwloc-tioga.txt", "own-hwloc-nvlink.txt"])
def test_a_bandwidth_of_hwloc_altered_is_noticed(name):
    text = (ASSETS / name).read_text()
    start = text.find('Bandwidth"')
    values = [m for m in re.finditer(r"<u64values[^>]*>(\S+)", text) if 0 < start < m.start()]
    assert len(values) > 1
    for found in values[1:6]:  # the first of each line but the first is off the diagonal
        assert outcome(text[: found.start(1)] + "77" + text[found.end(1) :]) is None


HOSTILE = [
    ("an entity bomb", '<!DOCTYPE s [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]>\n<system>&b;</system>'),
    ("an external entity", '<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<system>&x;</system>'),
    ("a hundred thousand nested elements", "<system>" + "<pci>" * 100_000 + "\n"),
    ("numbers too long to convert", '<system>\n<pci busid="0000:01:00.0" class="0x0302"><gpu dev="'
     + "9" * 5000 + '"/></pci></system>'),
    ("CPUs beyond any machine", "\tGPU0\tCPU Affinity\nGPU0\t X \t0-99999999999"),
    ("a list nested without end", "gpus: " + "[" * 5000 + "\n"),
    ("aliases that multiply", "gpus: 2\na: &a [1]\nb: &b [*a, *a]\n"),
    ("JSON nested without end", '{"a":\n' + "[" * 100_000),
    ("a lone surrogate", "<system>\ud800\n</system>"),
    ("nothing", ""),
]  # fmt: skip


def test_a_machine_whose_file_declares_an_entity_is_refused_for_that():
    text = (ASSETS / "own-nccl-nvlink-four.txt").read_text()
    with pytest.raises(TopologyError, match="XML declares an entity, which no topology needs"):
        gres_topology.read(
            f'<!DOCTYPE s [<!ENTITY a "aa">]>\n{text}', name="node", source="node.txt"
        )


@pytest.mark.parametrize(("depth", "is_read"), [(100, True), (101, False)])
def test_a_machine_is_read_to_a_hundred_elements_below_each_other(depth, is_read):
    gpu = '<pci busid="0000:01:00.0" class="0x0302"><gpu dev="0"/></pci>'
    text = "<system>\n" + "<pci>" * (depth - 3) + gpu + "</pci>" * (depth - 3) + "</system>"
    assert (outcome(text) is not None) == is_read


@pytest.mark.parametrize(("more", "told"), [(0, "binary data"), (1, "larger than 32 MiB")])
def test_a_file_larger_than_any_report_is_not_read(tmp_path, more, told):
    path = tmp_path / "core"
    path.touch()
    os.truncate(path, 32 * 2**20 + more)
    with pytest.raises(TopologyError, match=told):
        gres_topology.read(path)


@pytest.mark.parametrize(("sentence", "text"), HOSTILE, ids=[h[0] for h in HOSTILE])
def test_a_hostile_file_is_refused(sentence, text):
    assert outcome(text) is None


@pytest.mark.parametrize("path", XPU, ids=lambda p: p.stem)
@pytest.mark.parametrize("value", ["XL5", "NODE", "S", "MDF", "junk", ""])
def test_a_cell_of_xpu_smi_altered_is_noticed(path, value):
    text = path.read_text()
    cells = list(re.finditer(r"(?<=[| ])(XL\S+|MDF|S|NODE|SYS)(?= *[| ])", text))
    assert cells
    for cell in cells[:: max(1, len(cells) // 60)]:
        if cell.group() != value:
            assert outcome(text[: cell.start()] + value + text[cell.end() :]) is None, cell
