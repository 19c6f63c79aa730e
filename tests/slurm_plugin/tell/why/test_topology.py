"""Jobs of several nodes where Slurm keeps them within blocks, or below one switch."""

from dataclasses import replace
from typing import Any

import pytest

from gres_topology import Domain, Network
from gres_topology.slurm_files import topology_shown
from gres_topology.slurm_files.network import BLOCK, TREE, Networks
from slurm_plugin.queue.candidates import Need, Spread
from slurm_plugin.queue.capacity import gpus_of_any_type, nodes_of
from slurm_plugin.queue.slurms_choice import rooms
from slurm_plugin.slurm.clients import scontrol_tables
from slurm_plugin.slurm.interface import SlurmPartition
from slurm_plugin.tell.why.answer import answer
from slurm_plugin.tell.why.request import names_some
from tests.slurm_plugin.tell.why.test_answer import JOB, node, state

#: As topology_block.c and topology_tree.c of 24.11.5 print what `scontrol show topology` shows.
BLOCKS = """\
BlockName=b1 BlockIndex=0 Nodes=dgx[1-2] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=bridged1,amd1 BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=2 Nodes=dgx[1-2],bridged1,amd1 BlockSize=4
"""
TREES = """\
SwitchName=top1 Level=1 LinkSpeed=1 Nodes=dgx[1-2] Switches=leaf[1-2]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=dgx1
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=dgx2
SwitchName=other Level=0 LinkSpeed=1 Nodes=amd1
"""


def read(text: str) -> Networks:
    """What is read of the cluster's topology."""
    return scontrol_tables.networks(lambda argv: text, [SlurmPartition("gpu", (), True)])


def test_each_partition_has_the_topology_of_its_own():
    texts = {(): BLOCKS, ("trees",): TREES}
    parts = [SlurmPartition("gpu", (), True), SlurmPartition("t", (), False, topology="trees")]
    found = scontrol_tables.networks(lambda argv: texts[tuple(argv[3:])], parts)
    assert found.of("trees") == topology_shown.parse(TREES, "scontrol show topology trees")
    assert found.default == found.of("") == read(BLOCKS).default


@pytest.mark.parametrize("text", ["BlockName=b1 Nodes=a[1-2]", ""])
def test_of_a_topology_that_cannot_be_read_nothing_is_known(text):
    found = read(text).default
    assert (found.kind, found.units) == ("", ())


def units(count: int, each: int, *sizes: int) -> Network:
    """Blocks 1, 2, ... with nodes n1, n2, ..., or as many trees where they have no sizes."""
    names = [f"n{i}" for i in range(1, count * each + 1)]
    made = (frozenset(names[i * each : (i + 1) * each]) for i in range(count))
    domains = tuple(Domain(f"b{i}", 0, one) for i, one in enumerate(made, 1))
    return Network(domains, "a test", BLOCK if sizes else TREE, sizes)


def nodes(topology: Network, busy: tuple[str, ...] = ()) -> Any:
    names = [name for unit in topology.units for name in sorted(unit.nodes)]
    made = [node(n, int(n in busy)) for n in names]
    return nodes_of(made, (), gpus_of_any_type)


@pytest.mark.parametrize(
    ("sentence", "count", "sizes", "expected"),
    [
        ("as many as a block has", 2, (2, 4, 8), ["12", "34", "56", "78"]),
        ("more than a block: two of them that Slurm joins", 3, (2, 4, 8), ["1234", "5678"]),
        ("more than these: four", 5, (2, 4, 8), ["12345678"]),
        ("of four blocks, as Slurm joins no two, as few as suffice", 3, (2, 8), ["1234"]),
        ("more than Slurm joins: as few of the largest as suffice", 6, (2, 4), ["12345678"]),
        ("blocks that are never joined: as few as suffice", 5, (2,), ["123456"]),
        ("trees are not joined", 3, (), ["12", "34", "56", "78"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_where_slurm_keeps_a_job(sentence, count, sizes, expected):
    topology = units(4, 2, *sizes)
    found = rooms(Need(8, count), nodes(topology), topology)
    assert sorted("".join(sorted(n[1:] for n in room)) for room in found) == expected


def test_of_more_blocks_than_a_job_may_have_those_with_most_room_count():
    topology = units(4, 2, 2, 8)
    [room] = rooms(Need(8, 3), nodes(topology, busy=("n1", "n2", "n4")), topology)
    assert set(room) == {"n5", "n6", "n7", "n8"}


def test_a_job_of_one_node_gets_any_of_a_block():
    topology = units(2, 2, 2)
    every = {**nodes(topology), **nodes_of([node("n9")], (), gpus_of_any_type)}
    assert rooms(Need(8), every, None) == [every]
    assert [set(room) for room in rooms(Need(8), every, topology)] == [{"n1", "n2", "n3", "n4"}]
    assert rooms(Need(8, req_nodes=frozenset({"n9"})), every, topology) == []
    in_blocks = frozenset(nodes(topology))
    assert rooms(Need(8, 2, exc_nodes=in_blocks), every, topology) == [every]


def test_nodes_in_no_block_are_for_jobs_that_find_no_room_in_any():
    topology = units(2, 2, 2)
    outside = [node(n) for n in ("n8", "n9")]
    full = nodes(topology, busy=("n1", "n2", "n3", "n4"))
    every = {**full, **nodes_of(outside, (), gpus_of_any_type)}
    for need in (Need(8), Need(8, 2), Need(8, 2, req_nodes=frozenset({"n9"}))):
        assert [set(room) for room in rooms(need, every, topology)] == [{"n8", "n9"}]
    # Where nothing has room yet it is in blocks that the job waits for it.
    assert {"n1", "n2"} in [set(room) for room in rooms(Need(8, 2), full, topology)]


def test_the_blocks_of_nodes_that_a_job_names_come_first():
    topology = units(4, 2, 2, 8)
    need = Need(8, 3, req_nodes=frozenset({"n7"}))
    [room] = rooms(need, nodes(topology), topology)
    assert {"n7", "n8"} < set(room)
    assert len(room) == 4


def test_a_job_that_may_be_spread_is_kept_in_a_block_by_the_nodes_that_it_names():
    topology = units(2, 2, 2, 4)
    spread = Spread(((1, 1, 0), (2, 1, 0)), 2, 1, least=1)
    found = rooms(Need(1, spread=spread), nodes(topology), topology)
    assert [len(room) for room in found] == [2, 2]
    found = rooms(Need(1, spread=replace(spread, least=3)), nodes(topology), topology)
    assert [len(room) for room in found] == [4]


NODES = (node("dgx1", 8), node("dgx2", 0), node("bridged1", 8), node("amd1", 0))
PAIR = replace(JOB, min_nodes=2, tres_per_node="gres/gpu:8")


def why(job: Any = PAIR, text: str = BLOCKS, **more: Any) -> Any:
    return answer(state(job, NODES, networks=read(text), **more))


def test_a_job_without_room_in_one_block_is_told_so():
    found = why()
    says = "2 nodes of one block with 8 free GPUs each: b1 has 1 (dgx2), b2 has 1 (amd1)"
    assert found.sentence == f"Job 14 waits for {says}."
    assert (found.cause, found.sooner) == ("fragmentation", ())


def test_what_would_start_sooner_is_in_one_block_too():
    free = (node("dgx1", 5), node("dgx2", 0), node("bridged1", 8), node("amd1", 0))
    found = answer(state(PAIR, free, networks=read(BLOCKS)))
    assert "with --gres=gpu:3 now on dgx1, dgx2" in found.sooner


def test_a_job_below_one_switch():
    says = "2 nodes of one switch with 8 free GPUs each: other has 1 (amd1), top1 has 1 (dgx2)"
    assert why(text=TREES).sentence == f"Job 14 waits for {says}."


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (
            replace(PAIR, min_nodes=3, tres_per_node="gres/gpu:4"),
            "it needs 3 nodes of one switch with 4 GPUs each, and there are never so many",
        ),
        (
            replace(PAIR, req_nodes="dgx2,amd1"),
            "the nodes that it names are not of one switch",
        ),
    ],
)
def test_a_job_that_never_finds_room_is_told_so(job, says):
    free = tuple(node(one.name, 0) for one in NODES)
    found = answer(state(replace(job, reason="BadConstraints"), free, networks=read(TREES)))
    assert found.sentence == f"Job 14 can never start as it is: {says}."


def test_gpus_counted_for_the_whole_job_come_from_one_block():
    free = (node("dgx1", 5), node("dgx2", 5), node("bridged1", 5), node("amd1", 5))
    job = replace(JOB, tres_per_node="", tres_per_job="gres/gpu:10")
    found = answer(state(job, free, networks=read(BLOCKS)))
    assert "waits for 10 free GPUs in one block: b1 has 6, b2 has 6" in found.sentence


@pytest.mark.parametrize(
    ("names", "nodes", "expected"),
    [("dgx1", 2, True), ("dgx[1-2]", 2, False), ("", 2, False), ("dgx[", 2, False)],
)
def test_a_job_that_names_fewer_nodes_than_it_needs(names, nodes, expected):
    """`sbatch --test-only` refuses it, and Slurm starts it."""
    assert names_some(replace(JOB, req_nodes=names, min_nodes=nodes)) == expected
