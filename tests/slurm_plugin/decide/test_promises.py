"""Nodes of our choice under topology/tree and topology/block keep what Slurm's own choice keeps."""

from __future__ import annotations

from random import Random

import pytest
from engine_in_tests import written
from machines_in_tests import BASIC, mask, node, question

from gres_topology.slurm_files import networks
from slurm_plugin.base.log_lines import plain
from slurm_plugin.decide import promises
from slurm_plugin.serve import setup
from slurm_plugin.tell.explain import text

FULL = 0xF
NODES = [f"n{at:02}" for at in range(1, 37)]
YAML = (
    BASIC.replace('"dgx[1-3]", topology: dgx1v', '"n[01-36]", topology: minsky')
    + "topology_conf: {name}\n"
)
#: Six blocks of six nodes; sizes join two of them, then four.
BLOCKS = (
    "".join(f"BlockName=b{at} Nodes=n[{6 * at - 5:02}-{6 * at:02}]\n" for at in range(1, 7))
    + "BlockSizes=6,12,24\n"
)
#: Six leaf switches of six nodes below two of three, below one.
TREE = (
    "".join(f"SwitchName=s{at} Nodes=n[{6 * at - 5:02}-{6 * at:02}]\n" for at in range(1, 7))
    + "SwitchName=r1 Switches=s[1-3]\nSwitchName=r2 Switches=s[4-6]\n"
    "SwitchName=top Switches=r[1-2]\n"
)


def loaded(folder, network, name="topology.conf", policy="mapa", machine="minsky"):
    (folder / name).write_text(network)
    yaml = YAML.replace("{name}", name).replace("policy: mapa}", f"policy: {policy}}}")
    yaml = yaml.replace('"n[01-36]", topology: minsky', f'"n[01-36]", topology: {machine}')
    return setup.load(written(folder, yaml)), networks.read(folder / name)


def asked(free, own, kind, **more):
    """A question about a job that Slurm would put on these nodes, all free GPUs of each."""
    nodes = [node(name, bits, (bits if name in own else 0), total=4) for name, bits in free.items()]
    return question(*nodes, topology=kind, **more)


def touched(network, names):
    """By level how many domains these nodes are in; each node has one of every level or none."""
    levels = {}
    for domain in network.domains:
        if domain.nodes & set(names):
            levels.setdefault(domain.level, set()).add(domain.name)
    return [len(levels.get(level, ())) for level in range(network.top + 1)]


def stock(network, free, count, segment):
    """Nodes as topology/block chooses them roughly: few blocks, or None."""
    per, own = segment or count, []
    blocks = [d for d in network.domains if d.level == 0]
    for _ in range(count // per):
        room = {b.name: sorted(n for n in b.nodes if free[n] and n not in own) for b in blocks}
        enough = [names for names in room.values() if len(names) >= per]
        if not enough:
            if segment:
                return None
            left = per
            for names in sorted(room.values(), key=len, reverse=True):
                own += names[:left]
                left -= len(names[:left])
            return own if not left else None
        own += min(enough, key=len)[:per]
    return own


@pytest.mark.parametrize("policy", ["mapa", "first-fit", "topo-aware"])
@pytest.mark.parametrize("kind", ["block", "tree"])
def test_never_more_blocks_or_switches_of_any_level_than_slurm_took(tmp_path, kind, policy):
    found, read = loaded(tmp_path, BLOCKS if kind == "block" else TREE, policy=policy)
    network = read.default
    draw, moved = Random(7), 0
    for _ in range(60):
        free = {name: draw.choice((0, FULL, FULL)) for name in NODES}
        segment = draw.choice((0, 0, 2, 3)) if kind == "block" else 0
        count = draw.choice((2, 3, 6, 9)) if not segment else segment * draw.randint(2, 4)
        own = stock(network, free, count, segment)
        if own is None:
            continue
        usable = {name: bits for name, bits in free.items() if bits}
        reply = found.enforcement.on_place(asked(usable, own, kind, segment=segment)).reply
        assert len(reply.nodes) == count
        ours, slurms = touched(network, reply.nodes), touched(network, own)
        assert all(a <= b for a, b in zip(ours, slurms, strict=True)), (ours, slurms)
        if segment:
            for domain in network.domains:
                inside = len(domain.nodes & set(reply.nodes))
                assert domain.level or inside % segment == 0
        moved += set(reply.nodes) != set(own)
    assert moved > 5


def test_a_job_of_several_fills_the_smallest_block_that_suffices(tmp_path):
    """Slurm took the last whole block; two nodes fit into the hole of another."""
    found, _ = loaded(tmp_path, BLOCKS)
    free = dict.fromkeys(NODES, FULL) | dict.fromkeys(NODES[:4], 0)
    usable = {name: bits for name, bits in free.items() if bits}
    reply = found.enforcement.on_place(asked(usable, ["n35", "n36"], "block")).reply
    assert set(reply.nodes) == {"n05", "n06"}
    assert "nodes below b1" in reply.note


@pytest.mark.parametrize(
    ("sentence", "machine", "kind", "expected"),
    [
        ("all GPUs alike: the block that is begun", "gb200-tray", "block", {"n36"}),
        ("links differ: the fullest node", "minsky", "block", {"n02"}),
        ("a tree keeps nobody out: the fullest node", "gb200-tray", "tree", {"n02"}),
    ],
)
def test_a_job_of_one_node_keeps_whole_blocks_where_all_gpus_are_alike(
    tmp_path, sentence, machine, kind, expected
):
    """Of b6 one node has room at all; n02 is the fullest, but all the others of b1 are whole."""
    found, _ = loaded(tmp_path, BLOCKS if kind == "block" else TREE, machine=machine)
    free = dict.fromkeys(NODES[:30], FULL) | {"n02": 0x3, "n36": FULL}
    nodes = [node(name, bits, 0x3 if name == "n08" else 0, total=4) for name, bits in free.items()]
    reply = found.enforcement.on_place(question(*nodes, topology=kind)).reply
    assert set(reply.nodes) == expected, sentence


def test_segments_are_whole_in_each_block(tmp_path):
    """Blocks with 3, 3 and 6 free: one segment of two lies here, two lie there."""
    found, _ = loaded(tmp_path, BLOCKS, policy="first-fit")
    free = dict.fromkeys((*NODES[:3], *NODES[6:9], *NODES[12:16]), FULL)
    own = ["n01", "n02", "n13", "n14", "n15", "n16"]
    reply = found.enforcement.on_place(asked(free, own, "block", segment=2)).reply
    inside = [len(set(NODES[at : at + 6]) & set(reply.nodes)) for at in range(0, 36, 6)]
    assert sorted(inside) == [0, 0, 0, 0, 2, 4]


def test_a_node_that_no_block_has_is_not_taken(tmp_path):
    """Slurm could not use it, and its GPUs would be the better fit."""
    found, _ = loaded(tmp_path, BLOCKS.replace("n[31-36]", "n[31-35]").replace("6,12,24", "5,10"))
    usable = {"n01": FULL, "n36": 0x3}
    question_of = {"n01": mask(0, 1)}
    nodes = [node(name, bits, question_of.get(name, 0), total=4) for name, bits in usable.items()]
    assert set(found.enforcement.on_place(question(*nodes)).reply.nodes) == {"n36"}
    reply = found.enforcement.on_place(question(*nodes, topology="block")).reply
    assert set(reply.nodes) == {"n01"}


@pytest.mark.parametrize(
    ("sentence", "name", "network", "more", "is_moved"),
    [
        ("known", "topology.conf", BLOCKS, {"topology": "block"}, True),
        ("no plugin", "topology.conf", BLOCKS, {}, True),
        ("Slurm goes by a tree, we know blocks", "topology.conf", BLOCKS, {"topology": "tree"},
         False),
        ("Slurm has several, we know one", "topology.conf", BLOCKS,
         {"topology": "yaml", "network": "racks"}, False),
        ("one of several", "topology.yaml", "several", {"topology": "yaml", "network": "small"},
         True),
        ("the default of several", "topology.yaml", "several", {"topology": "yaml"}, False),
        ("flat", "topology.yaml", "several", {"topology": "yaml", "network": "loose"}, True),
        ("a ring", "topology.yaml", "several", {"topology": "yaml", "network": "round"}, False),
        ("a name that we do not know", "topology.yaml", "several",
         {"topology": "yaml", "network": "new"}, False),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 50 else "",
)  # fmt: skip
def test_nodes_are_slurms_where_it_goes_by_a_network_that_we_do_not_know(
    tmp_path, sentence, name, network, more, is_moved
):
    """n01 and n02 have two GPUs in use; two GPUs of another job fit exactly there."""
    several = (
        "- {topology: round, cluster_default: true, ring: {rings: []}}\n- topology: small\n"
        "  block: {block_sizes: [6], blocks: [{block: b1, nodes: 'n[01-36]'}]}\n"
        "- {topology: loose, flat: true}\n"
    )
    found, _ = loaded(tmp_path, several if network == "several" else network, name)
    nodes = [node("n01", 0x3, total=4), node("n07", FULL, 0x3, total=4)]
    reply = found.enforcement.on_place(question(*nodes, **more)).reply
    assert set(reply.nodes) == ({"n01"} if is_moved else {"n07"}), sentence


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"topology": "block"}, "Slurm's own (topology/block): block b1"),
        ({"topology": "block", "segment": 2}, "block b1; segments of 2 whole"),
        ({"topology": "block", "segment": 3}, "block b1; segments of 3 not whole"),
        ({"topology": "tree"}, "Slurm's: gputopo.yaml names no such network as its topology/tree"),
        ({"topology": "yaml", "network": "racks"}, "as its topology racks"),
        ({"topology": "yaml"}, "Slurm's own (topology.yaml's default): block b1"),
    ],
)
def test_explain_says_who_chose_the_nodes(tmp_path, more, words):
    found, _ = loaded(tmp_path, BLOCKS)
    nodes = [node("n01", FULL, FULL, total=4), node("n02", FULL, FULL, total=4)]
    record = found.enforcement.on_place(question(*nodes, **more)).record()
    (line,) = (line for line in text.asked(plain(record)) if line.lstrip().startswith("nodes"))
    assert words in line
    unasked = found.enforcement.on_place(question(*nodes)).record()
    assert not unasked.nodes


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        (None, "Slurm's own (topology/block): blocks b1, b2; segments of 2 not whole"),
        (["n01", "n07"], "Slurm's own (topology/block): blocks b1, b2; segments of 2 not whole"),
        (["n01", "n02"], "ours, in no more of any level than Slurm's own (topology/block): block b1"
         "; segments of 2 whole"),
        (["n01", "n02", "other"], "block b1, 1 in no block; segments of 2 not whole"),
        (["other"], "(topology/block): 1 in no block; segments of 2 not whole"),
        ([f"n{at:02}" for at in range(1, 37, 3)], "blocks b1, b2, b3, b4, b5, b6; segments"),
    ],
)  # fmt: skip
def test_it_says_of_blocks_and_segments_what_is_true_of_the_nodes(tmp_path, taken, words):
    """Slurm's own nodes, n01 and n07, have no whole segment of two."""
    _, read = loaded(tmp_path, BLOCKS)
    own = [node("n01", FULL, FULL, total=4), node("n07", FULL, FULL, total=4)]
    asked = question(*own, topology="block", segment=2)
    assert words in promises.sentence(asked, read.default, taken)
