"""Jobs that Slurm moves, stops, shrinks or shares: with engine, plugin and bridge in place."""

import pytest
from live_harness import IN_BOTH_MODES, Busy, by_policy, goes_by_links, preemption
from modes import enforcement
from node_variants import FILES_ALONE, other_gpus, wait_node

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.slurm import RECORD
from slurm_cluster.slurm_text import Job

pytestmark = [*IN_BOTH_MODES, pytest.mark.usefixtures("watch")]

PAIR = {"dgx1": (0, 3)}
LEFT_OF_PAIR = by_policy(PAIR, (2,), ("dgx1",))


def pair(cluster: Cluster, *args: str) -> int:
    """A running job with the double link 0,3 of dgx1; its id."""
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", *args, sleep_s=300)
    assert cluster.wait_running(jobid).gpus == PAIR
    return jobid


def assert_slurms_own(cluster: Cluster, job: Job, busy: Busy, why: str) -> None:
    """What the slots mode leaves to Slurm says why: the lowest three free GPUs of dgx1."""
    assert job.fields["AdminComment"] == f"[gpu-topo: | Slurm's own choice: {why}]"
    assert [(node, len(gpus)) for node, gpus in job.gpus.items()] == [("dgx1", 3)]
    if not goes_by_links(cluster):
        free = [gpu for gpu in range(8) if gpu not in busy.get("dgx1", ())]
        assert job.gpus["dgx1"] == tuple(free[:3])


def test_an_exclusive_job_has_its_node_alone(cluster):
    """All of them (Slurm's rule), and nobody else gets the node until it ends."""
    jobid = cluster.sbatch("-w", "dgx1", "--exclusive", "--gres=gpu:2", sleep_s=300)
    assert cluster.wait_running(jobid).gpus == {"dgx1": tuple(range(8))}
    assert list(cluster.started("-p", "dgx", "--gres=gpu:2", sleep_s=300).gpus) == ["dgx2"]


@pytest.mark.select_plugin
def test_a_requeued_job_is_advised_anew(cluster):
    """It gives its GPUs back, another takes them, and it gets the best of the rest.

    In the slots mode its slots stay its own for the grace of a job about to start.
    """
    first = pair(cluster)
    cluster.run("ctl", f"scontrol requeue {first}")
    until(lambda: cluster.gres_used()["dgx1"] == (), "its GPUs are free")
    cluster.wait_reconciled()
    pair(cluster)
    # Slurm itself lets a requeued job wait for two minutes
    cluster.run("ctl", f"scontrol update jobid={first} starttime=now", check=False)
    assert cluster.wait_running(first, timeout_s=60).gpus == LEFT_OF_PAIR


def test_a_node_that_goes_down_frees_its_gpus(cluster):
    """The job leaves the node, the books are empty, and the node is used as before."""
    jobid = pair(cluster, "--no-requeue")
    try:
        cluster.run("ctl", "scontrol update nodename=dgx1 state=down reason=test")
        assert cluster.wait_finished(jobid).state == "NODE_FAIL"
    finally:
        wait_node(cluster, "dgx1")
    assert cluster.gres_used()["dgx1"] == ()
    cluster.wait_reconciled()
    pair(cluster)


def test_a_suspended_job_keeps_its_gpus(cluster):
    """Others get other GPUs meanwhile; it goes on with its own."""
    jobid = pair(cluster)
    cluster.run("ctl", f"scontrol suspend {jobid}")
    cluster.wait_state(jobid, "SUSPENDED")
    assert cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=300).gpus == LEFT_OF_PAIR
    cluster.run("ctl", f"scontrol resume {jobid}")
    assert cluster.wait_running(jobid).gpus == PAIR


def test_a_job_that_gives_up_a_node(cluster):
    """It keeps its GPUs on the other one; those it gave up are free for the next."""
    jobid = cluster.sbatch("-p", "dgx", "-N2", "--gpus-per-node=2", sleep_s=300)
    before = cluster.wait_running(jobid).gpus
    assert before == by_policy({}, (2, 2), ("dgx1", "dgx2"))
    cluster.run("ctl", f"scontrol update jobid={jobid} numnodes=1", user="alice")
    (kept,) = cluster.job(jobid).gpus
    assert cluster.job(jobid).gpus == {kept: before[kept]}
    gone = "dgx2" if kept == "dgx1" else "dgx1"
    until(lambda: cluster.gres_used()[gone] == (), f"the GPUs on {gone} are free")
    cluster.wait_reconciled()
    other = cluster.sbatch("-w", gone, "--gres=gpu:3", sleep_s=300)
    assert cluster.wait_running(other).gpus == by_policy({}, (3,), (gone,))


def test_a_job_in_a_reservation_of_nodes(cluster):
    """Its nodes are the candidates; outside of it nobody gets them."""
    reserve = "reservationname=r users=alice starttime=now duration=10 nodes=dgx1"
    cluster.run("ctl", f"scontrol create reservation {reserve}")
    inside = cluster.wait_running(cluster.sbatch("--reservation=r", "--gres=gpu:3", sleep_s=300))
    if enforcement() == "slots":
        assert_slurms_own(cluster, inside, {}, "the job runs in a reservation")
    else:
        assert inside.gpus == by_policy({}, (3,), ("dgx1",))
    outside = cluster.sbatch("-p", "dgx", "--gres=gpu:3", sleep_s=300)
    assert cluster.wait_running(outside).gpus == by_policy({}, (3,), ("dgx2",))


def test_a_preempting_job_gets_the_best_of_what_it_freed(cluster):
    """Two jobs of four give way to one of three; nobody shares a GPU on the way."""
    cluster.configure_extra(preemption("dgx1"))
    victims = cluster.submit_many([("-p", "low", "--gres=gpu:4")] * 2)
    cluster.running_gpus(victims)
    won = cluster.started("-p", "high", "--gres=gpu:3", sleep_s=300, timeout_s=90)
    stay = {"dgx1": [gpu for job in map(cluster.job, victims) for gpu in job.gpus.get("dgx1", ())]}
    if enforcement() == "slots":
        assert_slurms_own(cluster, won, stay, "the partition may preempt others")
    else:
        assert won.gpus == by_policy(stay, (3,), ("dgx1",))


@pytest.mark.select_plugin
@pytest.mark.long("GPUs of other kinds are declared on every node first")
def test_mps_jobs_share_their_gpu_and_nothing_else(cluster):
    """Shares of MPS are of one GPU; whole GPUs beside it are the policy's of the others."""
    gres = "$a NodeName=dgx2 Name=mps Count=800"
    with other_gpus(cluster, "s/gpu:v100:8/gpu:v100:8,mps:800/", gres, types="gpu,mps"):
        sharing = [
            cluster.sbatch("-w", "dgx2", "--gres=mps:50", script=f"{RECORD}; sleep 300")
            for _ in range(2)
        ]
        cluster.running_gpus(sharing)
        shared = {cluster.env_of(jobid).get("CUDA_VISIBLE_DEVICES", "") for jobid in sharing}
        assert len(shared) == 1
        notes = [cluster.job(jobid).fields["AdminComment"] for jobid in sharing]
        assert all("by shares: 50 shares of MPS" in note for note in notes), notes
        whole = cluster.sbatch("-w", "dgx2", "--gres=gpu:2", sleep_s=300)
        got = cluster.wait_running(whole).gpus
        assert got == by_policy({"dgx2": [int(gpu) for gpu in shared]}, (2,), ("dgx2",))
        cluster.end([*sharing, whole])


@pytest.mark.select_plugin
@pytest.mark.long("GPUs of other kinds are declared on every node first")
def test_gpus_that_gres_conf_only_names_get_the_best_links(cluster):
    """The plainest gres.conf there is: `File=` alone."""
    with other_gpus(cluster, *FILES_ALONE, types="gpu"):
        job = cluster.started("-w", "dgx2", "--gres=gpu:2", sleep_s=300)
        assert job.gpus == by_policy({}, (2,), ("dgx2",)) != {"dgx2": (0, 1)}
        assert cluster.visible_gpus(job.id) == job.gpus["dgx2"]
