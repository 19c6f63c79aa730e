"""The select plugin's part without Slurm, compiled and run under sanitizers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from c_program import built, claims_in, run

from slurm_plugin.base import node_lines, protocol
from slurm_plugin.base.node_lines import NodesPart
from slurm_plugin.base.placement import CandidateNode

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "slurm_plugin" / "select"
CLAIMS = claims_in(Path(__file__).parent)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything without Slurm, built once."""
    return built(PLUGIN, tmp_path_factory.mktemp("select"))


@pytest.mark.parametrize("claim", CLAIMS)
def test_claim(program: Path, claim: str) -> None:
    """Each holds under the sanitizers."""
    assert run(program, "run", claim) == f"ok {claim}\n"


@pytest.mark.parametrize("seed", range(1, 5))
def test_mutated_input_breaks_no_parser(program: Path, seed: int) -> None:
    """Replies, comments and settings with random damage; the seed makes it repeatable."""
    assert run(program, "fuzz", str(seed), "20000") == f"ok fuzz seed={seed} rounds=20000\n"


HINTS = ["pattern=ring", 'a="1"\tb=50%\x01]', "ä b", ""]


def test_the_engine_reads_what_the_plugin_writes(program: Path) -> None:
    """Questions and notices in C's words mean the same to the engine's codec."""
    *questions, notice = run(program, "lines").splitlines()
    for index, (line, hint) in enumerate(zip(questions, HINTS, strict=True)):
        place = protocol.decode(line.encode())
        assert isinstance(place, protocol.Place)
        assert (place.id, place.job, place.array) == (index + 1, 4294967294, index)
        assert (place.uid, place.partition, place.hint) == (1000, "gpu", hint)
        assert (place.postponed, place.waited_s) == (2, 61)
        assert place.candidates == (
            CandidateNode("dgx1", 8, 0xB6, 0x30, 1),
            CandidateNode("node-64.x", 64, (1 << 64) - 1, 0, 4294967295),
        )
    assert protocol.decode(notice.encode()) == protocol.Notice("started", 9, 0, {"dgx1": 0x48})


def test_the_engine_reads_the_table_and_what_changed_in_it(program: Path) -> None:
    """Both sides have the same nodes, free GPUs and digest, before and after the changes."""
    *lines, digest, question = run(program, "nodes").splitlines()
    parts = [protocol.decode(line.encode()) for line in lines]
    assert [
        (p.part, p.parts, p.first, len(p.names)) for p in parts if isinstance(p, NodesPart)
    ] == [
        (1, 2, 0, 4096),
        (2, 2, 4096, 904),
    ]
    names, total, free, weight, kinds = (
        [value for part in parts for value in getattr(part, key)]
        for key in ("names", "total", "free", "weight", "type")
    )
    places = range(5000)
    assert names == [f"node-{i}" for i in places]
    assert total == [8 if i % 11 else 64 for i in places]
    assert weight == [1 if i < 4096 else i for i in places]
    assert kinds == ["a100" if i % 7 else "" for i in places]
    assert free == [i % 256 if i % 11 else (1 << 64) - 1 for i in places]
    assert node_lines.digest(free) == int(digest, 16)
    asked = protocol.decode(question.encode())
    assert isinstance(asked, protocol.Place)
    changes = asked.changes
    assert changes is not None
    assert {part.table for part in parts if isinstance(part, NodesPart)} == {changes.table}
    assert changes.free == {2: 3, 4999: 6, 0: 12}
    assert changes.heaviest == 1
    for place, mask in changes.free.items():
        free[place] = mask
    assert node_lines.digest(free) == changes.state
    assert node_lines.places(changes.others, 5000) == 0x5555 | 1 << 127


def test_what_questions_cost_is_printed(tmp_path: Path) -> None:
    """Figures alone: no machine that runs tests is quiet."""
    target = tmp_path / "mirror_bench"
    make = ["make", "-C", str(PLUGIN), f"OUT={tmp_path}", str(target)]
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = run(target, "3").splitlines()
    sizes = [int(m[1]) for line in figures if (m := re.search(r"at most (\d+) bytes", line))]
    assert len(sizes) == 8
    assert max(sizes[:4]) < 4096


REPLIES = [
    (
        protocol.Use({"dgx1": 0x9, "dgx2": 0xF0}, {"dgx1": 3}, "dgx1:0,3 50% sure"),
        "use 1 s=0 node=dgx1:9 node=dgx2:f0 alt=dgx1:3 note=dgx1:0,3 50% sure",
    ),
    (protocol.WaitFor(30, "a [pair]|soon"), "wait 2 s=30 note=a (pair)/soon"),
    (protocol.WaitFor(30, "soon", 600), "wait 3 s=30 max_wait_s=600 note=soon"),
    (protocol.Pass(), "pass 4 s=0 note="),
    (protocol.Pass("observed: 0,3"), "pass 5 s=0 note=observed: 0,3"),
    (protocol.Error("no such verb"), "error 6 s=0 note=no such verb"),
]


def test_the_plugin_reads_what_the_engine_writes(program: Path) -> None:
    """Replies from the engine's codec mean the same in C."""
    sent = b"".join(reply.encode(i + 1) for i, (reply, _) in enumerate(REPLIES)).decode()
    assert run(program, "replies", stdin=sent).splitlines() == [meant for _, meant in REPLIES]
