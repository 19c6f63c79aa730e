"""Machines in YAML and in JSON: what a site may write, and what it is told when wrong."""

import json

import pytest

import gres_topology
from gres_topology import TopologyError, catalog
from gres_topology.catalog import declared
from gres_topology.readers import saved

PAIR = """\
name: pair
gpus: 2
links: {NV4: 0-1}
numa: [0, 1]
numa_nodes: {0: 0-3, 1: {cpus: 4-7, memory_mb: 1024, distances: {0: 20, 1: 10}}}
pci: ["0000:01:00.0", null]
minors: [1, 0]
"""


def test_a_declared_machine_has_what_was_declared():
    found = gres_topology.read(PAIR)
    assert found.name == "pair"
    assert found.kinds == (("X", "NV4"), ("NV4", "X"))
    assert found.cpus == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert found.pci == ("0000:01:00.0", None)
    assert found.minors == (1, 0)
    assert found.numa_nodes[1].distances == ((0, 20), (1, 10))


def test_a_measured_bandwidth_replaces_the_tables():
    found = gres_topology.read(PAIR + "bandwidth_gbps: {NV4: 93.5}\n")
    assert found.bandwidth_gbps[0, 1] == 93.5


WRONG = [
    ("gpus: 2", "gpus: two", "gpus: 'two'; expected a number from 1 to 256"),
    ("NV4: 0-1", "NV4: 0-2", "links: '0-2' of a machine of 2 GPUs"),
    ("NV4: 0-1", "NV4: 0-0", "links: '0-0'; expected a pair of GPUs such as 0-3"),
    ("NV4: 0-1", "NV4: 0-b", "links: '0-b'; expected a pair of GPUs such as 0-3"),
    ("NV4: 0-1", "NV: 0-1", "links: 'NV' is not a link; expected NV<n>"),
    ("NV4: 0-1", "NV4: [0-1, 1-0]", "links: pair 0-1 is named twice"),
    ("links: {NV4: 0-1}", "links: {}", "links: pair 0-1 is missing and there is no other_links"),
    ("numa: [0, 1]", "numa: [0]", "numa: expected a list of 2 entries, one per GPU"),
    ("0: 0-3", "0: 3-0", "numa_nodes: '3-0' is not a range"),
    ("name: pair", "nmae: pair", "unknown key 'nmae'; expected bandwidth_gbps"),
    ('"0000:01:00.0"', '"first"', "pci: 'first'; expected a PCI address"),
    ("links: {NV4", "links: {{NV4", "mine.yaml line 4: expected"),
    ("minors: [1, 0]", "minors: [1, 1]", "minors: [1, 1]; expected each device minor once"),
    ("minors: [1, 0]", "bandwidth_gbps: {NV4: 0}", "NV4: 0; expected GB/s above zero"),
    ("minors: [1, 0]", "bandwidth_gbps: {NV4: -5}", "NV4: -5; expected GB/s above zero"),
    ("minors: [1, 0]", "bandwidth_gbps: {NV4: .nan}", "NV4: nan; expected GB/s above zero"),
    ("minors: [1, 0]", "bandwidth_gbps: {NV4: .inf}", "NV4: inf; expected GB/s above zero"),
    ("minors: [1, 0]", "gpus: 2", "gpus is given twice"),
    ("NV4: 0-1", "NV4: 0-1, NV4: 0-1", "NV4 is given twice"),
    ("numa: [0, 1]", "numa: [0, 7]", "numa: GPU 1 in node 7, which numa_nodes has not"),
    (
        "minors: [1, 0]",
        "rails: {mlx5_0: 0}",
        "rails: 'mlx5_0' is not among the NICs; nics has none",
    ),
    (
        "minors: [1, 0]",
        "nics: {a: [PIX, SYS]}\nrails: {b: 0}",
        "rails: 'b' is not among the NICs; nics has a",
    ),
    (
        "minors: [1, 0]",
        "nics: {a: [PIX, SYS]}\nrails: {a: x}",
        "rails a: 'x'; expected a number from 0 to 255",
    ),
    (
        "minors: [1, 0]",
        "nics: {a: [PIX, SYS]}\nrails: {a: -1}",
        "rails a: -1; expected a number from",
    ),
    ("minors: [1, 0]", "nics: {a: [PIX, SYS]}\nrails: [0]", "rails: [0]; expected a mapping"),
    ("minors: [1, 0]", "sharp: [a]", "sharp: 'a' is on no rail; rails has none"),
    ("minors: [1, 0]", "sharp: yes", "sharp: True; expected a list of NICs"),
    ("minors: [1, 0]", "sharp: [[a]]", "sharp: ['a'] is on no rail"),
    ("minors: [1, 0]", "like: dgx3", "like: 'dgx3' is not in the catalog; it has a100"),
    ("minors: [1, 0]", "like: [dgx2]", "like: ['dgx2'] is not in the catalog"),
    ("minors: [1, 0]", "like: ../dgx2", "like: '../dgx2' is not in the catalog"),
    ("minors: [1, 0]", "rates: {nvlink: 9}", "rates: nvlink: 9; expected of"),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG, ids=[w[1] for w in WRONG])
def test_a_wrong_declaration_is_named_by_key(old, new, message):
    with pytest.raises(TopologyError) as caught:
        declared.read(PAIR.replace(old, new), name="mine", source="mine.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("mine.yaml")


def test_a_wrong_declaration_is_named_by_line():
    text = PAIR.replace("minors: [1, 0]", "nics: {a: [PIX, SYS]}\nrails: {b: 0}")
    with pytest.raises(TopologyError, match=r"^mine.yaml line 8: rails: 'b' is not among"):
        declared.read(text, name="mine", source="mine.yaml")


def test_a_machine_is_like_another_but_for_what_it_says():
    base = catalog.load("dgx-h100")
    found = gres_topology.read("like: dgx-h100\nmodel: NVIDIA H800\n", name="h800")
    assert (found.name, found.model) == ("h800", "NVIDIA H800")
    assert found.shape == base.shape
    assert (found.nics, found.rails) == (base.nics, base.rails)


def test_other_nics_bring_their_own_rails():
    text = "like: gb200-tray\nnics: {a: [NODE, NODE, SYS, SYS], b: [SYS, SYS, NODE, NODE]}\n"
    assert gres_topology.read(text).rails == ()
    assert gres_topology.read(text + "rails: {a: 4, b: 7}\n").rails == (4, 4, 7, 7)


def test_switches_that_reduce_are_named_by_their_nics():
    found = gres_topology.read("like: gb200-tray\nsharp: [mlx5_1, mlx5_3]\n")
    assert found.sharp_rails == {1, 3}
    again = gres_topology.read(json.dumps(saved.to_dict(found)) + "\n")
    assert again.sharp_rails == {1, 3}
    assert catalog.load("gb200-tray").sharp_rails == set()


def four(*nics, rails=""):
    text = "gpus: 4\nother_links: NV6\nnics:\n" + "".join(f"  {nic}\n" for nic in nics)
    return gres_topology.read(text + rails).rails


def test_without_rails_each_nic_below_a_gpus_switch_is_one():
    own = [
        f"mlx5_{at}: [{', '.join('PXB' if gpu == 11 - at else 'SYS' for gpu in range(4))}]"
        for at in (9, 10, 11, 8)
    ]
    assert four(*own) == (3, 2, 1, 0)  # mlx5_8 to mlx5_11, whatever their order in the file
    pairs = ("a: [PIX, PIX, SYS, SYS]", "b: [PIX, PIX, SYS, SYS]", "c: [SYS, SYS, PIX, PIX]")
    assert four(*pairs) == (0, 1, 2, 2)  # GPUs share their nearest NICs in turn
    assert four("a: [PIX, PIX, PIX, PIX]") == ()
    assert four("a: [PIX, PIX, SYS, SYS]", "b: [SYS, SYS, PIX, NODE]") == ()


def test_a_nic_without_a_rail_is_none_of_those_that_have_one():
    near = (
        "storage: [PIX, PIX, PIX, PIX]",
        "a: [NODE, NODE, SYS, SYS]",
        "b: [SYS, SYS, NODE, NODE]",
    )
    assert four(*near, rails="rails: {a: 0, b: 1}\n") == (0, 0, 1, 1)


@pytest.mark.parametrize("name", catalog.names())
def test_json_keeps_everything(name):
    found = catalog.load(name)
    again = gres_topology.read(json.dumps(saved.to_dict(found), indent=1))
    assert again == found
    assert (again.bandwidth_gbps == found.bandwidth_gbps).all()


def test_json_has_the_promised_keys():
    found = saved.to_dict(catalog.load("dgx1v"))
    assert found["gpus"] == 8
    assert found["kinds"][0][3] == "NV2"
    assert found["bandwidth_gbps"][0][3] == 50
    assert found["numa"][7] == 1
    assert found["cpus"][0][:2] == [0, 1]
    assert found["nics"][0]["name"] == "mlx5_0"
    assert found["pci"] == [None] * 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpus": 3}, "gpus is 3 but kinds has 2 rows"),
        ({"kinds": [["X", "NV"], ["NV", "X"]]}, "cell GPU0-GPU1: 'NV' is not a link"),
        ({"kinds": [["X", "NV1"], ["NV2", "X"]]}, "expected a symmetric matrix"),
        ({"bandwidth_gbps": [[0, 0], [0, 0]]}, "carries 0 GB/s; expected more than 0"),
        ({"bandwidth_gbps": [[0, -1], [-1, 0]]}, "carries -1 GB/s; expected more than 0"),
        ({"pci": ["0000:01:00.0", "0000:01:00.0"]}, "two GPUs at PCI address 0000:01:00.0"),
        ({"numa": "none"}, "expected the JSON of topology show"),
        ({"bandwidth_gbps": [[0, 1]]}, "expected the JSON of topology show"),
        ({"cpus": [1, 2]}, "expected the JSON of topology show"),
        ({"nics": [{}]}, "expected the JSON of topology show"),
        ({"nics": [{"name": "a", "kinds": ["PIX"]}]}, "1 paths from NIC a for 2 GPUs"),
        ({"nics": [{"name": "a", "kinds": ["PIX", "SYS"], "rail": "x"}]}, "expected the JSON of"),
    ],
)
def test_damaged_json_is_refused(change, message):
    text = json.dumps({**saved.to_dict(gres_topology.read(PAIR)), **change}, indent=1)
    with pytest.raises(TopologyError) as caught:
        gres_topology.read(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
