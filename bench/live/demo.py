"""`make demo`: a mix of jobs on the real cluster, what stock Slurm takes beside what we take.

Each job runs twice in the same state of the cluster: opted out (`gpu-topo: off`) and as a user
would write it. Its GPUs are those of `scontrol show job -d` and of CUDA_VISIBLE_DEVICES inside the
job, which must agree. Effective bandwidth is that of the set's best ring.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

import policies
from bench.live.demo_mix import MACHINES, MIX, DemoJob
from gres_topology import catalog
from policies.registry import DEFAULT, registry
from simulation.core.link_quality import judge
from simulation.stock import policy_named
from slurm_cluster import description
from slurm_cluster.cluster import Cluster, default_project
from slurm_cluster.hosts import ClusterError, NoEngineError, is_running, until
from slurm_cluster.slurm import RECORD, RECORD_EACH_NODE

Gpus = dict[str, tuple[int, ...]]
OFF = "off"
#: What `make demo` brings up.
SITE = description.PACKAGE / "site.yaml"
START_TIMEOUT_S = 30
#: When `make demo` began, so that its lines and those of cluster.sh count from one moment.
STARTED = float(os.environ.get("GPUTOPO_STARTED") or time.time())


@dataclass(frozen=True)
class Row:
    """One line of the table: a job (or array task) and its GPUs by stock Slurm and by us."""

    job: DemoJob
    stock: Gpus
    ours: Gpus


def effbw_gbps(gpus: Gpus) -> float | None:
    """The best ring of the set, GB/s; the slowest node decides. None for single GPUs."""
    values = [
        judge(catalog.load(MACHINES[node]), indices).effbw_gbps
        for node, indices in gpus.items()
        if len(indices) > 1
    ]
    return min(values, default=None)


def say(step: str) -> None:
    """One line per step, beside the table."""
    print(f"[{time.time() - STARTED:3.0f} s] {step}", file=sys.stderr, flush=True)


# -- live ---------------------------------------------------------------------


def start(cluster: Cluster, job: DemoJob, hint: str) -> list[int]:
    """Submits the job as alice would and waits until all of it runs; the ids of its records."""
    args = [*shlex.split(job.request), "-w", ",".join(job.where)]
    if hint:
        args.append(f"--comment=gpu-topo: {hint}")
    if job.command == "sbatch":
        script = RECORD_EACH_NODE if len(job.where) > 1 else RECORD
        first = cluster.sbatch(*args, script=f"{script}; sleep 600")
    else:
        first = start_interactive(cluster, job.command, args)

    def all_run() -> bool:
        states = [record.state for record in cluster.jobs(first)]
        return states.count("RUNNING") == job.tasks

    until(all_run, f"{job.command} {job.request} runs", START_TIMEOUT_S)
    return [record.id for record in cluster.jobs(first)]


def start_interactive(cluster: Cluster, command: str, args: list[str]) -> int:
    """Leaves srun or salloc running in the background, as at a user's terminal; its job id."""
    name = f"demo-{time.monotonic_ns()}"
    inner = ["sh", "-c", f"{RECORD}; sleep 600"]
    argv = [command, "-J", name, *args, *(["srun"] if command == "salloc" else []), *inner]
    cluster.run("ctl", f"setsid {shlex.join(argv)} >/dev/null 2>&1 </dev/null &", user="alice")
    queued = f"squeue -h -n {name} -o %A"
    until(lambda: cluster.run("ctl", queued).out.strip(), shlex.join(argv), START_TIMEOUT_S)
    return int(cluster.run("ctl", queued).out)


def got(cluster: Cluster, job: DemoJob, ids: list[int]) -> list[Gpus]:
    """What each record got: scontrol's word, confirmed by the job's own environment."""
    sets = []
    for jobid in ids:
        gpus = cluster.job(jobid).gpus
        for node, indices in gpus.items():
            inside = cluster.visible_gpus(jobid, node=node if len(job.where) > 1 else None)
            if sorted(inside) != sorted(indices):
                raise ClusterError(f"job {jobid} on {node}: Slurm says {indices}, inside {inside}")
        sets.append(gpus)
    return sorted(sets, key=str) if job.tasks == 1 else sets


def ask(cluster: Cluster, job: DemoJob, hint: str) -> list[Gpus]:
    """Runs the job, reads what it got, and ends it."""
    ids = start(cluster, job, hint)
    answer = got(cluster, job, ids)
    cluster.cancel(*ids)
    for jobid in ids:
        cluster.wait_finished(jobid)
    return answer


def wait_used(cluster: Cluster, busy: dict[str, tuple[int, ...]]) -> None:
    """Until exactly the busy GPUs are in use again."""
    wanted = {node: set(gpus) for node, gpus in busy.items()}

    def is_so() -> bool:
        used = cluster.gres_used()
        return {node: set(gpus) for node, gpus in used.items() if gpus} == wanted

    until(is_so, f"GPUs in use are {busy}", START_TIMEOUT_S)


def live_rows(cluster: Cluster) -> Iterator[Row]:
    """Every job of the mix, asked twice in the same state."""
    for count, job in enumerate(MIX, 1):
        say(f"job {count} of {len(MIX)}: {job.command} {job.request}")
        cluster.reset()
        for node, gpus in job.busy.items():
            cluster.occupy(node, gpus)
        stock = ask(cluster, job, OFF)
        wait_used(cluster, job.busy)
        ours = ask(cluster, job, job.hint)
        for pair in zip(stock, ours, strict=True):
            yield Row(job, *pair)
    cluster.reset()


# -- without a container engine -------------------------------------------------


def simulated_rows() -> Iterator[Row]:
    """The same mix by the default policy, beside the model of stock Slurm."""
    for job in MIX:
        free = {
            node: (1 << catalog.load(MACHINES[node]).gpus)
            - 1
            - sum(1 << gpu for gpu in job.busy.get(node, ()))
            for node in job.where
        }
        other = dict(free)
        for _ in range(job.tasks):
            yield Row(
                job,
                decide(policy_named("stock"), job, other),
                decide(registry.get(DEFAULT), job, free),
            )


def decide(policy: policies.Policy, job: DemoJob, free: dict[str, int]) -> Gpus:
    """One placement by a policy; the GPUs it takes are no longer free afterwards."""
    nodes = {
        node: policies.NodeState(node, catalog.load(MACHINES[node]), mask)
        for node, mask in free.items()
    }
    request = policies.Request(gpus_per_node=job.gpus_per_node)
    answer = policy.place(request, policies.Cluster(nodes))
    assert isinstance(answer, policies.Placement), answer
    for node, gpus in answer.gpus.items():
        free[node] &= ~sum(1 << gpu for gpu in gpus)
    return {node: tuple(sorted(gpus)) for node, gpus in answer.gpus.items()}


# -- the table --------------------------------------------------------------------


def words(gpus: Gpus) -> str:
    """`dgx1:0,3 dgx2:0-3` in the shortest honest form."""
    return " ".join(f"{node}:{','.join(map(str, ids))}" for node, ids in sorted(gpus.items()))


def table(rows: list[Row], baseline: str) -> Table:
    """The rows as the one table a user sees."""
    drawn = Table(title=None, show_lines=False)
    for name in ("job", "busy GPUs", f"{baseline} takes", "it got"):
        drawn.add_column(name, overflow="fold")
    drawn.add_column("GB/s", justify="right")
    drawn.add_column("GB/s", justify="right", style="bold")
    for row in rows:
        before, after = effbw_gbps(row.stock), effbw_gbps(row.ours)
        hint = f' --comment="gpu-topo: {row.job.hint}"' if row.job.hint else ""
        drawn.add_row(
            f"{row.job.command} {row.job.request}{hint}",
            words(row.job.busy) or "-",
            words(row.stock),
            words(row.ours),
            "-" if before is None else f"{before:.1f}",
            "-" if after is None else f"{after:.1f}",
        )
    return drawn


def main() -> int:
    """Prints the table; 0 if every job got what it asked for."""
    console = Console(width=None if sys.stdout.isatty() else 118)
    try:
        running = is_running(default_project())  # `make demo` has just brought it up
        site = description.read(SITE)
        cluster = Cluster(default_project(), site) if running else Cluster.up(described=site)
    except NoEngineError as reason:
        console.print(f"no live cluster ({reason}); the same job mix in the simulator:")
        console.print(table(list(simulated_rows()), "simulated stock Slurm"))
        return 0
    console.print(table(list(live_rows(cluster)), "stock Slurm"))
    console.print(
        "Same state of the cluster for both; GPUs as `scontrol show job -d` and"
        " CUDA_VISIBLE_DEVICES inside the job say.\n`make shell` opens the"
        " controller, `make cluster-down` ends the cluster."
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ClusterError as error:
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(1)
