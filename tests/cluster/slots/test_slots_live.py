"""enforcement: slots with the real engine on stock Slurm: gates, releases, order."""

import pytest
from live_harness import (
    GPU,
    SHOW_GPUS,
    by_policy,
    configure_engine,
    goes_by_links,
    gpus_of_tasks,
    not_on_old,
)

from slurm_cluster.hosts import until
from tests.cluster.slots.gated import engine_away, gated, is_gated, listed, renewed, stays_gated

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

ALL = tuple(range(8))


def test_a_job_without_room_waits_and_starts_on_the_policys_gpus(cluster, watch):
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
    output = cluster.run("ctl", ["gputopo", "explain", str(jobid)]).out
    assert "mapa" in output
    assert "dgx1" in output


@pytest.mark.long("half a minute of jobs")
def test_a_burst_of_equal_submits_asks_seldom_and_all_of_it_runs(cluster):
    """The bridge gates most of them by itself, each under a token of its own."""
    busy = cluster.occupy("dgx1", ALL)
    before = cluster.status()["messages"].get("submit", 0)
    one = "sbatch --parsable -o /dev/null -w dgx1 --gres=gpu:4 --wrap 'sleep 0.5'"
    output = cluster.run("ctl", f"cd; for i in $(seq 20); do {one}; done", user="alice")
    ids = [int(word) for word in output.out.split()]
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
def test_a_gate_is_renewed_and_lapses_when_the_engine_is_away(cluster):
    """Longer than its lease behind the gate; without the engine Slurm runs the job as written."""
    configure_engine(cluster, "slots: {lease_s: 10, poll_s: 1}")
    cluster.wait_reconciled()
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


def test_the_users_own_begin_is_kept(cluster):
    """Room or not, nothing starts before the time the user gave; then it gets its slots."""
    now = int(cluster.run("ctl", ["date", "+%s"]).out)
    started = cluster.started("-w", "dgx1", "--gres=gpu:2", "--begin=now+6", sleep_s=300)
    assert cluster.time_of(started.id, "StartTime") >= now + 6
    assert started.gpus == {"dgx1": (0, 3)}


def test_dependent_and_held_jobs_get_slots_when_their_time_has_come(cluster):
    """Until then they hold nothing."""
    first = cluster.started("-w", "dgx1", "--gres=gpu:8", sleep_s=300).id
    after = gated(cluster, "-w", "dgx1", "--gres=gpu:2", f"--dependency=afterany:{first}")
    held = gated(cluster, "-w", "dgx1", "-H", "--gres=gpu:3")
    cluster.end([first])
    assert cluster.wait_running(after).gpus == {"dgx1": (0, 3)}
    assert is_gated(cluster.job(held))
    cluster.run("ctl", ["scontrol", "release", str(held)], user="alice")
    assert cluster.wait_running(held).gpus == by_policy({"dgx1": (0, 3)}, (3,), ("dgx1",))


@not_on_old
@pytest.mark.long("27 s of waiting")
def test_srun_and_salloc_wait_for_their_slots(cluster):
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
        assert gpus_of_tasks(cluster.run("ctl", argv, user="alice")) == {(0, 3)}, argv
        again = [("-w", "dgx1", "--gres=gpu:1", "-p", "off")] * 2
        busy[0], busy[3] = cluster.submit_many(again, user="bob")
        cluster.running_gpus((busy[0], busy[3]))
        cluster.wait_reconciled()


@not_on_old
@pytest.mark.parametrize("asked", ["--gpus=2", "--gres=gpu:2"])
@pytest.mark.parametrize("each", [1, 2])
def test_srun_counts_tasks_per_gpu(cluster, asked, each):
    """As on stock Slurm: so many tasks on each GPU, whoever chose the GPUs."""
    argv = ["srun", "-w", "dgx1", asked, f"--ntasks-per-gpu={each}", "sh", "-c", SHOW_GPUS]
    lines = cluster.run("ctl", argv, user="alice").out.split("gpus ")[1:]
    slurms_own = (asked, each) == ("--gres=gpu:2", 2) and not goes_by_links(cluster)
    gpus = (0, 1) if slurms_own else (0, 3)
    assert sorted(int(line) for line in lines) == sorted(gpus * each)


def test_every_task_of_an_array_gets_slots_of_its_own(cluster, watch):
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


def test_two_nodes_with_the_same_slots(cluster):
    """GPUs that are free on both nodes, though others are free on each."""
    cluster.occupy("dgx1", (0, 1))
    cluster.occupy("dgx2", (2, 3))
    jobid = cluster.sbatch("-p", "dgx", "-N2", "--gpus-per-node=2", sleep_s=300)
    pair = by_policy({"dgx1": (0, 1, 2, 3)}, (2,), ("dgx1",))["dgx1"]
    assert cluster.wait_running(jobid).gpus == {"dgx1": pair, "dgx2": pair}


@pytest.mark.long("17 s of waiting")
def test_the_parts_of_a_heterogeneous_job_start_together(cluster, watch):
    """Both wait until there is room for both; each gets the policy's GPUs on its node."""
    cluster.occupy("dgx2", (4, 5, 6))
    # One job, whose GPUs come free together: an engine that reads in between sees all or none.
    four = cluster.started("-w", "dgx2", "--gres=gpu:4", sleep_s=300)
    assert four.gpus == {"dgx2": (0, 1, 2, 3)}
    parts = ("-w", "dgx1", "--gres=gpu:2", ":", "-w", "dgx2", "-N1", "--gpus=3")
    jobid = cluster.sbatch(*parts, script="sleep 300")
    until(lambda: all(map(is_gated, cluster.jobs(jobid))), "both parts wait")
    assert stays_gated(cluster, jobid), "there is room for the first part alone"
    cluster.cancel(four.id)
    until(lambda: [j.state for j in cluster.jobs(jobid)] == ["RUNNING"] * 2, "both run", 60)
    left = {"dgx2": (4, 5, 6)}
    wanted = [{"dgx1": (0, 3)}, by_policy(left, (3,), ("dgx2",))]
    assert [job.gpus for job in cluster.jobs(jobid)] == wanted


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_component_without_gpus_runs_on_its_own_node(cluster):
    """What Slurm tells all components when the first one is released must not reach it."""
    parts = ("-w", "dgx1", "--gres=gpu:2", ":", "-w", "minsky1", "-n1")
    jobid = cluster.sbatch(*parts, script="sleep 300")
    until(lambda: [j.state for j in cluster.jobs(jobid)] == ["RUNNING"] * 2, "both run", 60)
    first, other = cluster.jobs(jobid)
    assert first.gpus == {"dgx1": (0, 3)}
    assert (other.fields["NodeList"], other.gpus) == ("minsky1", {})
    assert "gpu-slots" not in other.admin_comment


def test_gpus_of_one_socket(cluster):
    """Behind its gate, too, and Slurm counts them as what was asked."""
    busy = cluster.occupy("dgx1", (0, 1, 2, 4, 5, 6, 7))
    args = ("-w", "dgx1", "-N1", "--sockets-per-node=1", "--gpus-per-socket=2")
    jobid = gated(cluster, *args)
    cluster.end([busy[3]], {"dgx1": (0, 1, 2, 5, 6, 7)})
    assert stays_gated(cluster, jobid), "one GPU of each socket is not two of one"
    cluster.cancel(busy[4])
    started = cluster.wait_running(jobid)
    assert started.gpus == {"dgx1": (4, 5)}
    assert cluster.visible_gpus(jobid) == (4, 5)


@pytest.mark.long("slurm.conf changes for it")
def test_with_cores_near_the_gpus_alone_slots_are_of_one_socket(cluster, watch):
    """Slots of several sockets Slurm would never start; what no socket has is its own choice."""
    bound = ("-N1", "-n2", "--gres-flags=enforce-binding")
    started = cluster.started("-w", "amd1", "--gres=gpu:4", *bound, sleep_s=300)
    assert len(started.gpus["amd1"]) == 4
    assert "Slurm's own choice" in started.fields["AdminComment"]
    busy = cluster.occupy("dgx1", (0, 1, 2, 5, 6, 7))
    jobid = gated(cluster, "-w", "dgx1", "--gres=gpu:2", *bound)
    assert stays_gated(cluster, jobid), "3 and 4 are free, of two sockets"
    cluster.cancel(busy[3])
    assert cluster.wait_running(jobid).gpus == {"dgx1": (4, 5)}
    at_once = cluster.sbatch("-w", "dgx2", "--gres=gpu:2", *bound, sleep_s=300)
    assert cluster.wait_running(at_once).gpus == by_policy({}, (2,), ("dgx2",))


def test_short_jobs_pass_the_first_and_never_delay_it(cluster, watch):
    """EASY backfill: by declared walltimes, six GPUs idle until the first job's turn."""
    holder = cluster.started("-w", "dgx1", "--gres=gpu:2", "--time=5", sleep_s=300).id
    first = gated(cluster, "-w", "dgx1", "--gres=gpu:8", "--time=5")
    pair = ("-w", "dgx1", "--gres=gpu:2")
    long, short = cluster.submit_many([(*pair, "--time=9"), (*pair, "--time=3")])
    assert len(cluster.wait_running(short).gpus["dgx1"]) == 2
    assert is_gated(cluster.job(long))
    cluster.end([short], {"dgx1": (0, 3)})
    cluster.cancel(holder)
    assert cluster.wait_running(first).gpus == {"dgx1": ALL}
    assert is_gated(cluster.job(long))


def test_jobs_are_released_in_slurms_own_order(cluster):
    """A higher priority goes first, whoever came first."""
    busy = cluster.started("-w", "dgx1", "--gres=gpu:8", sleep_s=300).id
    low = gated(cluster, "-w", "dgx1", "--gres=gpu:8")
    high = gated(cluster, "-w", "dgx1", "--gres=gpu:8")
    cluster.run("ctl", f"scontrol update jobid={high} priority=100000")
    # Or one reading takes the queue before, and the nodes after, these two lines.
    cluster.wait_reconciled()
    cluster.cancel(busy)
    cluster.wait_running(high)
    assert is_gated(cluster.job(low))


def test_a_partition_that_slurm_reads_now_is_known_at_once(cluster):
    """What the engine keeps of slurm.conf for a minute is read anew once slurmctld has read it."""
    cluster.configure_extra("PartitionName=new Nodes=dgx[1-2] DefaultTime=10")
    cluster.wait_reconciled()
    job = cluster.job(cluster.sbatch("-p", "new", "--gres=gpu:2", sleep_s=1))
    assert "[gpu-slots: placed " in job.admin_comment
