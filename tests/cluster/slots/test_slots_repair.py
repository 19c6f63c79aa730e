"""enforcement: slots when something goes wrong, and when it is switched off: no job is lost."""

import json

import pytest
from live_harness import GPU, OLD, by_policy, configure_engine, kill_slurmctld, visible
from select_harness import SWITCH

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from tests.cluster.slots.gated import (
    engine_away,
    gated,
    is_gated,
    listed,
    renewed,
    stays_gated,
)
from tests.cluster.users.waiting_states import starting_nothing

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

ALL = tuple(range(8))
BESIDE = "--gres-flags=enforce-binding"


@pytest.mark.long("15 s of waiting")
def test_a_job_slurm_keeps_gives_its_slots_to_others_meanwhile(cluster, watch):
    """A limit of Slurm's own stands against the start: gate again, try again, later and later."""
    cluster.configure_extra("AccountingStorageEnforce=limits")
    most = "sacctmgr -i modify user alice set maxjobs={}"
    with cluster.temporarily(most.format(1), most.format(-1)):
        first = cluster.started("-w", "dgx1", "--gres=gpu:4", sleep_s=300).id
        second = cluster.sbatch("-w", "dgx1", "--gres=gpu:4", sleep_s=300)
        until(lambda: "tries=" in cluster.job(second).fields["AdminComment"], "it is gated again")
        if not OLD:  # there a job keeps its slots until it is given others
            assert cluster.job(second).fields["TresPerNode"] == "gres/gpu:4"
        other = cluster.started("-w", "dgx1", "--gres=gpu:4", user="bob", sleep_s=300).id
        cluster.cancel(first, other)
        assert len(cluster.wait_running(second, timeout_s=60).gpus["dgx1"]) == 4


@pytest.mark.long("a minute until the engine gives up")
def test_what_no_release_starts_is_left_to_slurm(cluster):
    """The engine counts free CPUs; a user may want all cores beside the GPUs, where 7 are free."""
    configure_engine(cluster, "slots: {grace_s: 2}")
    cluster.wait_reconciled()
    one_each = cluster.sbatch(
        "-p", "off", "-w", "dgx1", "-n2", "--ntasks-per-socket=1", sleep_s=300
    )
    cluster.wait_running(one_each)
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", "-c8", BESIDE, sleep_s=300)
    until(
        lambda: "Slurm's own choice: 6 releases" in cluster.job(jobid).fields["AdminComment"],
        "it is left to Slurm",
        120,
    )
    job = cluster.job(jobid)
    assert job.state == "PENDING"
    assert OLD or job.fields["TresPerNode"] == f"{GPU}2"
    cluster.cancel(one_each)
    assert len(cluster.wait_running(jobid, timeout_s=60).gpus["dgx1"]) == 2


def test_a_release_somebody_broke_is_repaired(cluster, watch):
    """The engine dies between release and start; an administrator took the slots away."""
    cluster.occupy("dgx1", (0, 3))
    update = "scontrol update partitionname=dgx state="
    with cluster.temporarily(f"{update}down", f"{update}up"):
        jobid = cluster.sbatch("-p", "dgx", "-w", "dgx1", "--gres=gpu:2", sleep_s=300)
        with engine_away(cluster):
            words = f"JobId={jobid} TresPerNode=gres/gpu:2 ReqNodeList= Comment=broken"
            cluster.run("ctl", f"scontrol update {words}")
        until(lambda: "tries=1" in cluster.job(jobid).fields["AdminComment"], "gated again")
    assert cluster.wait_running(jobid, timeout_s=60).gpus == by_policy(
        {"dgx1": (0, 3)}, (2,), ("dgx1",)
    )


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_job_whose_node_closes_before_it_starts_runs_elsewhere(cluster, watch):
    """On 22.05, where it is tied to the GPU types it had, on such a node again."""
    others = "amd1,bridged1,dgx1,dgx2"
    try:
        state(cluster, others, "drain")
        jobid = cluster.sbatch("--requeue", "--gres=gpu:1", sleep_s=300)
        at_first = cluster.wait_running(jobid).gpus
        assert set(at_first) == {"minsky1"}
        state(cluster, "minsky1", "drain")
        cluster.run("ctl", f"scontrol requeue {jobid}")
        until(lambda: is_gated(cluster.job(jobid)), "it is gated again", 60)
        state(cluster, others, "resume")
        if OLD:
            assert stays_gated(cluster, jobid)
            state(cluster, "minsky1", "resume")
        # Slurm lets a requeued job wait for two minutes.
        result = cluster.wait_running(jobid, timeout_s=180).gpus
        assert result == at_first if OLD else "minsky1" not in result
    finally:
        state(cluster, others, "resume")
        state(cluster, "minsky1", "resume")


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_job_whose_start_failed_stays_as_slurm_holds_it_until_it_is_released(cluster, watch):
    """Slurm's words stand there for all the updates of the gate; then it is like any other job."""
    configure_engine(cluster, "slots: {lease_s: 10, poll_s: 1}")
    cluster.wait_reconciled()
    words = "launch failed requeued held"
    with starting_nothing(cluster, "dgx1"):
        jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=300)
        until(lambda: is_gated(cluster.job(jobid)), "it is gated again")
    renewed(cluster, jobid)
    job = cluster.job(jobid)
    assert job.reason == words.replace(" ", "_")
    assert f"released, and not started by Slurm ({words})" in job.fields["AdminComment"]
    assert [(one["job"], one["reason"]) for one in listed(cluster)] == [(str(jobid), words)]
    cluster.run("ctl", f"scontrol release {jobid}", user="alice")
    assert cluster.wait_running(jobid).gpus == by_policy({}, (2,), ("dgx1",))


@pytest.mark.long("Slurm's own two minutes after a start that came to nothing")
def test_a_node_that_refuses_a_start_late_ends_no_job_that_runs_elsewhere(cluster, watch):
    """It hung when the job was to start there: no other start may come before Slurm's own would."""
    others = "amd1,bridged1,dgx2,minsky1"
    try:
        state(cluster, others, "drain")
        with cluster.paused("dgx1"):
            jobid = cluster.sbatch("--gres=gpu:2", sleep_s=300)
            cluster.wait_running(jobid)
            until(lambda: cluster.job(jobid).state == "COMPLETING", "Slurm gives the start up", 60)
            state(cluster, others, "resume")
            cluster.run("ctl", "scontrol update nodename=dgx1 state=down reason=test")
            until(lambda: is_gated(cluster.job(jobid)), "it is gated again")
            assert stays_gated(cluster, jobid)
        refused = f"Requeue of JobId={jobid} returned an error: Job is pending execution"
        until(lambda: refused in cluster.slurmctld_log(2000), "the node refuses the start")
        assert "dgx1" not in cluster.wait_running(jobid, timeout_s=150).gpus
        assert cluster.job(jobid).fields["Restarts"] == "1"
    finally:
        state(cluster, others, "resume")
        state(cluster, "dgx1", "resume")


def state(cluster: Cluster, nodes: str, word: str) -> None:
    """Sets nodes to a state, as an administrator does; no error where they have it already."""
    words = f"nodename={nodes} state={word}" + (" reason=test" if word == "drain" else "")
    cluster.run("ctl", f"scontrol update {words}", check=False)


def killed_engine(cluster: Cluster) -> None:
    """SIGKILL, away until every gate has lapsed."""
    cluster.engine("kill")
    until(lambda: not shut(cluster), "all gates have lapsed", 30)
    cluster.engine("start")


def shut(cluster: Cluster) -> list[str]:
    """The begin times to come of waiting jobs."""
    output = "date +%FT%T; squeue -h -t PD -O EligibleTime:32"
    now, *begins = cluster.run("ctl", output).out.split()
    return [begin for begin in begins if begin > now]


@pytest.mark.skipif(not OLD, reason="only on 22.05 a release takes two updates")
def test_an_engine_that_ends_between_two_updates_leaves_no_job_without_gpus(cluster, watch):
    """The test makes the first update of a release; the job waits until an engine is back."""
    configure_engine(cluster, "slots: {lease_s: 10, poll_s: 1}")
    cluster.wait_reconciled()
    busy = cluster.occupy("dgx1", ALL)
    jobid = gated(cluster, "-w", "dgx1", "--gres=gpu:2")
    with engine_away(cluster):
        cluster.run("ctl", f"scontrol update jobid={jobid} gres= StartTime=now+365days")
        cluster.cancel(*busy)
        passed_over(cluster, jobid)
    started = cluster.wait_running(jobid)
    assert len(started.gpus["dgx1"]) == 2


def passed_over(cluster: Cluster, jobid: int) -> None:
    """Slurm has room for the job and starts a later one of the same size in its place."""
    cluster.wait_running(cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=1), timeout_s=80)
    assert cluster.job(jobid).state == "PENDING"


MANY = pytest.mark.long("a minute of jobs")


@pytest.mark.parametrize(
    ("count", "trouble"),
    [
        pytest.param(16, killed_engine, id="killed engine"),
        pytest.param(200, killed_engine, id="killed engine, 200 jobs", marks=MANY),
        pytest.param(200, kill_slurmctld, id="killed slurmctld, 200 jobs", marks=MANY),
    ],
)
def test_gated_jobs_survive(cluster, watch, count, trouble):
    configure_engine(cluster, "slots: {lease_s: 10, poll_s: 1}")
    cluster.wait_reconciled()
    holders = cluster.submit_many([("-w", node, "--exclusive", "--gres=gpu:1") for node in NODES])
    cluster.running_gpus(holders)
    cluster.wait_reconciled()  # before that the engine may know of nodes that are free
    request = ["sbatch", "--parsable", "-o", "ran.%j.%s", "--open-mode=append", "--gres=gpu:2"]
    script = "'echo ran $SLURM_RESTART_COUNT >>ran.$SLURM_JOB_ID; sleep 0.5'"
    loop = f"rm -f ran.*; for i in $(seq {count}); do {' '.join(request)} --wrap {script}; done"
    ids = [int(word) for word in cluster.run("ctl", loop, user="alice", timeout_s=120).out.split()]
    until(
        lambda: cluster.status()["slots"]["gated"] >= count,
        lambda: f"all wait behind gates: {cluster.run('ctl', 'gputopo slots list').out}",
        60,
    )
    trouble(cluster)
    cluster.cancel(*holders)
    until(lambda: not cluster.run("ctl", "squeue -h -u alice").out, lambda: left(cluster), 180)
    # What the jobs print, sbatch's own words among it, would be a line more.
    output = cluster.run("ctl", "grep -H '' ran.*", user="alice").out.splitlines()
    assert sorted(output) == sorted(f"ran.{jobid}:ran" for jobid in ids)
    seen = [gpus for jobid in ids for held in watch.held.get(jobid, ()) for _, gpus in held]
    assert {len(gpus) for gpus in seen} == {2}


def left(cluster: Cluster) -> str:
    """What did not come to an end, and of that what Slurm itself holds, which no gate keeps."""
    held = [
        job for job in cluster.jobs() if job.state == "PENDING" and job.fields["Priority"] == "0"
    ]
    told = [f"job {job.id} by {job.reason}, Restarts={job.fields['Restarts']}" for job in held]
    return f"all are over; held, with no gate of ours in the way: {'; '.join(told) or 'none'}"


NODES = ("amd1", "bridged1", "dgx1", "dgx2", "minsky1")


def test_release_all_gives_every_job_its_own_request_back(cluster):
    """With the kill switch set nothing is gated again, and Slurm runs the jobs as written."""
    busy = cluster.started("-w", "dgx1", "--gres=gpu:8", sleep_s=300).id
    ids = [
        gated(cluster, "-w", "dgx1", "--gpus=v100:2"),
        gated(cluster, "-w", "dgx1", "-n2", "--gpus-per-task=1"),
    ]
    with cluster.temporarily("clusterctl engine stop", "clusterctl engine start"):
        done = cluster.run("ctl", ["gputopo", "slots", "release-all"])
        assert done.out == "2 waiting jobs given back to Slurm\n"
        assert "gates new jobs" in done.err
        assert listed(cluster) == []
        cluster.cancel(busy)
        got = [gpus["dgx1"] for gpus in cluster.running_gpus(ids)]
        assert [len(gpus) for gpus in got] == [2, 2]
        assert visible(cluster, ids) == got
        assert cluster.job(ids[0]).fields["TresPerJob"] == f"{GPU}2"


def test_the_kill_switch_gives_waiting_jobs_back(cluster):
    """Within a poll of the engine, and new jobs are Slurm's own."""
    busy = cluster.started("-w", "dgx1", "--gres=gpu:8", sleep_s=300).id
    jobid = gated(cluster, "-w", "dgx1", "--gres=gpu:2")
    with cluster.temporarily(f"touch {SWITCH}", f"rm -f {SWITCH}"):
        until(lambda: not is_gated(cluster.job(jobid)), "it is Slurm's own")
        cluster.cancel(busy)
        later = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=300)
        for job in (cluster.wait_running(jobid), cluster.wait_running(later)):
            assert "gpu-slots" not in job.admin_comment
            assert job.fields["TresPerNode"] == f"{GPU}2"


def test_a_watched_partition_is_only_written_down(cluster):
    """Slurm's own GPUs, nothing in the job, and what the policy would have given in the log."""

    def observed() -> list[str]:
        log = 'grep \'"mode":"observe"\' /var/log/gputopo/decisions.jsonl'
        return cluster.run("ctl", log, check=False).out.splitlines()

    before = len(observed())
    job = cluster.started("-p", "observe", "-w", "dgx1", "--gres=gpu:2", sleep_s=300)
    left_alone = cluster.sbatch("-p", "off", "-w", "dgx2", "--gres=gpu:2", sleep_s=300)
    assert job.gpus["dgx1"] == cluster.wait_running(left_alone).gpus["dgx2"]
    assert "gpu-slots" not in job.admin_comment
    until(lambda: len(observed()) > before, "the decision is in the log")
    line = json.loads(observed()[-1])
    assert line["chosen"]["gpus"] == {"dgx1": [0, 3]}
    assert not line["applied"]
