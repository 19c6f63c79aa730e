"""A node is out of reach, stands still, or is gone with all that ran there; also while it lends."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from lending_harness import BUSY, borrower, donors, echoed, nothing_is_left, occupy
from live_harness import IN_BOTH_MODES, by_policy

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [
    *IN_BOTH_MODES,
    pytest.mark.long("a minute until Slurm calls a node dead"),
    pytest.mark.timeout(900),
]


@contextmanager
def without_slurmd(cluster: Cluster, node: str) -> Iterator[None]:
    """Jobs live on there, and Slurm knows nothing of them."""
    cluster.expects("ended without a successor")
    with cluster.without("slurmd", node):
        yield


FAULTS = {
    "out of reach": Cluster.disconnected,
    "standing still": Cluster.paused,
    "gone": Cluster.killed,
    "without slurmd": without_slurmd,
}
#: Slurm gives up a node after 25 s here (lending_harness.prepare), or within a ping of 8 s more.
DOWN_S = 120


def is_down(cluster: Cluster, node: str) -> bool:
    return "down" in cluster.run("ctl", f"sinfo -h -n {node} -o %T").out


def is_up(cluster: Cluster, *nodes: str) -> bool:
    output = cluster.run("ctl", f"sinfo -h -n {','.join(nodes)} -o %T").out
    return not set(output.split()) - {"idle", "mixed"}


def as_before(cluster: Cluster) -> None:
    """bob's jobs died with their node and may be anywhere now: they hold the same GPUs again.

    One node that does not answer delays Slurm's pings of the other, which may count as dead, too.
    """
    until(lambda: is_up(cluster, *BUSY), "the nodes are up again", DOWN_S)
    cluster.run("ctl", "squeue -h -u bob -o %A | sort -u | xargs -r scancel")
    until(lambda: not cluster.run("ctl", "squeue -h -u bob").out, "bob has no job", 60)
    occupy(cluster, BUSY)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_node_of_a_donor_is(lending, fault):
    """The borrower is put back; once there are GPUs again it meets a donor and runs."""
    job = borrower(lending)
    [donor] = donors(lending)
    [node] = donor.gpus
    lending.run("ctl", f"rm -f /home/alice/echo.{job.id}")
    # Held while it runs still: where its own node counts as dead, too, and answers again at once,
    # bob's jobs are gone from there, and it would start on GPUs that they are to have again.
    lending.run("ctl", f"scontrol hold {job.id}")
    with FAULTS[fault](lending, node):
        until(lambda: int(lending.job(job.id).fields["Restarts"]) > 0, "it is put back", DOWN_S)
        until(lambda: is_down(lending, node), f"{node} is down", DOWN_S)
    as_before(lending)
    lending.run("ctl", f"scontrol release {job.id}")
    lending.wait_running(job.id, timeout_s=200)
    assert echoed(lending, job.id)[-1] == "exit 0"
    lending.cancel(job.id)
    nothing_is_left(lending)


@pytest.mark.parametrize("fault", ["gone", "without slurmd"])
def test_the_node_of_a_borrower_is(lending, fault):
    """Its donor does not outlive it."""
    job = borrower(lending)
    [node] = job.gpus
    with FAULTS[fault](lending, node):
        until(lambda: not donors(lending), "no donor is left", DOWN_S)
    lending.cancel(job.id)
    as_before(lending)
    nothing_is_left(lending)


@pytest.mark.parametrize("fault", ["out of reach", "standing still"])
def test_for_a_moment_a_node_is(watch, cluster, fault):
    """Jobs there go on, those of other nodes do not notice, and new ones come after it."""
    there = cluster.sbatch("-w", "dgx1", "--gres=gpu:3", sleep_s=20)
    elsewhere = cluster.sbatch("-w", "dgx2", "--gres=gpu:3", sleep_s=300)
    gpus = cluster.running_gpus([there, elsewhere])
    with FAULTS[fault](cluster, "dgx1"):
        late = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=5)
        new = cluster.started("-w", "dgx2", "--gres=gpu:2", sleep_s=300, timeout_s=60).id
        time.sleep(8)
    assert cluster.job(elsewhere).gpus == gpus[1]
    for jobid in (there, late):
        assert cluster.wait_finished(jobid, timeout_s=150).state == "COMPLETED"
    cluster.end([elsewhere, new])
    again = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=300)
    assert cluster.running_gpus([again]) == [by_policy({}, (2,), ("dgx1",))]


def test_the_controllers_host_is_gone(cluster):
    """It boots again, with engine and slurmctld: jobs on nodes went on, the waiting one waits."""
    kept = cluster.sbatch("-w", "dgx2", "--gres=gpu:3", sleep_s=300)
    holder = cluster.sbatch("-w", "dgx1", "--gres=gpu:8", sleep_s=300)
    gpus = cluster.running_gpus([kept, holder])
    waits = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=300)
    cluster.saved()
    with cluster.killed("ctl"):
        time.sleep(3)
    up = "scontrol ping | grep -q UP && gputopo status --socket /run/gputopo/engine.sock"
    until(lambda: not cluster.run("ctl", up, check=False).code, "the controller is up", 120)
    until(lambda: is_up(cluster, "dgx2"), "the nodes have registered", 60)
    assert cluster.running_gpus([kept, holder]) == gpus
    assert cluster.job(waits).state == "PENDING"
    cluster.cancel(holder)
    cluster.wait_reconciled()
    assert len(cluster.wait_running(waits, timeout_s=90).gpus["dgx1"]) == 2
