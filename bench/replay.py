"""replay: recorded questions grown to 1,000 candidate nodes, against a real engine process.

What the select plugin would wait for on a large cluster: from the first byte written to
the last byte of the reply, one question at a time, over the Unix socket. Each clone of a
recorded node gets random free GPUs (how many: uniform from none to all; which: uniform),
new ones at every question, so no two questions see the same cluster. Two figures
more have 16-GPU nodes among them: one as above, one in which a hundredth of the nodes changes
between two questions.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from bench.engine_process import Client, engine
from bench.measure import Figure, at_most, conditions, quantile
from bench.questions import FreeMasks, grow, machines_of, read, renumbered
from slurm_plugin.protocol import Admin, Place, encode_request

NODES = 1_000
QUESTIONS = 600
SEED = 1
BAR_MS = 10.0
#: Prefix of a recorded node's name -> machine of the catalog.
KINDS = {
    "dgx": "dgx1v",
    "minsky": "minsky",
    "bridged": "a100-pcie-bridged",
    "amd": "mi250x",
    "big": "dgx2",
}


def with_big_node(question: Place) -> Place:
    """The question with one more candidate, an empty 16-GPU machine, to clone from."""
    first = question.candidates[0]
    big = replace(first, name="big1", total=16, free=(1 << 16) - 1, own=0)
    return replace(question, candidates=(*question.candidates, big))


def check(question: Place, reply: bytes) -> str:
    """The reply's verb; AssertionError when it takes a GPU that is not free."""
    words = reply.decode("ascii").split()
    free = {node.name: node.free for node in question.candidates}
    for word in words:
        if word.startswith("node="):
            name, mask = word[len("node=") :].split("/")
            assert int(mask, 16) & ~free[name] == 0, f"{word}: not free in {question.id}"
    return words[0]


def measure(
    name: str, recorded: Sequence[Place], nodes: int, redrawn: float = 1.0, bar: bool = True
) -> Iterator[Figure]:
    """Median, p99 and first question of one recording grown to `nodes`."""
    masks = FreeMasks(Random(SEED), redrawn)
    picked = [recorded[i % len(recorded)] for i in range(QUESTIONS)]
    questions = [replace(grow(q, nodes, masks), id=i + 1) for i, q in enumerate(picked)]
    lines = [renumbered(question, question.id) for question in questions]
    machines = machines_of(recorded, KINDS)
    with (
        tempfile.TemporaryDirectory(prefix="gputopo-bench-") as folder,
        engine(Path(folder), machines) as client,
    ):
        times, verbs = _ask_all(client, questions, lines)
        ping = encode_request(Admin("ping", 1))
        ping_ms = [1e3 * client.ask(ping)[1] for _ in range(200)]
    if not verbs["use"]:
        raise AssertionError(f"no question was answered with GPUs: {dict(verbs)}")
    detail = {
        "p99_ms": round(quantile(times, 0.99), 3),
        "max_ms": round(max(times), 3),
        "first_ms": round(times[0], 3),
        "replies": dict(verbs),
        "questions": QUESTIONS,
        "recorded": len(recorded),
        "candidates": nodes,
        "request_bytes": round(quantile([float(len(line)) for line in lines], 0.5)),
        "free_masks": "random: number of free GPUs uniform, then which",
        "redrawn_per_question": redrawn,
        "seed": SEED,
        **conditions(),
    }
    beside = f"ping over the same socket: {quantile(ping_ms, 0.5):.3f} ms"
    median = quantile(times, 0.5)
    if bar:
        yield at_most(name, median, "ms", BAR_MS, compared_with=beside, detail=detail)
    else:
        yield Figure(name, round(median, 4), "ms", compared_with=beside, detail=detail)


def _ask_all(
    client: Client, questions: Sequence[Place], lines: Sequence[bytes]
) -> tuple[list[float], Counter[str]]:
    """Milliseconds of every question, and how often each verb came."""
    times, verbs = [], Counter[str]()
    for question, line in zip(questions, lines, strict=True):
        reply, took_s = client.ask(line)
        times.append(1e3 * took_s)
        verbs[check(question, reply)] += 1
    return times, verbs


def run() -> Iterator[Figure]:
    """As recorded, grown to 1,000, and the same with 16-GPU nodes among them."""
    recorded = read()
    yield from measure("replay.as_recorded", recorded, 0)
    yield from measure("replay.1000_nodes", recorded, NODES)
    # No bar is set for machines of 16 GPUs yet.
    big = [with_big_node(question) for question in recorded]
    yield from measure("replay.1000_nodes_16_gpus", big, NODES, redrawn=0.01, bar=False)
    yield from measure("replay.1000_nodes_16_gpus_all_new", big, NODES, bar=False)
