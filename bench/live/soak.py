"""soak: many job starts, and what slurmctld's memory does, beside stock Slurm's.

Stock first, then ours, each in a fresh slurmctld without saved state: arrays of `true` with one GPU
run to the end. Memory is read when slurmctld has forgotten the finished jobs. SOAK_STARTS sets the
number (default 10,000; some 15 minutes).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.live import shim_log
from bench.live.cluster import BenchCluster, clean
from bench.live.start import STARTED
from bench.measure import Figure, at_most, conditions, quantile
from slurm_cluster.hosts import until

STARTS = int(os.environ.get("SOAK_STARTS", "10000"))
#: MaxArraySize is 1001 unless a site raises it.
ARRAY = 1_000
#: slurmctld's memory after, over stock's after.
BAR_MEMORY = 1.10
#: The starts before the first reading: tables and caches of slurmctld itself fill.
WARM_UP = 200
#: Finished jobs are forgotten at the next purge, once a minute, not two minutes later.
EXTRA = "MinJobAge=2\n"
FORGET_S = 180.0
LOG = "/var/log/slurm/slurmctld.log"


@dataclass(frozen=True, slots=True)
class Soaked:
    """One variant's run; resident kB after the warm-up, half of the starts, and all."""

    rss_kb: tuple[int, int, int]
    took_s: float
    added: list[shim_log.Added]

    @property
    def late_growth(self) -> float:
        """Bytes per start over the second half: what a leak would show as."""
        return 1024 * (self.rss_kb[2] - self.rss_kb[1]) / (STARTS - STARTS // 2)


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


def resident_kb(cluster: BenchCluster, pid: str) -> int:
    """slurmctld's resident memory once it has forgotten the finished jobs."""
    remembered = "scontrol -o show jobs | grep -c ^JobId= || true"
    until(lambda: cluster.sh(remembered).strip() == "0", "finished jobs are forgotten", FORGET_S)
    return cluster.status_kb(pid, "VmRSS")


def soak(cluster: BenchCluster, variant: str) -> Soaked:
    """One variant, from a fresh slurmctld; ClusterError if a GPU stays in use."""
    cluster.put("ctl", "/cluster/extra.conf", EXTRA)
    cluster.switch(variant)
    cluster.restart_clean()
    pid = cluster.slurmctld("pid")
    rss_kb, took_s = [], 0.0
    for starts in (WARM_UP, STARTS // 2, STARTS - STARTS // 2):
        began = time.monotonic()
        start_many(cluster, starts)
        took_s += time.monotonic() - began
        cluster.wait_idle()
        rss_kb.append(resident_kb(cluster, pid))
    if cluster.slurmctld("pid") != pid:
        raise AssertionError(f"{variant}: slurmctld was restarted during the soak")
    # `|| true`: stock has no such line.
    lines = cluster.sh(f"grep -h 'gputopo: job=' {LOG} || true").splitlines()
    return Soaked((rss_kb[0], rss_kb[1], rss_kb[2]), took_s, shim_log.read(lines))


def detail_of(stock: Soaked, ours: Soaked) -> dict[str, Any]:
    """The readings of both, and what came of the plugin's questions."""
    placed_ms = [one.added_us / 1e3 for one in ours.added if one.result in STARTED]
    if not placed_ms:
        raise AssertionError(f"the plugin placed no job: {shim_log.results(ours.added)}")
    both = {"stock": stock, "ours": ours}
    return {
        "starts": STARTS,
        "mib_warm_half_end": {
            name: [round(kb / 1024, 1) for kb in one.rss_kb] for name, one in both.items()
        },
        "second_half_bytes_per_start": {name: round(one.late_growth) for name, one in both.items()},
        "starts_per_s": {
            name: round((WARM_UP + STARTS) / one.took_s, 1) for name, one in both.items()
        },
        "results": shim_log.results(ours.added),
        "placed_share": round(len(placed_ms) / len(ours.added), 3),
        "added_median_ms": round(quantile(placed_ms, 0.5), 3),
        "added_p99_ms": round(quantile(placed_ms, 0.99), 3),
        "gpus_left_in_use": 0,
        **conditions(),
    }


def run() -> Iterator[Figure]:
    """Memory after the starts, ours over stock's; and the starts themselves."""
    with clean() as cluster:
        stock = soak(cluster, "stock")
        ours = soak(cluster, "gputopo")
    yield at_most(
        "soak.memory",
        ours.rss_kb[2] / stock.rss_kb[2],
        "of stock's resident memory",
        BAR_MEMORY,
        compared_with=f"stock after {STARTS} starts: {stock.rss_kb[2] / 1024:.1f} MiB",
        detail=detail_of(stock, ours),
    )
