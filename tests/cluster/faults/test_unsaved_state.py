"""slurmctld is killed before it saved: jobs of the last moments are unknown to it, or as before.

Slurm then gives their ids again, drains nodes that still run one ("Duplicate jobid"), and for
minutes shows ended jobs as running. Our gates, postponements and loans must not make it worse.
"""

import pytest
from lending_harness import ASKS, ECHO, FOUR, borrower, donors, echoed, nothing_is_left
from live_harness import IN_BOTH_MODES, PICKY, TAKEN, by_policy

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.slurm_text import Job

pytestmark = [
    *IN_BOTH_MODES,
    pytest.mark.long("minutes until Slurm finds out"),
    pytest.mark.timeout(900),
]

FULL = ("-w", "dgx1", "--gres=gpu:8")


#: What an administrator does about "Duplicate jobid": the node is drained, the job is held.
RESUME = (
    "sinfo -h -N -t drain -o %N | sort -u | xargs -r -I % scontrol update nodename=% state=resume;"
    " squeue -h -t PD -o '%A %r' | grep 'launch failed' | cut -d' ' -f1 | xargs -r scontrol release"
)

#: What a job is in between, and in the end.
STATES = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "COMPLETED")


def settled(cluster: Cluster, ids: list[int]) -> None:
    """Each of these jobs runs to its end, sooner or later; drained nodes are resumed.

    Slurm itself starts a job that it put back after a credential's lifetime: two minutes. A job
    with the id of a forgotten one fails where slurmd is just ending that one: its log says so.
    """

    left = set(ids)

    def was_refused(job: Job) -> bool:
        refused = f"Killing non-startable batch JobId={job.id}: Job credential revoked"
        return job.state == "FAILED" and refused in cluster.slurmctld_log(2000)

    def over() -> bool:
        """Asks no more for a job that has completed: Slurm forgets it after two minutes."""
        cluster.run("ctl", RESUME, check=False)
        for job in [cluster.job(one) for one in left]:
            if job.state == "COMPLETED" or was_refused(job):
                left.discard(job.id)
            else:
                assert job.state in STATES, job.fields
        return not left

    until(over, f"jobs {ids} are completed", 240)


def test_a_start_that_was_not_saved(watch, cluster):
    """The waiting job runs on the node, and slurmctld has it waiting, and its GPUs as another's."""
    kept = cluster.sbatch("-w", "dgx2", "--gres=gpu:3", sleep_s=300)
    holder = cluster.sbatch(*FULL, sleep_s=300)
    gpus = cluster.running_gpus([kept, holder])
    waits = cluster.sbatch(*FULL, sleep_s=5)
    with cluster.forgotten():
        cluster.cancel(holder)
        cluster.wait_running(waits)
        lost = cluster.started("-w", "dgx2", "--gres=gpu:2", sleep_s=5).id
    new = cluster.sbatch("-w", "dgx2", "--gres=gpu:2", sleep_s=5)
    assert new == lost
    assert cluster.running_gpus([kept]) == gpus[:1]
    cluster.cancel(holder)
    settled(cluster, [waits, new])
    assert cluster.job(kept).gpus == gpus[0]
    cluster.end([kept])
    again = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=60)
    assert cluster.running_gpus([again]) == [by_policy({}, (2,), ("dgx1",))]


def test_a_wait_that_was_not_saved(watch, cluster):
    """A job that began to wait is forgotten, one that waited and was cancelled is there again."""
    cluster.occupy("dgx1", TAKEN)
    before = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", PICKY, sleep_s=5)
    cluster.wait_postponed(before)
    with cluster.forgotten():
        cluster.cancel(before)
        lost = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", PICKY, sleep_s=5)
        cluster.wait_postponed(lost)
    assert cluster.job(before).state == "PENDING"
    new = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", PICKY, sleep_s=5)
    assert new == lost
    cluster.wait_postponed(new)
    cluster.run("ctl", "squeue -h -u bob -w dgx1 -o %A | xargs scancel")
    settled(cluster, [before, new])


def test_a_loan_that_was_not_saved(lending):
    """The borrower and its donor run on the nodes, and slurmctld knows of no loan."""
    kept = lending.sbatch(*FOUR, ASKS, "-H", script=f"{ECHO}; sleep 5")
    with lending.forgotten():
        lending.run("ctl", f"scontrol release {kept}")
        lending.wait_running(kept, timeout_s=60)
        assert donors(lending)
    lending.run("ctl", f"scontrol release {kept}; rm -f /home/alice/echo.{kept}")
    settled(lending, [kept])
    assert echoed(lending, kept)[-1] == "exit 0"
    nothing_is_left(lending)


def test_the_end_of_a_loan_that_was_not_saved(lending):
    """Slurmctld has the loan still, and neither borrower nor donor is on any node."""
    job = borrower(lending)
    with lending.forgotten():
        lending.cancel(job.id)
        nothing_is_left(lending)
    lending.cancel(job.id)
    new = lending.sbatch(*FOUR, ASKS, script=f"{ECHO}; sleep 5")
    settled(lending, [new])
    nothing_is_left(lending)
