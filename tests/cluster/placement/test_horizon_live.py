"""`horizon`, the default, live: a job leaves a set to the next one in the queue, or waits."""

import re
import time

import pytest
from live_harness import CONFIG, IN_BOTH_MODES, by_policy, configure_engine, explained
from select_harness import clear

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_plugin.serve.loops.neighbours import LONGEST_REST_S

pytestmark = [*IN_BOTH_MODES, pytest.mark.enforced]

#: Other tests' jobs are not to tell how long these will run, or what they communicate: one future,
#: by limits alone.
BY_LIMITS = "horizon: {guesses: no, users: no, learn: no}"


def name_no_policy(cluster: Cluster, *lines: str) -> None:
    """Until the next reset, as on a site that leaves that to us; and these lines of its file."""
    text = cluster.read("ctl", CONFIG).replace(", policy: mapa", "")
    cluster.put("ctl", CONFIG, text)
    configure_engine(cluster, "\n".join(lines))


def submit(cluster: Cluster, gpus: int, *args: str) -> int:
    return cluster.sbatch("-w", "dgx1", f"--gres=gpu:{gpus}", *args, sleep_s=300)


def has_read_the_queue(cluster: Cluster) -> None:
    """The engine's newest reading of the queue began after this was called."""
    called = time.monotonic()

    def is_newer() -> bool:
        age_s = cluster.status()["neighbours"]["age_s"]
        return age_s is not None and age_s < time.monotonic() - called

    # Where a reading takes long the engine rests for as long as it may.
    until(is_newer, "the engine has read the queue again", LONGEST_REST_S + 20)


@pytest.mark.parametrize(
    ("waits", "gpus"),
    [
        pytest.param(6, (0, 4), id="six wait: the pair that they do without"),
        pytest.param(0, (2, 3), id="nobody waits: mapa's own"),
    ],
)
def test_two_gpus_leave_the_set_for_the_job_that_waits_next(cluster, waits, gpus):
    """Of 0,2,3,4,6,7 free and 1,5 soon: every pair on a double link is as good for this job."""
    name_no_policy(cluster, "horizon: {wait: no}")
    first = cluster.wait_running(submit(cluster, 6))
    assert first.gpus == {"dgx1": (0, 2, 3, 4, 6, 7)}
    second = cluster.wait_running(submit(cluster, 2, "--time=5"))
    assert second.gpus == {"dgx1": (1, 5)}
    job = submit(cluster, 2)
    if waits:
        submit(cluster, waits)
    has_read_the_queue(cluster)
    cluster.cancel(first.id)
    assert cluster.wait_running(job).gpus == {"dgx1": gpus}
    reason = explained(cluster, job)["reason"]
    assert ("leaves 2,3,6,7 for the next job of 6, with 1,5" in reason) == bool(waits), reason
    clear(cluster)


def test_where_slurm_hides_jobs_no_reason_tells_that_others_wait(cluster):
    """As above: six wait, and the pair is chosen for their sake."""
    cluster.configure_extra("PrivateData=jobs")
    name_no_policy(cluster, "horizon: {wait: no}")
    first = cluster.wait_running(submit(cluster, 6))
    cluster.wait_running(submit(cluster, 2, "--time=5"))
    job = submit(cluster, 2)
    submit(cluster, 6)
    has_read_the_queue(cluster)
    cluster.cancel(first.id)
    assert cluster.wait_running(job).gpus == {"dgx1": (0, 4)}
    told = explained(cluster, job)["reason"] + cluster.job(job).fields["AdminComment"]
    assert "chosen with the next jobs in mind" in told
    assert "next job of" not in told
    clear(cluster)


@pytest.mark.select_plugin
def test_a_job_of_two_nodes_gets_two_of_one_kind(cluster):
    """Two GPUs are left on a V100 and on a P100 node; full nodes first would give it both."""
    name_no_policy(cluster)
    cluster.occupy_nodes({"dgx1": (1, 2, 4, 5, 6, 7), "minsky1": (2, 3)})
    job = cluster.started("-x", "amd1,bridged1", "-N2", "--gres=gpu:2", sleep_s=60)
    assert set(job.gpus) == {"dgx1", "dgx2"}
    clear(cluster)


@pytest.mark.select_plugin
def test_nothing_is_left_for_a_job_that_slurm_would_not_start(cluster):
    """As above, but the job of six is mallory's and longer than its partition allows."""
    name_no_policy(cluster, "horizon: {wait: no}")
    limit, former = ("scontrol update partitionname=gpu maxtime=" + to for to in ("60", "infinite"))
    with cluster.temporarily(limit, former):
        first = cluster.wait_running(submit(cluster, 6, "--time=50"))
        cluster.wait_running(submit(cluster, 2, "--time=5"))
        job = submit(cluster, 2, "--time=50")
        talks = "--comment=gpu-topo: communication=1"
        asks = ("-w", "dgx1", "--gres=gpu:6", "--time=70", talks)
        never = cluster.sbatch(*asks, user="mallory", sleep_s=300)
        until(lambda: cluster.job(never).reason == "PartitionTimeLimit", "Slurm says so", 60)
        has_read_the_queue(cluster)
        cluster.cancel(first.id)
        assert cluster.wait_running(job).gpus == {"dgx1": (2, 3)}
        assert "leaves" not in explained(cluster, job)["reason"]
        clear(cluster)


@pytest.mark.parametrize(
    ("hint", "known"), [(["--comment=gpu-topo: communication=0.5"], "26 %;"), ([], "unknown, 30 %")]
)
def test_a_job_waits_for_the_better_pair_and_gets_it(cluster, hint, known):
    """0 and 5 have no link; the others are expected back long before its own limit is over."""
    name_no_policy(cluster, BY_LIMITS)
    holders = cluster.occupy("dgx1", range(8))
    job = submit(cluster, 2, "--time=600", *hint)
    has_read_the_queue(cluster)
    cluster.cancel(holders[0], holders[5])
    said = r"horizon: GPUs \d,\d of dgx1 are expected in \d+ s: \d+ % of the best .*, now 26 %"
    until(lambda: re.search(said, cluster.job(job).admin_comment), "it waits for better ones", 30)
    assert known in cluster.job(job).admin_comment
    cluster.cancel(holders[3])
    assert cluster.wait_running(job, timeout_s=60).gpus == {"dgx1": (0, 3)}
    clear(cluster)


def test_no_job_waits_for_a_faster_kind_of_node_while_another_is_free(cluster):
    """All of the MI250X comes free in a minute; the best pair of a P100 node is there now."""
    name_no_policy(cluster, BY_LIMITS)
    cluster.wait_running(cluster.sbatch("-w", "amd1", "--gres=gpu:8", "--time=1", sleep_s=300))
    has_read_the_queue(cluster)
    talks = "--comment=gpu-topo: communication=0.6"
    job = cluster.sbatch("-x", "bridged1,dgx[1-2]", "--gres=gpu:2", talks, sleep_s=300)
    assert cluster.wait_running(job).gpus == by_policy({}, (2,), ("minsky1",))
    assert "100 % of the best " in explained(cluster, job)["reason"]
    clear(cluster)


#: As many as are remembered.
TAUGHT = 64


@pytest.mark.long("64 jobs of mallory's, one after the other")
def test_what_one_users_jobs_use_of_their_limits_makes_nobody_else_wait(cluster):
    """By them GPU 3 would be free in a moment; its job has a limit of a day."""
    name_no_policy(cluster, "horizon: {users: no}")
    holders = cluster.occupy("dgx1", range(8))
    ids = ",".join(map(str, holders))
    cluster.run("ctl", f"scontrol update jobid={ids} TimeLimit=1-0")
    array = ("-p", "gpu", "-w", "dgx2", "--gres=gpu:1", "--time=50", f"--array=1-{TAUGHT}")
    cluster.sbatch(*array, user="mallory")
    until(lambda: not cluster.run("ctl", "squeue -h -u mallory").out, "mallory's are over", 200)
    has_read_the_queue(cluster)
    job = submit(cluster, 2, "--time=600", "--comment=gpu-topo: communication=0.5")
    has_read_the_queue(cluster)
    cluster.cancel(holders[0], holders[5])
    assert cluster.wait_running(job).gpus == {"dgx1": (0, 5)}
    clear(cluster)


#: Tasks of each user on the best pair, and on one that has no link.
ON_BEST, ON_WORST = 6, 8


@pytest.mark.long("56 jobs of five seconds")
def test_where_run_times_do_not_depend_on_the_gpus_jobs_that_say_nothing_wait_no_more(cluster):
    """Four users' jobs take as long on GPUs 0 and 5 as on the best ones: links gain nothing."""
    name_no_policy(cluster, "horizon: {guesses: no, users: no}")
    nodes = {"alice": "dgx1", "bob": "dgx2", "mallory": "dgx1", "root": "dgx2"}
    held: dict[str, list[int]] = {}
    for tasks in (ON_BEST, ON_WORST):
        if tasks == ON_WORST:
            held = cluster.occupy_nodes(dict.fromkeys(nodes.values(), (1, 2, 3, 4, 6, 7)))
        for user, node in nodes.items():
            array = ("-J", "teaches", "-w", node, "--gres=gpu:2", "--time=1")
            cluster.sbatch(*array, f"--array=1-{tasks}%1", user=user, sleep_s=4)
        until(lambda: not named(cluster, "teaches"), "these jobs are over", 30 * tasks)
    cluster.cancel(*(job for jobs in held.values() for job in jobs))
    until(lambda: cluster.status()["neighbours"]["communication"] is not None, "it is learned")
    assert cluster.status()["neighbours"]["communication"] <= 0.1
    holders = cluster.occupy("dgx1", range(8))
    job = submit(cluster, 2, "--time=600")
    has_read_the_queue(cluster)
    cluster.cancel(holders[0], holders[5])
    assert cluster.wait_running(job).gpus == {"dgx1": (0, 5)}
    clear(cluster)


@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_who_sits_there_does_not_wait_for_what_is_usual(cluster, command):
    """The same job as above that says nothing, by a command that somebody waits for."""
    name_no_policy(cluster, BY_LIMITS)
    holders = cluster.occupy("dgx1", range(8))
    asks = f"{command} -w dgx1 --gres=gpu:2 --time=600 -J sits sleep 300"
    cluster.run("ctl", ["sh", "-c", f"nohup {asks} >/dev/null 2>&1 &"], user="alice")
    until(lambda: named(cluster, "sits"), "the job is in the queue")
    has_read_the_queue(cluster)
    cluster.cancel(holders[0], holders[5])
    [job] = named(cluster, "sits")
    assert cluster.wait_running(job).gpus == {"dgx1": (0, 5)}
    clear(cluster)


def named(cluster: Cluster, name: str) -> list[int]:
    return list(map(int, cluster.run("ctl", f"squeue -h -o %A -n {name}").out.split()))


#: A quarter longer over two sockets.
PROFILES = "/tmp/gputopo-profiles"
TALKS = "profile: talks\nalone: [{gpus: 2, packed_s: 100, spread_s: 125}]\n"


def test_a_job_of_a_measured_profile_waits_as_one_that_says_what_it_communicates(cluster):
    """Its profile tells what its hint does not, and `explain` says so."""
    cluster.run("ctl", f"mkdir -p {PROFILES}")
    cluster.put("ctl", f"{PROFILES}/talks.yaml", TALKS)
    name_no_policy(cluster, BY_LIMITS, f"topo_aware: {{profiles: {PROFILES}}}")
    holders = cluster.occupy("dgx1", range(8))
    job = submit(cluster, 2, "--time=600", "--comment=gpu-topo: profile=talks")
    has_read_the_queue(cluster)
    cluster.cancel(holders[0], holders[5])
    until(
        lambda: "horizon: GPUs " in cluster.job(job).admin_comment, "it waits for better ones", 30
    )
    # Between the note and the new begin time Slurm shows another reason for a moment.
    cluster.wait_postponed(job)
    assert "% of its time by profile talks" in cluster.run("ctl", f"gputopo why {job}").out
    cluster.cancel(holders[3])
    assert cluster.wait_running(job, timeout_s=60).gpus == {"dgx1": (0, 3)}
    assert " % of its time by profile talks" in explained(cluster, job)["reason"]
    clear(cluster)
