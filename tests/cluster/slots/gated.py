"""Jobs behind their gates: how to make one, and what the engine says of them."""

import json
from contextlib import AbstractContextManager
from typing import Any

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.slurm_text import Job


def gated(cluster: Cluster, *args: str, user: str = "alice") -> int:
    """A job that waits behind its gate; its id."""
    jobid = cluster.sbatch(*args, user=user, sleep_s=300)
    until(lambda: is_gated(cluster.job(jobid)), f"job {jobid} waits behind its gate")
    return jobid


def renewed(cluster: Cluster, jobid: int) -> None:
    """Waits until the job's gate is shut for longer than now."""
    begin = cluster.time_of(jobid, "EligibleTime")
    until(lambda: cluster.time_of(jobid, "EligibleTime") > begin, f"the gate of {jobid} is renewed")


def is_gated(job: Job) -> bool:
    """Does the job wait for the engine?"""
    return job.state == "PENDING" and "[gpu-slots: gated " in job.admin_comment


def stays_gated(cluster: Cluster, jobid: int) -> bool:
    """Has the reconciler left the job, or every part of it, behind its gate?"""
    cluster.wait_reconciled()
    cluster.wait_reconciled()  # begins when all that the first one decided is done
    return all(map(is_gated, cluster.jobs(jobid)))


def engine_away(cluster: Cluster) -> AbstractContextManager[None]:
    return cluster.temporarily("clusterctl engine kill", "clusterctl engine start")


def listed(cluster: Cluster) -> list[dict[str, Any]]:
    """`gputopo slots list`."""
    result = json.loads(cluster.run("ctl", ["gputopo", "slots", "list", "--json"]).out)
    return list(result["jobs"])
