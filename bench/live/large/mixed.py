"""mixed-live: two kinds of node in one partition of real slurmd, under stock, best-fit and horizon.

One Slurm; for each seed three partitions of 24 nodes, 8 of NVSwitch machines and 16 without links.
In one of them `mode: off` leaves the choice to stock Slurm, in the others the engine chooses by
`best-fit` and by `horizon`. Each job is submitted to all three at the same moment, so whatever
disturbs the machine disturbs them alike. Jobs are those of a workload of
papers/experiments/harm, their times scaled to a mean of MEAN_S; each sleeps as long as it takes
by Amdahl's law on the GPUs that it got. Waits are those of Slurm's accounting, to the second.

MIXED_WORKLOAD (h100-l40s-large), MIXED_SEEDS (12) from MIXED_FIRST_SEED (1) on, MIXED_AT_ONCE (2)
of them at a time, MIXED_JOBS (300).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from bench.live import shim_log
from bench.live.cluster import BENCH_DIR, BenchCluster, clean
from bench.live.large.packing import TIMEOUT_S, PackingNodes, backfill, driven, ended
from bench.live.start_many import many_nodes
from bench.measure import Figure, at_most, conditions
from gres_topology import catalog, hostlist
from papers.experiments.harm.intervals import ratio
from papers.experiments.harm.judging import LEARNING
from papers.experiments.harm.workloads import GENERATED, Workload
from policies.contract.bits import gpus_of
from policies.contract.hint_keys import communication_in
from policies.hints import parse
from simulation.core.link_quality import share_of
from simulation.report.metrics import quantile
from slurm_cluster.hosts import until

MACHINES = {"dgx-h100": 8, "l40s-8": 16}
EACH = sum(MACHINES.values())
#: side -> what its partitions begin with.
SIDES = {"stock": "plain", "best-fit": "fit", "horizon": "ahead"}
MEAN_S = 30.0
#: How many times as long the mean wait may be, at the upper end of the interval.
MOST = 1.15
#: Intervals miss the truth with this probability.
ERROR = 0.05


@dataclass(frozen=True)
class MixedNodes(PackingNodes):
    """24 nodes of two kinds for each side of each seed that runs at the same time."""

    @property
    def pairs(self) -> int:
        """Seeds that run at once."""
        return self.count // (EACH * len(SIDES))

    @property
    def partitions(self) -> list[str]:
        """Slurm's names of them; each has as many nodes as the next one, in this order."""
        return [f"{begin}{at}" for at in range(self.pairs) for begin in SIDES.values()]

    @property
    def alike(self) -> list[tuple[str, str, int]]:
        """Of each partition the nodes of one machine, then those of the other."""
        groups = []
        for partition in self.partitions:
            members = self.members(partition)
            for machine, count in MACHINES.items():
                groups.append((",".join(members[:count]), machine, count))
                members = members[count:]
        return groups

    @property
    def engine_partitions(self) -> str:
        """Lines of gputopo.yaml's `partitions`."""
        return "".join(
            f"  {begin}{at}: "
            + ('{mode: "off"}\n' if side == "stock" else f"{{mode: enforce, policy: {side}}}\n")
            for at in range(self.pairs)
            for side, begin in SIDES.items()
        )

    @property
    def network(self) -> str:
        """None."""
        return ""


@dataclass(frozen=True, slots=True)
class Live:
    """A job as it is submitted; times in seconds."""

    number: int
    gpus: int
    at_s: float
    lasts_s: float
    #: The share of its run time that it communicates in truth.
    communicates: float
    limit_min: int
    #: What its comment says.
    hint: str


def jobs_of(workload: Workload, seed: int, count: int) -> list[Live]:
    """Those of one seed on these machines, all times scaled alike."""
    drawn = replace(workload, machines=MACHINES, says=True).drawn(seed, count)
    scale = MEAN_S / fmean(job.duration_s for job in drawn.jobs)
    jobs = []
    for job in drawn.jobs:
        [gpus] = job.gpus_per_node
        said = communication_in(parse(job.hint).values)
        limit_min = math.ceil((job.walltime_s or job.duration_s) * scale / 60)
        jobs.append(
            Live(
                *(job.job_id, gpus, job.submit_s * scale, job.duration_s * scale),
                *(said or 0.0, limit_min, job.hint if workload.says else ""),
            )
        )
    return jobs


def sbatch(job: Live, partition: str, name: str, folder: str) -> list[str]:
    """The words that submit a job; it notes the share of the ideal that it got, and sleeps."""
    share = f'share=$(grep -m1 "^$SLURM_JOB_GPUS " {folder}/$SLURMD_NODENAME | cut -d" " -f2)'
    lasts = f"{job.lasts_s:.2f} * (1 + {job.communicates} * (1 / ${{share:-1}} - 1))"
    note = f'echo "{job.number} ${{share:-1}}" >>{folder}/{partition}'
    script = f'{share}; {note}; exec sleep $(awk "BEGIN {{print {lasts}}}")'
    words = ["sbatch", "-Q", "-o", "/dev/null", "--mem=10", f"--gres=gpu:{job.gpus}"]
    words += [f"-t{job.limit_min}", "-J", f"{name}-{job.number}", "-p", partition]
    words += [f"--comment=gpu-topo: {job.hint}"] if job.hint else []
    return [*words, "--wrap", script]


def shares_of(machine: str) -> str:
    """A line for each set of several GPUs: its GPUs, and its share of the ideal bandwidth."""
    topology = catalog.load(machine)
    return "".join(
        f"{','.join(map(str, gpus_of(mask)))} {share_of(topology, mask):.4f}\n"
        for mask in range(1, 1 << topology.gpus)
        if mask.bit_count() > 1
    )


@dataclass(frozen=True, slots=True)
class Side:
    """What one side's run of one seed comes to."""

    wait_s: float
    wait_p95_s: float
    #: Of the ideal bandwidth, of jobs of several GPUs.
    share: float


def run_seeds(
    cluster: BenchCluster, nodes: MixedNodes, jobs: Sequence[Sequence[Live]]
) -> tuple[list[dict[str, Side]], float]:
    """Each seed's jobs on all sides, and by how much the latest submit was late (s)."""
    name = f"m{time.monotonic_ns()}"
    folder = f"/home/alice/{name}"
    lines = [
        {"at_s": job.at_s, "command": sbatch(job, f"{begin}{at}", name, folder)}
        for at, some in enumerate(jobs)
        for job in some
        for begin in SIDES.values()
    ]
    lines.sort(key=lambda line: line["at_s"])
    links = "".join(
        f"ln -s {BENCH_DIR}/{machine} {folder}/{node}\n"
        for names, machine, _ in nodes.alike
        for node in hostlist.expand(names)
    )
    cluster.sh(f"mkdir -p {folder}\n{links}", user="alice")
    shares = {machine: shares_of(machine) for machine in MACHINES}
    late = driven(cluster, name, "".join(f"{json.dumps(line)}\n" for line in lines), shares)
    until(lambda: not cluster.sh("squeue -h -u alice -o %A"), "alice has no job", TIMEOUT_S)
    rows = ended(cluster, name, len(SIDES) * sum(map(len, jobs)))
    runs = []
    for at, some in enumerate(jobs):
        counted = {job.number for job in some[round(LEARNING * len(some)) :]}
        run = {}
        for side, begin in SIDES.items():
            partition = f"{begin}{at}"
            waits = [
                float(int(row["Start"]) - int(row["Submit"]))
                for row in rows
                if row["Partition"] == partition
                and int(row["JobName"].rpartition("-")[2]) in counted
            ]
            several = {job.number for job in some if job.gpus > 1} & counted
            noted = map(str.split, cluster.read("ctl", f"{folder}/{partition}").splitlines())
            got = [float(share) for number, share in noted if int(number) in several]
            run[side] = Side(fmean(waits), quantile(waits, 0.95), fmean(got))
        runs.append(run)
    return runs, late


def figures(runs: Sequence[Mapping[str, Side]], detail: Mapping[str, object]) -> Iterator[Figure]:
    """horizon beside each of the others, paired by seed; `runs` has each seed's."""
    for other in SIDES:
        if other == "horizon":
            continue
        for key, most in (("wait_s", MOST), ("wait_p95_s", None)):
            mine, its = ([getattr(run[side], key) for run in runs] for side in ("horizon", other))
            found, half = ratio(mine, its, ERROR)
            said = {
                "interval": [round(found - half, 3), round(found + half, 3)],
                "ours_s": round(fmean(mine), 2),
                "theirs_s": round(fmean(its), 2),
                "seeds": len(runs),
                **detail,
            }
            unit = f"of the {'mean' if key == 'wait_s' else 'p95'} wait, upper end"
            yield at_most(f"mixed_live.{other}.{key}", found + half, unit, most, detail=said)
    shares = {side: round(fmean(run[side].share for run in runs), 4) for side in SIDES}
    beside = f"stock: {shares['stock']}, best-fit: {shares['best-fit']}"
    yield Figure("mixed_live.bandwidth", shares["horizon"], "of the ideal", compared_with=beside)


def run() -> Iterator[Figure]:
    """Of the size that the environment says."""
    workload = GENERATED[os.environ.get("MIXED_WORKLOAD", "h100-l40s-large")]
    count, first, at_once, jobs = (
        int(os.environ.get(f"MIXED_{name}", default))
        for name, default in (("SEEDS", 12), ("FIRST_SEED", 1), ("AT_ONCE", 2), ("JOBS", 300))
    )
    nodes = MixedNodes(EACH * len(SIDES) * at_once, more_conf=backfill())
    runs: list[dict[str, Side]] = []
    late_s = []
    with clean() as cluster:
        nodes.configure(cluster)
        with many_nodes(cluster, nodes), cluster.slurmctld_log_of() as log:
            for seed in range(first, first + count, at_once):
                seeds = range(seed, min(seed + at_once, first + count))
                seen, late = run_seeds(cluster, nodes, [jobs_of(workload, s, jobs) for s in seeds])
                runs += seen
                late_s.append(late)
        asked = shim_log.results(shim_log.read(log))
        detail = {"first_seed": first, "jobs": jobs, "late_s": max(late_s)}
        yield from figures(runs, detail | {"plugin_results": asked, **conditions()})
