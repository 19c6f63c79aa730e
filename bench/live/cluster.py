"""The live cluster of the benchmarks: the tests' harness, and what only a benchmark needs.

A cluster of its own (project GPUTOPO_PROJECT, by default the checkout's with `-bench`), started on
first use and taken down at exit when it was started here.
"""

from __future__ import annotations

import atexit
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from slurm_cluster.cluster import Cluster, default_project, image
from slurm_cluster.description import Description
from slurm_cluster.hosts import ClusterError, is_running, until

ASSETS = Path(__file__).resolve().parents[1] / "assets"
#: Where the benchmarks keep their own programs in the controller's container.
BENCH_DIR = "/opt/bench"
#: Longest a figure may take; a job that never ends must not hold `make bench` for ever.
LONGEST_S = 3600.0


class BenchCluster(Cluster):
    """The harness with files, saved state and processes besides."""

    def sh(self, script: str, *, user: str = "root") -> str:
        """A bash script's output on the controller; ClusterError when any command in it fails."""
        command = ["bash", "-euo", "pipefail", "-c", script]
        return str(self.run("ctl", command, user=user, timeout_s=LONGEST_S).out)

    def restart_clean(self) -> None:
        """Restart slurmctld without any job of before: its saved state and its log go."""
        self.sh(
            "clusterctl slurmctld stop; rm -rf /var/spool/slurmctld/*;"
            " : >/var/log/slurm/slurmctld.log; clusterctl slurmctld start"
        )
        self.wait_nodes_idle()

    def wait_nodes_idle(self, timeout_s: float = 60) -> None:
        """Until every node is idle; ClusterError after `timeout_s`."""
        busy = "sinfo -h -N -o '%N %T' | { grep -v ' idle$' || true; }"
        until(lambda: not self.sh(busy), "every node is idle", timeout_s)

    def wait_queue_empty(self) -> None:
        """Until no job is pending or running; ClusterError after an hour."""
        until(lambda: not self.sh("squeue -h -r -o %T"), "no job is left", LONGEST_S)

    def status_kb(self, pid: str, key: str) -> int:
        """A field of /proc/PID/status in kB (VmRSS, VmHWM)."""
        text = self.run("ctl", ["cat", f"/proc/{pid}/status"]).out
        match = re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE)
        if not match:
            raise ClusterError(f"/proc/{pid}/status has no {key}")
        return int(match[1])


def _down(cluster: BenchCluster) -> None:
    if not os.environ.get("GPUTOPO_KEEP"):
        cluster.down()


@cache
def shared() -> BenchCluster:
    """The one cluster of this run: the one that runs already, or a new one."""
    project = default_project("-bench")
    ran_before = is_running(project)
    cluster = BenchCluster.up(project)
    if not ran_before:
        atexit.register(_down, cluster)
    return cluster


@contextmanager
def described(purpose: str, nodes: Description) -> Iterator[BenchCluster]:
    """A cluster of other nodes than the usual, for the length of a block; clean at its beginning.

    GPUTOPO_KEEP leaves it for the next run. `purpose` is behind the checkout's name.
    """
    cluster = BenchCluster.up(default_project(purpose), described=nodes)
    try:
        cluster.reset()
        yield cluster
    finally:
        _down(cluster)


@contextmanager
def clean() -> Iterator[BenchCluster]:
    """The cluster, clean before and after a benchmark: variant gputopo, engine running, no job."""
    cluster = shared()
    cluster.reset()
    try:
        yield cluster
    finally:
        cluster.reset()


def build_client(source: Path, out: Path) -> None:
    """Compile a C client of libslurm in the builder image into the folder `out`.

    The library goes beside it, since a controller host need not have libslurm.
    """
    options = f"'-Wl,-rpath,$ORIGIN' -o /out/{source.stem}"
    _compile(source, out, options, "-lslurm && cp -L /usr/lib/*/libslurm.so.[0-9][0-9] /out/")


def build_library(source: Path, out: Path) -> None:
    """Compile a shared library to be preloaded, in the builder image, into the folder `out`."""
    _compile(source, out, f"-shared -fPIC -o /out/{source.stem}.so")


def _compile(source: Path, out: Path, options: str, behind: str = "") -> None:
    out.mkdir(parents=True, exist_ok=True)
    script = f"gcc -O2 -Wall -Wextra -Werror {options} /src/{source.name} {behind}"
    builder = image("builder", os.environ.get("SUITE") or "trixie")
    mounts = ["-v", f"{source.parent}:/src:ro", "-v", f"{out}:/out"]
    subprocess.run(["docker", "run", "--rm", *mounts, builder, "sh", "-c", script], check=True)
