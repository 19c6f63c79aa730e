"""PoCL-Remote, a real middleware: OpenCL programs on devices of their own node and of another's.

A fake GPU is an OpenCL device of PoCL on the processor. Where a kernel ran is told by the processor
time of the pocld of each node.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from lending_harness import ASKS, FOLDER, donors, nothing_is_left, occupy, prepare, remote
from live_harness import CONFIG

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.pytest_plugin import Factory
from slurm_cluster.slurm_text import Job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]
Busy = Mapping[str, Iterable[int]]

#: Two GPUs are free on the first two nodes, none on the others.
TWO_AND_TWO = {"dgx1": range(6), "dgx2": range(2, 8), **dict.fromkeys(("dgx3", "dgx4"), range(8))}
#: Two GPUs of each node are free: two jobs of four have room.
TWO_EACH = {f"dgx{i}": range(6) for i in (1, 2, 3, 4)}
#: Three to lend on two nodes, and three for jobs of two on a node of their own.
THREE_AND_THREE = {"dgx1": range(6), "dgx2": range(7), "dgx3": range(5), "dgx4": range(8)}
FOUR = ("-p", "dgx", "--gres=gpu:4", "--mem=200")
#: The shipped preset; only that a fake GPU is a device of the processor is ours.
PRESET = """\
name: pocl-fake
server:
  - sh
  - -c
  - >-
    POCL_DEVICES=$(echo $CUDA_VISIBLE_DEVICES | sed 's/[0-9]*/basic/g;s/,/ /g')
    exec pocld -a {bind} -p {port}
loopback: no
ports: 2
max_donors: 1
environment: {OCL_ICD_VENDORS: /etc/OpenCL/borrowed}
each_word: {POCL_DEVICES: remote}
each_gpu: {"POCL_REMOTE{i}_PARAMETERS": "{host}:{port}/{gpu}"}
"""
PRESET_KEY = "preset: pocl-fake.yaml"
SEVERAL = f"{FOLDER}/pocl_several.py"
#: Kernels on all devices at once for five minutes, which nobody waits for.
LONG = "for i in 0 1 2 3; do pocl-matrix 96 300 $i & done; wait"
#: How long Slurm may take to give up a node (lending_harness.prepare), and to have it again.
DOWN_S = 120


def job_with(local: int, lines: str) -> str:
    """A job that runs these lines; its own GPUs are devices of PoCL's, before the lent ones."""
    own = f'export PYTHONWARNINGS=ignore POCL_DEVICES="{"basic " * local}$POCL_DEVICES"'
    return f"{own}; out=$HOME/pocl.$SLURM_JOB_ID; mkdir -p $out; {lines}; sleep 600"


def writes(command: str, name: str) -> str:
    """The command's output and its exit status in a file of the job's, when it is complete."""
    file = f"$out/{name}"
    return f"{command} >{file}.part 2>&1; echo exit $? >>{file}.part; mv {file}.part {file}"


def one_by_one(together: str, alone: str) -> str:
    """All four devices at once, and then each for itself, when the test says so."""
    waits = "until [ -e $out/go.$i ]; do sleep 0.1; done"
    each = f"for i in 0 1 2 3; do {waits}; {writes(f'{alone} $i', '$i')}; done"
    return job_with(2, f"{writes(together, 'all')}; {each}")


@pytest.fixture(scope="module")
def lenders(slurm_cluster_factory: Factory) -> Iterator[Cluster]:
    """Four nodes with PoCL-Remote."""
    partition = "PartitionName=dgx Nodes=dgx[1-4] DefaultTime=10 MaxTime=INFINITE State=UP\n"
    cluster = slurm_cluster_factory({"dgx[1-4]": "dgx1v"}, slurm_conf=partition, pocl=True)
    with cluster.at_home():
        yield cluster


@pytest.fixture
def busy() -> Busy:
    """Which GPUs are taken; a test may say others."""
    return TWO_AND_TWO


@pytest.fixture
def lending(lenders: Cluster, busy: Busy) -> Iterator[Cluster]:
    """The site lends the other GPUs; at the end nothing is left of a loan."""
    prepare(lenders, busy)
    lenders.put("ctl", "/etc/slurm/pocl-fake.yaml", PRESET)
    for name in ("pocl_several.py", "opencl_probe.py"):
        text = (Path(__file__).parents[1] / "assets" / name).read_text(encoding="utf-8")
        lenders.put("ctl", f"{FOLDER}/{name}", text)
    lenders.run("ctl", f"rm -rf /home/*/pocl.*; mkdir {FOLDER}/profiles; chmod -R a+rX {FOLDER}")
    text = lenders.read("ctl", CONFIG)
    lenders.put("ctl", CONFIG, text.replace(remote(""), remote(PRESET_KEY)))
    lenders.engine("restart")
    lenders.wait_reconciled()
    yield lenders
    users = {job.id: job.fields["UserId"] for job in lenders.jobs()}
    lenders.cancel(*(jobid for jobid, user in users.items() if not user.startswith("bob(")))
    nothing_is_left(lenders, busy)
    until(lambda: not servers(lenders), "no server is left", 30)


class Server(NamedTuple):
    """A pocld: where, whose, and the processor seconds that it used."""

    node: str
    user: str
    used_s: float


def servers(cluster: Cluster) -> list[Server]:
    """Every pocld that runs."""
    each = "pgrep -x pocld | while read p; do echo $(stat -c %U /proc/$p; cat /proc/$p/stat); done"
    found = list[Server]()
    for node in cluster.gpus:
        for line in cluster.run(node, each, check=False).out.splitlines():
            user, *stat = line.split()
            found.append(Server(node, user, sum(map(int, stat[13:15])) / 100))
    return found


def compute(cluster: Cluster, *nodes: str) -> bool:
    """Do servers compute on these nodes, one on each word, and on no others?"""
    found = servers(cluster)
    return sorted(one.node for one in found) == sorted(nodes) and all(
        one.used_s > 0.5 for one in found
    )


def lines_of(cluster: Cluster, job: Job, name: str, user: str = "alice") -> list[str]:
    """What the job wrote into this file of its folder; its program said that all is well."""
    path = f"/home/{user}/pocl.{job.id}/{name}"
    *lines, last = cluster.read("ctl", path, timeout_s=90).splitlines()
    assert last == "exit 0", lines
    return lines


def each_runs_where_it_is(cluster: Cluster, job: Job, node: str) -> None:
    """Two devices compute in the server on the donor's node, the others nowhere near it."""
    grew = []
    for i in range(4):
        [before] = servers(cluster)
        assert (before.node, before.user) == (node, "alice")
        cluster.run("ctl", f"touch /home/alice/pocl.{job.id}/go.{i}")
        assert all(" equal " in line for line in lines_of(cluster, job, str(i)))
        [after] = servers(cluster)
        grew.append(after.used_s - before.used_s)
    here, there = sorted(grew)[:2], sorted(grew)[2:]
    assert 3 * max(here) < min(there) > 0.2, grew


def borrower(cluster: Cluster, script: str) -> tuple[Job, str]:
    """A job of four GPUs that runs, and the node that lends it two."""
    job = cluster.started(*FOUR, ASKS, script=script, timeout_s=90)
    [donor] = donors(cluster)
    [node] = donor.gpus
    assert node not in job.gpus
    return job, node


def test_a_matrix_product_is_right_on_two_local_and_two_lent_devices(lending):
    job, node = borrower(lending, one_by_one("pocl-matrix 64", "pocl-matrix 96 1.5"))
    each = lines_of(lending, job, "all")
    assert [line.split()[1:3] for line in each] == [["64x64", "equal"]] * 4
    assert {line[:2] for line in each} == {"0.", "1."}
    each_runs_where_it_is(lending, job, node)


@pytest.mark.long("a program in Python beside that in C")
def test_n_bodies_and_a_reduction_are_right_on_two_local_and_two_lent_devices(lending):
    job, node = borrower(lending, one_by_one(f"python3 {SEVERAL}", f"python3 {SEVERAL} 1.5"))
    each = lines_of(lending, job, "all")
    assert [line.split()[:4] for line in each] == [
        ["n-body", "on", "4", "equal"],
        ["reduction", "on", "4", "equal"],
    ]
    each_runs_where_it_is(lending, job, node)


@pytest.mark.long("two jobs and a probe")
def test_what_was_measured_decides_about_a_job_that_borrows_only_where_it_gains(lending):
    """A probe on one of the job's own devices and on a lent one; the engine predicts by its fit."""
    probe = f"python3 {FOLDER}/opencl_probe.py"
    runs = f"{writes(f'{probe} 0', 'own')}; {writes(f'{probe} 2', 'lent')}"
    job, _ = borrower(lending, job_with(2, runs))
    for name in ("own", "lent"):
        lines = lines_of(lending, job, name)
        lending.put("ctl", f"/etc/slurm/{name}.lines", "".join(f"{line}\n" for line in lines))
    lending.cancel(job.id)
    nothing_is_left(lending, TWO_AND_TWO)
    files = "own.lines lent.lines --preset pocl-fake --out measured.yaml"
    print(lending.run("ctl", f"cd /etc/slurm; gputopo remote measure {files}").out)
    found = yaml.safe_load(lending.read("ctl", "/etc/slurm/measured.yaml"))
    own, lent = (found[side]["call_s"] for side in ("local", "remote"))
    assert own < lent < 0.1, found
    profile = "profile: md\nremote: {run_s: 1000, gpu_calls: 1000000}\n"
    lending.put("ctl", f"{FOLDER}/profiles/md.yaml", profile)
    config = lending.read("ctl", CONFIG)
    config = config.replace(PRESET_KEY, f"{PRESET_KEY}, measured: measured.yaml")
    lending.put("ctl", CONFIG, f"{config}\ntopo_aware: {{profiles: {FOLDER}/profiles}}\n")
    lending.engine("restart")
    lending.wait_reconciled()
    auto = "--comment=gpu-topo: remote=auto,profile=md"
    job = lending.started(*FOUR, auto, "-t", "6000", script="sleep 600", timeout_s=90)
    ends_s = max(1000.0, 1e6 * own) + 1e6 * (lent - own)
    assert f"ends in {ends_s:.0f} s instead of" in job.admin_comment


@pytest.mark.long("two loans in place of one")
@pytest.mark.parametrize("busy", [TWO_EACH])
def test_two_users_compute_at_once_each_in_a_server_of_their_own(lending):
    script = job_with(2, writes("pocl-matrix 96 5", "all"))
    jobs = {user: submitted(lending, user, *FOUR, script=script) for user in ("alice", "mallory")}
    ready = f"test -e /home/alice/pocl.{jobs['alice'].id}/all"
    assert lending.run("ctl", ready, check=False).code, "the second job began too late"
    for user, job in jobs.items():
        each = lines_of(lending, job, "all", user)
        assert [line.split()[1:3] for line in each] == [["96x96", "equal"]] * 4
    found = servers(lending)
    assert {(one.node, one.user) for one in found} == lent(lending)
    assert sorted(one.user for one in found) == ["alice", "mallory"]
    # Two devices for five seconds each; both jobs share the processor's cores.
    assert min(one.used_s for one in found) > 1, found


@pytest.mark.long("three loans in place of one")
@pytest.mark.parametrize("busy", [THREE_AND_THREE])
def test_three_donors_on_two_nodes_serve_a_job_each(lending):
    one = ("-p", "off", "-w", "dgx3", "--gres=gpu:1")
    others = [lending.started(*one, user="bob", sleep_s=600).id for _ in range(2)]
    script = job_with(1, writes("pocl-matrix 96 20 0; pocl-matrix 96 20 1", "all"))
    two = ("-p", "dgx", "-w", "dgx3", "--gres=gpu:2", "--mem=100")
    for user in ("alice", "mallory", "alice"):
        submitted(lending, user, *two, script=script)
        lending.cancel(*others[:1])
        others = others[1:]
    until(lambda: compute(lending, "dgx1", "dgx1", "dgx2"), "all three compute", 90)
    assert {(one.node, one.user) for one in servers(lending)} == lent(lending)


def submitted(cluster: Cluster, user: str, *args: str, script: str) -> Job:
    """A borrower of this user's that runs."""
    return cluster.started(*args, ASKS, script=script, user=user, timeout_s=90)


def lent(cluster: Cluster) -> set[tuple[str, str]]:
    """The nodes of the donors, and whose these are."""
    return {
        (node, job.fields["UserId"].split("(")[0]) for job in donors(cluster) for node in job.gpus
    }


@pytest.mark.long("a server is killed")
def test_a_job_whose_server_is_killed_is_put_back_and_computes_again(lending):
    """Programs are told by PoCL's driver; the job has another donor when it starts again."""
    each = writes("pocl-matrix 96 300 $i", "$i.${SLURM_RESTART_COUNT:-0}")
    job, node = borrower(lending, job_with(2, f"for i in 0 1 2 3; do ( {each} ) & done; wait"))
    [before] = donors(lending)
    until(lambda: compute(lending, node), "it computes there", 90)
    lending.run(node, "pkill -KILL -x pocld")
    until(lambda: restarts(lending, job) == 1, "the job is put back", 60)
    until(lambda: before.id not in [one.id for one in donors(lending)], "its donor ends", 30)
    told = lending.run("ctl", f"grep -l 'server disconnect' /home/alice/pocl.{job.id}/*.0*").out
    assert told, "no program heard of it"
    computes_again(lending, job)


@pytest.mark.long("a node is killed; three minutes")
def test_a_job_whose_donors_node_is_gone_is_put_back_and_computes_again(lending):
    job, node = borrower(lending, job_with(2, LONG))
    until(lambda: compute(lending, node), "it computes there", 90)
    with lending.killed(node):
        until(lambda: restarts(lending, job) == 1, "it is put back", DOWN_S)
        # Held, or it would take the GPUs that bob's jobs are to have again.
        lending.run("ctl", f"scontrol hold {job.id}")
        until(lambda: states(lending, node) <= {"down", "down*"}, f"{node} is down", DOWN_S)
    until(lambda: states(lending) <= {"idle", "mixed", "allocated"}, "all nodes are up", DOWN_S)
    lending.run("ctl", "squeue -h -u bob -o %A | sort -u | xargs -r scancel")
    until(lambda: not lending.run("ctl", "squeue -h -u bob").out, "bob has no job", 60)
    occupy(lending, TWO_AND_TWO)
    lending.run("ctl", f"scontrol release {job.id}")
    computes_again(lending, job)


def restarts(cluster: Cluster, job: Job) -> int:
    return int(cluster.job(job.id).fields["Restarts"])


def computes_again(cluster: Cluster, job: Job) -> None:
    """The job runs with another donor, and its kernels on that donor's node."""
    cluster.wait_running(job.id, timeout_s=200)
    [donor] = donors(cluster)
    until(lambda: compute(cluster, *donor.gpus), "it computes again", 90)


def states(cluster: Cluster, nodes: str = "dgx[1-4]") -> set[str]:
    return set(cluster.run("ctl", ["sinfo", "-h", "-n", nodes, "-o", "%T"]).out.split())
