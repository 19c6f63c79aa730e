"""topology.yaml as Slurm 25.05 and later read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gres_topology import TopologyError
from gres_topology.slurm_files.networks import read
from gres_topology.slurm_files.topology_yaml import parse

#: After the example of topology.yaml(5) of Slurm 26.05.
SEVERAL = """\
---
- topology: topo2
  cluster_default: false
  block:
    block_sizes:
      - 4
      - 16
    blocks:
      - block: b1
        nodes: node[01-04]
      - block: b2
        nodes: node[05-08]
      - block: b3   # planned: keeps its place
      - block: b4
        nodes: node[13-16]
- topology: topo1
  cluster_default: true
  tree:
    switches:
      - switch: sw_root
        children: s[1-2]
      - switch: s1
        nodes: node[01-02]
      - {switch: s2, nodes: "node[03-04]"}
- topology: topo3
  cluster_default: false
  flat: true
- topology: topo3a
  flat:
    alpha_step_rank: true
- topology: topo4
  ring:
    rings:
      - ring: ring0
        nodes: node[01-08]
"""


def test_a_tree_without_switches_joins_no_nodes():
    found = parse("- topology: a\n  tree: {switches: []}\n", "t").default
    assert (found.kind, found.domains, found.common(["n1", "n2"])) == ("tree", (), None)


def test_each_topology_has_its_name_and_its_kind():
    found = parse(SEVERAL, "t")
    assert {name: net.kind for name, net in found.by_name.items()} == {
        "topo2": "block", "topo1": "tree", "topo3": "flat", "topo3a": "flat", "topo4": "ring",
    }  # fmt: skip
    assert found.of("") is found.of("topo1") is found.default
    assert found.of("elsewhere") is None


def test_switches_and_blocks_are_those_of_topology_conf():
    found = parse(SEVERAL, "t")
    tree, block = found.of("topo1"), found.of("topo2")
    assert [(d.name, d.level, len(d.nodes)) for d in tree.domains] == [
        ("s1", 0, 2), ("s2", 0, 2), ("sw_root", 1, 4),
    ]  # fmt: skip
    assert [(d.name, d.level, len(d.nodes)) for d in block.domains] == [
        ("b1", 0, 4), ("b2", 0, 4), ("b3", 0, 0), ("b4", 0, 4), ("b1-b4", 1, 12),
    ]  # fmt: skip


def test_without_block_sizes_slurm_joins_two_four_eight_and_sixteen():
    listed = "".join(f"  - {{block: b{i}, nodes: n{i}}}\n" for i in range(6))
    found = parse(f"topology: one\nblock:\n  blocks:\n{listed}", "t").default
    assert [d.name for d in found.domains if d.level == 1] == ["b0-b1", "b2-b3", "b4-b5"]
    assert [d.name for d in found.domains if d.level == 2] == ["b0-b3", "b4-b5"]
    assert [d.name for d in found.domains if d.level == 3] == ["b0-b5"]
    assert found.top == 3


def test_the_first_topology_counts_where_none_is_the_default():
    text = "- {topology: a, ring: {}}\n- {topology: b, flat: true}"
    assert parse(text, "t").default.kind == "ring"
    assert parse(text.replace("flat", "cluster_default: true, flat"), "t").default.kind == "flat"


def test_a_file_is_known_by_its_name(tmp_path: Path):
    path = tmp_path / "topology.yaml"
    path.write_text(SEVERAL)
    assert read(path).default.source == str(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "t: says nothing; expected topologies such as"),
        ("[]", "t:1: says nothing"),
        ("- topology: [", "t:1: "),
        ("topology: a\nflat: true\nflat: true", "t:3: flat is given twice"),
        ("- flat: true", "t:1: a topology without a name"),
        ("- topology: a\n", "t:1: topology a is none; expected exactly one of tree, block"),
        ("- topology: a\n  flat: true\n  ring: {}", "topology a is flat and ring"),
        ("- topology: a\n  flat: maybe", "t:2: flat: 'maybe'; expected true or false"),
        ("- topology: a\n  flat: false", "t:2: flat: expected true or its keys"),
        ("- {topology: a, flat: true}\n- {topology: a, flat: true}",
         "t:2: topology a is described"),
        ("- topology: a\n  colour: red", "t:2: unknown key colour; expected topology"),
        ("- topology: a\n  tree: {}", "t:2: expected switches: a list"),
        ("- topology: a\n  tree:\n    switches: s1", "t:3: expected switches: a list"),
        ("- topology: a\n  tree:\n    switches:\n      - nodes: n1", "t:4: expected switch: NAME"),
        ("- topology: a\n  tree:\n    switches:\n      - {switch: s, node: n}",
         "unknown key node;"),
        ("- topology: a\n  tree:\n    switches:\n      - {switch: s, nodes: [n1]}",
         "t:4: nodes: expected one word"),
        ("- topology: a\n  tree:\n    switches:\n      - {switch: s, nodes: 'n['}", "t:4: nodes: "),
        ("- topology: a\n  tree:\n    switches:\n      - {switch: s, children: r}",
         "t:4: switch s lists r, which nothing here describes"),
        ("- topology: a\n  block:\n    blocks:\n      - {block: b, nodes: n1}\n"
         "      - {block: b, nodes: n2}", "t:5: b stands in t:4 already"),
        ("- topology: a\n  block:\n    block_sizes: [4, 12]\n    blocks:\n      - block: b",
         "t:3: block_sizes: expected the size of a base block"),
        ("- topology: a\n  block:\n    block_sizes: [four]\n    blocks: [{block: b}]",
         "t:3: block_sizes: "),
        ("just words", "t:1: expected keys topology"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(text, told):
    with pytest.raises(TopologyError) as caught:
        parse(text, "t")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
