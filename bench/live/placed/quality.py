"""What jobs get on the live cluster: stock Slurm with `Links`, mapa and horizon, in the same run.

One dgx1v node each, side by side in one Slurm: the partition with `mode: off` gets Slurm's
own choice, the other one ours; then `horizon` has the same jobs. 150 jobs of 1-5 GPUs (uniform,
first in first out, `--gres`), five paired seeds. The GPUs are those that CUDA_VISIBLE_DEVICES
names inside the job; one judge for all.
"""

from __future__ import annotations

import os
import shlex
import statistics
import time
from collections.abc import Iterator

from bench.live import shim_log
from bench.live.cluster import BenchCluster, clean
from bench.measure import Figure, at_least, at_most, quantile
from gres_topology import catalog
from simulation.core.jobs import SimJob, mixed_jobs
from simulation.core.link_quality import SetWorth, judge

MACHINE = "dgx1v"
#: side -> (partition, node)
SIDES = {"stock": ("off", "dgx2"), "mapa": ("gpu", "dgx1"), "horizon": ("gpu", "dgx1")}
#: The sides that run at the same time, for each seed one after the other.
ROUNDS = (("stock", "mapa"), ("horizon",))
JOBS = 150
#: A simulated minute is this many live seconds: 60-600 s become 0.3-3 s.
TIME_SCALE = 1 / 200
BAR_SHARE, BAR_HORIZON = 0.93, 0.985
TIMEOUT_S = 900
#: Strict first in, first out; no backfill may let a small job pass.
FIFO = "SchedulerType=sched/builtin"


def seeds() -> list[int]:
    """Five by default; QUALITY_SEEDS=N takes the first N."""
    return list(range(1, int(os.environ.get("QUALITY_SEEDS", "5")) + 1))


def submit_line(side: str, job: SimJob, folder: str) -> str:
    """The sbatch line of one job; the job notes its own devices, then sleeps."""
    partition, node = SIDES[side]
    script = (
        f'echo "{job.job_id} $CUDA_VISIBLE_DEVICES" >>{folder}/{side};'
        f" sleep {job.duration_s * TIME_SCALE:.2f}"
    )
    args = ["-p", partition, "-w", node, f"--gres=gpu:{job.gpus_per_node[0]}", "-o", "/dev/null"]
    if side != "stock":
        args.append(f"--comment=gpu-topo: policy={side}")
    return shlex.join(["sbatch", "-Q", *args, "--wrap", script])


def run_seed(live: BenchCluster, seed: int) -> dict[str, list[SetWorth]]:
    """Runs the seed's jobs on both sides and judges what each job saw."""
    jobs = mixed_jobs(seed, JOBS)
    folder = f"/home/alice/quality.{seed}.{time.monotonic_ns()}"
    for sides in ROUNDS:
        lines = [submit_line(side, job, folder) for job in jobs for side in sides]
        script = "\n".join(["set -e", f"mkdir -p {folder}", *lines])
        live.run("ctl", ["bash", "-c", script], user="alice", timeout_s=300)
        live.wait_idle(timeout_s=TIMEOUT_S)
    return {side: verdicts(live, f"{folder}/{side}", jobs) for side in SIDES}


def verdicts(live: BenchCluster, path: str, jobs: list[SimJob]) -> list[SetWorth]:
    """One verdict per job; a job that is missing or got another count is an error."""
    topology = catalog.load(MACHINE)
    seen: dict[int, tuple[int, ...]] = {}
    for line in live.run("ctl", ["cat", path]).out.splitlines():
        jobid, _, gpus = line.partition(" ")
        seen[int(jobid)] = tuple(int(gpu) for gpu in gpus.split(","))
    for job in jobs:
        if len(seen.get(job.job_id, ())) != job.gpus_per_node[0]:
            raise RuntimeError(f"{path}: job {job.job_id} asked {job}, saw {seen.get(job.job_id)}")
    return [judge(topology, seen[job.job_id]) for job in jobs]


def run() -> Iterator[Figure]:
    """Share of the ideal per seed and over all, quartiles of GB/s, rings with a PCIe hop."""
    verdicts: dict[str, list[list[SetWorth]]] = {side: [] for side in SIDES}
    with clean() as live:
        live.configure_extra(FIFO)
        with live.slurmctld_log_of() as lines:
            for seed in seeds():
                for side, judged in run_seed(live, seed).items():
                    verdicts[side].append([verdict for verdict in judged if verdict.gpus > 1])
    # Both sides ask; the stock side is answered `pass`. Anything else but `used` failed open.
    yield from figures(verdicts, shim_log.results(shim_log.read(lines)))


def figures(verdicts: dict[str, list[list[SetWorth]]], results: dict[str, int]) -> Iterator[Figure]:
    """The figures of the runs: `verdicts[side][seed]` are the verdicts on multi-GPU jobs.

    `results` counts what the select plugin logged for the starts of both sides.
    """
    shares = {
        side: [statistics.fmean(verdict.share for verdict in run) for run in runs]
        for side, runs in verdicts.items()
    }
    mean = {side: statistics.fmean(values) for side, values in shares.items()}
    hops = {
        side: statistics.fmean(verdict.pcie_hop for run in runs for verdict in run)
        for side, runs in verdicts.items()
    }
    per_seed = {side: [round(value, 4) for value in values] for side, values in shares.items()}
    yield at_least(
        "quality.share_of_ideal",
        mean["mapa"],
        "share",
        BAR_SHARE,
        compared_with=f"stock Slurm with Links: {mean['stock']:.4f}",
        detail={
            "per_seed": per_seed,
            "jobs": JOBS,
            "durations_s": "0.3-3.0 uniform",
            "plugin_results": results,
        },
    )
    yield at_least(
        *("quality.horizon_share_of_ideal", mean["horizon"], "share", BAR_HORIZON),
        compared_with=f"mapa: {mean['mapa']:.4f}",
    )
    yield at_most(
        *("quality.horizon_pcie_rings", hops["horizon"], "share of the rings", hops["mapa"]),
        compared_with=f"mapa: {hops['mapa']:.4f}",
    )
    yield Figure(
        "quality.pcie_rings",
        round(hops["mapa"], 4),
        "share of multi-GPU rings",
        compared_with=f"stock Slurm with Links: {hops['stock']:.4f}",
    )
    yield from quartiles(verdicts)


def quartiles(verdicts: dict[str, list[list[SetWorth]]]) -> Iterator[Figure]:
    """Effective bandwidth of the multi-GPU jobs of all seeds."""
    for name, q in (("q1", 0.25), ("median", 0.5), ("q3", 0.75)):
        value = {
            side: quantile([verdict.effbw_gbps for run in runs for verdict in run], q)
            for side, runs in verdicts.items()
        }
        yield Figure(
            f"quality.effbw_{name}",
            round(value["mapa"], 2),
            "GB/s",
            compared_with=f"stock Slurm with Links: {value['stock']:.2f}",
        )
