"""Jobs that Slurm spreads over several nodes start as soon as with Slurm alone."""

import pytest

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_plugin.act.gates.admission import SPREAD
from tests.cluster.slots.gated import gated, is_gated, stays_gated

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

#: Three GPUs of each of two nodes are free.
BUSY = {"dgx1": range(3, 8), "dgx2": range(3, 8)}
FORMS = (
    ("--gpus=4",),
    ("--gpus=v100:5",),
    ("--gpus=4", "-n4"),
    ("--gpus=4", "--gpus-per-task=2"),
    ("--gpus-per-task=2", "-n2"),
    ("--gpus=4", "--ntasks-per-gpu=1"),
    ("--gpus=4", "--cpus-per-gpu=2"),
    ("--gpus=4", "--mem-per-gpu=20"),
    ("--gpus=4", "-N1-2"),
)


def spread(cluster: Cluster, jobid: int, count: int) -> None:
    """The job runs with so many GPUs, on both nodes, and says why."""
    job = cluster.wait_running(jobid, timeout_s=15)
    assert sorted(job.gpus) == ["dgx1", "dgx2"]
    assert sum(map(len, job.gpus.values())) == count
    assert SPREAD in job.admin_comment


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_who_has_room_on_two_nodes_alone_starts_at_once(cluster, watch, form):
    cluster.occupy_nodes(BUSY)
    jobid = cluster.sbatch("-p", "dgx", *form, sleep_s=60)
    spread(cluster, jobid, 5 if "--gpus=v100:5" in form else 4)


def test_a_job_of_one_node_waits_for_it(cluster, watch):
    cluster.occupy_nodes(BUSY)
    jobid = gated(cluster, "-p", "dgx", "-N1", "--gpus=4")
    assert stays_gated(cluster, jobid)


def test_who_waits_is_spread_once_gpus_come_free(cluster, watch):
    cluster.occupy_nodes(BUSY)
    last = cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=300).id
    jobid = gated(cluster, "-p", "dgx", "--gpus=6")
    cluster.cancel(last)
    spread(cluster, jobid, 6)


def test_of_an_array_one_task_is_spread_and_the_others_wait(cluster, watch):
    cluster.occupy_nodes(BUSY)
    jobid = cluster.sbatch("-p", "dgx", "--array=0-2", "--gpus=4", sleep_s=60)
    until(lambda: [j.state for j in cluster.jobs(jobid)].count("RUNNING") == 1, "one runs", 20)
    others = [job for job in cluster.jobs(jobid) if job.state != "RUNNING"]
    cluster.wait_reconciled()
    assert others
    assert all(map(is_gated, others))
