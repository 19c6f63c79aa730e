"""What the live tests of the whole share: bulk submits, the policies' answer, a watch on GPUs."""

import json
import os
import shlex
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
from slurm_cluster.hosts import ClusterError, Result, until
from slurm_cluster.slurm import RECORD
from slurm_cluster.slurm_text import Job, parse_indices, parse_jobs

Gpus = dict[str, tuple[int, ...]]
Busy = Mapping[str, Sequence[int]]

#: Marks of most live tests: of placements that must be enforced, in each way of enforcing.
IN_BOTH_MODES = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]
_OURS = description.read(description.DEFAULT)
#: Which machine of the catalog each node is, and how many GPUs it has.
MACHINES = _OURS.machines
GPUS = _OURS.gpus
HOLD = f"{RECORD}; sleep 300"
CONFIG = "/etc/slurm/gputopo.yaml"
#: Prints the files of ours on a host.
OURS_ON_A_NODE = r"find / -xdev \( -iname '*gputopo*' -o -path '/usr/local/lib/*.so' \) -print"
WATCH_S = 0.2
#: A job that waits while these GPUs of dgx1 are in use: the other two are far from each other.
PICKY = "--comment=gpu-topo: min-utility=0.9"
TAKEN = (1, 2, 3, 4, 6, 7)


#: Slurm 22.05 writes "gres:gpu:2" for "gres/gpu:2", and gives srun and salloc no slots.
OLD = os.environ.get("SUITE") == "bookworm" and not os.environ.get("SLURM_PREFIX")
GPU = "gres:gpu:" if OLD else "gres/gpu:"
SHOW_GPUS = "echo gpus $CUDA_VISIBLE_DEVICES"
not_on_old = pytest.mark.skipif(OLD, reason="on 22.05 srun and salloc get no slots")


def gpus_of_tasks(result: Result) -> set[tuple[int, ...]]:
    """What every task of SHOW_GPUS saw."""
    lines = [line for line in result.out.splitlines() if line.startswith("gpus ")]
    assert lines, result
    return {parse_indices(line.removeprefix("gpus ")) for line in lines}


def configure_engine(cluster: Cluster, lines: str) -> None:
    """Adds lines to gputopo.yaml until the next reset."""
    cluster.run("ctl", ["sh", "-c", f'printf "%s\\n" "$1" >>{CONFIG}', "sh", lines])
    cluster.engine("restart")


def preemption(node: str) -> str:
    """Lines of slurm.conf: jobs of partition `high` end those of `low` on this node."""
    partition = "PartitionName={} Nodes={} PriorityTier={} DefaultTime=10"
    parts = [partition.format("low", node, 1), partition.format("high", node, 9)]
    return "\n".join(["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", *parts])


def submit_many(
    cluster: Cluster, requests: Sequence[Sequence[str]], *, script: str = HOLD, user: str = "alice"
) -> list[int]:
    """Submits a job per list of options, in order, in one go; ClusterError if one is refused."""
    common = ["sbatch", "--parsable", "-o", "/dev/null"]
    lines = [shlex.join([*common, *args, "--wrap", script]) for args in requests]
    done = cluster.run("ctl", " && ".join(lines), user=user, timeout_s=120)
    return [int(word) for word in done.out.split()]


def all_jobs(cluster: Cluster) -> list[Job]:
    return parse_jobs(cluster.run("ctl", ["scontrol", "show", "job", "-d"]).out)


def running(cluster: Cluster, ids: Sequence[int]) -> list[Gpus]:
    """The GPUs of each job once all of them run; ClusterError names those that do not."""
    deadline = time.monotonic() + 60
    while True:
        found = {job.id: job for job in all_jobs(cluster)}
        late = [found.get(i) for i in ids if i not in found or found[i].state != "RUNNING"]
        if not late:
            return [found[jobid].gpus for jobid in ids]
        if time.monotonic() > deadline:
            raise ClusterError(f"not running within 60 s: {late}")
        time.sleep(0.1)


def visible(cluster: Cluster, ids: Sequence[int]) -> list[tuple[int, ...]]:
    """CUDA_VISIBLE_DEVICES inside each job, ascending."""
    paths = " ".join(f"/home/alice/job.{jobid}.env" for jobid in ids)
    until(lambda: not cluster.run("ctl", f"ls {paths}", check=False).code, paths, 30)
    lines = cluster.run("ctl", f"grep -h ^CUDA_VISIBLE_DEVICES= {paths}").out.splitlines()
    assert len(lines) == len(ids), lines
    return [tuple(sorted(parse_indices(line.split("=", 1)[1]))) for line in lines]


def end(cluster: Cluster, ids: Sequence[int], left: Busy | None = None) -> None:
    """Cancels jobs and waits until exactly the GPUs in `left` are in use."""
    cluster.cancel(*ids)
    until(lambda: is_used(cluster, left or {}), f"only {left or 'nothing'} in use", 60)
    cluster.wait_reconciled()


def is_used(cluster: Cluster, busy: Busy) -> bool:
    """Whether exactly these GPUs are in use."""
    return cluster.gres_used() == {node: tuple(sorted(busy.get(node, ()))) for node in GPUS}


def kill_slurmctld(cluster: Cluster) -> None:
    """SIGKILL, and a new slurmctld on what was saved."""
    cluster.saved()
    cluster.slurmctld("kill")
    cluster.slurmctld("start")


def eligible_time(cluster: Cluster, jobid: int) -> int:
    """The job's begin time, as Unix time."""
    return time_of(cluster, jobid, "EligibleTime")


def time_of(cluster: Cluster, jobid: int, field: str) -> int:
    """A time that Slurm tells of a job, as Unix time."""
    text = cluster.job(jobid).fields[field]
    return int(cluster.run("ctl", ["date", "-d", text, "+%s"]).out)


def postponed(cluster: Cluster, jobid: int) -> Job:
    """The job's record once it shows that it was postponed."""
    until(lambda: cluster.job(jobid).reason == "BeginTime", f"job {jobid}: Reason=BeginTime")
    return cluster.job(jobid)


def admin_comment(cluster: Cluster, jobid: int) -> str:
    """The job's AdminComment; "" where it has none."""
    return cluster.job(jobid).fields.get("AdminComment", "")


def explained(cluster: Cluster, job: object, user: str = "root") -> dict[str, Any]:
    """`gputopo explain JOB --json`, asked by this user."""
    argv = ["gputopo", "explain", str(job), "--json"]
    found: dict[str, Any] = json.loads(cluster.run("ctl", argv, user=user).out)
    return found


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
    wish = hints.parse(hint)
    policy = registry.get(hints.policy_of(wish))
    answer = policy.place(hints.to_request(wish, tuple(counts)), Snapshot(states))
    assert isinstance(answer, Placement), answer
    return {node: tuple(sorted(gpus)) for node, gpus in answer.gpus.items()}


def advised_again(cluster: Cluster, *, start_s: float = 60, timeout_s: float = 90) -> None:
    """After a fault jobs get our GPUs again, once the callers ask again, and in time."""

    def is_ours() -> bool:
        jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", script="sleep 300")
        got = cluster.wait_running(jobid, timeout_s=start_s).gpus
        end(cluster, [jobid])
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
            found = self._cluster.run("ctl", ["scontrol", "show", "job", "-d"], check=False)
            if not found.code:
                self.samples += 1
                self._check(parse_jobs(found.out))
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
