"""The table of links and the machines of the catalog: numbers that papers and data sheets print."""

from dataclasses import replace
from itertools import combinations

import pytest

from gres_topology import TopologyError, catalog, links


def degrees(machine):
    """NVLinks or xGMI links per GPU, to other GPUs."""
    return [sum(map(links.link_count, row)) for row in catalog.load(machine).kinds]


def count(machine):
    """Pairs by label."""
    kinds = catalog.load(machine).kinds
    found = {}
    for i, j in combinations(range(len(kinds)), 2):
        found[kinds[i][j]] = found.get(kinds[i][j], 0) + 1
    return found


def test_nobody_changes_the_links_of_a_machine_that_others_hold():
    machine = replace(catalog.load("minsky"), name="another")
    with pytest.raises(ValueError, match="read-only"):
        machine.bandwidth_gbps[0, 1] = 1.0


@pytest.mark.parametrize("name", catalog.names())
def test_a_machine_is_whole(name):
    found = catalog.load(name)
    assert found.name == name
    assert len(found.source) > 40
    assert found.model
    assert None not in found.numa
    assert (found.bandwidth_gbps == found.bandwidth_gbps.T).all()
    off_diagonal = [found.bandwidth_gbps[i, j] for i, j in combinations(range(found.gpus), 2)]
    assert all(gbps > 0 for gbps in off_diagonal)
    for gpu in range(found.gpus):
        node = next((n for n in found.numa_nodes if n.number == found.numa[gpu]), None)
        assert found.cpus[gpu] == (node.cpus if node else None)
    cpus = [cpu for node in found.numa_nodes for cpu in node.cpus]
    assert sorted(cpus) == list(range(len(cpus)))


LINK_COUNTS = [
    ("dgx1v", 8, [6] * 8, {"NV1": 8, "NV2": 8, "SYS": 12}),
    ("dgx1p", 8, [4] * 8, {"NV1": 16, "SYS": 12}),
    ("dgx2", 16, [90] * 16, {"NV6": 120}),
    ("dgx-a100", 8, [84] * 8, {"NV12": 28}),
    ("dgx-h100", 8, [126] * 8, {"NV18": 28}),
    ("dgx-h200", 8, [126] * 8, {"NV18": 28}),
    ("hgx-a100-4", 4, [12] * 4, {"NV4": 6}),
    ("polaris", 4, [12] * 4, {"NV4": 6}),
    ("hgx-b200", 8, [126] * 8, {"NV18": 28}),
    ("gb200-tray", 4, [54] * 4, {"NV18": 6}),
    ("gb300-tray", 4, [54] * 4, {"NV18": 6}),
    ("gh200", 1, [0], {}),
    ("gh200-quad", 4, [18] * 4, {"NV6": 6}),
    ("mi325x", 8, [7] * 8, {"XGMI": 28}),
    ("mi300a", 4, [6] * 4, {"XGMI2": 6}),
    ("aurora", 6, [40] * 6, {"XL8": 15}),
    ("mi355x", 8, [7] * 8, {"XGMI": 28}),
    ("rtx-pro-6000", 8, [0] * 8, {"PIX": 4, "NODE": 8, "SYS": 16}),
    ("rtx-6000-ada", 8, [0] * 8, {"NODE": 12, "SYS": 16}),
    ("gb300-nvl72", 72, [18 * 71] * 72, {"NV18": 72 * 71 // 2}),
    ("a100-pcie-bridged", 8, [12] * 8, {"NV12": 4, "SYS": 24}),
    ("l40s-8", 8, [0] * 8, {"NODE": 12, "SYS": 16}),
    ("l40s-pcie", 4, [0] * 4, {"PIX": 2, "NODE": 4}),
    ("minsky", 4, [2] * 4, {"NV2": 2, "SYS": 4}),
    ("summit", 6, [4] * 6, {"NV2": 6, "SYS": 9}),
    ("ac922", 4, [3] * 4, {"NV3": 2, "SYS": 4}),
    ("mi250x", 8, [7, 6] * 4, {"XGMI4": 4, "XGMI2": 2, "XGMI": 6, "SYS": 16}),
    ("mi300x", 8, [7] * 8, {"XGMI": 28}),
    ("tsubame25", 3, [0] * 3, {"PHB": 1, "SYS": 2}),
    ("gb200-nvl72", 72, [18 * 71] * 72, {"NV18": 72 * 71 // 2}),
    ("torus-16", 16, None, {"NV1": 18, "NV2": 14, "SYS": 88}),
    ("cubemesh-16", 16, None, {"NV1": 17, "NV2": 15, "SYS": 88}),
]


def test_every_machine_of_the_design_is_there():
    assert catalog.names() == tuple(sorted(name for name, *_ in LINK_COUNTS))


@pytest.mark.parametrize(
    ("name", "gpus", "per_gpu", "pairs"), LINK_COUNTS, ids=lambda v: str(v)[:18]
)
def test_links_are_counted_as_documented(name, gpus, per_gpu, pairs):
    assert catalog.load(name).gpus == gpus
    assert count(name) == pairs
    if per_gpu:
        assert degrees(name) == per_gpu


def test_the_torus_has_four_neighbours_each_way_round():
    kinds = catalog.load("torus-16").kinds
    for gpu in range(16):
        row, column = divmod(gpu, 4)
        around = {row * 4 + (column + 1) % 4, row * 4 + (column - 1) % 4,
                  (row + 1) % 4 * 4 + column, (row - 1) % 4 * 4 + column}  # fmt: skip
        assert {j for j in range(16) if links.is_direct(kinds[gpu][j])} == around


def test_the_cube_mesh_has_no_gpu_of_more_than_seven_links():
    assert max(degrees("cubemesh-16")) == 7


@pytest.mark.parametrize(
    ("machine", "pair", "gbps"),
    [
        ("dgx1v", (0, 3), 50), ("dgx1v", (0, 1), 25), ("dgx1v", (0, 7), 12),
        ("dgx1p", (0, 1), 20), ("minsky", (0, 1), 40), ("ac922", (0, 1), 75),
        ("dgx-a100", (0, 7), 300), ("dgx-h100", (0, 7), 450), ("gb200-nvl72", (0, 71), 900),
        ("mi250x", (0, 1), 200), ("mi250x", (0, 6), 100), ("mi250x", (0, 2), 50),
        ("mi300x", (0, 7), 64), ("tsubame25", (0, 1), 6),
    ],
)  # fmt: skip
def test_bandwidths_are_those_of_the_data_sheets(machine, pair, gbps):
    assert catalog.load(machine).bandwidth_gbps[pair] == gbps


#: What data sheets print per GPU, GB/s both ways: of a switch one port, of a mesh all its links.
SWITCHED = {
    "dgx2": 300, "dgx-a100": 600, "dgx-h100": 900, "dgx-h200": 900, "hgx-b200": 1800,
    "gb200-tray": 1800, "gb200-nvl72": 1800, "gb300-tray": 1800, "gb300-nvl72": 1800,
}  # fmt: skip
MESHED = {
    "dgx1p": 160, "dgx1v": 300, "hgx-a100-4": 600, "polaris": 600, "gh200-quad": 900,
    "mi300a": 768, "mi300x": 896, "mi325x": 896, "mi355x": 1075.2,
}  # fmt: skip


@pytest.mark.parametrize("name", [*SWITCHED, *MESHED])
def test_what_leaves_a_gpu_is_what_its_data_sheet_says(name):
    found = catalog.load(name)
    for gpu, row in enumerate(found.bandwidth_gbps):
        direct = [gbps for at, gbps in enumerate(row) if links.is_direct(found.kinds[gpu][at])]
        if name in SWITCHED:
            assert 2 * min(direct) == 2 * max(direct) == SWITCHED[name]
        else:
            assert 2 * sum(direct) == pytest.approx(MESHED[name])


RAILS = {
    **dict.fromkeys(
        ("dgx-a100", "dgx-h100", "dgx-h200", "hgx-b200", "mi300x", "mi325x", "mi355x"),
        (0, 1, 2, 3, 4, 5, 6, 7),
    ),
    **dict.fromkeys(("gb200-tray", "gb300-tray", "gh200-quad"), (0, 1, 2, 3)),
    "rtx-pro-6000": (0, 0, 1, 1, 2, 2, 3, 3),
    **dict.fromkeys(("rtx-6000-ada", "l40s-8"), (0, 1, 0, 1, 2, 3, 2, 3)),
}


@pytest.mark.parametrize("name", catalog.names())
def test_gpus_are_on_the_rails_of_their_nics(name):
    found = catalog.load(name)
    assert found.declares_rails == (name in RAILS)
    if found.declares_rails:
        assert found.rails == RAILS[name]
        assert {nic.rail for nic in found.nics} == set(found.rails)
    # A NIC is as far from a GPU as its own NUMA node is: never nearer across sockets.
    for nic in found.nics:
        local = {found.numa[gpu] for gpu, path in enumerate(nic.kinds) if path != "SYS"}
        assert len(local) == 1


@pytest.mark.parametrize("name", sorted({*RAILS, "hgx-a100-4", "polaris", "gb300-nvl72"}))
def test_newer_machines_say_where_their_source_can_be_read(name):
    assert "https://" in catalog.load(name).source


def test_nearer_paths_are_never_slower():
    for generation in links.PCIE_GBPS:
        rates = links.rates(nvlink=2, pcie=generation)
        order = [rates.gbps(label) for label in ("PIX", "PXB", "PHB", "NODE", "SYS")]
        assert order == sorted(order, reverse=True)
        assert rates.gbps(links.UNKNOWN) == rates.gbps("SYS") == rates.gbps("PCIE")


@pytest.mark.parametrize(
    ("text", "label"),
    [("SOC", "SYS"), (" NV4 ", "NV4"), ("NV18", "NV18"), ("XGMI1", "XGMI"), ("XGMI4", "XGMI4"),
     ("C2C", "C2C"), ("N/A", "N/A"), ("NV", None), ("NV0", None), ("NV100", None), ("nv2", None),
     ("OK", None), ("", None), ("0-31", None)],
)  # fmt: skip
def test_labels_are_known_or_refused(text, label):
    assert links.canonical(text) == label


@pytest.mark.parametrize(
    ("model", "nvlink", "pcie"),
    [("Tesla P100-SXM2-16GB", 20, 12), ("NVIDIA A100-SXM4-80GB", 25, 24), ("NVIDIA H200", 25, 48),
     ("NVIDIA GB200", 50, 48), ("NVIDIA B200", 50, 48), ("NVIDIA L40S", 25, 24), (None, 25, 12)],
)  # fmt: skip
def test_models_set_the_generation(model, nvlink, pcie):
    rates = links.rates_of_model(model)
    assert (rates.gbps("NV1"), rates.gbps("SYS")) == (nvlink, pcie)


def test_an_unknown_machine_lists_the_known_ones():
    with pytest.raises(TopologyError, match="no machine 'dgx3' in the catalog; it has a100"):
        catalog.load("dgx3")
