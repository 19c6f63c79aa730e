"""What a postponed job keeps: its victims' GPUs, its age, its array's waits, and an end to it."""

import time

import pytest
from live_harness import preemption
from select_harness import LAZY, LAZY_HINT, PREFER, SWITCH

from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]


def test_a_job_that_preempted_others_is_never_postponed(cluster, engine):
    """Its victims are gone: would it sleep now, others took the GPUs and it ended those, too."""
    cluster.configure_extra(preemption("dgx1"))
    cluster.started("-p", "low", "--gres=gpu:8", sleep_s=300)
    engine.rule(**LAZY)
    winner = cluster.sbatch("-p", "high", "--gres=gpu:2", sleep_s=30)
    assert cluster.wait_running(winner, timeout_s=40).gpus == engine.own_choice(winner)
    assert len(engine.questions(winner)) == 1


@pytest.mark.long("24 s of waiting")
def test_waits_count_where_jobs_end_all_the_time(cluster, engine):
    """Three waits of five seconds last fifteen, however often ends wake it, and cost few looks."""
    engine.settle(max_postponements=3)
    engine.rule(hints={"lazy": {**LAZY, "s": 5}}, **{"else": {"do": "pass"}})
    short = ("-w", "dgx1", "--gres=gpu:1", "--nice=500", "--array=0-99%4")
    busy = cluster.sbatch(*short, script="sleep 1", user="bob")
    until(lambda: engine.lines("ended"), "jobs end")
    jobid = cluster.sbatch(LAZY_HINT, "-w", "dgx1", "--gres=gpu:2", sleep_s=60)
    began = cluster.time_of(jobid, "SubmitTime")
    job = cluster.wait_running(jobid, timeout_s=35)
    assert cluster.time_of(jobid, "StartTime") - began >= 15
    assert cluster.jobs(busy), "the partition was to be busy to the end"
    assert job.fields["AdminComment"] == "[gpu-topo: lazy | Slurm's own choice (capped)]"
    asked = [q["postponed"][0] for q in engine.questions(jobid)]
    assert sorted(set(asked)) == ["0", "1", "2", "3"]
    assert len(asked) <= 20


@pytest.mark.long("14 s of waiting")
def test_who_waits_goes_on_when_a_pass_has_no_time_to_ask(cluster, engine):
    """One question fits into a pass: of four jobs that wake in one, none starts unasked."""
    holder = cluster.started("-p", "dgx", "--gres=gpu:1", sleep_s=300).id
    engine.rule(**LAZY)
    ids = [cluster.sbatch("-p", "dgx", "--gres=gpu:1", sleep_s=60) for _ in range(4)]
    for jobid in ids:
        cluster.wait_postponed(jobid)
    engine.settle(pass_budget_ms=450)
    size = cluster.slurmctld_log_size()
    cluster.cancel(holder)
    until(
        lambda: any("result=budget_out" in line for line in cluster.slurmctld_log_from(size)),
        "a pass has no time left to ask",
    )
    until(lambda: all(len(engine.questions(one)) > 1 for one in ids), "all were asked again", 60)
    assert [cluster.job(jobid).state for jobid in ids] == ["PENDING"] * 4


@pytest.mark.long("26 s of waiting")
def test_a_task_that_a_limit_held_back_has_waits_of_its_own(cluster, engine):
    """With %1 Slurm gives the second task a new begin time: its waits are counted from zero."""
    engine.settle(max_postponements=2)
    engine.rule(do="wait", s=2, note="later")
    jobid = cluster.sbatch("-w", "dgx1", "--array=0-1%1", "--gres=gpu:2", script="sleep 8")
    until(lambda: len(engine.questions(jobid)) == 3, "the first task is asked about")
    until(lambda: len(engine.questions(jobid)) > 3, "the second task, too", 40)
    cluster.wait_running(jobid, timeout_s=30)
    asked = [q["postponed"][0] for q in engine.questions(jobid)]
    assert asked == ["0", "1", "2", "0", "1", "2"]


@pytest.mark.long("a minute: Slurm's own pass over the queue")
def test_a_task_that_found_no_room_has_waits_of_its_own(cluster, engine):
    """The second task had no GPUs for more than a minute: it has not waited for ours."""
    engine.settle(max_postponements=1, max_wait_s=30)
    engine.rule(do="wait", s=2, note="later")
    jobid = cluster.sbatch("-w", "dgx1", "--array=0-1", "--gres=gpu:8", script="sleep 66")
    until(lambda: len(engine.questions(jobid)) == 2, "the first task is asked about")
    assert "waiting" in cluster.job(jobid).fields["AdminComment"]
    until(lambda: len(engine.questions(jobid)) == 4, "the second task, too", 100)
    asked = [(q["postponed"][0], int(q["waited_s"][0]) < 10) for q in engine.questions(jobid)]
    assert asked == [("0", True), ("1", True)] * 2


def test_age_counts_from_where_slurm_has_it_begin(cluster, engine):
    """Released and postponed in one pass: the age begins with the release, not with the end."""
    engine.rule(**LAZY)
    jobid = cluster.sbatch("-H", "-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    cluster.run("ctl", ["scontrol", "release", str(jobid)])
    cluster.wait_postponed(jobid)
    now = int(cluster.run("ctl", ["date", "+%s"]).out)
    age = cluster.time_of(jobid, "AccrueTime")
    assert (
        cluster.time_of(jobid, "SubmitTime") <= age <= now < cluster.time_of(jobid, "EligibleTime")
    )


def test_the_kill_switch_gives_the_begin_time_back(cluster, engine):
    """The wait runs out while the switch is set: EligibleTime is what it was before it."""
    engine.rule(**{**LAZY, "s": 5})
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    cluster.wait_postponed(jobid)
    submitted = cluster.time_of(jobid, "SubmitTime")
    assert cluster.time_of(jobid, "EligibleTime") >= submitted + 5
    cluster.run("ctl", f"touch {SWITCH}")
    job = cluster.wait_running(jobid, timeout_s=90)
    assert len(engine.questions(jobid)) == 1
    assert cluster.time_of(jobid, "EligibleTime") - submitted in (0, 1)
    assert "waiting" not in job.fields["AdminComment"]


PARTITIONS = "PartitionName=a Nodes=dgx1 DefaultTime=10\nPartitionName=b Nodes=dgx2 DefaultTime=10"


@pytest.mark.parametrize(
    "node", ["dgx1", pytest.param("dgx2", marks=pytest.mark.long("the other of two partitions"))]
)
def test_an_end_in_any_of_its_partitions_wakes_a_job(cluster, engine, node):
    """Slurm tried it in one partition last; GPUs come free in that one or in the other."""
    cluster.configure_extra(PARTITIONS)
    holder = cluster.started("-w", node, "--gres=gpu:2", sleep_s=300).id
    engine.rule(**LAZY)
    jobid = cluster.sbatch("-p", "a,b", "--gres=gpu:2", sleep_s=30)
    cluster.wait_postponed(jobid)
    time.sleep(1.1)
    engine.rule(**PREFER)
    cluster.cancel(holder)
    cluster.wait_running(jobid, timeout_s=10)


@pytest.mark.parametrize("full", ["dgx1", "dgx2"])
@pytest.mark.long("a detail of what a shorter test shows")
def test_who_waits_for_one_partition_is_not_woken_by_a_full_one(cluster, engine, full):
    """Slurm tries the full one in the same pass, before or after: the job sleeps on."""
    cluster.configure_extra(PARTITIONS)
    cluster.wait_running(cluster.sbatch("-w", full, "--gres=gpu:8", sleep_s=300))
    engine.rule(**LAZY)
    jobid = cluster.sbatch("-p", "a,b", "--gres=gpu:2", sleep_s=30)
    cluster.wait_postponed(jobid)
    for _ in range(3):
        cluster.wait_running(cluster.sbatch("-p", "off", "-w", "amd1", script="sleep 1"))
    assert cluster.job(jobid).reason == "BeginTime"
    assert len(engine.questions(jobid)) == 1
