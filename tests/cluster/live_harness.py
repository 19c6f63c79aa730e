"""What the live tests of the whole share: bulk submits, the policies' answer, a watch on GPUs."""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from gres_topology import NodeTopology, catalog
from policies import Cluster as Snapshot
from policies import NodeState, Placement, hints
from policies.registry import registry
from slurm_cluster import description
from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import CommandResult, until
from slurm_cluster.slurm_text import Job, parse_indices, parse_jobs

Gpus = dict[str, tuple[int, ...]]
Busy = Mapping[str, Sequence[int]]

#: Marks of most live tests: of placements that must be enforced, in each way of enforcing.
IN_BOTH_MODES = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]
_OURS = description.read(description.DEFAULT)
#: Which machine of the catalog each node is, and how many GPUs it has.
MACHINES = _OURS.machines
GPUS = _OURS.gpus
CONFIG = "/etc/slurm/gputopo.yaml"
#: Prints the files of ours on a host.
OURS_ON_A_NODE = r"find / -xdev \( -iname '*gputopo*' -o -path '/usr/local/lib/*.so' \) -print"
WATCH_S = 0.2
#: How long a job may take to start where nothing keeps it, in seconds.
SOON_S = 8
#: A job that waits while these GPUs of dgx1 are in use: the other two are far from each other.
PICKY = "--comment=gpu-topo: min-utility=0.9"
TAKEN = (1, 2, 3, 4, 6, 7)


#: Slurm 22.05 writes "gres:gpu:2" for "gres/gpu:2", and gives srun and salloc no slots.
OLD = os.environ.get("SUITE") == "bookworm" and not os.environ.get("SLURM_PREFIX")
GPU = "gres:gpu:" if OLD else "gres/gpu:"
SHOW_GPUS = "echo gpus $CUDA_VISIBLE_DEVICES"
not_on_old = pytest.mark.skipif(OLD, reason="on 22.05 srun and salloc get no slots")


def goes_by_links(cluster: Cluster) -> bool:
    """Stock Slurm takes linked GPUs; since 24.05 the lowest ones, for most requests."""
    return cluster.release < (24, 5)


def gpus_of_tasks(result: CommandResult) -> set[tuple[int, ...]]:
    """What every task of SHOW_GPUS saw."""
    lines = [line for line in result.out.splitlines() if line.startswith("gpus ")]
    assert lines, result
    return {parse_indices(line.removeprefix("gpus ")) for line in lines}


def configure_engine(cluster: Cluster, lines: str) -> None:
    """Adds lines to gputopo.yaml until the next reset."""
    cluster.put("ctl", CONFIG, f"{cluster.read('ctl', CONFIG)}{lines}\n")
    cluster.engine("restart")


def at_home(*, autouse: bool = False, **settings: Any) -> Any:
    """A fixture of a file of tests: a reset leads to a cluster like that (`Cluster.at_home`)."""

    @pytest.fixture(scope="module", autouse=autouse)
    def home(session_cluster: Cluster) -> Iterator[Cluster]:
        with session_cluster.at_home(**settings):
            yield session_cluster

    return home


def preemption(node: str) -> str:
    """Lines of slurm.conf: jobs of partition `high` end those of `low` on this node."""
    partition = "PartitionName={} Nodes={} PriorityTier={} DefaultTime=10"
    parts = [partition.format("low", node, 1), partition.format("high", node, 9)]
    return "\n".join(["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", *parts])


def visible(cluster: Cluster, ids: Sequence[int]) -> list[tuple[int, ...]]:
    """CUDA_VISIBLE_DEVICES inside each job, ascending."""
    return [tuple(sorted(cluster.visible_gpus(jobid))) for jobid in ids]


def becomes(cluster: Cluster, options: Sequence[str]) -> str:
    """`starts`, `waits` or `refused`: what becomes of a job of alice's, who has no other one."""
    words = ["sbatch", "--parsable", "-o/dev/null", "-t5", *options, "--wrap=sleep 99"]
    job = cluster.run("ctl", words, user="alice", check=False)
    if job.code:
        return "refused"
    end = time.monotonic() + SOON_S
    state = "PENDING"
    while state != "RUNNING" and time.monotonic() < end:
        time.sleep(0.5)
        state = cluster.job(int(job.out)).state
    cluster.cancel(int(job.out))
    until(lambda: not cluster.run("ctl", "squeue -h -u alice").out.strip(), "the job is over", 60)
    return "starts" if state == "RUNNING" else "waits"


def got_by(cluster: Cluster, *args: str) -> Gpus:
    """What one job of these options gets; it ends before this returns."""
    job = cluster.started(*args, script="sleep 300")
    cluster.cancel(job.id)
    cluster.wait_finished(job.id)
    cluster.wait_reconciled()
    return job.gpus


def kill_slurmctld(cluster: Cluster) -> None:
    """SIGKILL, and a new slurmctld on what was saved."""
    cluster.saved()
    cluster.slurmctld("kill")
    cluster.slurmctld("start")


def explained(cluster: Cluster, job: object, user: str = "root") -> dict[str, Any]:
    """`gputopo explain JOB --json`, asked by this user."""
    argv = ["gputopo", "explain", str(job), "--json"]
    output: dict[str, Any] = json.loads(cluster.run("ctl", argv, user=user).out)
    return output


def topology_of(node: str) -> NodeTopology:
    return catalog.load(MACHINES[node])


def by_policy(busy: Busy, counts: Sequence[int], nodes: Sequence[str], hint: str = "") -> Gpus:
    """The GPUs the policy itself gives, asked in this process, ascending per node."""
    states = {
        node: NodeState(
            node,
            topology_of(node),
            (1 << GPUS[node]) - 1 - sum(1 << gpu for gpu in busy.get(node, ())),
        )
        for node in nodes
    }
    parsed = hints.parse(hint)
    policy = registry.get(hints.policy_of(parsed))
    answer = policy.place(hints.to_request(parsed, tuple(counts)), Snapshot(states))
    assert isinstance(answer, Placement), answer
    return {node: tuple(sorted(gpus)) for node, gpus in answer.gpus.items()}


def advised_again(cluster: Cluster, *, start_s: float = 60, timeout_s: float = 90) -> None:
    """After a fault jobs get our GPUs again, once the callers ask again, and in time."""

    def is_ours() -> bool:
        jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", script="sleep 300")
        got = cluster.wait_running(jobid, timeout_s=start_s).gpus
        cluster.end([jobid])
        return got == by_policy({}, (2,), ("dgx1",))

    until(is_ours, "advice after the fault", timeout_s)


class Watch:
    """Samples Slurm's books beside a test: GPUs held twice, and what each job ever held."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster.again()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples = 0
        self.twice: list[str] = []
        self.held: dict[int, set[tuple[tuple[str, tuple[int, ...]], ...]]] = {}

    def _run(self) -> None:
        while True:
            # slurmctld may be away for a moment; that is part of some tests
            output = self._cluster.run("ctl", ["scontrol", "show", "job", "-d"], check=False)
            if not output.code:
                self.samples += 1
                self._check(parse_jobs(output.out))
            if self._stop.wait(WATCH_S):
                return

    def _check(self, jobs: list[Job]) -> None:
        owner: dict[tuple[str, int], int] = {}
        for job in jobs:
            if job.state not in ("RUNNING", "SUSPENDED"):
                continue
            self.held.setdefault(job.id, set()).add(tuple(sorted(job.gpus.items())))
            for node, gpus in job.gpus.items():
                for gpu in gpus:
                    other = owner.setdefault((node, gpu), job.id)
                    if other != job.id:
                        self.twice.append(f"{node} GPU {gpu}: jobs {other} and {job.id}")


@contextmanager
def watched(cluster: Cluster) -> Iterator[Watch]:
    """A block during which no GPU may be held by two jobs at any moment."""
    watch = Watch(cluster)
    watch._thread.start()
    try:
        yield watch
    finally:
        watch._stop.set()
        watch._thread.join(30)
    assert watch.samples, "the watch saw nothing"
    assert not watch.twice, f"GPU held by two jobs: {watch.twice}"
