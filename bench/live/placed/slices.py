"""How many GPUs stay untouched: MIG slices placed by Slurm itself against ours, in the same run.

Three nodes of eight GPUs each in pairs on one bridge: a pair whole, one in halves, two in sevenths.
Seeded jobs of one to three slices come one after the other and end in random order, as the load
rises and falls; both sides get the same jobs and ends. After each step it is counted how many of
the sliced GPUs, and how many of their pairs, nobody uses any part of. The stock side is a partition
that is `off`: no policy is asked.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from bench.live.cluster import BenchCluster, clean
from bench.measure import Figure, at_least
from gres_topology import catalog
from gres_topology.slices import SlicedTopology, declared
from slurm_cluster.sliced import MACHINE, sliced

NODES = ("bridged1", "dgx1", "dgx2")
#: Bridges join 0 and 2, 1 and 3, 4 and 5, 6 and 7.
WORDS = ["0", "2", "1/3g.20gb*2", "3/3g.20gb*2", *(f"{gpu}/1g.5gb*7" for gpu in range(4, 8))]
#: side -> partition
SIDES = {"stock": "off", "slices": "gpu"}
SEEDS = range(1, 6)
STEPS = 480
#: Slices of a job, by profile: how many there are in all, and which sizes are asked for.
SIZES = {"1g.5gb": (84, (1, 1, 1, 2, 3)), "3g.20gb": (12, (1, 1, 2))}
#: Shares of the slices that are in use at most, in turns of so many steps.
BUSY, TURN = (0.8, 0.3), 80


@dataclass(frozen=True)
class Step:
    """One event: a job's end (`ends`), or a job of so many slices."""

    job: int
    ends: bool
    profile: str = ""
    slices: int = 0


def steps(seed: int) -> list[Step]:
    """The seed's events; the load goes up and down."""
    draw = Random(seed)
    running: dict[int, Step] = {}
    events = []
    while len(events) < STEPS:
        profile = draw.choice(("1g.5gb", "1g.5gb", "3g.20gb"))
        total, sizes = SIZES[profile]
        used = sum(step.slices for step in running.values() if step.profile == profile)
        most = BUSY[len(events) // TURN % len(BUSY)]
        if used >= most * total or (running and draw.random() < 0.3):
            gone = running.pop(draw.choice(sorted(running)))
            events.append(Step(gone.job, True))
        else:
            step = Step(len(events), False, profile, draw.choice(sizes))
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
            ask = f"--gres=gpu:{step.profile}:{step.slices} --mem=1 -J s{step.job}"
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
    """The sliced GPUs of a node that nobody uses any part of."""
    busy = set()
    for listed in re.findall(r"IDX:([\d,-]+)", used):
        for part in listed.split(","):
            first, _, last = part.partition("-")
            busy.update(range(int(first), int(last or first) + 1))
    touched = {topology.parents[device] for device in busy}
    cut = {gpu for gpu, profile in zip(topology.parents, topology.profiles, strict=True) if profile}
    return sorted(cut - touched)


def run_side(live: BenchCluster, seed: int, side: str) -> Outcome:
    """One side of a seed; the cluster is empty before and after."""
    topologies = dict.fromkeys(NODES, declared(catalog.load(MACHINE), WORDS))
    command = ["bash", "-c", script(steps(seed), SIDES[side])]
    done = live.run("ctl", command, user="alice", timeout_s=300)
    live.wait_idle()
    return outcome(done.out, topologies)


def run() -> Iterator[Figure]:
    """Sliced GPUs that stay untouched, and linked pairs of them: ours and stock Slurm's."""
    found: dict[str, list[Outcome]] = {side: [] for side in SIDES}
    with clean() as live, sliced(live, NODES, WORDS):
        for seed in SEEDS:
            for side in SIDES if seed % 2 else reversed(SIDES):
                found[side].append(run_side(live, seed, side))
    yield from figures(found)


def figures(found: Mapping[str, list[Outcome]]) -> Iterator[Figure]:
    """Means over all steps of all seeds."""
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
        "slices.untouched",
        means["untouched"]["slices"],
        f"of {6 * len(NODES)} sliced GPUs",
        means["untouched"]["stock"],
        compared_with=f"stock Slurm: {means['untouched']['stock']:.2f}",
        detail={"per_seed": per_seed, "refused": refused, "steps": STEPS, "busy": BUSY},
    )
    yield Figure(
        "slices.pairs",
        round(means["pairs"]["slices"], 2),
        f"of {3 * len(NODES)} pairs of sliced GPUs",
        compared_with=f"stock Slurm: {means['pairs']['stock']:.2f}",
    )


def _mean(outcomes: list[Outcome], what: str) -> float:
    return statistics.fmean(value for one in outcomes for value in getattr(one, what))
