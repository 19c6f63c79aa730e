"""soak: many job starts, and what slurmctld's memory does, beside stock Slurm's.

Stock first, then ours, each in a fresh slurmctld without saved state: arrays of `true` with
one GPU, submitted and run to the end. SOAK_STARTS sets the number (default 10,000).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench import shim_log
from bench.cluster import BenchCluster, clean
from bench.measure import Figure, at_most, conditions, quantile
from bench.start import STARTED

STARTS = int(os.environ.get("SOAK_STARTS", "10000"))
#: MaxArraySize is 1001 unless a site raises it.
ARRAY = 1_000
#: slurmctld's memory after, over stock's after.
BAR_MEMORY = 1.10
#: The starts before the first reading: tables and caches of slurmctld itself fill.
WARM_UP = 200
LOG = "/var/log/slurm/slurmctld.log"


@dataclass(frozen=True, slots=True)
class Soaked:
    """One variant's run; memory in kB."""

    before_kb: int
    after_kb: int
    took_s: float
    added: list[shim_log.Added]


def start_many(cluster: BenchCluster, starts: int) -> None:
    """Run that many array tasks to their end."""
    lines = []
    while starts > 0:
        tasks = min(starts, ARRAY)
        options = f"-Q -o /dev/null -t 1 --mem=10 --gres=gpu:1 --array=0-{tasks - 1}"
        lines.append(f"sbatch {options} --wrap true")
        starts -= tasks
    cluster.sh("\n".join(lines), user="alice")
    cluster.wait_queue_empty()


def soak(cluster: BenchCluster, variant: str) -> Soaked:
    """One variant, from a fresh slurmctld; ClusterError if a GPU stays in use."""
    cluster.switch(variant)
    cluster.restart_clean()
    start_many(cluster, WARM_UP)
    pid = cluster.slurmctld("pid")
    before_kb = cluster.status_kb(pid, "VmRSS")
    began = time.monotonic()
    start_many(cluster, STARTS)
    took_s = time.monotonic() - began
    cluster.wait_idle()
    if cluster.slurmctld("pid") != pid:
        raise AssertionError(f"{variant}: slurmctld was restarted during the soak")
    # `|| true`: stock has no such line.
    lines = cluster.sh(f"grep -h 'gputopo: job=' {LOG} || true").splitlines()
    return Soaked(before_kb, cluster.status_kb(pid, "VmRSS"), took_s, shim_log.read(lines))


def run() -> Iterator[Figure]:
    """Memory after the starts, ours over stock's; and the starts themselves."""
    with clean() as cluster:
        stock = soak(cluster, "stock")
        ours = soak(cluster, "gputopo")
        failed = cluster.sh(
            "sacct -anPX -o state | sort | uniq -c | grep -v -e COMPLETED || true"
        ).split("\n")
    placed_ms = [one.added_us / 1e3 for one in ours.added if one.result in STARTED]
    if not placed_ms:
        raise AssertionError(f"the plugin placed no job: {shim_log.results(ours.added)}")
    yield at_most(
        "soak.memory",
        ours.after_kb / stock.after_kb,
        "of stock's resident memory",
        BAR_MEMORY,
        compared_with=f"stock after {STARTS} starts: {stock.after_kb / 1024:.1f} MiB",
        detail={
            "starts": STARTS,
            "stock_mib": [round(kb / 1024, 1) for kb in (stock.before_kb, stock.after_kb)],
            "ours_mib": [round(kb / 1024, 1) for kb in (ours.before_kb, ours.after_kb)],
            "took_s": {"stock": round(stock.took_s), "ours": round(ours.took_s)},
            "results": shim_log.results(ours.added),
            "placed_share": round(len(placed_ms) / len(ours.added), 3),
            "added_median_ms": round(quantile(placed_ms, 0.5), 3),
            "added_p99_ms": round(quantile(placed_ms, 0.99), 3),
            "not_completed": [" ".join(line.split()) for line in failed if line],
            "gpus_left_in_use": 0,
            **conditions(),
        },
    )
