"""parts: what marks, MIG slices, shards, rails and blocks cost a decision, beside plain GPUs.

1,000 nodes of eight GPUs as `replay` has them, 90 % in use, ten nodes changed between two
questions. Each case is asked in turns with the same questions about plain nodes, so that whatever
else the machine does meets both. The time is the engine's processor time from a question to its
answer. PARTS names some of the cases.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import combinations
from random import Random

from bench.kept.cluster import NodeKind
from bench.kept.replay import SEED, Replay, Took, on
from bench.measure import Figure, conditions, quantile
from bench.request_lines import encode_request
from policies.contract.bits import lowest_bits
from slurm_plugin.base.placement import CandidateNode
from slurm_plugin.base.protocol import Place

NODES, PER_NODE = 1000, 8
ROUNDS, PER_ROUND = 10, 40
POLICY = "mapa"
#: What the tail may take more than that of plain nodes, and never less than so much (ms): one
#: question in a hundred is a handful.
TIMES, BAR_P99_MS = 1.5, 3.0
#: Of six GPUs the slices stand behind; the last two are cut.
SLICED = "dgx-a100, slices: [0-5, 6/3g.20gb*2, 7/1g.5gb*7]"
#: What a question about shares lists at most, and how many shares a GPU has.
LISTED, OF_EACH = 17, 4


def job(*counts: int, **more: str) -> Place:
    """A job of so many GPUs on each of several nodes."""
    own = tuple(
        CandidateNode(f"n{at}", PER_NODE, 255, (1 << count) - 1, 1)
        for at, count in enumerate(counts)
    )
    return Place(1, 0, 1000, 0, 0, own, id=1, **more)  # type: ignore[arg-type]


ONE, TWO = job(1), job(2)


def marks(nodes: int) -> str:
    """A mark on each of the first nodes, no two alike."""
    pairs = list(combinations(range(PER_NODE), 2))
    lines = []
    for at in range(nodes):
        one, other = pairs[at % len(pairs)]
        share = 0.9 - 0.1 * (at // len(pairs)) - 0.001 * at
        what = {"part": f"link {one}-{other}", "state": "degraded", "share": round(share, 3)}
        lines.append(json.dumps({"node": f"v{at + 1:05d}", **what}))
    return "\n".join(lines) + "\n"


def blocks() -> str:
    """Blocks of eighteen nodes, as NVLink domains are; the last ones are in none."""
    lines = [
        f"BlockName=b{at} Nodes=v[{18 * at + 1:05d}-{18 * at + 18:05d}]"
        for at in range(NODES // 18)
    ]
    return "\n".join([*lines, "BlockSizes=18"]) + "\n"


@dataclass(frozen=True)
class Case:
    """Jobs on nodes of 2026, and beside them jobs on plain nodes."""

    machine: str
    jobs: Sequence[Place]
    plain: str
    plain_jobs: Sequence[Place]
    files: Mapping[str, str] = field(default_factory=dict)
    #: GPUs that Slurm counts on each node, and those of each type (masks).
    gpus: int = PER_NODE
    typed: Mapping[str, int] = field(default_factory=dict)


CASES = {
    "marks": Case("dgx1v", [ONE, TWO], "dgx1v", [ONE, TWO], {"marks.jsonl": marks(100)}),
    "slices": Case(
        SLICED,
        [job(1, type="1g.5gb"), job(1, type="3g.20gb")],
        *("dgx-a100", [ONE, TWO]),
        gpus=15,
        typed={"3g.20gb": 0b11 << 6, "1g.5gb": 0x7F << 8},
    ),
    "rails": Case("dgx-h100", [job(2, 2), job(1, 1, 1, 1)], "dgx1v", [job(2, 2), job(1, 1, 1, 1)]),
    "blocks": Case(
        "dgx-h100",
        [replace(ONE, topology="block"), replace(job(2, 2, 2), topology="block")],
        *("dgx-h100", [ONE, job(2, 2, 2)], {"topology.conf": blocks()}),
    ),
}


class SharedNodes:
    """Questions about shards: each lists its nodes, since the table tells nothing of shares."""

    def __init__(self, replay: Replay) -> None:
        self._replay, self._draw = replay, Random(SEED)
        self._left = [self._drawn() for _ in range(LISTED)]

    def _drawn(self) -> list[int]:
        """What is left of each GPU: of most something, of few all."""
        return [self._draw.choice((0, 0, 1, 1, 2, 3, OF_EACH)) for _ in range(PER_NODE)]

    def ask(self, count: int) -> list[Took]:
        """One to three shards in turns; ten nodes change between two questions."""
        took = []
        for number in range(1, count + 1):
            for _ in range(10):
                self._left[self._draw.randrange(LISTED)] = self._drawn()
            line = encode_request(self._question(number, 1 + number % 3))
            reply, took_s = self._replay.client.ask(line)
            assert reply.startswith(b"use "), reply
            # Whoever waits for all decisions to be written counts by it.
            self._replay.bytes.append(len(line))
            took.append(Took(1e3 * took_s, 1e3 * self._replay.client.cpu_s))
        return took

    def _question(self, number: int, shares: int) -> Place:
        nodes, own = [], 1
        for at, left in enumerate(self._left, 1):
            free, idle = (
                sum(1 << gpu for gpu, some in enumerate(left) if some >= least)
                for least in (shares, OF_EACH)
            )
            if free:
                mask = lowest_bits(free, 1) if own else 0
                known = (f"v{at:05d}", PER_NODE, free, mask, 1, idle, tuple(left))
                nodes.append(CandidateNode(*known))
                own = 0
        more = {"partition": f"in-{POLICY}", "shared": "shard", "shares": shares}
        return Place(number, 0, 1000, 0, 0, tuple(nodes), id=number, **more)  # type: ignore[arg-type]


def asked(replay: Replay, jobs: Sequence[Place], count: int) -> list[Took]:
    """Questions about these jobs in turns, without the first two: others emptied the caches."""
    replay.first.clear()
    replay.later.clear()
    replay.ask(POLICY, jobs, count)
    return replay.later[POLICY][2:]


def compared(case: Case) -> tuple[list[Took], list[Took]]:
    """The case's questions and those about plain nodes, in turns."""
    ours: list[Took] = []
    plain: list[Took] = []
    with ExitStack() as stack:
        there = stack.enter_context(
            on([NodeKind("v", NODES, case.gpus, case.machine)], [POLICY], case.files)
        )
        there.cluster.typed |= case.typed
        beside = stack.enter_context(on([NodeKind("v", NODES, PER_NODE, case.plain)], [POLICY]))
        for _ in range(ROUNDS):
            ours += asked(there, case.jobs, PER_ROUND)
            plain += asked(beside, case.plain_jobs, PER_ROUND)
    return ours, plain


def shards() -> tuple[list[Took], list[Took]]:
    """The same for shards, with one engine for both."""
    ours: list[Took] = []
    plain: list[Took] = []
    with on([NodeKind("v", NODES, PER_NODE, "a100-pcie-bridged")], [POLICY]) as replay:
        nodes = SharedNodes(replay)
        for _ in range(ROUNDS):
            ours += nodes.ask(PER_ROUND)[2:]
            plain += asked(replay, [ONE, TWO], PER_ROUND)
    return ours, plain


def figure(name: str, ours: Sequence[Took], plain: Sequence[Took]) -> Figure:
    """The tail beside that of plain nodes."""
    cpu, beside = ([one.cpu_ms for one in some] for some in (ours, plain))
    tail, plain_tail = quantile(cpu, 0.99), quantile(beside, 0.99)
    limit = max(BAR_P99_MS, TIMES * plain_tail)
    detail = {
        "median_ms": round(quantile(cpu, 0.5), 3),
        "plain_median_ms": round(quantile(beside, 0.5), 3),
        "slowest_ms": round(max(cpu), 2),
        "wall_median_p99_ms": [
            round(quantile([one.wall_ms for one in ours], q), 3) for q in (0.5, 0.99)
        ],
        "questions": len(cpu),
        **conditions(),
    }
    return Figure(
        f"parts.{name}.p99",
        round(tail, 3),
        "ms of processor time",
        bar=f"<= {limit:.3g}",
        ok=tail <= limit,
        compared_with=f"plain nodes: {plain_tail:.3f}",
        detail=detail,
    )


def run() -> Iterator[Figure]:
    """All cases, or those that PARTS names."""
    for name in os.environ.get("PARTS", ",".join([*CASES, "shards"])).split(","):
        yield figure(name, *(shards() if name == "shards" else compared(CASES[name])))
