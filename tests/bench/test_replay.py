"""What the benchmark asks is what a slurmctld could ask, recorded or on a large cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.kept.cluster import KeptCluster, NodeKind
from bench.kept.parts import CASES, SharedNodes, figure
from bench.kept.replay import KINDS, Took, check, mixes, readable, taken, write_of_32
from bench.questions import machines_of, read
from bench.request_lines import encode_request
from gres_topology import hostlist
from gres_topology import read as read_topology
from slurm_plugin.base.node_lines import MOST_NODES, digest
from slurm_plugin.base.protocol import Place, decode

LINE = (
    b"place id=7 job=7 array=0 uid=2001 partition=gpu postponed=0 waited_s=0"
    b" node=dgx1/8/ff/3/1 node=dgx2/8/f0/0/5\n"
)


def question() -> Place:
    """Two nodes, Slurm chose GPUs 0 and 1 of the first."""
    message = decode(LINE)
    assert isinstance(message, Place)
    return message


def test_the_recording_holds_questions_of_several_sizes_and_with_hints() -> None:
    recorded = read()
    sizes = {node.own.bit_count() for asked in recorded for node in asked.candidates if node.own}
    assert len(recorded) >= 100
    assert {1, 2, 3, 4, 5} <= sizes
    assert any(asked.hint for asked in recorded)
    assert any(sum(node.own != 0 for node in asked.candidates) > 1 for asked in recorded)


def test_every_recorded_node_has_a_machine_of_the_catalog() -> None:
    assert set(machines_of(read(), KINDS)) >= {"dgx1", "dgx2", "minsky1", "bridged1", "amd1"}


def test_a_recorded_node_without_a_machine_is_named() -> None:
    with pytest.raises(ValueError, match="dgx1"):
        machines_of([question()], {"minsky": "minsky"})


def test_a_line_that_is_no_question_is_named(tmp_path: Path) -> None:
    path = tmp_path / "recorded"
    path.write_bytes(b"# comment\n" + LINE + b"ping id=1\n")
    with pytest.raises(ValueError, match=":3: a Admin"):
        read(path)


def test_a_reply_with_a_busy_gpu_stops_the_benchmark() -> None:
    assert check(question(), b"use id=7 node=dgx2/30\n") == "use"
    with pytest.raises(AssertionError, match="not free"):
        check(question(), b"use id=7 node=dgx2/3\n")
    with pytest.raises(AssertionError, match="resync"):
        taken(b"use id=7 node=dgx2/3 resync=1\n")


def cluster(seed: int = 1) -> KeptCluster:
    return KeptCluster([NodeKind("v", 60, 8, "dgx1v"), NodeKind("w", 20, 16, "dgx2")], 0.9, seed)


def test_a_large_cluster_is_as_full_as_asked_and_the_same_by_its_seed() -> None:
    one = cluster()
    assert sum(free.bit_count() for free in one.free) == one.left == round(0.1 * one.gpus)
    assert one.free == cluster().free != cluster(2).free
    assert one.names == sorted(hostlist.expand("v[00001-00060],w[00001-00020]"))


def test_its_table_and_questions_are_lines_that_tell_its_state() -> None:
    one = cluster()
    (part,) = one.table()
    assert decode(encode_request(part)) == part
    known = list(part.free)
    for number in range(1, 30):
        one.change(10)
        assert one.floor <= one.left < one.floor + 8
        asked = one.question(question(), number, "in-mapa")
        assert asked is not None
        assert decode(encode_request(asked)) == asked
        changes = asked.changes
        assert changes is not None
        assert len(changes.free) >= 10
        for at, free in changes.free.items():
            known[at] = free
        assert digest(known) == changes.state
        (own,) = asked.candidates
        assert own.own.bit_count() == 2
        one.take({own.name: own.own})
    with pytest.raises(AssertionError, match="is not free"):
        one.take({own.name: own.own})


def test_a_table_comes_in_as_many_parts_as_it_takes() -> None:
    large = KeptCluster([NodeKind("v", 2 * MOST_NODES + 1, 1, "x")], 0.5, 1)
    parts = list(large.table())
    assert [len(part.names) for part in parts] == [MOST_NODES, MOST_NODES, 1]
    assert [part.first for part in parts] == [0, MOST_NODES, 2 * MOST_NODES]


def test_the_node_of_32_gpus_is_a_topology(tmp_path: Path) -> None:
    write_of_32(tmp_path)
    topology = read_topology(tmp_path / "of-32.txt")
    assert topology.gpus == 32
    assert (topology.kinds[0][7], topology.kinds[0][8]) == ("NV18", "SYS")
    assert all(sum(k.nodes * k.gpus for k in kinds) == 8000 for kinds in mixes(1000).values())


def test_a_policy_gets_what_it_reads_of_a_hint() -> None:
    assert readable("pattern=tree,min-utility=0.9", "mapa") == "pattern=tree"
    assert readable("pattern=tree", "first-fit") == ""


def test_each_case_of_parts_asks_what_a_slurmctld_could_ask() -> None:
    """Slices are of the type asked for, and each line is one that the engine reads."""
    for case in CASES.values():
        cluster = KeptCluster([NodeKind("v", 50, case.gpus, case.machine)], 0.5, 1)
        cluster.typed |= case.typed
        for job in case.jobs:
            asked = cluster.question(job, 1, "in-mapa")
            assert asked is not None
            mask = case.typed.get(job.type, -1)
            assert all(not node.own & ~mask for node in asked.candidates)
            read_again = decode(encode_request(asked))
            assert isinstance(read_again, Place)
            assert (read_again.type, read_again.topology) == (job.type, job.topology)


def test_marks_of_parts_are_hundred_that_differ() -> None:
    lines = CASES["marks"].files["marks.jsonl"].splitlines()
    assert len(lines) == len({line.partition('"part"')[2] for line in lines}) == 100


def test_a_question_about_shards_is_read() -> None:
    nodes = SharedNodes(None)  # type: ignore[arg-type]
    for shares in (1, 2, 3):
        asked = decode(encode_request(nodes._question(shares, shares)))
        assert isinstance(asked, Place)
        assert (asked.shared, asked.shares) == ("shard", shares)
        assert sum(node.own.bit_count() for node in asked.candidates) == 1


@pytest.mark.parametrize(("ms", "is_met"), [(2.9, True), (3.5, False)])
def test_the_bar_of_parts_is_that_of_replay_or_half_more_than_plain(
    ms: float, is_met: bool
) -> None:
    ours, plain = [Took(ms, ms)] * 100, [Took(1.0, 1.0)] * 100
    assert figure("x", ours, plain).ok is is_met
    assert figure("x", [Took(ms, ms)] * 100, [Took(2.4, 2.4)] * 100).ok
