"""How many GPUs stay untouched: slices and shards placed by Slurm itself against ours, in one run.

Three nodes of eight GPUs each in pairs on one bridge. For slices a pair is whole, one in halves,
two in sevenths; for shards each GPU has four, and jobs of whole GPUs come between. Seeded jobs come
one after the other and end in random order, as the load rises and falls; both sides get the same
jobs and ends. After each step it is counted how many of the GPUs that can be used in parts, and how
many of their pairs, nobody uses any part of. The stock side is a partition that is `off`: no policy
is asked.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from bench.live.cluster import BenchCluster, clean
from bench.measure import Figure, at_least
from gres_topology import catalog
from gres_topology.slices import SlicedTopology, declared
from slurm_cluster.sliced import MACHINE, shared, sliced

NODES = ("bridged1", "dgx1", "dgx2")
#: Bridges join 0 and 2, 1 and 3, 4 and 5, 6 and 7.
WORDS = ["0", "2", "1/3g.20gb*2", "3/3g.20gb*2", *(f"{gpu}/1g.5gb*7" for gpu in range(4, 8))]
#: side -> partition
SIDES = {"stock": "off", "ours": "gpu"}
SEEDS = range(1, 6)
STEPS = 480
#: Shards of each GPU.
EACH = 4
#: What jobs ask for: how many there are in all, or are used of them, and which sizes of a job.
Sizes = Mapping[str, tuple[int, tuple[int, ...]]]
SIZES: Sizes = {"gpu:1g.5gb": (84, (1, 1, 1, 2, 3)), "gpu:3g.20gb": (12, (1, 1, 2))}
#: 14 of the 24 GPUs would hold all shards, and eight more are the most that jobs have whole.
SHARD_SIZES: Sizes = {"shard": (56, (1, 1, 2, 3)), "gpu:whole": (8, (1, 2))}
#: Shares of the slices that are in use at most, in turns of so many steps.
BUSY, TURN = (0.8, 0.3), 80


@dataclass(frozen=True)
class Step:
    """One event: a job's end (`ends`), or a job of so many slices."""

    job: int
    ends: bool
    gres: str = ""
    count: int = 0


def steps(seed: int, sizes_of: Sizes = SIZES) -> list[Step]:
    """The seed's events; the load goes up and down, and what is named first is asked for most."""
    draw = Random(seed)
    first, second = sizes_of
    running: dict[int, Step] = {}
    events = []
    while len(events) < STEPS:
        gres = draw.choice((first, first, second))
        total, sizes = sizes_of[gres]
        used = sum(step.count for step in running.values() if step.gres == gres)
        most = BUSY[len(events) // TURN % len(BUSY)]
        if used >= most * total or (running and draw.random() < 0.3):
            gone = running.pop(draw.choice(sorted(running)))
            events.append(Step(gone.job, True))
        else:
            step = Step(len(events), False, gres, draw.choice(sizes))
            running[step.job] = step
            events.append(step)
    return events


def script(events: list[Step], partition: str) -> str:
    """Does the steps one after the other, and says what is in use after each."""
    wait = 'until [ -z "$(squeue -h -t completing)" ]; do sleep 0.02; done'
    lines = []
    for step in events:
        if step.ends:
            lines.append(f"scancel -n s{step.job}; {wait}")
        else:
            ask = f"--gres={step.gres}:{step.count} --mem=1 -J s{step.job}"
            line = f"salloc --no-shell -Q --immediate -N1 -p {partition} {ask}"
            lines.append(f"{line} 2>/dev/null || echo refused")
        lines.append("sinfo -h -N -p gpu -O NodeHost:64,GresUsed:1000; echo step")
    return "\n".join(
        [*lines, "scancel -u $USER", 'until [ -z "$(squeue -h)" ]; do sleep 0.1; done']
    )


@dataclass(frozen=True)
class Outcome:
    """What was left after each step of one side, and how many jobs had no room."""

    untouched: list[int]
    pairs: list[int]
    refused: int


def outcome(output: str, topologies: Mapping[str, SlicedTopology]) -> Outcome:
    """Reads what `script` said."""
    untouched, pairs = [], []
    *said, _ = output.split("step\n")
    for text in said:
        left, whole_pairs = 0, 0
        for line in text.splitlines():
            node, _, used = line.partition(" ")
            topology = topologies.get(node)
            if topology is not None:
                idle = _idle(topology, used)
                left += len(idle)
                joined = topology.whole.joined_gbps
                whole_pairs += sum(a < b and joined[a][b] > 0 for a in idle for b in idle)
        untouched.append(left)
        pairs.append(whole_pairs)
    return Outcome(untouched, pairs, output.count("refused"))


def _idle(topology: SlicedTopology, used: str) -> list[int]:
    """The GPUs of a node that are sliced, or all if none is, that nobody uses any part of."""
    busy = set()
    if shards := re.search(r"shard:[^(]*\(([\d/,]+)\)", used):
        counts = enumerate(shards[1].split(","))
        busy.update(gpu for gpu, count in counts if not count.startswith("0/"))
    for listed in re.findall(r"IDX:([\d,-]+)", used):
        for part in listed.split(","):
            first, _, last = part.partition("-")
            busy.update(range(int(first), int(last or first) + 1))
    touched = {topology.parents[device] for device in busy}
    cut = {gpu for gpu, profile in zip(topology.parents, topology.profiles, strict=True) if profile}
    return sorted((cut or set(topology.parents)) - touched)


def run_side(
    live: BenchCluster, seed: int, side: str, words: Sequence[str] = WORDS, sizes: Sizes = SIZES
) -> Outcome:
    """One side of a seed; the cluster is empty before and after."""
    topologies = dict.fromkeys(NODES, declared(catalog.load(MACHINE), words))
    command = ["bash", "-c", script(steps(seed, sizes), SIDES[side])]
    done = live.run("ctl", command, user="alice", timeout_s=300)
    live.wait_idle()
    return outcome(done.out, topologies)


def run() -> Iterator[Figure]:
    """GPUs that stay untouched, and linked pairs of them: ours and stock Slurm's."""
    with clean() as live, sliced(live, NODES, WORDS):
        found = _both(lambda seed, side: run_side(live, seed, side))
    yield from figures(found, "slices", 6 * len(NODES))
    with clean() as live, shared(live, NODES, "shard", EACH):
        found = _both(lambda seed, side: run_side(live, seed, side, ["0-7"], SHARD_SIZES))
    yield from figures(found, "shards", 8 * len(NODES))


def _both(side_of: Callable[[int, str], Outcome]) -> dict[str, list[Outcome]]:
    """Both sides of every seed, in turns."""
    found: dict[str, list[Outcome]] = {side: [] for side in SIDES}
    for seed in SEEDS:
        for side in SIDES if seed % 2 else reversed(SIDES):
            found[side].append(side_of(seed, side))
    return found


def figures(found: Mapping[str, list[Outcome]], name: str, gpus: int) -> Iterator[Figure]:
    """Means over all steps of all seeds; so many GPUs can be used in parts."""
    means = {
        what: {side: _mean(outcomes, what) for side, outcomes in found.items()}
        for what in ("untouched", "pairs")
    }
    per_seed = {
        side: [round(statistics.fmean(one.untouched), 2) for one in outcomes]
        for side, outcomes in found.items()
    }
    refused = {side: [one.refused for one in outcomes] for side, outcomes in found.items()}
    yield at_least(
        f"{name}.untouched",
        means["untouched"]["ours"],
        f"of {gpus} GPUs",
        means["untouched"]["stock"],
        compared_with=f"stock Slurm: {means['untouched']['stock']:.2f}",
        detail={"per_seed": per_seed, "refused": refused, "steps": STEPS, "busy": BUSY},
    )
    yield Figure(
        f"{name}.pairs",
        round(means["pairs"]["ours"], 2),
        f"of {gpus // 2} pairs of them",
        compared_with=f"stock Slurm: {means['pairs']['stock']:.2f}",
    )


def _mean(outcomes: list[Outcome], what: str) -> float:
    return statistics.fmean(value for one in outcomes for value in getattr(one, what))
