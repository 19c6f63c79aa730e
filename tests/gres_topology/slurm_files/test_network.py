"""topology.conf in the forms sites write: switches in a tree, and blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from gres_topology import TopologyError
from gres_topology.slurm_files.networks import read
from gres_topology.slurm_files.topology_conf import parse

TREE = """\
# Two islands, four leaf switches.
SwitchName=s0 Nodes=tux[0-3] LinkSpeed=900
switchname=s1 nodes=tux[4-7]   # any case
SwitchName=s2 Nodes=tux[8-11]
SwitchName=s3 Nodes=tux[12-15],login

SwitchName=s4 Switches=s[0-1] LinkSpeed=1800
SwitchName=s5 \\
    Switches=s2,s3
SwitchName=top\\
 Switches=s[4-5]
"""
BLOCKS = """\
BlockName=b1 Nodes=n[01-04]
BlockName=b2 Nodes=n[05-08]
BlockName=b3 Nodes=n[09-12]
BlockName=b4 Nodes=n[13-16]
BlockName=b5 Nodes=n17
BlockSizes=4,8,16
"""


def hops(text: str, first: str, second: str) -> int:
    return parse(text, "topology.conf").hops(first, second)


@pytest.mark.parametrize(
    ("sentence", "text", "first", "second", "expected"),
    [
        ("itself", TREE, "tux1", "tux1", 0),
        ("one leaf", TREE, "tux0", "tux3", 1),
        ("two leaves of an island", TREE, "tux0", "tux4", 3),
        ("two islands", TREE, "tux0", "login", 5),
        ("a node that hangs nowhere", TREE, "tux0", "stray", 7),
        ("one block", BLOCKS, "n01", "n04", 1),
        ("blocks joined by the second size", BLOCKS, "n01", "n08", 3),
        ("blocks that only the third size joins", BLOCKS, "n05", "n09", 5),
        ("a last block beyond the largest size", BLOCKS, "n01", "n17", 7),
        ("blocks without sizes", BLOCKS.replace("BlockSizes=4,8,16", ""), "n01", "n08", 3),
        ("flat", "SwitchName=all Nodes=n[1-9]", "n1", "n9", 1),
        ("islands that nothing joins", "SwitchName=a Nodes=x\nSwitchName=b Nodes=y", "x", "y", 3),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value[:30] else "",
)
def test_switches_on_the_way(sentence, text, first, second, expected):
    assert hops(text, first, second) == hops(text, second, first) == expected


def test_the_lowest_domain_is_named():
    network = parse(TREE, "topology.conf")
    for nodes, name in ((["tux0", "tux2"], "s0"), (["tux8", "login"], "s5"), (["tux0"], "s0")):
        assert network.common(nodes).name == name
    assert network.common(["tux0", "stray"]) is None
    assert [domain.name for domain in network.domains] == [
        *("s0", "s1", "s2", "s3", "s4", "s5", "top")
    ]


def test_neighbouring_blocks_are_joined_in_the_order_written():
    network = parse(BLOCKS, "topology.conf")
    assert [(d.name, d.level) for d in network.domains if d.level] == [
        ("b1-b2", 1), ("b3-b4", 1), ("b1-b4", 2),
    ]  # fmt: skip


def test_a_node_below_two_leaves_is_near_to_both():
    text = "SwitchName=a Nodes=x,y\nSwitchName=b Nodes=y,z\nSwitchName=top Switches=a,b"
    assert [hops(text, *pair) for pair in (("x", "y"), ("y", "z"), ("x", "z"))] == [1, 1, 3]


def test_a_leaf_with_two_spines_is_below_both():
    text = "SwitchName=l1 Nodes=x\nSwitchName=l2 Nodes=y\n" + "".join(
        f"SwitchName=spine{i} Switches=l[1-2]\n" for i in (1, 2)
    )
    assert hops(text, "x", "y") == 3


def test_a_switch_may_have_nodes_and_switches():
    """Newer releases of Slurm take both."""
    text = "SwitchName=a Nodes=x\nSwitchName=b Nodes=y Switches=a"
    assert hops(text, "x", "y") == 3


def test_a_file_is_read_where_it_lies(tmp_path: Path):
    path = tmp_path / "topology.conf"
    path.write_text(TREE)
    assert read(path).default.source == str(path)
    assert read(path).default.hops("tux0", "tux1") == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "says nothing; expected lines such as SwitchName"),
        ("# nothing\n", "says nothing"),
        ("Nodes=n1", "1: 'Nodes=n1' names no switch and no block"),
        ("SwitchName=a Nodes=n1\nnonsense", "2: 'nonsense'; expected Key=value"),
        ("SwitchName=a Nodes=n1 Colour=red", "unknown key colour; expected linkspeed, nodes"),
        ("SwitchName=a", "1: switch a has neither nodes nor switches below it"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "2: a stands in t:1 already"),
        ("SwitchName=a Switches=b", "switch a lists b, which nothing here describes"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "below itself: a > b > a"),
        ("SwitchName=a Switches=a", "below itself: a > a"),
        (
            "\n".join(f"SwitchName=s{i} Switches=s{i + 1}" for i in range(9000)),
            "switch s64 is below more than 64 others",
        ),
        ("SwitchName=a Nodes=n[3-1]", "1: nodes: '3-1'"),
        ("SwitchName=a Nodes=n[1", "1: nodes: 'n"),
        ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2", "2: blocks beside switches"),
        ("BlockName=b Nodes=n1 Switches=s1", "unknown key switches; expected blockname, nodes"),
        ("BlockSizes=4", "1: BlockSizes= without any BlockName="),
        ("BlockName=b Nodes=n1\nBlockSizes=4\nBlockSizes=4", "3: BlockSizes= stands in t:2"),
        ("BlockName=b Nodes=n1\nBlockSizes=four", "2: BlockSizes=four: expected the size"),
        ("BlockName=b Nodes=n1\nBlockSizes=4,12", "each the first times a power of two"),
        ("BlockName=b Nodes=n1\nBlockSizes=4,6", "each the first times a power of two"),
        ("BlockName=b Nodes=n1\nBlockSizes=8,4", "each the first times a power of two"),
        ("BlockName=b Nodes=n1\nBlockSizes=0,4", "expected the size of a base block"),
    ],
)
def test_a_mistake_is_named_with_its_line(text, told):
    with pytest.raises(TopologyError) as caught:
        parse(text, "t")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(TopologyError, match=r"topology.conf: cannot be read: .*No such file"):
        read(tmp_path / "topology.conf")
