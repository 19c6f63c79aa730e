"""Who keeps whose place: what a later job may not take from those that wait, in Slurm's order."""

import pytest

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from tests.cluster.slots.gated import gated, is_gated

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

EIGHT, FOUR = "--gres=gpu:8", "--gres=gpu:4"
#: Of jobs that end sooner than a job of LONG, and start first.
SHORT, LONG = "-t5", "-t9"
#: dgx1 is of both partitions, dgx2 of the one of the lower tier alone.
TIERS = """PartitionName=batch Nodes=dgx[1-2] DefaultTime=10
PartitionName=express Nodes=dgx1 DefaultTime=10 PriorityTier=10"""


def running(cluster: Cluster, *requests: tuple[str, ...]) -> list[int]:
    """Jobs of another user that run, and that the engine has seen."""
    ids = cluster.submit_many(requests, user="bob")
    cluster.running_gpus(ids)
    cluster.wait_reconciled()
    return ids


def test_one_that_waits_for_a_single_node_takes_no_wider_job_its_place(cluster, watch):
    """If the first in line alone had one, the long job would start at once and delay the wide."""
    running(cluster, ("-w", "dgx1", EIGHT, SHORT), ("-w", "dgx2", FOUR, SHORT))
    gated(cluster, "-w", "dgx1", EIGHT, SHORT)
    gated(cluster, "-p", "dgx", "-N2", EIGHT, SHORT)
    half = ("-w", "dgx2", FOUR)
    long, short = cluster.submit_many([(*half, LONG), (*half, "-t3")])
    cluster.wait_running(short)
    assert is_gated(cluster.job(long))


def test_one_users_unlike_jobs_have_four_places_and_a_neighbours_job_its_own(cluster, watch):
    """Without a share of the places her fifth job would have one, too, as all 32 could be hers."""
    full = [("-w", node, "--exclusive", "--gres=gpu:1") for node in ("amd1", "bridged1", "minsky1")]
    running(cluster, *full, *(("-w", node, FOUR, SHORT) for node in ("dgx1", "dgx2")))
    where = *(("-w", args[1]) for args in full), ("-x", "dgx1,dgx2,minsky1")
    for args in where:
        gated(cluster, *args, "--gres=gpu:1", user="mallory")
    gated(cluster, "-w", "dgx1", EIGHT, SHORT, user="mallory")
    gated(cluster, "-w", "dgx2", EIGHT, SHORT, user="bob")
    cluster.wait_reconciled()
    ids = cluster.submit_many([("-w", node, FOUR, LONG) for node in ("dgx2", "dgx1")])
    cluster.wait_running(ids[1])
    assert is_gated(cluster.job(ids[0]))


def test_a_job_of_two_tiers_has_its_turn_at_each(cluster, watch):
    """Sorted by its highest tier alone it would take dgx2; by its lowest one, not even dgx1."""
    cluster.configure_extra(TIERS)
    of_dgx1, of_dgx2 = running(cluster, *(("-w", node, EIGHT) for node in ("dgx1", "dgx2")))
    both = gated(cluster, "-p", "express,batch", EIGHT)
    first, second = (gated(cluster, "-p", "batch", EIGHT) for _ in range(2))
    cluster.run("ctl", f"scontrol update jobid={first},{second} priority=100000")
    cluster.wait_reconciled()
    cluster.cancel(of_dgx2)
    assert list(cluster.wait_running(first).gpus) == ["dgx2"]
    assert is_gated(cluster.job(both))
    cluster.cancel(of_dgx1)
    assert list(cluster.wait_running(both).gpus) == ["dgx1"]
    assert is_gated(cluster.job(second))


def test_a_task_that_is_a_job_of_its_own_goes_before_the_rest_of_its_array(cluster, watch):
    """A change of one task alone makes it one. By job ids the first of the rest would start."""
    [holder] = running(cluster, ("-w", "dgx1", EIGHT))
    array = gated(cluster, "--array=1-3", "-w", "dgx1", EIGHT)
    cluster.run("ctl", f"scontrol update jobid={array}_2 name=mine", user="alice")
    cluster.wait_reconciled()
    cluster.cancel(holder)

    def started() -> list[str]:
        tasks = cluster.jobs(array)
        return [one.fields["ArrayTaskId"] for one in tasks if one.state == "RUNNING"]

    until(started, "one of its tasks runs")
    assert started() == ["2"]
