"""Postponed jobs in a live slurmctld: why they wait, who wakes them, and what ends it."""

import re
import time

import pytest
from select_harness import LAZY, LAZY_BY_HINT, LAZY_HINT, PREFER, all_running, assert_no_overlap

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]


def tried(cluster: Cluster) -> None:
    """Slurm has looked at its queue: a job that comes now runs."""
    cluster.wait_running(cluster.sbatch("-w", "dgx2", "--gres=gpu:1", "--nice=100", sleep_s=30))


def test_a_postponed_job_says_why_and_starts_in_time(cluster, engine):
    """Reason=BeginTime and a sentence in AdminComment; at its start no trace of the wait."""
    engine.rule(do="wait", s=6, times=1, note="a pair comes free", then=PREFER)
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    job = cluster.wait_postponed(jobid)
    sentence = r"waiting 1/10 since (\d+): a pair comes free \(until (\d+), begin (\d+)\)"
    output = re.fullmatch(rf"\[gpu-topo: \| {sentence}\]", job.fields["AdminComment"])
    assert output, job.fields["AdminComment"]
    since, until_s, begin = map(int, output.groups())
    assert until_s == since + 6
    job = cluster.wait_running(jobid, timeout_s=20)
    started = cluster.time_of(jobid, "StartTime")
    assert started >= until_s
    assert job.gpus == {"dgx1": (3, 6)}
    assert job.fields["AdminComment"] == "[gpu-topo: | by preference]"
    assert cluster.time_of(jobid, "EligibleTime") == begin <= since
    first, second = engine.questions(jobid)
    assert (first["postponed"], second["postponed"]) == (["0"], ["1"])
    assert 6 <= int(second["waited_s"][0]) <= started - since + 1


def test_a_job_that_waits_does_not_start_in_its_next_partition(cluster, engine):
    """Slurm comes to it again in the same pass, where its begin time is not looked at."""
    engine.rule(do="wait", s=20, times=1, then=PREFER)
    jobid = cluster.sbatch("-p", "gpu,dgx", "-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    cluster.wait_postponed(jobid)
    engine.rule(**PREFER)
    tried(cluster)
    assert cluster.job(jobid).state == "PENDING"
    assert len(engine.questions(jobid)) == 1


def test_the_rest_of_the_partition_is_not_delayed(cluster, engine):
    engine.rule(**LAZY_BY_HINT)
    waiting = cluster.sbatch(LAZY_HINT, "-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    low = ("-w", "dgx1", "--nice=100", "--gres=gpu:1")
    for jobid in [cluster.sbatch(*low, sleep_s=30) for _ in range(3)]:
        cluster.wait_running(jobid, timeout_s=5)
    assert cluster.job(waiting).state == "PENDING"


def test_backfill_goes_on_beside_a_postponed_job(cluster, engine):
    engine.rule(**LAZY_BY_HINT)
    cluster.wait_running(cluster.sbatch("-w", "dgx1", "-t5", "--gres=gpu:6", sleep_s=300))
    waiting = cluster.sbatch(LAZY_HINT, "-w", "dgx1", "--gres=gpu:1", sleep_s=30)
    cluster.wait_postponed(waiting)
    cluster.sbatch("-w", "dgx1", "--gres=gpu:8", sleep_s=30)
    cluster.started("-w", "dgx1", "-t1", "--nice=100", "--gres=gpu:2", sleep_s=10, timeout_s=25)
    assert cluster.job(waiting).state == "PENDING"


def test_a_job_end_wakes_a_postponed_job_at_once(cluster, engine):
    """What it waits for comes free: it starts within seconds, not after its five minutes."""
    engine.rule(**PREFER)
    holder = cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=300).id
    engine.rule(**LAZY)
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    cluster.wait_postponed(jobid)
    engine.rule(**PREFER)
    cluster.cancel(holder)
    assert cluster.wait_running(jobid, timeout_s=10).gpus == {"dgx1": (3, 6)}


def test_waits_count_and_end_though_somebody_overwrites_the_note(cluster, engine):
    """The plugin remembers them; only its own bracket is written again."""
    engine.rule(**PREFER)
    holder = cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=300).id
    engine.rule(**LAZY)
    hint = "--comment=gpu-topo: pattern=tree"
    jobid = cluster.sbatch(hint, "-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    cluster.wait_postponed(jobid)
    cluster.run("ctl", f"scontrol update jobid={jobid} AdminComment=JS1:abc=")
    engine.rule(**PREFER)
    cluster.cancel(holder)
    assert cluster.wait_running(jobid, timeout_s=10).gpus == {"dgx1": (3, 6)}
    first, *_, last = engine.questions(jobid)
    assert (first["postponed"], last["postponed"]) == (["0"], ["1"])
    assert last["hint"] == ["pattern=tree"]
    assert cluster.job(jobid).admin_comment.startswith("JS1:abc=")


def test_nothing_is_written_into_admin_comment_where_the_engine_says_so(cluster, engine):
    """quiet=1: the waits are counted in memory, and the hint is read from the comment."""
    engine.rule(do="wait", s=2, times=2, note="later", quiet=True, then={**PREFER, "quiet": True})
    hint = "--comment=gpu-topo: pattern=tree"
    jobid = cluster.sbatch(hint, "-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    cluster.wait_postponed(jobid)
    assert "gpu-topo" not in cluster.job(jobid).admin_comment
    assert cluster.wait_running(jobid, timeout_s=20).gpus == {"dgx1": (3, 6)}
    assert cluster.job(jobid).admin_comment == ""
    assert [q["postponed"] for q in engine.questions(jobid)] == [["0"], ["1"], ["2"]]
    assert {q["hint"][0] for q in engine.questions(jobid)} == {"pattern=tree"}


@pytest.mark.long("20 s of waiting")
def test_a_wake_is_not_lost_while_nodes_complete(cluster, engine):
    """The freed node is not offered during its epilog: the woken job asks again until it is."""
    epilog = "printf '#!/bin/sh\\nsleep 4\\n' >/tmp/epilog && chmod 755 /tmp/epilog"
    for node in ("dgx1", "dgx2"):
        cluster.run(node, epilog)
    cluster.configure_extra("Epilog=/tmp/epilog")
    cluster.reconfigure()
    engine.rule(**PREFER)
    holder = cluster.started("-w", "dgx1", "--gres=gpu:8", sleep_s=300).id
    # the engine waits as long as dgx1 is not among the candidates
    engine.rule(
        do="unless", node="dgx1", then={"do": "use", "nodes": {"dgx1": [0, 3]}}, otherwise=LAZY
    )
    jobid = cluster.sbatch("-p", "dgx", "--gres=gpu:2", sleep_s=30)
    cluster.wait_postponed(jobid)
    cluster.cancel(holder)
    assert cluster.wait_running(jobid, timeout_s=20).gpus == {"dgx1": (0, 3)}
    assert {q["postponed"][0] for q in engine.questions(jobid)} == {"0", "1"}


def test_a_job_waits_only_so_often(cluster, engine):
    """The engine never relents: after so many waits the job starts on Slurm's own GPUs."""
    engine.settle(max_postponements=2)
    engine.rule(do="wait", s=1, note="never satisfied")
    with cluster.slurmctld_log_of() as log:
        job = cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=30, timeout_s=30)
    assert job.gpus == engine.own_choice(job.id)
    assert [q["postponed"] for q in engine.questions(job.id)] == [["0"], ["1"], ["2"]]
    assert any(f"job={job.id} " in line and "result=capped" in line for line in log)
    assert job.fields["AdminComment"] == "[gpu-topo: | Slurm's own choice (capped)]"


@pytest.mark.long("10 s of waiting")
def test_a_job_waits_only_so_long(cluster, engine):
    """However long the engine asks for, the wait ends with the total allowed."""
    engine.settle(max_wait_s=3)
    engine.rule(**LAZY)
    asked = time.monotonic()
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    assert cluster.wait_running(jobid, timeout_s=20).gpus == engine.own_choice(jobid)
    assert time.monotonic() - asked > 2


@pytest.mark.long("12 s of waiting")
def test_a_users_begin_time_comes_first(cluster, engine):
    """--begin is kept until it comes, and shows again once the wait after it is over."""
    engine.rule(do="wait", s=4, times=1, note="later", then=PREFER)
    jobid = cluster.sbatch("--begin=now+10", "-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    wanted = cluster.time_of(jobid, "EligibleTime")
    tried(cluster)
    assert engine.questions(jobid) == []
    until(lambda: engine.questions(jobid), "the question after --begin", 90)
    cluster.wait_running(jobid, timeout_s=20)
    assert cluster.time_of(jobid, "EligibleTime") == wanted


@pytest.mark.long("a detail of what a shorter test shows")
def test_an_update_of_the_start_time_wins(cluster, engine):
    """StartTime=now starts a postponed job although the engine would have it wait on."""
    engine.rule(**LAZY)
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    cluster.wait_postponed(jobid)
    time.sleep(1.1)
    cluster.run("ctl", ["scontrol", "update", f"jobid={jobid}", "StartTime=now"])
    assert cluster.wait_running(jobid, timeout_s=15).gpus == engine.own_choice(jobid)


@pytest.mark.long("11 s of waiting")
def test_a_start_time_set_by_hand_is_not_taken_back(cluster, engine):
    """After an update into the future, the end of another job wakes nobody."""
    engine.rule(**LAZY_BY_HINT)
    holder = cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=300).id
    jobid = cluster.sbatch(LAZY_HINT, "-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    cluster.wait_postponed(jobid)
    cluster.run("ctl", ["scontrol", "update", f"jobid={jobid}", "StartTime=now+600"])
    wanted = cluster.time_of(jobid, "EligibleTime")
    cluster.cancel(holder)
    cluster.wait_finished(holder)
    tried(cluster)
    assert cluster.job(jobid).state == "PENDING"
    assert cluster.time_of(jobid, "EligibleTime") == wanted


@pytest.mark.long("a detail of what a shorter test shows")
def test_tasks_of_an_array_share_their_waits(cluster, engine):
    """Two waits are allowed to the array, not to each of its tasks in turn."""
    engine.settle(max_postponements=2)
    engine.rule(do="wait", s=2, note="later")
    jobid = cluster.sbatch("-w", "dgx1", "--array=0-3", "--gres=gpu:2", script="sleep 60")
    until(lambda: all_running(cluster, jobid, 4), "all four tasks run", 30)
    asked = [q["postponed"][0] for q in engine.questions(jobid)]
    assert asked[:3] == ["0", "1", "2"]
    assert set(asked[2:]) == {"2"}
    for job in cluster.jobs(jobid):
        assert "waiting" not in job.admin_comment
    assert_no_overlap(cluster)


def test_heterogeneous_jobs_are_never_postponed(cluster, engine):
    """Their parts must start together, so `wait` means Slurm's own choice."""
    engine.rule(**LAZY)
    parts = ("-w", "dgx1", "--gres=gpu:1", ":", "-w", "dgx2", "--gres=gpu:1")
    jobid = cluster.sbatch(*parts, script="sleep 30")
    until(lambda: all_running(cluster, jobid, 2), "both parts run", 45)


def test_a_restart_keeps_running_and_waiting_jobs(cluster, engine):
    """slurmctld restarts and reconfigures: GPUs, waits and counts stay, and a job end wakes."""
    engine.rule(**LAZY_BY_HINT)
    running = cluster.sbatch("-w", "dgx1", "--gres=gpu:3", sleep_s=300)
    gpus = cluster.wait_running(running).gpus
    waiting = cluster.sbatch(LAZY_HINT, "-w", "dgx1", "--gres=gpu:2", sleep_s=300)
    sentence = cluster.wait_postponed(waiting).fields["AdminComment"]
    for action in (cluster.restart_slurmctld, cluster.reconfigure):
        action()
        assert cluster.wait_postponed(waiting).fields["AdminComment"] == sentence
        assert cluster.job(running).gpus == gpus
        # 22.05 shows it again only when the nodes have registered
        until(lambda: cluster.gres_used()["dgx1"] == gpus["dgx1"], "GresUsed is as before")
    engine.rule(**PREFER)
    cluster.cancel(running)
    assert cluster.wait_running(waiting, timeout_s=15).gpus == {"dgx1": (3, 6)}
