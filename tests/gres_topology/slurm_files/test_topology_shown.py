"""What slurmctld has in force of a topology, by what it shows."""

import pytest

from gres_topology.errors import TopologyError
from gres_topology.slurm_files import topology_conf, topology_shown

#: As topology_block.c and topology_tree.c of 24.11.5 print it.
BLOCKS = """\
BlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2
BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2
BlockName=b3 BlockIndex=2 BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=3 Nodes=n[1-4] BlockSize=4
"""
TREES = """\
SwitchName=top1 Level=1 LinkSpeed=1 Nodes=n[1-2] Switches=leaf[1-2]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n1
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n2
SwitchName=other Level=0 LinkSpeed=1 Nodes=n4
"""


def units(text: str) -> list[tuple[str, set[str]]]:
    return [(one.name, set(one.nodes)) for one in topology_shown.parse(text, "shown").units]


def test_blocks_are_in_the_order_in_which_slurm_joins_them():
    found = topology_shown.parse(BLOCKS, "shown")
    assert (found.kind, found.sizes, found.noun) == ("block", (2, 4), "block")
    assert units(BLOCKS) == [("b1", {"n1", "n2"}), ("b2", {"n3", "n4"}), ("b3", set())]
    assert [(one.name, one.level) for one in found.domains][3:] == [("b1-b2", 1)]


@pytest.mark.parametrize("hosts", ["n[1-2] n4", "n[1-2], n4", "n[1-2] , n4"])
def test_a_list_of_hosts_may_have_blanks_as_the_file_has(hosts):
    text = f"BlockName=b1 BlockIndex=0 Nodes={hosts} BlockSize=2"
    assert units(text) == [("b1", {"n1", "n2", "n4"})]


def test_it_is_the_network_of_the_file_that_slurm_reads():
    file = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2,4"
    shown = "".join(line for line in BLOCKS.splitlines(keepends=True) if "b3" not in line)
    assert topology_shown.parse(shown, "").domains == topology_conf.parse(file, "").domains
    file = "\n".join(
        ("SwitchName=leaf1 Nodes=n1", "SwitchName=leaf2 Nodes=n2", "SwitchName=other Nodes=n4",
         "SwitchName=top1 Switches=leaf[1-2]")
    )  # fmt: skip
    assert topology_shown.parse(TREES, "").domains == topology_conf.parse(file, "").domains


def test_of_trees_slurm_keeps_a_job_within_one_where_there_are_several():
    assert units(TREES) == [("other", {"n4"}), ("top1", {"n1", "n2"})]
    assert units(TREES.rpartition("SwitchName")[0]) == []
    empty = "SwitchName=s1 Level=0 LinkSpeed=1\nSwitchName=s2 Level=0 LinkSpeed=1 Nodes=(null)\n"
    assert topology_shown.parse(empty, "").kind == "tree"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("RingName=r1 Nodes=n[1-4] RingSize=4", "ring"),
        ("TorusName=t Dims=2x2x2 Nodes=n[1-8]", "torus3d"),
    ],
)
def test_of_other_kinds_the_name_is_known(text, kind):
    found = topology_shown.parse(text, "shown")
    assert (found.kind, found.domains, found.units) == (kind, (), ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("BlockName=b1 BlockIndex=0 Nodes=a[1-2]", "its blocks have no sizes"),
        ("BlockName=b1 BlockSize=2 Nodes=a[1-2]", "its blocks have no sizes"),
        ("BlockName=b1 BlockIndex=0 BlockSize=2 Nodes=[", "shown: nodes: "),
        ("SwitchName=s1 Nodes=a[1-", "shown: nodes: "),
        ("SwitchName=s1 Switches=gone", "lists gone"),
        ("Name=b1 What=else", "expected blocks or switches"),
        ("No topology information available", "expected blocks or switches"),
        (" \n", "shown: says nothing"),
    ],
)
def test_what_cannot_be_known_is_an_error(text, why):
    with pytest.raises(TopologyError, match=why.replace("[", r"\[")):
        topology_shown.parse(text, "shown")
