"""replay: recorded questions against a real engine process, as recorded and on large clusters.

What the select plugin would wait for: from the first byte written to the last byte of the reply,
one question at a time, over the Unix socket. On large clusters (`bench.kept.cluster`) the recorded
jobs are asked about in their order, under every policy in turn. 90 % of the GPUs are in use by
jobs drawn one by one, and ten nodes change between two questions. Beside the time by the clock
stands the engine's processor time meanwhile: on a busy machine the clock counts the others' turns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench.engine_process import Client, engine
from bench.kept.cluster import KeptCluster, NodeKind
from bench.measure import Figure, at_most, conditions, quantile
from bench.questions import machines_of, read
from bench.request_lines import encode_request
from policies.registry import registry
from slurm_plugin.base.protocol import Place, node_masks, split

SEED = 1
BUSY, CHANGED = 0.9, 10
#: Questions for each policy; of each kind (policy, pattern, GPUs per node) the first counts apart.
QUESTIONS = 200
#: Prefix of a recorded node's name -> machine of the catalog.
KINDS = {
    "dgx": "dgx1v",
    "minsky": "minsky",
    "bridged": "a100-pcie-bridged",
    "amd": "mi250x",
    "big": "dgx2",
}
#: Median and p99 in ms by nodes; what the first question of a kind may take; bytes of a question.
BARS = {1000: (0.5, 3.0), 12_500: (1.0, 5.0)}
FIRST_MS, QUESTION_BYTES, MEMORY_MB, START_S = 25.0, 4096, 1000, 2.0
AS_RECORDED_MS = 10.0
#: A node of four boards, each of eight GPUs behind one NVSwitch: no machine of the catalog.
OF_32 = "of-32.txt"


def mixes(nodes: int) -> dict[str, list[NodeKind]]:
    """Clusters of about `nodes` nodes, or as many GPUs, by name."""
    quarter = nodes // 4
    return {
        "8_gpus": [NodeKind("v", nodes, 8, "dgx1v")],
        "mixed": [
            NodeKind("v", nodes - 3 * quarter, 8, "dgx1v"),
            NodeKind("amd", quarter, 8, "mi250x"),
            NodeKind("h", quarter, 8, "dgx-h100"),
            NodeKind("a", quarter, 8, "dgx-a100"),
        ],
        "16_gpus": [NodeKind("w", nodes // 2, 16, "dgx2")],
        "32_gpus": [NodeKind("x", quarter, 32, OF_32)],
    }


def write_of_32(folder: Path) -> None:
    """What `nvidia-smi topo -m` would say of such a node."""
    gpus = range(32)
    lines = ["\t" + "\t".join(f"GPU{gpu}" for gpu in gpus)]
    for one in gpus:
        kinds = ("X" if one == two else "NV18" if one // 8 == two // 8 else "SYS" for two in gpus)
        lines.append(f"GPU{one}\t" + "\t".join(kinds))
    (folder / OF_32).write_text("\n".join(lines) + "\n")


def taken(reply: bytes) -> dict[str, int]:
    """The GPUs of a reply by node; AssertionError where it gives none."""
    verb, pairs = split(reply)
    assert verb == "use", reply
    assert "resync" not in dict(pairs), reply
    return node_masks(value for key, value in pairs if key == "node")


def check(question: Place, reply: bytes) -> str:
    """The reply's verb; AssertionError when it takes a GPU that is not free."""
    free = {node.name: node.free for node in question.candidates}
    verb, pairs = split(reply)
    for name, mask in node_masks(value for key, value in pairs if key == "node").items():
        assert mask & ~free[name] == 0, f"{name}/{mask:x}: not free in {question.id}"
    return verb


def as_recorded() -> Iterator[Figure]:
    """Each question as it was: a few nodes, all of them listed."""
    recorded = read()
    machines = machines_of(recorded, KINDS)
    with (
        tempfile.TemporaryDirectory(prefix="gputopo-bench-") as folder,
        engine(Path(folder), machines) as client,
    ):
        times = []
        for number, question in enumerate(recorded, 1):
            asked = replace(question, id=number, job=number)
            reply, took_s = client.ask(encode_request(asked))
            check(asked, reply)
            times.append(1e3 * took_s)
        ping_ms = [1e3 * client.ask(b"ping id=1\n")[1] for _ in range(200)]
    detail = {"p99_ms": round(quantile(times, 0.99), 3), "questions": len(times), **conditions()}
    beside = f"ping over the same socket: {quantile(ping_ms, 0.5):.3f} ms"
    median = quantile(times, 0.5)
    more = {"compared_with": beside, "detail": detail}
    yield at_most("replay.as_recorded", median, "ms", AS_RECORDED_MS, **more)


class Took(NamedTuple):
    """Milliseconds of one answer, by the clock and of the engine's processor time."""

    wall_ms: float
    cpu_ms: float


class Replay:
    """One engine and one large cluster."""

    #: What the engine took: of memory, and to start.
    memory_mb = 0.0
    started_s = 0.0

    def __init__(self, client: Client, kinds: Sequence[NodeKind]) -> None:
        self.client = client
        self.cluster = KeptCluster(kinds, BUSY, SEED)
        self.bytes: list[float] = []
        #: The first question of each kind, and the later ones of each policy.
        self.first: dict[tuple[str, ...], Took] = {}
        self.later: dict[str, list[Took]] = {}
        for part in self.cluster.table():
            client.ask(encode_request(part))
        client.await_tables()

    def ask(
        self, policy: str, jobs: Sequence[Place], questions: int, changed: int = CHANGED
    ) -> None:
        """These jobs in their order, until as many were asked about; what they leave is done then.

        They come one after the other, a millisecond apart, as in one pass of a scheduler.
        """
        self._ask(policy, jobs, questions, changed)
        self.client.await_written(len(self.bytes))

    def _ask(self, policy: str, jobs: Sequence[Place], questions: int, changed: int) -> None:
        asked = 0
        for number in range(1, 20 * questions):
            job = jobs[number % len(jobs)]
            job = replace(job, hint=readable(job.hint, policy))
            self.cluster.change(changed)
            question = self.cluster.question(job, number, f"in-{policy}")
            if question is None:
                continue
            line = encode_request(question)
            reply, took_s = self.client.ask(line)
            took = Took(1e3 * took_s, 1e3 * self.client.cpu_s)
            counts = sorted(node.own.bit_count() for node in question.candidates)
            kind = (policy, job.hint, *map(str, counts))
            if kind in self.first:
                self.later.setdefault(policy, []).append(took)
            else:
                self.first[kind] = took
            self.bytes.append(len(line))
            self.cluster.take(taken(reply))
            asked += 1
            if asked == questions:
                return
        raise AssertionError(f"only {asked} of {questions} recorded jobs could start")


def readable(hint: str, policy: str) -> str:
    """The hint without what the policy does not read, or would let the job wait for."""
    read_keys = registry.hints_of(policy)
    words = (word for word in hint.split(",") if word.split("=")[0] in read_keys)
    return ",".join(word for word in words if not word.startswith("min-utility"))


@contextmanager
def on(
    kinds: Sequence[NodeKind], policies: Sequence[str], files: Mapping[str, str] | None = None
) -> Iterator[Replay]:
    """An engine of its own for such a cluster; `files`, by name, lie beside its configuration.

    A topology.conf among them is that of the nodes.
    """
    hosts = {kind.hosts: kind.machine for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="gputopo-bench-") as folder:
        write_of_32(Path(folder))
        for name, text in (files or {}).items():
            Path(folder, name).write_text(text)
        conf = Path(folder, "topology.conf")
        more = [f"topology_conf: {conf}"] if conf.exists() else []
        with engine(Path(folder), hosts, policies, more) as client:
            yield Replay(client, kinds)


def replayed(kinds: Sequence[NodeKind], policies: Sequence[str]) -> Replay:
    """The recorded jobs under each policy."""
    with on(kinds, policies) as replay:
        jobs = read()
        for policy in policies:
            replay.ask(policy, jobs, QUESTIONS)
        replay.memory_mb = replay.client.memory_bytes() / 1e6
        replay.started_s = replay.client.started_s
    return replay


def figures(name: str, replay: Replay, bars: tuple[float, float]) -> Iterator[Figure]:
    """Median and p99 of the slowest policy, first questions, bytes, memory, start."""
    later = replay.later
    medians, tails = (
        {policy: quantile([t.wall_ms for t in some], q) for policy, some in later.items()}
        for q in (0.5, 0.99)
    )
    cpu = {
        policy: [round(quantile([t.cpu_ms for t in some], q), 3) for q in (0.5, 0.99)]
        for policy, some in later.items()
    }
    detail: dict[str, object] = {
        "median_ms": {policy: round(ms, 3) for policy, ms in medians.items()},
        "p99_ms": {policy: round(ms, 3) for policy, ms in tails.items()},
        "processor_median_p99_ms": cpu,
        "nodes": len(replay.cluster.names),
        "gpus": replay.cluster.gpus,
        "seed": SEED,
        **conditions(),
    }
    more = {"detail": detail}
    slowest, first = max(replay.first.items(), key=lambda item: item[1].wall_ms)
    yield at_most(f"{name}.median", max(medians.values()), "ms", bars[0], **more)
    yield at_most(f"{name}.p99", max(tails.values()), "ms", bars[1], **more)
    busiest = round(max(took.cpu_ms for took in replay.first.values()), 2)
    of_first = {"slowest": slowest, "processor_ms": busiest, "kinds": len(replay.first)}
    yield at_most(f"{name}.first", first.wall_ms, "ms", FIRST_MS, detail=of_first)
    yield at_most(f"{name}.bytes", max(replay.bytes), "bytes", QUESTION_BYTES)
    yield at_most(f"{name}.memory", replay.memory_mb, "MB", MEMORY_MB)
    yield at_most(f"{name}.start", replay.started_s, "s", START_S)


def run() -> Iterator[Figure]:
    """As recorded; on large clusters of several machines."""
    yield from as_recorded()
    every = tuple(registry.names())
    for nodes, bars in BARS.items():
        for mix, kinds in mixes(nodes).items():
            yield from figures(f"replay.{nodes}_nodes.{mix}", replayed(kinds, every), bars)
