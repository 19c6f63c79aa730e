"""start: time added per job start, measured inside the select plugin, on five nodes.

Question, answer and second selection together, as the plugin logs them for every job it
asked about, while a seeded mix of jobs fills and drains the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from bench.live import shim_log
from bench.live.cluster import BenchCluster, clean
from bench.live.job_mix import mix, script
from bench.measure import Figure, at_most, conditions, quantile

JOBS = 300
LONGEST_S = 1.5
SEED = 1
BAR_MS = 2.0
#: Results in which the plugin asked and selected a second time.
STARTED = ("used", "alt")


def added_by_mix(
    cluster: BenchCluster, jobs: int, partitions: tuple[str, ...]
) -> list[shim_log.Added]:
    """What the plugin logged while the mix ran; AssertionError if a GPU stays in use."""
    rng = Random(SEED)
    text = script(mix(jobs, rng, partitions), rng, LONGEST_S)
    with cluster.slurmctld_log_of() as lines:
        cluster.sh(text, user="alice")
        cluster.wait_queue_empty()
        cluster.wait_idle()
    return shim_log.read(lines)


def figure(name: str, added: Sequence[shim_log.Added], **more: Any) -> Figure:
    """The median over the starts; AssertionError when the plugin placed no job."""
    started = [one.added_us / 1e3 for one in added if one.result in STARTED]
    if not started:
        raise AssertionError(f"the plugin placed no job: {shim_log.results(added)}")
    detail = {
        "p99_ms": round(quantile(started, 0.99), 3),
        "max_ms": round(max(started), 3),
        "starts": len(started),
        "results": shim_log.results(added),
        "seed": SEED,
        **more,
        **conditions(),
    }
    return at_most(name, quantile(started, 0.5), "ms", BAR_MS, detail=detail)


def run() -> Iterator[Figure]:
    """The five nodes of the cluster, all of them candidates, or the two dgx alone."""
    with clean() as cluster:
        yield figure("start.5_nodes", added_by_mix(cluster, JOBS, ("gpu", "gpu", "dgx")), nodes=5)
