"""start-large: job starts on 1,000 compute nodes, by stock Slurm and by ours in turns.

As start-many, with as many slurmd as wanted. Two thirds of the GPUs are in use all the time, by
allocations without a process, so that nodes have gaps of every kind. Rounds of a few hundred jobs
run once under stock Slurm and once under ours, the same jobs, each side first in every other
round, with slurmctld_times.c in slurmctld on both sides.

LARGE_NODES (1000), LARGE_JOBS (2500 submits for each side) and LARGE_ROUNDS (10) make it another
size; LARGE_DECLARED (0) nodes more stand in slurm.conf as down, without a slurmd.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from bench.live import shim_log
from bench.live.cluster import ASSETS, BENCH_DIR, BenchCluster, build_library, clean
from bench.live.job_mix import mix, script, tasks
from bench.live.large import ctld_times
from bench.live.large.ctld_times import Times
from bench.live.start import STARTED, figure
from bench.live.start_many import PARTITION, ManyNodes, many_nodes
from bench.measure import Figure, at_least, conditions, quantile
from slurm_cluster.hosts import until

#: Half of them by sbatch, as arrays always are.
COMMANDS = ("sbatch", "sbatch", "srun", "salloc")
LONGEST_S = 1.0
SEED = 1
SIDES = {"stock": "stock", "ours": "gputopo"}
BAR_ANSWERED = 0.99
RESAMPLES = 10_000
#: A script goes into one argument of a command, which has its limit at 128 KiB.
LINES = 250


@dataclass(frozen=True)
class Size:
    """How much is measured; jobs: submits for each side, over all rounds."""

    nodes: ManyNodes
    jobs: int
    rounds: int

    @classmethod
    def from_environment(cls) -> Size:
        """What LARGE_* say."""

        def of(name: str, usual: int) -> int:
            return int(os.environ.get(f"LARGE_{name}", usual))

        return cls(
            ManyNodes(of("NODES", 1000), of("DECLARED", 0)), of("JOBS", 2500), of("ROUNDS", 10)
        )


@dataclass(frozen=True)
class Block:
    """One side's run of one round's jobs."""

    jobs: int
    times: Times
    #: What slurmctld logged.
    log: list[str]
    submit_s: float
    took_s: float

    @property
    def locked_s(self) -> float:
        """Seconds in which slurmctld's jobs were locked for writing, per start."""
        return self.times.locks["job"].held_s / self.jobs

    @property
    def locked_cpu_s(self) -> float:
        """Of these the seconds of processor time: other work on the machine disturbs it less."""
        return self.times.locks["job"].cpu_s / self.jobs


def fill(cluster: BenchCluster, nodes: ManyNodes) -> None:
    """Takes two thirds of the GPUs: one to four at both ends of a node, or at one of them."""
    rng = Random(SEED)
    width = len(str(nodes.count))
    lines = []
    for number in range(1, nodes.count + 1):
        for name in ("kept", rng.choice(("kept", "kept", "gap"))):
            where = f"-w many{number:0{width}d} --gres=gpu:{rng.randint(1, 4)} -J {name}"
            lines.append(f"salloc -Q --no-shell -p {PARTITION} -t UNLIMITED -n1 --mem=10 {where} &")
        if number % 4 == 0:
            lines.append("wait")
    run_lines(cluster, [*lines, "wait"], user="bob")
    cluster.sh("scancel -n gap", user="bob")
    until(lambda: not cluster.sh("squeue -h -u bob -n gap -o %A"), "the gaps are there", 120)


def run_lines(cluster: BenchCluster, lines: Sequence[str], user: str) -> None:
    """A script of any length."""
    for first in range(0, len(lines), LINES):
        cluster.sh("\n".join([*lines[first : first + LINES], "wait"]), user=user)


def block(cluster: BenchCluster, size: Size, side: str, seed: int) -> Block:
    """The jobs of that seed in a fresh slurmctld; AssertionError where one did not start."""
    rng = Random(seed)
    jobs = mix(size.jobs // size.rounds, rng, (PARTITION,))
    lines = script(jobs, rng, LONGEST_S, COMMANDS).splitlines()
    ctld_times.start(cluster, SIDES[side])
    size.nodes.wait_registered(cluster)
    before = ctld_times.read(cluster)
    with cluster.slurmctld_log_of() as log:
        began = time.monotonic()
        run_lines(cluster, lines, user="alice")
        submit_s = time.monotonic() - began
        until(lambda: not cluster.sh("squeue -h -u alice -o %A"), "alice has no job", 600)
        took_s = time.monotonic() - began
    times = ctld_times.between(before, ctld_times.read(cluster))
    wanted = sum(map(tasks, jobs))
    if len(times.starts) < wanted:
        raise AssertionError(f"{side}: {len(times.starts)} starts of {wanted} jobs")
    return Block(wanted, times, log, submit_s, took_s)


def interval(ours: Sequence[float], stock: Sequence[float]) -> tuple[float, float]:
    """The middle 95 % of the ratio of the means, by rounds drawn again with replacement."""
    rng, pairs = Random(SEED), list(zip(ours, stock, strict=True))
    ratios = []
    for _ in range(RESAMPLES):
        drawn = rng.choices(pairs, k=len(pairs))
        ratios.append(sum(one for one, _ in drawn) / sum(other for _, other in drawn))
    return round(quantile(ratios, 0.025), 3), round(quantile(ratios, 0.975), 3)


def rounds(cluster: BenchCluster, size: Size) -> dict[str, list[Block]]:
    """Every round's block of either side."""
    found: dict[str, list[Block]] = {side: [] for side in SIDES}
    for number in range(size.rounds):
        order = list(SIDES) if number % 2 == 0 else list(reversed(SIDES))
        for side in order:
            found[side].append(block(cluster, size, side, SEED + number))
    return found


def over(found: dict[str, list[Block]], of: str) -> dict[str, Any]:
    """Milliseconds per start of one field of one lock (`job.held_s`), by side."""
    lock, field = of.split(".")
    return {
        side: round(
            1e3
            * sum(getattr(one.times.locks[lock], field) for one in blocks)
            / sum(one.jobs for one in blocks),
            3,
        )
        for side, blocks in found.items()
    }


def locked(found: dict[str, list[Block]], **more: Any) -> Figure:
    """How long jobs are locked for writing per start, ours over stock's."""
    ours, stock = ([one.locked_s for one in found[side]] for side in ("ours", "stock"))
    cpu = [[one.locked_cpu_s for one in found[side]] for side in ("ours", "stock")]
    means = over(found, "job.held_s")
    detail = {
        "interval_95": interval(ours, stock),
        "ratios": [round(one / other, 3) for one, other in zip(ours, stock, strict=True)],
        "processor_ratio": round(sum(cpu[0]) / sum(cpu[1]), 3),
        "processor_interval_95": interval(*cpu),
        "ms_per_start": means,
        "processor_ms_per_start": over(found, "job.cpu_s"),
        "node_lock_ms_per_start": over(found, "node.held_s"),
        "longest_ms": {
            side: round(1e3 * max(one.times.locks["job"].longest_s for one in blocks), 1)
            for side, blocks in found.items()
        },
        "jobs_per_s": {
            side: round(sum(one.jobs for one in blocks) / sum(one.took_s for one in blocks), 1)
            for side, blocks in found.items()
        },
        "submit_s": {
            side: round(sum(one.submit_s for one in blocks), 1) for side, blocks in found.items()
        },
        **more,
        **conditions(),
    }
    beside = f"stock Slurm: {means['stock']} ms per start"
    ratio = round(sum(ours) / sum(stock), 4)
    return Figure("large.locked", ratio, "of stock's", compared_with=beside, detail=detail)


def selection(found: dict[str, list[Block]]) -> Figure:
    """The median selection that let a job start, ours with all that it asks."""
    whole, within = (
        {
            side: [1e3 * start[which] for one in blocks for start in one.times.starts]
            for side, blocks in found.items()
        }
        for which in (0, 1)
    )
    detail = {
        "p99_ms": {side: round(quantile(values, 0.99), 3) for side, values in whole.items()},
        "longest_ms": {side: round(max(values), 1) for side, values in whole.items()},
        "of_ours_in_slurms_own_ms": round(quantile(within["ours"], 0.5), 3),
        "starts": {side: len(values) for side, values in whole.items()},
        "fruitless": {
            side: sum(one.times.fruitless for one in blocks) for side, blocks in found.items()
        },
    }
    median = {side: quantile(values, 0.5) for side, values in whole.items()}
    beside = f"stock Slurm's own selection: {median['stock']:.3f} ms"
    return Figure(
        "large.selection", round(median["ours"], 4), "ms", compared_with=beside, detail=detail
    )


def answered(added: Sequence[shim_log.Added]) -> Figure:
    """The share of starts that the engine's answer was used for."""
    share = sum(one.result in STARTED for one in added) / len(added)
    return at_least(
        "large.answered", share, "of starts", BAR_ANSWERED, detail=shim_log.results(added)
    )


def prepare(cluster: BenchCluster) -> None:
    """The library into the controller."""
    with tempfile.TemporaryDirectory(prefix="gputopo-bench-") as folder:
        build_library(ASSETS / "slurmctld_times.c", Path(folder))
        cluster.put_folder("ctl", BENCH_DIR, Path(folder))


def engine(cluster: BenchCluster) -> dict[str, Any]:
    """Processor seconds and memory of the engine since it was started."""
    pid = str(cluster.engine_pid())
    used = cluster.sh(f"ps -o cputimes= -p {pid}").strip()
    return {"cpu_s": int(used), "rss_mib": cluster.status_kb(pid, "VmRSS") // 1024}


def figures(cluster: BenchCluster, size: Size) -> Iterator[Figure]:
    """All of them, on nodes that are up."""
    fill(cluster, size.nodes)
    found = rounds(cluster, size)
    log = [line for block in found["ours"] for line in block.log]
    added = shim_log.read(log)
    about = {"nodes": size.nodes.count, "declared": size.nodes.declared, "rounds": size.rounds}
    yield locked(found, **about)
    yield selection(found)
    yield figure("large.added", added, **about, own_us=shim_log.own_us(log), engine=engine(cluster))
    yield answered(added)


def measure(cluster: BenchCluster, size: Size) -> Iterator[Figure]:
    """From the first slurmd to the last job; the cluster is to be reset afterwards."""
    prepare(cluster)
    size.nodes.configure(cluster)
    with many_nodes(cluster, size.nodes):
        try:
            yield from figures(cluster, size)
        finally:
            # Jobs that are known to nobody but it hold nothing once the nodes are gone.
            cluster.sh("clusterctl slurmctld stop; rm -rf /var/spool/slurmctld/*")


def run() -> Iterator[Figure]:
    """Of the size that the environment says."""
    with clean() as cluster:
        yield from measure(cluster, Size.from_environment())
