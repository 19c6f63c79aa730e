"""What keeps a job from starting though it has room, or that Slurm has to start at once."""

import re
from collections.abc import Collection

import pytest

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import CommandResult, until
from slurm_plugin.act.gates.planning import MORE_NODES
from tests.cluster.slots.gated import gated, is_gated

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

DEADLINE = """#!/bin/sh
#SBATCH -w dgx1 --gres=gpu:2 -t 9 -o /dev/null
#SBATCH --deadline=now+10minutes
sleep 300
"""


@pytest.mark.long("Slurm's backfill has to look at the job")
def test_nobody_waits_for_a_job_over_its_limit(cluster, watch):
    """It fits nowhere, so no release of it would show the limit: Slurm checks that meanwhile."""
    cluster.configure_extra("AccountingStorageEnforce=limits")
    most = "sacctmgr -i modify user alice set grptres=gres/gpu={}"
    with cluster.temporarily(most.format(10), most.format(-1)):
        running = cluster.started("-w", "dgx2", "--gres=gpu:4", sleep_s=600).id
        holders = cluster.occupy("dgx1", range(4))
        first = gated(cluster, "-w", "dgx1", "--gres=gpu:8", "-t5")
        # It runs for longer than those that hold the node, so it would delay the first.
        later = ("-w", "dgx1", "--gres=gpu:4", "-t60")
        other = cluster.started(*later, user="bob", sleep_s=600, timeout_s=90).id
        assert is_gated(cluster.job(first))
        cluster.cancel(running, other, *holders)
        assert len(cluster.wait_running(first, timeout_s=90).gpus["dgx1"]) == 8


@pytest.mark.long("the same, and a minute in which nothing may happen")
def test_one_that_no_limit_keeps_is_checked_and_not_delayed(cluster, watch):
    cluster.configure_extra("AccountingStorageEnforce=limits")
    holders = cluster.occupy("dgx1", range(4))
    first = gated(cluster, "-w", "dgx1", "--gres=gpu:8", "-t5")
    before = cluster.job(first).fields["LastSchedEval"]
    later = gated(cluster, "-w", "dgx1", "--gres=gpu:4", "-t60")

    def is_checked():
        """Slurm has looked at it, which it does behind no gate; and the gate is shut again."""
        job = cluster.job(first)
        assert (job.state, cluster.job(later).state) == ("PENDING", "PENDING")
        cluster.wait_reconciled()
        return job.fields["LastSchedEval"] != before and job.reason == "BeginTime"

    until(is_checked, "Slurm has checked the first job's limits, and its gate is shut", 60)
    cluster.cancel(*holders)
    assert len(cluster.wait_running(first, timeout_s=90).gpus["dgx1"]) == 8
    assert "[gpu-slots: placed " in cluster.job(first).admin_comment


def test_a_job_gets_all_gpus_that_it_asks_for_however_few_nodes_it_names(cluster, watch):
    """Slurm takes a list of more nodes than a job has to have for some to choose from."""
    holder = cluster.started("-w", "dgx1", "--gres=gpu:8", sleep_s=600).id
    jobid = gated(cluster, "-x", "amd1,bridged1,minsky1", "--gpus=16")
    cluster.cancel(holder)
    every = tuple(range(8))
    assert cluster.wait_running(jobid, timeout_s=60).gpus == {"dgx1": every, "dgx2": every}


def test_a_job_that_needs_more_nodes_than_its_least_is_held_to_a_limit_of_nodes(cluster, watch):
    """With a number of nodes of ours Slurm would not hold it to any: it would start on two more."""
    cluster.configure_extra("AccountingStorageEnforce=limits")
    most = "sacctmgr -i modify user alice set grptres=node={}"
    with cluster.temporarily(most.format(2), most.format(-1)):
        cluster.started("-w", "amd1", "--gres=gpu:1", sleep_s=300)
        holder = cluster.started("-w", "dgx1", "--gres=gpu:8", user="bob", sleep_s=300).id
        jobid = cluster.sbatch("-p", "dgx", "--gpus=16", sleep_s=300)
        until(lambda: MORE_NODES in cluster.job(jobid).admin_comment, "the job is Slurm's own")
        cluster.cancel(holder)
        until(lambda: cluster.job(jobid).reason == "AssocGrpNodeLimit", "Slurm names the limit")
    every = tuple(range(8))
    assert cluster.wait_running(jobid).gpus == {"dgx1": every, "dgx2": every}


def tries(cluster: Cluster, ids: Collection[int]) -> int:
    """How many releases of these jobs came to nothing."""
    comments = (job.admin_comment for job in cluster.jobs() if job.id in ids)
    return sum(int(count) for text in comments for count in re.findall(r" tries=(\d+)", text))


@pytest.mark.long("Slurm refuses three times, each time after a longer pause")
def test_a_user_over_a_limit_keeps_a_neighbour_waiting_for_one_try(cluster, watch):
    """However unlike the jobs are; else eight more are released next, and then the other four.

    What the neighbour leaves is for one of them at a time, and for all once one has started.
    """
    cluster.configure_extra("AccountingStorageEnforce=limits")
    most = "sacctmgr -i modify user alice set maxjobs={}"
    with cluster.temporarily(most.format(1), most.format(-1)):
        cluster.started("-w", "dgx2", "--gres=gpu:1", sleep_s=300)
        holder = cluster.started("-w", "dgx1", "--gres=gpu:8", user="bob", sleep_s=300).id
        one = ("-w", "dgx1", "--gres=gpu:1")
        unlike = [(*one, f"-t{30 - i}", f"--mem={50 + i}") for i in range(20)]
        ids = cluster.submit_many(unlike)
        neighbour = gated(cluster, "-w", "dgx1", "--gres=gpu:4", user="bob")
        cluster.wait_reconciled()
        cluster.cancel(holder)
        cluster.wait_running(neighbour)
        # What is released is written before what is gated again.
        until(lambda: tries(cluster, ids) >= 8, "those that were released first wait again")
        before = tries(cluster, ids)
        assert before < 14

        def two_more() -> bool:
            jobs = [job for job in cluster.jobs() if job.id in ids]
            assert sum("[gpu-slots: placed " in job.admin_comment for job in jobs) <= 1
            return tries(cluster, ids) >= before + 2

        until(two_more, "two more tries came to nothing", 60)

    def running() -> int:
        return sum(job.state == "RUNNING" for job in cluster.jobs() if job.id in ids)

    until(lambda: running() == 4, "all that the neighbour left is in use", 60)


def at_once(cluster: Cluster) -> CommandResult:
    words = ["srun", "--immediate=5", "-w", "dgx1", "--gres=gpu:2", "hostname"]
    return cluster.run("ctl", words, user="alice", check=False)


def test_who_wants_gpus_at_once_or_not_at_all_is_told_so_by_slurm(cluster, watch):
    """Behind a gate the job would be refused for its start time."""
    done = at_once(cluster)
    assert (done.code, done.out.strip()) == (0, "dgx1"), done
    cluster.occupy("dgx1", range(8))
    done = at_once(cluster)
    assert done.code != 0
    assert "Unable to allocate resources" in done.err, done
    assert "alice" not in cluster.run("ctl", "squeue -h -o %u").out


def test_a_deadline_in_the_script_is_no_reason_to_refuse_a_job(cluster, watch):
    """Slurm refuses a job that could not be over in time once its gate opens."""
    holders = cluster.occupy("dgx1", range(8))
    cluster.put("ctl", "/tmp/deadline.sh", DEADLINE)
    done = cluster.run("ctl", ["sbatch", "--parsable", "/tmp/deadline.sh"], user="alice")
    jobid = int(done.out)
    assert "Slurm's own choice: " in cluster.job(jobid).admin_comment
    cluster.cancel(*holders)
    assert len(cluster.wait_running(jobid).gpus["dgx1"]) == 2
