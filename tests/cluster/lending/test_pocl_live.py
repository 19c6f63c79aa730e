"""PoCL-Remote, a real middleware: OpenCL programs on devices of their own node and of another's.

A fake GPU is an OpenCL device of PoCL on the processor. Where a kernel ran is told by the processor
time of the pocld of each node.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from lending_harness import ASKS, FOLDER, donors, nothing_is_left, occupy, prepare, remote

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
#: Three to lend on two nodes, and on each of the others one for a job of two.
THREE_TO_LEND = {"dgx1": range(6), "dgx2": range(7), "dgx3": range(7), "dgx4": range(7)}
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
SEVERAL = f"{FOLDER}/pocl_several.py"
#: A kernel for a minute on each device, which nobody waits for.
LONG = "pocl-matrix 96 60"
#: How long Slurm may take to give up a node (lending_harness.prepare), and to have it again.
DOWN_S = 120


def job_with(local: int, lines: str) -> str:
    """A job that runs these lines; its own GPUs are devices of PoCL's, too, before the lent ones."""
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
    program = Path(__file__).parents[1] / "assets" / "pocl_several.py"
    lenders.put("ctl", SEVERAL, program.read_text(encoding="utf-8"))
    lenders.run("ctl", f"rm -rf /home/*/pocl.*; chmod a+r {SEVERAL}")
    config = "/etc/slurm/gputopo.yaml"
    text = lenders.read("ctl", config)
    lenders.put("ctl", config, text.replace(remote(""), remote("preset: pocl-fake.yaml")))
    lenders.engine("restart")
    lenders.wait_reconciled()
    yield lenders
    users = {job.id: job.fields["UserId"] for job in lenders.jobs()}
    lenders.cancel(*(jobid for jobid, user in users.items() if not user.startswith("bob(")))
    nothing_is_left(lenders, busy)
    until(lambda: not pocld_s(lenders), "no server is left", 30)


def pocld_s(cluster: Cluster) -> dict[tuple[str, str], float]:
    """Processor seconds of each user's pocld on each node that has one."""
    each = "pgrep -x pocld | while read p; do stat -c %U /proc/$p; cut -d' ' -f14,15 /proc/$p/stat"
    used = dict[tuple[str, str], float]()
    for node in cluster.gpus:
        lines = cluster.run(node, f"{each}; done", check=False).out.splitlines()
        for user, ticks in zip(lines[::2], lines[1::2], strict=True):
            used[node, user] = used.get((node, user), 0) + sum(map(int, ticks.split())) / 100
    return used


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
        before = pocld_s(cluster)
        assert list(before) == [(node, "alice")]
        cluster.run("ctl", f"touch /home/alice/pocl.{job.id}/go.{i}")
        assert all(" equal " in line for line in lines_of(cluster, job, str(i)))
        grew.append(pocld_s(cluster)[node, "alice"] - before[node, "alice"])
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


@pytest.mark.long("two loans in place of one")
@pytest.mark.parametrize("busy", [TWO_EACH])
def test_two_users_compute_at_once_each_in_servers_of_their_own(lending):
    script = job_with(2, writes("pocl-matrix 96 3", "all"))
    jobs = {
        user: lending.job(lending.sbatch(*FOUR, ASKS, script=script, user=user))
        for user in ("alice", "mallory")
    }
    for user, job in jobs.items():
        each = lines_of(lending, job, "all", user)
        assert [line.split()[1:3] for line in each] == [["96x96", "equal"]] * 4
    served = pocld_s(lending)
    lent = {(node, job.fields["UserId"].split("(")[0]) for job in donors(lending) for node in job.gpus}
    assert served.keys() == lent
    assert sorted(user for _, user in served) == ["alice", "mallory"]
    # Two devices for three seconds each; the processor has two cores for both jobs.
    assert min(served.values()) > 1, served


@pytest.mark.long("three loans in place of one")
@pytest.mark.parametrize("busy", [THREE_TO_LEND])
def test_three_donors_on_two_nodes_serve_a_job_each(lending):
    script = job_with(1, writes("pocl-matrix 96 3", "all"))
    two = ("-p", "dgx", "--gres=gpu:2", "--mem=100", ASKS)
    hosts = {"dgx3": "alice", "dgx4": "mallory"}
    jobs = {
        lending.sbatch(*two, "-w", host, script=script, user=user): user
        for host, user in hosts.items()
    }
    for jobid, user in jobs.items():
        each = lines_of(lending, lending.wait_running(jobid, timeout_s=90), "all", user)
        assert [line.split()[1:3] for line in each] == [["96x96", "equal"]] * 2


@pytest.mark.long("a server is killed")
def test_a_job_whose_server_is_killed_reads_an_error_and_starts_anew(lending):
    """Its program ends with an error, it is put back, and computes right with another donor."""
    job, node = borrower(lending, job_with(2, writes(LONG, "run.${SLURM_RESTART_COUNT:-0}")))
    [before] = donors(lending)
    until(lambda: pocld_s(lending).get((node, "alice"), 0) > 0.5, "it computes there", 90)
    lending.run(node, "pkill -KILL -x pocld")
    until(lambda: int(lending.job(job.id).fields["Restarts"]) == 1, "the job is put back", 60)
    until(lambda: before.id not in [one.id for one in donors(lending)], "its donor ends", 30)
    lending.wait_running(job.id, timeout_s=150)
    [after] = donors(lending)
    [node] = after.gpus
    until(lambda: pocld_s(lending).get((node, "alice"), 0) > 0.5, "it computes again", 90)


@pytest.mark.long("a node is killed; two minutes")
def test_a_job_whose_donors_node_is_gone_starts_anew(lending):
    job, node = borrower(lending, job_with(2, writes(LONG, "run.${SLURM_RESTART_COUNT:-0}")))
    until(lambda: pocld_s(lending).get((node, "alice"), 0) > 0.5, "it computes there", 90)
    with lending.killed(node):
        until(lambda: int(lending.job(job.id).fields["Restarts"]) == 1, "it is put back", DOWN_S)
        # Held, or it would take the GPUs that bob's jobs are to have again.
        lending.run("ctl", f"scontrol hold {job.id}")
        until(lambda: "down" in state_of(lending, node), f"{node} is down", DOWN_S)
    nodes = ",".join(TWO_AND_TWO)
    until(lambda: set(state_of(lending, nodes)) <= {"idle", "mixed", "allocated"}, "all up", DOWN_S)
    lending.run("ctl", "squeue -h -u bob -o %A | sort -u | xargs -r scancel")
    until(lambda: not lending.run("ctl", "squeue -h -u bob").out, "bob has no job", 60)
    occupy(lending, TWO_AND_TWO)
    lending.run("ctl", f"scontrol release {job.id}")
    lending.wait_running(job.id, timeout_s=200)
    [donor] = donors(lending)
    [node] = donor.gpus
    until(lambda: pocld_s(lending).get((node, "alice"), 0) > 0.5, "it computes again", 90)


def state_of(cluster: Cluster, nodes: str) -> list[str]:
    return cluster.run("ctl", f"sinfo -h -n {nodes} -o %T").out.split()
