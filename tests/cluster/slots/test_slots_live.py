"""enforcement: slots with the real engine on stock Slurm: gates, releases, order, repair."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from live_harness import (
    Watch,
    by_policy,
    configure_engine,
    end,
    running,
    submit_many,
    visible,
    watched,
)
from select_harness import eligible_time

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import Result, until
from slurm_cluster.slurm_text import Job, parse_indices

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

SWITCH = "/etc/slurm/gputopo.disable"
SHOW_GPUS = "echo gpus $CUDA_VISIBLE_DEVICES"
ALL = tuple(range(8))
# 22.05 writes "gres:gpu:2" for "gres/gpu:2".
OLD = os.environ.get("SUITE") == "bookworm"
GPU = "gres:gpu:" if OLD else "gres/gpu:"


@pytest.fixture
def watch(cluster: Cluster) -> Iterator[Watch]:
    """No GPU is held by two jobs at any moment of the test."""
    with watched(cluster) as found:
        yield found


def gated(cluster: Cluster, *args: str, sleep_s: float = 300) -> int:
    """A job that waits behind its gate; its id."""
    jobid = cluster.sbatch(*args, sleep_s=sleep_s)
    until(lambda: is_gated(cluster.job(jobid)), f"job {jobid} waits behind its gate")
    return jobid


def renewed(cluster: Cluster, jobid: int) -> None:
    """Waits until the job's gate is shut for longer than now."""
    begin = eligible_time(cluster, jobid)
    until(lambda: eligible_time(cluster, jobid) > begin, f"the gate of {jobid} is renewed")


def is_gated(job: Job) -> bool:
    """Does the job wait for the engine?"""
    return job.state == "PENDING" and "[gpu-slots: gated " in job.fields.get("AdminComment", "")


def stays_gated(cluster: Cluster, jobid: int) -> bool:
    """Has the engine looked and left the job, or every part of it, where it is?"""
    cluster.look()
    cluster.look()  # begins when all that the first one decided is done
    return all(map(is_gated, cluster.jobs(jobid)))


def seen_by(result: Result) -> tuple[int, ...]:
    """The GPUs that SHOW_GPUS told of."""
    (line,) = {line for line in result.out.splitlines() if line.startswith("gpus ")}
    return parse_indices(line.removeprefix("gpus "))


@contextmanager
def engine_away(cluster: Cluster) -> Iterator[None]:
    """No engine for the length of the block."""
    cluster.engine("kill")
    yield
    cluster.engine("start")


def listed(cluster: Cluster) -> list[dict[str, Any]]:
    """`gputopo slots list`."""
    found = json.loads(cluster.run("ctl", ["gputopo", "slots", "list", "--json"]).out)
    return list(found["jobs"])


# -- gate and release ---------------------------------------------------------


def test_a_job_without_room_waits_and_starts_on_the_policys_gpus(
    cluster: Cluster, watch: Watch
) -> None:
    """It says what it waits for; the GPUs that come free are enough, and the best pair is taken."""
    busy = cluster.occupy("dgx1", ALL)
    jobid = gated(cluster, "-w", "dgx1", "--gres=gpu:v100:2")
    job = cluster.job(jobid)
    assert job.reason == "BeginTime"
    assert "waits for 2 free GPUs on one node" in job.fields["AdminComment"]
    (row,) = listed(cluster)
    assert (row["job"], row["state"], row["asked"]) == (str(jobid), "gated", f"{GPU}2")
    cluster.cancel(busy[0], busy[3])
    started = cluster.wait_running(jobid)
    assert started.gpus == {"dgx1": (0, 3)}
    assert cluster.visible_gpus(jobid) == (0, 3)
    assert "dgx1:0,3 by mapa" in started.fields["AdminComment"]
    told = cluster.run("ctl", ["gputopo", "explain", str(jobid)]).out
    assert "mapa" in told
    assert "dgx1" in told


@pytest.mark.long("half a minute of jobs")
def test_a_burst_of_equal_submits_asks_seldom_and_all_of_it_runs(cluster: Cluster) -> None:
    """The bridge gates most of them by itself, each under a token of its own."""
    busy = cluster.occupy("dgx1", ALL)
    before = cluster.status()["messages"].get("submit", 0)
    one = "sbatch --parsable -o /dev/null -w dgx1 --gres=gpu:4 --wrap 'sleep 0.5'"
    told = cluster.run("ctl", f"cd; for i in $(seq 20); do {one}; done", user="alice")
    ids = [int(word) for word in told.out.split()]
    assert cluster.status()["messages"]["submit"] - before < len(ids) / 2
    comments = [cluster.job(jobid).fields["AdminComment"] for jobid in ids]
    tokens = {comment.partition(" token=")[2].split()[0] for comment in comments}
    assert len(tokens) == len(ids)
    until(lambda: len(listed(cluster)) == len(ids), "the engine knows all of them", 10)
    cluster.cancel(*busy)
    assert [cluster.wait_finished(jobid).state for jobid in ids] == ["COMPLETED"] * len(ids)
    placed = [cluster.job(jobid).fields["AdminComment"] for jobid in ids]
    assert all("[gpu-slots: placed " in comment for comment in placed)


@pytest.mark.long("half a minute until a gate lapses")
def test_a_gate_is_renewed_and_lapses_when_the_engine_is_away(cluster: Cluster) -> None:
    """Longer than its lease behind the gate; without the engine Slurm runs the job as written."""
    configure_engine(cluster, "slots: {lease_s: 10, poll_s: 1}")
    cluster.look()
    busy = cluster.occupy("dgx1", ALL)
    jobid = gated(cluster, "-w", "dgx1", "--gpus=2")
    renewed(cluster, jobid)
    renewed(cluster, jobid)
    assert is_gated(cluster.job(jobid))
    with engine_away(cluster):
        cluster.cancel(busy[0], busy[1])
        # where nothing else happens, Slurm looks again only after sched_interval (60 s)
        started = cluster.wait_running(jobid, timeout_s=80)
        assert started.gpus == {"dgx1": (0, 1)}
        assert started.fields["TresPerJob"] == f"{GPU}2"


def test_the_users_own_begin_is_kept(cluster: Cluster) -> None:
    """Room or not, nothing starts before the time the user gave; then it gets its slots."""
    now = int(cluster.run("ctl", ["date", "+%s"]).out)
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", "--begin=now+6", sleep_s=300)
    started = cluster.wait_running(jobid)
    text = started.fields["StartTime"]
    assert int(cluster.run("ctl", ["date", "-d", text, "+%s"]).out) >= now + 6
    assert started.gpus == {"dgx1": (0, 3)}


def test_dependent_and_held_jobs_get_slots_when_their_time_has_come(cluster: Cluster) -> None:
    """Until then they hold nothing."""
    first = cluster.sbatch("-w", "dgx1", "--gres=gpu:8", sleep_s=300)
    cluster.wait_running(first)
    after = gated(cluster, "-w", "dgx1", "--gres=gpu:2", f"--dependency=afterany:{first}")
    held = gated(cluster, "-w", "dgx1", "-H", "--gres=gpu:3")
    end(cluster, [first])
    assert cluster.wait_running(after).gpus == {"dgx1": (0, 3)}
    assert is_gated(cluster.job(held))
    cluster.run("ctl", ["scontrol", "release", str(held)], user="alice")
    assert cluster.wait_running(held).gpus == by_policy({"dgx1": (0, 3)}, (3,), ("dgx1",))


@pytest.mark.skipif(OLD, reason="on 22.05 srun and salloc get no slots")
@pytest.mark.long("27 s of waiting")
def test_srun_and_salloc_wait_for_their_slots(cluster: Cluster) -> None:
    """Interactive jobs, gated as any other, see exactly the policy's GPUs in every task."""
    busy = cluster.occupy("dgx1", ALL)
    forms = (
        ["srun", "-w", "dgx1", "--gres=gpu:2", "sh", "-c", SHOW_GPUS],
        ["srun", "-w", "dgx1", "--gres=gpu:v100:2", "sh", "-c", SHOW_GPUS],
        ["srun", "-w", "dgx1", "--gpus=2", "sh", "-c", SHOW_GPUS],
        ["salloc", "-w", "dgx1", "--gpus=2", "srun", "sh", "-c", SHOW_GPUS],
    )
    for argv in forms:
        late = f"sleep 2; scancel {busy[0]} {busy[3]}"
        cluster.run("ctl", f"({late}) >/dev/null 2>&1 &")
        assert seen_by(cluster.run("ctl", argv, user="alice")) == (0, 3), argv
        again = [("-w", "dgx1", "--gres=gpu:1", "-p", "off")] * 2
        busy[0], busy[3] = submit_many(cluster, again, user="bob")
        running(cluster, (busy[0], busy[3]))
        cluster.look()


@pytest.mark.skipif(OLD, reason="on 22.05 srun and salloc get no slots")
@pytest.mark.parametrize("asked", ["--gpus=2", "--gres=gpu:2"])
@pytest.mark.parametrize("each", [1, 2])
def test_srun_counts_tasks_per_gpu(cluster: Cluster, asked: str, each: int) -> None:
    """As on stock Slurm: so many tasks on each GPU, whoever chose the GPUs."""
    argv = ["srun", "-w", "dgx1", asked, f"--ntasks-per-gpu={each}", "sh", "-c", SHOW_GPUS]
    lines = cluster.run("ctl", argv, user="alice").out.split("gpus ")[1:]
    gpus = (0, 1) if (asked, each) == ("--gres=gpu:2", 2) else (0, 3)
    assert sorted(int(line) for line in lines) == sorted(gpus * each)


def test_every_task_of_an_array_gets_slots_of_its_own(cluster: Cluster, watch: Watch) -> None:
    """As many at a time as the user allows."""
    jobid = cluster.sbatch("-w", "dgx1", "--array=1-5%2", "--gres=gpu:2", script="sleep 2")
    most = 0

    def over() -> bool:
        nonlocal most
        jobs = cluster.jobs(jobid)
        most = max(most, sum(job.state == "RUNNING" for job in jobs))
        return all(job.state == "COMPLETED" for job in jobs)

    until(over, "all tasks have run", 60)
    assert most == 2
    pairs = {gpus for held in watch.held.values() for ((_, gpus),) in held}
    assert pairs == {(0, 3), by_policy({"dgx1": (0, 3)}, (2,), ("dgx1",))["dgx1"]}


def test_two_nodes_with_the_same_slots(cluster: Cluster) -> None:
    """GPUs that are free on both nodes, though others are free on each."""
    cluster.occupy("dgx1", (0, 1))
    cluster.occupy("dgx2", (2, 3))
    jobid = cluster.sbatch("-p", "dgx", "-N2", "--gpus-per-node=2", sleep_s=300)
    pair = by_policy({"dgx1": (0, 1, 2, 3)}, (2,), ("dgx1",))["dgx1"]
    assert cluster.wait_running(jobid).gpus == {"dgx1": pair, "dgx2": pair}


@pytest.mark.long("17 s of waiting")
def test_the_parts_of_a_heterogeneous_job_start_together(cluster: Cluster, watch: Watch) -> None:
    """Both wait until there is room for both; each gets the policy's GPUs on its node."""
    busy = cluster.occupy("dgx2", (0, 1, 2, 3, 4, 5, 6))
    parts = ("-w", "dgx1", "--gres=gpu:2", ":", "-w", "dgx2", "--gpus=3")
    jobid = cluster.sbatch(*parts, script="sleep 300")
    until(lambda: all(map(is_gated, cluster.jobs(jobid))), "both parts wait")
    assert stays_gated(cluster, jobid), "there is room for the first part alone"
    cluster.cancel(*busy[:4])
    until(lambda: [j.state for j in cluster.jobs(jobid)] == ["RUNNING"] * 2, "both run", 60)
    left = {"dgx2": (4, 5, 6)}
    wanted = [{"dgx1": (0, 3)}, by_policy(left, (3,), ("dgx2",))]
    assert [job.gpus for job in cluster.jobs(jobid)] == wanted


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_component_without_gpus_runs_on_its_own_node(cluster: Cluster) -> None:
    """What Slurm tells all components when the first one is released must not reach it."""
    parts = ("-w", "dgx1", "--gres=gpu:2", ":", "-w", "minsky1", "-n1")
    jobid = cluster.sbatch(*parts, script="sleep 300")
    until(lambda: [j.state for j in cluster.jobs(jobid)] == ["RUNNING"] * 2, "both run", 60)
    first, other = cluster.jobs(jobid)
    assert first.gpus == {"dgx1": (0, 3)}
    assert (other.fields["NodeList"], other.gpus) == ("minsky1", {})
    assert "gpu-slots" not in other.fields.get("AdminComment", "")


def test_gpus_of_one_socket(cluster: Cluster) -> None:
    """Behind its gate, too, and Slurm counts them as what was asked."""
    busy = cluster.occupy("dgx1", (0, 1, 2, 4, 5, 6, 7))
    args = ("-w", "dgx1", "-N1", "--sockets-per-node=1", "--gpus-per-socket=2")
    jobid = gated(cluster, *args)
    end(cluster, [busy[3]], {"dgx1": (0, 1, 2, 5, 6, 7)})
    assert stays_gated(cluster, jobid), "one GPU of each socket is not two of one"
    cluster.cancel(busy[4])
    started = cluster.wait_running(jobid)
    assert started.gpus == {"dgx1": (4, 5)}
    assert cluster.visible_gpus(jobid) == (4, 5)


# -- order --------------------------------------------------------------------


@pytest.mark.long("slurm.conf changes for it")
def test_with_cores_near_the_gpus_alone_slots_are_of_one_socket(
    cluster: Cluster, watch: Watch
) -> None:
    """Slots of several sockets Slurm would never start; what no socket has is its own choice."""
    bound = ("-N1", "-n2", "--gres-flags=enforce-binding")
    four = cluster.sbatch("-w", "amd1", "--gres=gpu:4", *bound, sleep_s=300)
    started = cluster.wait_running(four)
    assert len(started.gpus["amd1"]) == 4
    assert "Slurm's own choice" in started.fields["AdminComment"]
    busy = cluster.occupy("dgx1", (0, 1, 2, 5, 6, 7))
    jobid = gated(cluster, "-w", "dgx1", "--gres=gpu:2", *bound)
    assert stays_gated(cluster, jobid), "3 and 4 are free, of two sockets"
    cluster.cancel(busy[3])
    assert cluster.wait_running(jobid).gpus == {"dgx1": (4, 5)}
    at_once = cluster.sbatch("-w", "dgx2", "--gres=gpu:2", *bound, sleep_s=300)
    assert cluster.wait_running(at_once).gpus == by_policy({}, (2,), ("dgx2",))


def limit(minutes: int) -> str:
    """A time limit."""
    return f"--time={minutes}"


def test_short_jobs_pass_the_first_and_never_delay_it(cluster: Cluster, watch: Watch) -> None:
    """EASY backfill: by declared walltimes, six GPUs idle until the first job's turn."""
    holder = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", limit(5), sleep_s=300)
    cluster.wait_running(holder)
    first = gated(cluster, "-w", "dgx1", "--gres=gpu:8", limit(5))
    long, short = submit_many(
        cluster,
        [("-w", "dgx1", "--gres=gpu:2", limit(9)), ("-w", "dgx1", "--gres=gpu:2", limit(3))],
    )
    assert len(cluster.wait_running(short).gpus["dgx1"]) == 2
    assert is_gated(cluster.job(long))
    end(cluster, [short], {"dgx1": (0, 3)})
    cluster.cancel(holder)
    assert cluster.wait_running(first).gpus == {"dgx1": ALL}
    assert is_gated(cluster.job(long))


def test_jobs_are_released_in_slurms_own_order(cluster: Cluster) -> None:
    """A higher priority goes first, whoever came first."""
    busy = cluster.sbatch("-w", "dgx1", "--gres=gpu:8", sleep_s=300)
    cluster.wait_running(busy)
    low = gated(cluster, "-w", "dgx1", "--gres=gpu:8")
    high = gated(cluster, "-w", "dgx1", "--gres=gpu:8")
    cluster.run("ctl", f"scontrol update jobid={high} priority=100000")
    cluster.cancel(busy)
    cluster.wait_running(high)
    assert is_gated(cluster.job(low))


# -- what goes wrong ----------------------------------------------------------


@pytest.mark.long("15 s of waiting")
def test_a_job_slurm_keeps_gives_its_slots_to_others_meanwhile(
    cluster: Cluster, watch: Watch
) -> None:
    """A limit of Slurm's own stands against the start: gate again, try again, later and later."""
    cluster.run("ctl", "sacctmgr -i modify user alice set maxjobs=1")
    cluster.configure_extra("AccountingStorageEnforce=limits")
    try:
        first = cluster.sbatch("-w", "dgx1", "--gres=gpu:4", sleep_s=300)
        cluster.wait_running(first)
        second = cluster.sbatch("-w", "dgx1", "--gres=gpu:4", sleep_s=300)
        until(lambda: "tries=" in cluster.job(second).fields["AdminComment"], "it is gated again")
        if not OLD:  # there a job keeps its slots until it is given others
            assert cluster.job(second).fields["TresPerNode"] == "gres/gpu:4"
        other = cluster.sbatch("-w", "dgx1", "--gres=gpu:4", user="bob", sleep_s=300)
        cluster.wait_running(other)
        cluster.cancel(first, other)
        assert len(cluster.wait_running(second, timeout_s=60).gpus["dgx1"]) == 4
    finally:
        cluster.run("ctl", "sacctmgr -i modify user alice set maxjobs=-1")


@pytest.mark.long("a minute until the engine gives up")
def test_what_no_release_starts_is_left_to_slurm(cluster: Cluster) -> None:
    """The engine counts free CPUs; a user may ask for all cores of a socket, where each has 7."""
    configure_engine(cluster, "slots: {grace_s: 2}")
    cluster.look()
    one_each = cluster.sbatch(
        "-p", "off", "-w", "dgx1", "-n2", "--ntasks-per-socket=1", sleep_s=300
    )
    cluster.wait_running(one_each)
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", "-B", "1:8:1", sleep_s=300)
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


def test_a_release_somebody_broke_is_repaired(cluster: Cluster, watch: Watch) -> None:
    """The engine dies between release and start; an administrator took the slots away."""
    cluster.occupy("dgx1", (0, 3))
    cluster.run("ctl", "scontrol update partitionname=dgx state=down")
    try:
        jobid = cluster.sbatch("-p", "dgx", "-w", "dgx1", "--gres=gpu:2", sleep_s=300)
        with engine_away(cluster):
            words = f"JobId={jobid} TresPerNode=gres/gpu:2 ReqNodeList= Comment=broken"
            cluster.run("ctl", f"scontrol update {words}")
        until(lambda: "tries=1" in cluster.job(jobid).fields["AdminComment"], "gated again")
    finally:
        cluster.run("ctl", "scontrol update partitionname=dgx state=up")
    assert cluster.wait_running(jobid, timeout_s=60).gpus == by_policy(
        {"dgx1": (0, 3)}, (2,), ("dgx1",)
    )


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_job_whose_node_closes_before_it_starts_runs_elsewhere(
    cluster: Cluster, watch: Watch
) -> None:
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
        found = cluster.wait_running(jobid, timeout_s=60).gpus
        assert found == at_first if OLD else "minsky1" not in found
    finally:
        state(cluster, others, "resume")
        state(cluster, "minsky1", "resume")


def state(cluster: Cluster, nodes: str, word: str) -> None:
    """What an administrator says of nodes; that they are in this state already is no matter."""
    words = f"nodename={nodes} state={word}" + (" reason=test" if word == "drain" else "")
    cluster.run("ctl", f"scontrol update {words}", check=False)


def killed_slurmctld(cluster: Cluster) -> None:
    """SIGKILL, and a new slurmctld on what was saved."""
    cluster.saved()
    cluster.slurmctld("kill")
    cluster.slurmctld("start")


def killed_engine(cluster: Cluster) -> None:
    """SIGKILL, away until every gate has lapsed."""
    cluster.engine("kill")
    until(lambda: not shut(cluster), "all gates have lapsed", 30)
    cluster.engine("start")


def shut(cluster: Cluster) -> list[str]:
    """The begin times to come of waiting jobs."""
    told = "date +%FT%T; squeue -h -t PD -O EligibleTime:32"
    now, *begins = cluster.run("ctl", told).out.split()
    return [begin for begin in begins if begin > now]


@pytest.mark.skipif(not OLD, reason="only on 22.05 a release takes two updates")
def test_an_engine_that_ends_between_two_updates_leaves_no_job_without_gpus(
    cluster: Cluster, watch: Watch
) -> None:
    """A release's first update is done by hand; the job waits until an engine is back."""
    configure_engine(cluster, "slots: {lease_s: 10, poll_s: 1}")
    cluster.look()
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
        pytest.param(40, killed_engine, id="killed engine"),
        pytest.param(200, killed_engine, id="killed engine, 200 jobs", marks=MANY),
        pytest.param(200, killed_slurmctld, id="killed slurmctld, 200 jobs", marks=MANY),
    ],
)
def test_gated_jobs_survive(cluster: Cluster, watch: Watch, count: int, trouble: Any) -> None:
    """All of them run to their end, none twice, none is lost."""
    configure_engine(cluster, "slots: {lease_s: 10, poll_s: 1}")
    cluster.look()
    holders = submit_many(cluster, [("-w", node, "--exclusive", "--gres=gpu:1") for node in NODES])
    running(cluster, holders)
    request = ["sbatch", "--parsable", "-o", "ran.%j.%s", "--open-mode=append", "--gres=gpu:2"]
    script = "'echo ran $SLURM_RESTART_COUNT >>ran.$SLURM_JOB_ID; sleep 0.5'"
    loop = f"rm -f ran.*; for i in $(seq {count}); do {' '.join(request)} --wrap {script}; done"
    ids = [int(word) for word in cluster.run("ctl", loop, user="alice", timeout_s=120).out.split()]
    until(lambda: cluster.status()["slots"]["gated"] >= count, "all wait behind gates", 60)
    trouble(cluster)
    cluster.cancel(*holders)
    until(lambda: not cluster.run("ctl", "squeue -h -u alice").out, "all are over", 180)
    # What the jobs print, sbatch's own words among it, would be a line more.
    told = cluster.run("ctl", "grep -H '' ran.*", user="alice").out.splitlines()
    assert sorted(told) == sorted(f"ran.{jobid}:ran" for jobid in ids)
    seen = [gpus for jobid in ids for held in watch.held.get(jobid, ()) for _, gpus in held]
    assert {len(gpus) for gpus in seen} == {2}


NODES = ("amd1", "bridged1", "dgx1", "dgx2", "minsky1")


# -- away with it -------------------------------------------------------------


def test_release_all_gives_every_job_its_own_request_back(cluster: Cluster) -> None:
    """With the kill switch set nothing is gated again, and Slurm runs the jobs as written."""
    busy = cluster.sbatch("-w", "dgx1", "--gres=gpu:8", sleep_s=300)
    cluster.wait_running(busy)
    ids = [
        gated(cluster, "-w", "dgx1", "--gpus=v100:2"),
        gated(cluster, "-w", "dgx1", "-n2", "--gpus-per-task=1"),
    ]
    cluster.engine("stop")
    try:
        done = cluster.run("ctl", ["gputopo", "slots", "release-all"])
        assert done.out == "2 waiting jobs given back to Slurm\n"
        assert "gates new jobs" in done.err
        assert listed(cluster) == []
        cluster.cancel(busy)
        got = [gpus["dgx1"] for gpus in running(cluster, ids)]
        assert [len(gpus) for gpus in got] == [2, 2]
        assert visible(cluster, ids) == got
        assert cluster.job(ids[0]).fields["TresPerJob"] == f"{GPU}2"
    finally:
        cluster.engine("start")


def test_the_kill_switch_gives_waiting_jobs_back(cluster: Cluster) -> None:
    """Within a poll of the engine, and new jobs are Slurm's own."""
    busy = cluster.sbatch("-w", "dgx1", "--gres=gpu:8", sleep_s=300)
    cluster.wait_running(busy)
    jobid = gated(cluster, "-w", "dgx1", "--gres=gpu:2")
    cluster.run("ctl", f"touch {SWITCH}")
    try:
        until(lambda: not is_gated(cluster.job(jobid)), "it is Slurm's own")
        cluster.cancel(busy)
        later = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=300)
        for job in (cluster.wait_running(jobid), cluster.wait_running(later)):
            assert "gpu-slots" not in job.fields.get("AdminComment", "")
            assert job.fields["TresPerNode"] == f"{GPU}2"
    finally:
        cluster.run("ctl", f"rm -f {SWITCH}")


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_watched_partition_is_only_written_down(cluster: Cluster) -> None:
    """Slurm's own GPUs, nothing in the job, and what the policy would have given in the log."""
    jobid = cluster.sbatch("-p", "observe", "-w", "dgx1", "--gres=gpu:2", sleep_s=300)
    job = cluster.wait_running(jobid)
    left_alone = cluster.sbatch("-p", "off", "-w", "dgx2", "--gres=gpu:2", sleep_s=300)
    assert job.gpus["dgx1"] == cluster.wait_running(left_alone).gpus["dgx2"]
    assert "gpu-slots" not in job.fields.get("AdminComment", "")
    log = 'grep \'"mode":"observe"\' /var/log/gputopo/decisions.jsonl | tail -1'
    until(lambda: bool(cluster.run("ctl", log).out), "the decision is in the log")
    line = json.loads(cluster.run("ctl", log).out)
    assert line["chosen"]["gpus"] == {"dgx1": [0, 3]}
    assert not line["applied"]
