"""What Slurm shows of a submitted job, and what advice may have cost it or somebody else."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import ClusterError
from slurm_cluster.slurm_text import Job, parse_jobs
from slurm_plugin.base.job_notes.hints import postponed_until

#: What Slurm calls a job that it has not looked at since something changed.
UNSEEN = ("None", "")
LIVES = ("PENDING", "RUNNING", "SUSPENDED")
#: From one look at the books to the next, and until they show no change.
LOOK_S, SETTLED_S = 0.15, 20.0


@dataclass(frozen=True)
class Books:
    """What Slurm shows at one moment."""

    jobs: dict[int, Job]
    #: Nodes that one user or label alone may use now.
    closed: frozenset[str] = frozenset()

    def states(self) -> dict[int, tuple[str, str]]:
        """State and reason by job."""
        return {jobid: (job.state, job.reason) for jobid, job in self.jobs.items()}

    def of(self, submitted: int) -> dict[str, Job]:
        """A submitted job's records: tasks of an array, components of a heterogeneous job.

        By what tells them apart in two jobs that are alike.
        """
        found = {}
        for job in self.jobs.values():
            leaders = map(job.fields.get, ("ArrayJobId", "HetJobId"))
            if job.id == submitted or str(submitted) in leaders:
                part = job.fields.get("ArrayTaskId") or job.fields.get("HetJobOffset", "")
                found[part] = job
        return found


def books(cluster: Cluster) -> Books:
    shown = cluster.run("ctl", "scontrol show job -d; echo; echo ==; scontrol -o show node").out
    jobs, _, nodes = shown.partition("\n==\n")
    marks = re.findall(r"^NodeName=(\S+) .* Owner=(\S+) MCS_label=(\S+)", nodes, re.MULTILINE)
    closed = [name for name, *both in marks if not {*both} <= {"N/A", "(null)"}]
    return Books({job.id: job for job in parse_jobs(jobs)}, frozenset(closed))


def settled(cluster: Cluster, submitted: int) -> Books:
    """The books once Slurm has looked at the job, and nothing changes any more."""
    before, until_s = None, time.monotonic() + SETTLED_S
    while time.monotonic() < until_s:
        now = books(cluster)
        busy = any(job.state in ("COMPLETING", "CONFIGURING") for job in now.jobs.values())
        own = now.of(submitted).values()
        is_seen = all(job.state != "PENDING" or job.reason not in UNSEEN for job in own)
        if before is not None and is_seen and not busy and now.states() == before.states():
            return now
        before = now
        time.sleep(LOOK_S)
    raise ClusterError(f"the queue does not settle: {before and before.states()}")


def of_job(job: Job, ignored: tuple[str, ...] = ()) -> dict[str, object]:
    """What a job has, wherever it has it: the model of its GPUs is part of where."""
    every = ("NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "Requeue", "Restarts")
    kept = [key for key in every if key not in ignored]
    parts = job.fields.get("AllocTRES", "").split(",")
    tres = [part for part in parts if not part.startswith(("billing", "gres/gpu:"))]
    return {key: job.fields.get(key) for key in kept} | {"TRES": ",".join(tres)}


def others(now: Books, submitted: int) -> dict[int, tuple[object, ...]]:
    """All other jobs: state, and what each has where."""
    own = {job.id for job in now.of(submitted).values()}
    return {
        other.id: (other.state, other.nodes, other.gpus, other.cores)
        for other in now.jobs.values()
        if other.id not in own and other.state in LIVES
    }


def twice(now: Books) -> list[str]:
    """GPUs that two jobs hold."""
    held = Counter(
        (node, gpu)
        for job in now.jobs.values()
        if job.state in ("RUNNING", "SUSPENDED")
        for node, gpus in job.gpus.items()
        for gpu in gpus
    )
    return [f"{node}: GPU {gpu}" for (node, gpu), count in held.items() if count > 1]


def shared_cores(now: Books) -> int:
    """Cores that more than one running job has."""
    held = Counter(
        (node, core)
        for job in now.jobs.values()
        if job.state == "RUNNING"
        for node, cores in job.cores.items()
        for core in cores
    )
    return sum(count > 1 for count in held.values())


def harms(alone: Books, own: int, advised: Books, ours: int) -> list[str]:
    """What the advised job, or another one, has to suffer that stock Slurm spared them."""
    one, two = alone.of(own).values(), advised.of(ours).values()
    found = [f"held twice: {text}" for text in twice(advised)]
    shown = ", ".join(f"{job.state} ({job.reason}) {job.admin_comment}".strip() for job in two)
    if running(two) < running(one) and not any(map(is_told_to_wait, two)):
        found.append(f"does not start: {shown}")
    elif _count(two, LIVES) < _count(one, LIVES):
        found.append(f"ended: {shown}")
    elif _count(two, ("SUSPENDED",)) > _count(one, ("SUSPENDED",)):
        found.append(f"suspended: {shown}")
    if _held(two) > _held(one):
        found.append("held")
    # Who waited may have started meanwhile, and closes nodes of its own.
    before, now = (others(seen, job) for seen, job in ((alone, own), (advised, ours)))
    waited = {j for j, has in before.items() if has[0] == "PENDING"}
    if lost := {j: has for j, has in before.items() if j not in waited and now.get(j) != has}:
        found.append(f"others: {[(has, now.get(j)) for j, has in lost.items()]}")
    if shared_cores(advised) > shared_cores(alone):
        found.append("cores of others")
    closed = advised.closed - {node for j in waited & now.keys() for node in advised.jobs[j].nodes}
    if len(closed) > len(alone.closed):
        found.append(
            f"{len(closed)} nodes closed, with Slurm {len(alone.closed)}: {sorted(closed)}"
        )
    return found


def _count(jobs: Iterable[Job], states: tuple[str, ...]) -> int:
    return sum(job.state in states for job in jobs)


def running(jobs: Iterable[Job]) -> int:
    """How many of them run."""
    return _count(jobs, ("RUNNING",))


def _held(jobs: Iterable[Job]) -> int:
    return sum(job.fields.get("Priority") == "0" for job in jobs)


def is_told_to_wait(job: Job) -> bool:
    """Does the job wait for better GPUs, and say so?"""
    return job.state == "PENDING" and bool(postponed_until(job.admin_comment))
