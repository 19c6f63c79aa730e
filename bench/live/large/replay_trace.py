"""replay-trace: 300 jobs of a trace in real Slurm, the simulator's prediction beside each policy.

A slice of Philly's log on four real slurmd of eight GPUs for each side: stock Slurm, `mapa` and
`horizon` in partitions of one Slurm, all at the same time, each job submitted to all of them at
the same moment. Times are the log's, scaled (`scaled`); limits are drawn, for the log has none.
The simulator reads that Slurm's own slurm.conf; how long a job takes to launch and to complete is
measured before the jobs come, and again when they have gone. A queue is chaotic: a job that starts
a moment later may go first. So the prediction is the mean of runs that draw from what was measured.

REPLAY_SLICES (default 11): the slices to replay, by seed.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean, stdev

from bench.live.cluster import BenchCluster, clean
from bench.live.large.packing import TIMEOUT_S, PackingNodes, driven, ended
from bench.live.start_many import many_nodes
from bench.measure import Figure, at_most, conditions
from gres_topology import catalog, hostlist
from papers.experiments import philly
from policies import Placement
from simulation.core import slurm_site
from simulation.core.jobs import SimJob
from simulation.core.link_quality import judge
from simulation.core.record import Record, SimulatedRun
from simulation.models.slurm import SlurmSimulator
from simulation.models.speed import Nodes, PlacedJob, Speed
from simulation.stock import policy_named
from slurm_cluster.hosts import until

MACHINE, PER_NODE = "dgx1v", 8
NODES = 4
#: side -> its partition; the simulator knows the side's policy by the same name.
SIDES = {"stock": "plain", "mapa": "mapa", "horizon": "ahead"}
JOBS = 300
#: The last submit, and the load that the scaled durations bring until then.
SPAN_S, LOAD = 240.0, 0.8
#: A live job lasts so long at least, and at most; the log has jobs of sixty days.
LEAST_S, MOST_S = 1.0, 60.0
#: Limits are this many times the duration, uniform: the f-model of Mu'alem and Feitelson (IEEE TPDS
#: 12(6), 2001) with f = 3; Slurm takes whole minutes.
LIMITS = (1.0, 4.0)
#: Jobs by which launch and completion are measured, one after the other.
CALIBRATING = 12
#: Simulated runs of each side.
DRAWS = 10
BAR = 0.10


def slices() -> list[int]:
    """Which slices to replay."""
    return [int(word) for word in os.environ.get("REPLAY_SLICES", "11").split(",")]


def slice_of(seed: int) -> list[SimJob]:
    """300 consecutive jobs of the log, of up to four nodes and as many GPUs on each of them."""
    draw = Random(seed)
    fitting = [
        job
        for job in philly.trace().jobs
        if len(job.gpus_per_node) <= NODES and len(set(job.gpus_per_node)) == 1
    ]
    first = draw.randrange(len(fitting) - JOBS)
    return scaled(fitting[first : first + JOBS], draw)


def scaled(jobs: Sequence[SimJob], draw: Random) -> list[SimJob]:
    """The jobs within SPAN_S, durations shortened by one factor until they bring LOAD."""
    first, last = jobs[0].submit_s, jobs[-1].submit_s
    wanted = LOAD * NODES * PER_NODE * SPAN_S
    low, high = 1e-9, 1e3
    for _ in range(60):
        middle = math.sqrt(low * high)
        work = sum(_short(job, middle) * sum(job.gpus_per_node) for job in jobs)
        low, high = (middle, high) if work < wanted else (low, middle)
    shortened = []
    for number, job in enumerate(jobs, 1):
        lasts_s = round(_short(job, high), 2)
        limit_s = 60.0 * math.ceil(lasts_s * draw.uniform(*LIMITS) / 60)
        at_s = (job.submit_s - first) / (last - first) * SPAN_S
        shortened.append(SimJob(number, job.gpus_per_node, lasts_s, at_s, walltime_s=limit_s))
    return shortened


def _short(job: SimJob, factor: float) -> float:
    return min(MOST_S, max(LEAST_S, job.duration_s * factor))


@dataclass(frozen=True)
class ReplayNodes(PackingNodes):
    """Four nodes for each side."""

    count: int = NODES * len(SIDES)

    @property
    def partitions(self) -> list[str]:
        """One for each side."""
        return [*SIDES.values()]

    def of(self, side: str, pair: int = 0) -> list[str]:
        """The names of one side's nodes."""
        return self.members(SIDES[side])

    @property
    def machine(self) -> str:
        """Of the catalog."""
        return MACHINE

    @property
    def engine_partitions(self) -> str:
        """Lines of gputopo.yaml's `partitions`."""
        enforced = "".join(
            f"  {SIDES[side]}: {{mode: enforce, policy: {side}}}\n"
            for side in SIDES
            if side != "stock"
        )
        return f'  {SIDES["stock"]}: {{mode: "off"}}\n{enforced}'

    @property
    def network(self) -> str:
        """None."""
        return ""


def sbatch(job: SimJob, partition: str, run_name: str, folder: str) -> list[str]:
    """The words that submit a job; it notes its devices, then sleeps."""
    nodes, gpus = len(job.gpus_per_node), job.gpus_per_node[0]
    limit = math.ceil((job.walltime_s or 60) / 60)
    script = f'echo "{job.job_id} $CUDA_VISIBLE_DEVICES" >>{folder}/{partition}'
    script += f"; sleep {job.duration_s:.2f}"
    words = ["sbatch", "-Q", "-o", "/dev/null", f"-N{nodes}", f"-n{nodes}", "--mem=10"]
    words += [f"--gres=gpu:{gpus}", f"-t{limit}", "-J", f"{run_name}-{job.job_id}"]
    return [*words, "-p", partition, "--wrap", script]


class Launched(Speed):
    """A job's own time, and the launch and completion of one of those measured."""

    def __init__(self, seed: int, around_s: Sequence[float]) -> None:
        self._draw, self._around_s = Random(seed), around_s

    def full_s(self, placed: PlacedJob, nodes: Nodes, beside: Sequence[PlacedJob]) -> float:
        """Seconds from the job's start until its GPUs are free."""
        return placed.job.duration_s + self._draw.choice(self._around_s)


def measured_around_s(cluster: BenchCluster) -> list[float]:
    """Seconds from one start to the next beyond a job's sleep, jobs that need a node one by one."""
    name = f"around{time.monotonic_ns()}"
    node = ReplayNodes().of("stock")[0]
    words = ["sbatch", "-Q", "-o", "/dev/null", "-w", node, f"--gres=gpu:{PER_NODE}", "-t5"]
    words += ["-p", SIDES["stock"], "-J", name, "--mem=10", "--wrap"]
    note = shlex.join([*words, f"date +%s.%N >>/home/alice/{name}; sleep 1"])
    cluster.sh(f"for i in $(seq {CALIBRATING}); do {note}; done", user="alice")
    until(lambda: not cluster.sh("squeue -h -u alice -o %A"), "alice has no job", 120)
    starts = [float(line) for line in cluster.read("ctl", f"/home/alice/{name}").split()]
    return [later - start - 1.0 for start, later in pairwise(starts)]


def replayed(cluster: BenchCluster, jobs: Sequence[SimJob]) -> dict[str, SimulatedRun]:
    """The jobs on every side of the live Slurm, as records."""
    run_name = f"r{time.monotonic_ns()}"
    folder = f"/home/alice/{run_name}"
    lines = [
        json.dumps({"at_s": job.submit_s, "command": sbatch(job, partition, run_name, folder)})
        for job in jobs
        for partition in SIDES.values()
    ]
    cluster.sh(f"mkdir -p {folder}", user="alice")
    driven(cluster, run_name, "\n".join(lines) + "\n")
    until(lambda: not cluster.sh("squeue -h -u alice -o %A"), "alice has no job", TIMEOUT_S)
    rows = ended(cluster, run_name, len(SIDES) * len(jobs))
    return {side: _records(cluster, rows, jobs, side, folder) for side in SIDES}


def _records(
    cluster: BenchCluster,
    rows: Sequence[Mapping[str, str]],
    jobs: Sequence[SimJob],
    side: str,
    folder: str,
) -> SimulatedRun:
    """What accounting says of one side, the first submit at 0; GPUs as the jobs' scripts saw them.

    A script runs on a job's first node alone: jobs of several nodes have no GPUs here.
    """
    seen = dict(
        line.split() for line in cluster.read("ctl", f"{folder}/{SIDES[side]}").splitlines()
    )
    by_number = {str(job.job_id): job for job in jobs}
    first = min(int(row["Submit"]) for row in rows)
    run = SimulatedRun(side, gpus=NODES * PER_NODE)
    for row in rows:
        number = row["JobName"].rpartition("-")[2]
        if row["Partition"] != SIDES[side]:
            continue
        names = hostlist.expand(row["NodeList"])
        gpus = tuple(map(int, seen[number].split(","))) if len(names) == 1 else ()
        job = replace(by_number[number], submit_s=int(row["Submit"]) - first)
        run.records.append(
            Record(
                job,
                int(row["Start"]) - first,
                int(row["End"]) - first,
                Placement(dict.fromkeys(names, gpus), side, ""),
                is_killed=row["State"] == "TIMEOUT",
            )
        )
    return run


def predicted(
    jobs: Sequence[SimJob], side: str, slurm_conf: str, around_s: Sequence[float]
) -> list[SimulatedRun]:
    """The same jobs on one side in the simulator, under that slurm.conf, DRAWS times."""
    site = slurm_site.read(Path("slurm.conf"), {Path("slurm.conf"): slurm_conf}.__getitem__)
    nodes = dict.fromkeys(ReplayNodes().of(side), catalog.load(MACHINE))
    asked = [replace(job, partition=SIDES[side], cpus=1, memory_mb=10) for job in jobs]
    return [
        SlurmSimulator(nodes, policy_named(side), site, Launched(seed, around_s)).run(asked)
        for seed in range(DRAWS)
    ]


def share(run: SimulatedRun) -> float:
    """Of the ideal bandwidth, over jobs of several GPUs on one node."""
    topology = catalog.load(MACHINE)
    sets = [
        gpus
        for record in run.records
        for gpus in record.placement.gpus.values()
        if len(record.job.gpus_per_node) == 1 and len(gpus) > 1
    ]
    return fmean(judge(topology, gpus).share for gpus in sets)


def wait_s(run: SimulatedRun) -> float:
    """The mean over its jobs."""
    return fmean(record.waited_s for record in run.records)


def figures(
    seed: int,
    live: Mapping[str, SimulatedRun],
    simulated: Mapping[str, Sequence[SimulatedRun]],
    detail: Mapping[str, object],
) -> Iterator[Figure]:
    """Mean wait of each side, live and predicted, and by how much the prediction is off."""
    for side, run in live.items():
        drawn = [wait_s(one) for one in simulated[side]]
        lived, said = wait_s(run), fmean(drawn)
        more = {
            "draws_sd_s": round(stdev(drawn), 2),
            "share_live": round(share(run), 4),
            "share_predicted": round(fmean(map(share, simulated[side])), 4),
            "killed_live": sum(record.is_killed for record in run.records),
        }
        yield at_most(
            f"replay_trace.{seed}.{side}.off",
            abs(said / lived - 1),
            "of the mean wait",
            BAR,
            compared_with=f"{lived:.2f} s live, {said:.2f} s predicted",
            detail={**more, **detail},
        )


def run() -> Iterator[Figure]:
    """The slices that the environment names, one after the other."""
    nodes = ReplayNodes()
    with clean() as cluster:
        nodes.configure(cluster)
        with many_nodes(cluster, nodes):
            conf = cluster.sh("cat /etc/slurm/slurm.conf")
            for seed in slices():
                jobs = slice_of(seed)
                around_s = measured_around_s(cluster)
                live = replayed(cluster, jobs)
                around_s += measured_around_s(cluster)
                simulated = {side: predicted(jobs, side, conf, around_s) for side in SIDES}
                detail = {"jobs": len(jobs), "around_s": round(fmean(around_s), 3)}
                save(seed, live, {side: runs[0] for side, runs in simulated.items()})
                yield from figures(seed, live, simulated, {**detail, **conditions()})


def save(seed: int, *both: Mapping[str, SimulatedRun]) -> None:
    """Every job's times where REPLAY_OUT names a folder."""
    if not (folder := os.environ.get("REPLAY_OUT")):
        return
    rows = [
        {"of": of, "side": side, "job": record.job.job_id, "gpus": record.job.gpus_per_node,
         "submit": record.job.submit_s, "start": record.start_s, "end": record.end_s,
         "limit": record.job.walltime_s, "lasts": record.job.duration_s}
        for of, runs in zip(("live", "predicted"), both, strict=True)
        for side, run in runs.items() for record in run.records
    ]  # fmt: skip
    Path(folder, f"replay-{seed}.json").write_text(json.dumps(rows))
