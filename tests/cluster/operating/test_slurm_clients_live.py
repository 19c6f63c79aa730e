"""One contract for every Slurm client: commands, slurmrestd, PySlurm, against a live Slurm.

PySlurm's tests are skipped where it is not built for the release; in CI it must be on trixie.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.pytest_plugin import in_ci
from slurm_plugin.base.job_states import queue_state
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.demand import lacks_only_room
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob
from slurm_plugin.slurm.releases import parse_version
from tests.cluster.operating.client_harness import (
    RemoteClient,
    install_pyslurm,
    start_rest,
    stop_rest,
)
from tests.slurm_plugin import slurms_words as slurms

pytestmark = pytest.mark.cluster

BUILT_FIRST = pytest.mark.long("PySlurm is built, two minutes and more")
KINDS = ("command", "rest", pytest.param("pyslurm", marks=BUILT_FIRST))
HOUR_S = 3600
BRACKETS = "[gpu-topo: pattern=ring] [gpu-slots: gated token=a%20b nodes=1-1]"


@dataclass(frozen=True)
class Scene:
    """What runs and waits while the clients are asked."""

    cluster: Cluster
    running: int
    later: int
    array: int
    exclusive: int


@pytest.fixture(scope="module")
def scene(session_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A clean stock Slurm with jobs of several kinds; a slurmrestd beside it."""
    # The jobs end by themselves: what takes long comes first.
    tests = [item.name for item in request.session.items if item.path == request.path]
    if any("pyslurm" in name for name in tests):
        request.getfixturevalue("pyslurm")
    cluster = session_cluster
    cluster.reset()
    cluster.engine("stop")  # it would take out records of ours that it never wrote
    with cluster.variant_as("stock"):
        start_rest(cluster)
        begin = "--begin=now+1hour"
        running = cluster.sbatch(
            "-w", "dgx1", "--gres=gpu:2", "-n2", "--mem-per-cpu=60", sleep_s=900
        )
        later = cluster.sbatch(begin, "--gpus=v100:2", "--cpus-per-gpu=2", "--comment=a\nb=c")
        array = cluster.sbatch(begin, "--array=0-8:2%2", "--gres=gpu:1", user="bob")
        options = ["--exclusive", "-N2", "--mem=100", "--gpus-per-task=1", "-x", "amd1"]
        exclusive = cluster.sbatch(begin, "-t", "1-0", "-w", "dgx2", *options)
        cluster.wait_running(running)
        yield Scene(cluster, running, later, array, exclusive)
        stop_rest(cluster)
    cluster.reset()


@pytest.fixture(scope="module")
def pyslurm(session_cluster: Cluster) -> str:
    """What became of PySlurm, in one line."""
    return install_pyslurm(session_cluster)


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, live: Cluster, scene: Scene) -> RemoteClient:
    return client_of(request, live, request.param)


def client_of(request: pytest.FixtureRequest, live: Cluster, kind: str) -> RemoteClient:
    """That client; PySlurm's tests are skipped where it cannot be built."""
    if kind == "pyslurm":
        output = request.getfixturevalue("pyslurm")
        if "PySlurm: built" not in output:
            if in_ci() and live.suite == "trixie":
                pytest.fail(f"in CI PySlurm must be there: {output}", pytrace=False)
            pytest.skip(output)
    return RemoteClient(live, kind)


def submitted(scene: Scene, *options: str) -> str:
    """A job that waits for an hour, as an update calls it."""
    return str(scene.cluster.sbatch("--begin=now+1hour", *options, sleep_s=30))


def test_the_release_and_the_configuration_are_slurmctlds(client, scene):
    output = scene.cluster.run("ctl", "slurmctld -V").out.split()[1]
    assert client.call("version") == output
    config = client.call("config")
    assert config["ClusterName"] == "gputopo"
    # An epoch, as every time that Slurm's commands are asked for.
    assert 0 < time.time() - int(config["BOOT_TIME"]) < 86400


def test_nodes_say_what_they_have_and_what_is_in_use(client, scene):
    nodes = client.nodes()
    held = scene.cluster.job(scene.running).gpus["dgx1"]
    assert nodes["dgx1"].used == held
    assert nodes["dgx1"].used_by_type == {"v100": 2}
    assert nodes["dgx2"].used_by_type == {"v100": 0}
    assert nodes["dgx1"].gpus == {"v100": 8}
    assert (nodes["dgx1"].alloc_cpus, nodes["dgx1"].alloc_memory_mb) == (2, 120)
    assert (nodes["dgx1"].cpus, nodes["dgx1"].memory_mb, nodes["dgx1"].weight) == (16, 4000, 1)
    assert nodes["dgx1"].state[0] == "MIXED"
    assert {"gpu", "dgx"} <= set(nodes["dgx1"].partitions)


def test_partitions_have_their_nodes(client):
    partitions = client.partitions()
    assert partitions["dgx"].nodes == ("dgx1", "dgx2")
    assert partitions["gpu"].is_default
    assert not partitions["dgx"].is_default
    assert partitions["dgx"].priority_tier == 1


def test_a_job_that_is_over_says_when_it_ran_and_no_other_does(client, scene):
    jobid = scene.cluster.sbatch("-n1", script="sleep 2")
    scene.cluster.wait_finished(jobid)
    jobs = client.jobs()
    over, running = jobs[jobid], jobs[scene.running]
    assert (running.state, jobs[scene.later].state) == ("RUNNING", "PENDING")
    assert over.state == "COMPLETED"
    assert 1 <= over.end - over.start <= 15
    assert (running.start, running.end) == (0, 0)


def test_the_queue_says_what_each_job_asks_for(client, scene):
    queue = client.queue()
    running = queue[str(scene.running)]
    assert (running.state, running.nodes, running.cpus) == ("RUNNING", ("dgx1",), 2)
    assert running.gpus == {"dgx1": scene.cluster.job(scene.running).gpus["dgx1"]}
    assert running.end - running.start == 600
    assert (running.memory_per_cpu_mb, running.memory_per_node_mb) == (60, 0)
    later = queue[str(scene.later)]
    assert later.tres_per_job.replace("gres:", "gres/") == "gres/gpu:v100:2"
    assert later.cpus_per_tres.replace("gres:", "gres/") == "gres/gpu:2"
    assert later.comment == "a\nb=c"
    assert later.admin_comment == ""
    assert (later.state, later.user, later.uid, later.held) == ("PENDING", "alice", 2001, False)
    assert later.start - later.submit == pytest.approx(HOUR_S, abs=5)
    assert later.account == "research"
    exclusive = queue[str(scene.exclusive)]
    assert exclusive.exclusive
    assert not later.exclusive
    assert (exclusive.min_nodes, exclusive.ntasks) == (2, 2)
    assert (exclusive.memory_per_cpu_mb, exclusive.memory_per_node_mb) == (0, 100)
    assert (exclusive.req_nodes, exclusive.exc_nodes) == ("dgx2", "amd1")
    assert exclusive.time_limit_s == 86400
    assert "gpu" in exclusive.tres_per_task


def test_each_job_has_its_own_name_and_command(client, scene):
    """Of jobs that ask for the same, too; whatever a user writes there."""
    path, hostile = "/tmp/sweep.sh", "a\tb'\"$(id) [gpu-slots: gated] N/A\\0"
    write = f"printf '#!/bin/sh\nsleep 9\n' >{path}; chmod 755 {path}"
    scene.cluster.run("ctl", write, user="alice")
    options = ["--begin=now+1hour", "--gres=gpu:1", "-o", "/dev/null"]
    names = ["sweep 1", "sweep 2", hostile]
    jobs = {}
    for name in names:
        argv = ["sbatch", "--parsable", *options, f"--job-name={name}", path]
        jobs[scene.cluster.run("ctl", argv, user="alice").out.strip()] = name
    queue = client.queue()
    assert {job: queue[job].job_name for job in jobs} == jobs
    assert {queue[job].command for job in jobs} == {path}
    assert queue[str(scene.later)].command != path
    scene.cluster.cancel(*map(int, jobs))


def test_the_tasks_of_an_array_that_wait_are_one_job(client, scene):
    (array,) = (job for job in client.queue().values() if job.array_id == scene.array)
    assert array.name == f"{scene.array}_[0,2,4,6,8]"
    assert (array.task, array.tasks, array.throttle) == ("0,2,4,6,8", 5, 2)


def test_a_gate_moves_the_begin_of_several_jobs_and_of_one_task(client, scene):
    jobs = [submitted(scene, "--gres=gpu:1"), submitted(scene, "--gres=gpu:2")]
    array = submitted(scene, "--gres=gpu:1", "--array=1-3")
    at = int(time.time()) + 2 * HOUR_S
    gated = [*jobs, f"{array}_2"]
    client.update(gated, JobUpdate(begin_time=at))
    queue = client.queue()
    assert {name: queue[name].start for name in gated} == dict.fromkeys(gated, at)
    assert queue[f"{array}_[1,3]"].start < at
    assert all(queue[name].tres_per_node for name in gated)
    scene.cluster.cancel(*map(int, (*jobs, array)))


def test_a_release_starts_the_job_on_its_node_with_its_gpus(client, scene):
    job = submitted(scene, "--gpus=v100:2", "-N1-2")
    array = submitted(scene, "--gres=gpu:1", "--array=1-2", "-N1")
    change = JobUpdate(
        begin_time=NOW,
        tres_per_node="gpu:v100:3",
        tres_per_job="",
        tres_per_task="",
        req_nodes="dgx2",
        num_nodes=(1, 1),
        cpus_per_task=2,
        admin_comment=BRACKETS,
    )
    client.update([job], change)
    client.update([f"{array}_2"], JobUpdate(begin_time=NOW, req_nodes="minsky1"))
    started = scene.cluster.wait_running(int(job), timeout_s=15)
    assert {node: len(gpus) for node, gpus in started.gpus.items()} == {"dgx2": 3}
    running = client.queued(job)
    assert running.admin_comment == BRACKETS
    assert running.cpus_per_task == 2
    until(
        lambda: client.queued(f"{array}_2").nodes == ("minsky1",),
        "the task runs where it was sent",
        timeout_s=15,
    )
    assert client.queued(f"{array}_1").state == "PENDING"
    scene.cluster.cancel(int(job), int(array))


def test_an_empty_text_clears_a_field_and_none_leaves_it(client, scene):
    job = submitted(scene, "--gres=gpu:1", "-w", "dgx2", "-x", "amd1")
    client.update([job], JobUpdate(admin_comment=BRACKETS))
    assert client.queued(job).admin_comment == BRACKETS
    client.update([job], JobUpdate(req_nodes="", exc_nodes="", admin_comment=""))
    cleared = client.queued(job)
    assert (cleared.req_nodes, cleared.exc_nodes, cleared.admin_comment) == ("", "", "")
    assert cleared.tres_per_node.endswith("gpu:1")
    client.update([job], JobUpdate(tres_per_node="", tres_per_job="gpu:2"))
    moved = client.queued(job)
    assert moved.tres_per_node == ""
    assert moved.tres_per_job.endswith("gpu:2")
    scene.cluster.cancel(int(job))


def test_a_refused_update_is_an_error_in_slurms_words(client, scene):
    job = submitted(scene, "--gres=gpu:1")
    with pytest.raises(SlurmError, match=r"(?i)invalid generic resource"):
        client.update([job], JobUpdate(tres_per_node="nosuch:1"))
    with pytest.raises(SlurmError, match=r"(?i)invalid node name"):
        client.update([job], JobUpdate(req_nodes="nosuch"))
    with pytest.raises(SlurmError, match=r"(?i)invalid job id"):
        client.update(["9999999"], JobUpdate(begin_time=int(time.time()) + HOUR_S))
    assert client.queued(job).tres_per_node.endswith("gpu:1")
    scene.cluster.cancel(int(job))


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("command", "rest"), id="command and rest"),
        pytest.param(("pyslurm",), id="pyslurm", marks=BUILT_FIRST),
    ],
)
def test_a_slurmctld_that_is_down_is_an_error_of_every_client(live, scene, kinds, request):
    clients = [client_of(request, live, kind) for kind in kinds]
    says = r"(?i)contact slurm controller|slurmctld up"
    live.slurmctld("kill")
    try:
        # Each waits as long as Slurm's library tries again.
        with ThreadPoolExecutor() as pool:
            asked = [pool.submit(client.call, "queue") for client in clients]
            asked.append(pool.submit(clients[0].call, "jobs"))
            for answer in asked:
                with pytest.raises(SlurmError, match=says):
                    answer.result()
    finally:
        live.slurmctld("start")


def test_a_slurmrestd_that_is_not_there_is_an_error_that_says_what_to_do(live, scene):
    nobody = RemoteClient(live, "rest", "/run/gputopo-rest/none.sock")
    with pytest.raises(SlurmError, match=r"nobody listens there; .*slurm\.rest_socket"):
        nobody.nodes()


#: What this release calls each reason, each base state, and each flag alone and beside a state.
WORDS = """
import ctypes, glob, json
slurm = ctypes.CDLL(glob.glob("/usr/lib/*/slurm*/libslurmfull*.so")[0])

def words(numbers, *names):
    say = next(getattr(slurm, name) for name in names if hasattr(slurm, name))
    say.restype = ctypes.c_char_p
    return [say(number).decode() for number in numbers]

reasons = words(range(400), "slurm_job_state_reason_string", "slurm_job_reason_string")
states = words(range(32), "slurm_job_state_string")
flags = words((1 << bit for bit in range(8, 31)), "slurm_job_state_string")
print(json.dumps([reasons, states, flags]))
"""


def test_every_reason_and_state_of_this_release_is_read_as_what_it_is(live):
    """libslurm is asked: a word that the table of its release lacks is to be looked at first."""
    reasons, states, flags = json.loads(live.run("ctl", ["python3", "-c", WORDS]).out)
    major, minor = parse_version(live.run("ctl", ["scontrol", "--version"]).out)
    release = f"{major}.{minor:02d}"
    # A number that means nothing is told as a number, later as the last one is.
    known = {word for word in reasons if not word.isdigit()} - {reasons[-1]}
    assert known == slurms.words_of("reason", release)
    assert {word for word in known if lacks_only_room(waiting_for(word))} == slurms.ROOM
    assert set(states) - {"?"} == slurms.words_of("state", release)
    assert {word: queue_state((word,)) for word in states if word != "?"} == slurms.STATES
    # 0 is PENDING, and a flag without a word of its own leaves that.
    alone = set(flags) - {"PENDING"}
    assert alone == slurms.words_of("flag", release) - slurms.BESIDE
    assert {word: queue_state((word,)) for word in alone} == {w: slurms.ALONE[w] for w in alone}


def waiting_for(reason: str) -> QueuedJob:
    return QueuedJob(1, state="PENDING", reason=reason, priority=1)
