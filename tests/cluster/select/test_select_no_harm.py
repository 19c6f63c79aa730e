"""Advice that would cost a job or its neighbour something is not taken, and no wait loses a window.

In each of these, stock Slurm starts the job at once and disturbs nobody.
"""

import time

import pytest
from live_harness import preemption
from node_variants import DGX2, FILES_ALONE, other_gpus
from select_harness import LAZY, LONG_S, PREFER, all_running, assert_no_overlap, clear

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]

#: The job under test, and advice for it where other jobs are.
PAIR = ("-n4", "--mem=10", "--gres=gpu:2")
ADVICE = {"do": "use", "nodes": {"dgx1": [0, 3]}, "note": "the pair"}
SHARED = "PartitionName={} Nodes=dgx[1-2] {} DefaultTime=10"


def full_of(cluster: Cluster, partition: str) -> int:
    """A running job that has all cores of dgx1, and no GPU."""
    cores = int(cluster.run("ctl", "sinfo -h -n dgx1 -p dgx -o %c").out)
    ask = ("-p", partition, "-w", "dgx1", "-n", str(cores), "--mem=10")
    return cluster.started(*ask, sleep_s=300).id


def refusals(log: list[str]) -> int:
    """How often cons_tres, or we ourselves, did not follow the advice."""
    return sum("advice not feasible" in line for line in log)


def test_nobody_is_suspended_for_better_links(cluster, engine):
    """Gang scheduling: dgx2 is idle, the advice is on cores that a job of lower priority has."""
    lines = preemption("dgx[1-2]").replace("PreemptMode=REQUEUE", "PreemptMode=SUSPEND,GANG")
    cluster.configure_extra(lines)
    low = full_of(cluster, "low")
    engine.rule(**ADVICE)
    with cluster.slurmctld_log_of() as log:
        jobid = cluster.sbatch("-p", "high", *PAIR, sleep_s=300)
        assert list(cluster.wait_running(jobid).gpus) == ["dgx2"]
    assert "dgx1" in engine.asked_nodes(jobid)
    assert refusals(log) == 1
    assert cluster.job(low).state == "RUNNING"


def test_no_core_is_shared_for_better_links(cluster, engine):
    """OverSubscribe=FORCE: Slurm takes idle cores first, and so do we."""
    cluster.configure_extra(SHARED.format("shared", "OverSubscribe=FORCE:4"))
    full_of(cluster, "shared")
    engine.rule(**ADVICE)
    with cluster.slurmctld_log_of() as log:
        first = cluster.sbatch("-p", "shared", *PAIR, sleep_s=300)
        assert list(cluster.wait_running(first).gpus) == ["dgx2"]
    assert refusals(log) == 1
    # Where Slurm itself shares cores, which ones is its business.
    second = cluster.sbatch("-p", "shared", "-w", "dgx1", *PAIR, sleep_s=300)
    cluster.wait_running(second)
    assert not engine.questions(second)


@pytest.mark.parametrize(
    ("options", "partition"),
    [
        (("--exclusive=user",), ""),
        pytest.param((), "ExclusiveUser=YES", marks=pytest.mark.long("the partition's word")),
    ],
)
def test_a_user_closes_no_second_node(cluster, engine, options, partition):
    """Her second job goes where her first one is, and bob has a node of his own."""
    cluster.configure_extra(SHARED.format("own", partition))
    first = cluster.started("-p", "own", "-w", "dgx1", "--gres=gpu:1", *options, sleep_s=300)
    engine.rule(do="elsewhere", note="elsewhere")
    second = cluster.sbatch("-p", "own", "--gres=gpu:2", *options, sleep_s=300)
    assert list(cluster.wait_running(second).gpus) == list(first.gpus)
    assert engine.asked_nodes(second) == ["dgx1"]
    bobs = cluster.sbatch("-p", "own", "--gres=gpu:4", user="bob", sleep_s=300)
    assert list(cluster.wait_running(bobs).gpus) == ["dgx2"]


@pytest.mark.parametrize(
    "from_s", [70, pytest.param(175, marks=pytest.mark.long("half a minute of waiting"))]
)
def test_no_wait_loses_the_time_before_a_reservation(cluster, engine, from_s):
    """Maintenance comes: a job of a minute has to be over by then, and may wait no longer."""
    reserve = f"reservationname=m starttime=now+{from_s} duration=60 nodes=dgx1"
    cluster.run("ctl", f"scontrol create reservation {reserve} flags=maint users=root")
    engine.rule(**LAZY)
    jobid = cluster.sbatch("-w", "dgx1", "-t1", "--gres=gpu:2", sleep_s=20)
    assert cluster.wait_running(jobid, timeout_s=45).gpus == engine.own_choice(jobid)
    waited_s = cluster.time_of(jobid, "StartTime") - cluster.time_of(jobid, "SubmitTime")
    assert waited_s <= max(5, from_s - 60)


@pytest.mark.long("backfill looks every five seconds")
def test_no_wait_loses_the_hole_that_backfill_found(cluster, engine):
    """A job of a minute may pass one that begins in three; if it waits for long it may not."""
    cluster.started("-w", "dgx1", "-t3", "--gres=gpu:6", sleep_s=300)
    first = cluster.sbatch("-w", "dgx1", "-t10", "--gres=gpu:8", sleep_s=300)
    until(lambda: "SchedNodeList" in cluster.job(first).fields, "backfill has planned it", 60)
    engine.rule(**LAZY)
    jobid = cluster.sbatch("-w", "dgx1", "-t1", "--gres=gpu:2", sleep_s=20)
    until(lambda: engine.questions(jobid), "backfill starts it", 30)
    cluster.wait_running(jobid, timeout_s=90)
    assert cluster.job(first).state == "PENDING"


def test_a_job_in_a_reservation_does_not_wait(cluster, engine):
    """The reservation ends, and with it the job; whoever has none waits."""
    reserve = "reservationname=r users=alice starttime=now duration=10 nodes=dgx1"
    cluster.run("ctl", f"scontrol create reservation {reserve}")
    engine.rule(**LAZY)
    jobid = cluster.sbatch("--reservation=r", "--gres=gpu:2", sleep_s=60)
    assert cluster.wait_running(jobid).gpus == engine.own_choice(jobid)
    other = cluster.sbatch("-w", "dgx2", "--gres=gpu:2", sleep_s=60)
    cluster.wait_postponed(other)
    assert LAZY["s"] == LONG_S


@pytest.mark.long("GPUs of other kinds are declared on every node first")
def test_gres_conf_with_files_alone(cluster, engine):
    """Slurm only counts such GPUs and takes the first; the job gets those of the advice."""
    with other_gpus(cluster, *FILES_ALONE), cluster.slurmctld_log_of() as log:
        engine.rule(**PREFER)
        first = cluster.started("-w", "dgx2", "--gres=gpu:2", sleep_s=300)
        assert first.gpus == {"dgx2": (3, 6)}
        assert cluster.visible_gpus(first.id) == (3, 6)
        assert first.fields["AdminComment"] == "[gpu-topo: | by preference]"
        second = cluster.started("-w", "dgx2", "--gpus=2", sleep_s=300)
        assert second.gpus == {"dgx2": (0, 5)}
        # What was said of its first start counts for that one alone.
        cluster.run("ctl", f"scontrol requeue {first.id}")
        cluster.wait_state(first.id, "PENDING")
        until(lambda: not {3, 6} & set(cluster.gres_used()["dgx2"]), "its GPUs are free")
        engine.rule(do="pass")
        stock = cluster.started("-w", "dgx2", "--gres=gpu:2", sleep_s=300)
        assert stock.gpus == {"dgx2": (1, 2)} == engine.own_choice(stock.id)
        # A slurmd takes no job for a new one that begins in the second in which it was killed.
        time.sleep(2)
        cluster.run("ctl", f"scontrol update jobid={first.id} starttime=now", check=False)
        assert cluster.wait_running(first.id, timeout_s=60).gpus == {"dgx2": (3, 4)}
        assert_no_overlap(cluster)
    assert not [line for line in log if "other GPUs than were chosen" in line or "overlap" in line]


@pytest.mark.long("GPUs of other kinds are declared on every node first")
def test_jobs_that_nobody_may_ask_about_leave_a_line(cluster, engine):
    """Two types on a node: ten such starts, and slurmctld's log says what it is about them."""
    gres = DGX2 + ";s/\\(NodeName=dgx2.*\\)Type=v100\\(.*fakegpu[4-7]\\)/\\1Type=t4\\2/"
    with (
        other_gpus(cluster, "s/gpu:v100:8/gpu:v100:4,gpu:t4:4/", gres),
        cluster.slurmctld_log_of() as log,
    ):
        for _ in range(3):
            # 22.05 gives a job that names no type GPUs of the first one alone.
            many = cluster.sbatch("-w", "dgx2", "--array=0-3", "--gres=gpu:1", sleep_s=300)
            until(lambda: all_running(cluster, many, 4), "four tasks run")  # noqa: B023
            clear(cluster)
    said = [line for line in log if "not asked: 10 jobs with GPUs have started" in line]
    assert len(said) == 1
    assert "the last one: GPUs that cannot be chosen one by one" in said[0]


def test_a_job_that_takes_less_time_if_need_be_stays_on_slurms_nodes(cluster, engine):
    """What is planned on another node may cut its time: Slurm chose one on which it has all."""
    engine.rule(do="elsewhere")
    job = cluster.started("--time-min=1", "-t30", "--gres=gpu:2", sleep_s=20)
    [own] = engine.own_choice(job.id)
    assert engine.asked_nodes(job.id) == [own]
    assert list(job.gpus) == [own]


@pytest.mark.long("the next job, once the first one is suspended")
def test_no_job_gets_the_cores_of_a_suspended_one_on_another_node(cluster, engine):
    """They are free until it goes on; Slurm's own choice is not changed."""
    stands = cluster.started("-w", "dgx1", "-c4", "--gres=gpu:1", sleep_s=300).id
    with cluster.temporarily(f"scontrol suspend {stands}", f"scontrol resume {stands}"):
        engine.rule(do="any")
        job = cluster.started("-x", "dgx1", "--gres=gpu:1", sleep_s=20)
        assert "dgx1" not in engine.asked_nodes(job.id)
        job = cluster.started("-w", "dgx2", "--gres=gpu:1", sleep_s=20)
        job = cluster.started("--gres=gpu:1", sleep_s=20)
        [own] = engine.own_choice(job.id)
        assert own == "dgx1" or "dgx1" not in engine.asked_nodes(job.id)
