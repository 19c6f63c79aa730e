"""PoCL-Remote, a real middleware: OpenCL programs on devices of their own node and of another's.

A fake GPU is an OpenCL device of PoCL on the processor. Where a kernel ran is told by the processor
time of the pocld of each node.
"""

from collections.abc import Iterator

import pytest
from lending_harness import ASKS, FOLDER, donors, occupy
from pocl_harness import (
    FOUR,
    PRESET,
    TWO_AND_TWO,
    Busy,
    borrower,
    job_with,
    let_go,
    lines_of,
    pocl_nodes,
    pocl_site,
    restarts,
    servers,
    writes,
)

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.pytest_plugin import Factory
from slurm_cluster.slurm_text import Job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]
#: Two GPUs of each node are free: two jobs of four have room.
TWO_EACH = {f"dgx{i}": range(6) for i in (1, 2, 3, 4)}
#: One GPU of each node is free: a job of four has three donors.
ONE_EACH = {f"dgx{i}": range(7) for i in (1, 2, 3, 4)}
#: Three to lend on two nodes, and three for jobs of two on a node of their own.
THREE_AND_THREE = {"dgx1": range(6), "dgx2": range(7), "dgx3": range(5), "dgx4": range(8)}
SEVERAL = f"{FOLDER}/pocl_several.py"
#: Kernels on all devices at once for five minutes, which nobody waits for.
LONG = "for i in 0 1 2 3; do pocl-compute product 96 300 $i & done; wait"
#: How long Slurm may take to give up a node (lending_harness.prepare), and to have it again.
DOWN_S = 120


def one_by_one(together: str, alone: str) -> str:
    """All four devices at once, and then each for itself, when the test says so."""
    waits = "until [ -e $out/go.$i ]; do sleep 0.1; done"
    each = f"for i in 0 1 2 3; do {waits}; {writes(f'{alone} $i', '$i')}; done"
    return job_with(2, f"{writes(together, 'all')}; {each}")


@pytest.fixture(scope="module")
def lenders(slurm_cluster_factory: Factory) -> Iterator[Cluster]:
    """Four nodes with PoCL-Remote."""
    with pocl_nodes(slurm_cluster_factory) as cluster:
        yield cluster


@pytest.fixture
def busy() -> Busy:
    """Which GPUs are taken; a test may say others."""
    return TWO_AND_TWO


@pytest.fixture
def lending(lenders: Cluster, busy: Busy) -> Iterator[Cluster]:
    """The site lends the other GPUs; at the end nothing is left of a loan."""
    with pocl_site(lenders, busy, PRESET):
        yield lenders


def compute(cluster: Cluster, *nodes: str) -> bool:
    """Do servers compute on these nodes, one on each word, and on no others?"""
    found = servers(cluster)
    return sorted(one.node for one in found) == sorted(nodes) and all(
        one.used_s > 0.5 for one in found
    )


def each_runs_where_it_is(cluster: Cluster, job: Job, node: str) -> None:
    """Two devices compute in the server on the donor's node, the others nowhere near it."""
    grew = []
    for i in range(4):
        [before] = servers(cluster)
        assert (before.node, before.user) == (node, "alice")
        let_go(cluster, job, f"go.{i}")
        assert all(" equal " in line for line in lines_of(cluster, job, str(i)))
        [after] = servers(cluster)
        grew.append(after.used_s - before.used_s)
    here, there = sorted(grew)[:2], sorted(grew)[2:]
    # How long the server computes is the machine's affair; it is counted in hundredths of a second.
    assert 3 * max(here) < min(there) > 0.05, grew


def test_a_program_in_c_is_right_on_two_local_and_two_lent_devices(lending):
    script = one_by_one("pocl-compute product 64", "pocl-compute product 96 1.5")
    job, node = borrower(lending, script)
    each = lines_of(lending, job, "all")
    assert [line.split()[1:3] for line in each] == [["0-63", "equal"]] * 4
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


@pytest.mark.long("three donors in place of one")
@pytest.mark.parametrize("busy", [ONE_EACH])
def test_one_job_computes_on_three_nodes_donors_at_once(lending):
    """Each lent device alone, all at once, and one context of all, whose buffers change servers."""
    chain = writes(f"python3 {SEVERAL} chain", "chain")
    each = writes("pocl-compute product 96 5", "each")
    lines = f"{writes(f'python3 {SEVERAL}', 'all')}; {chain}; {each}"
    job = submitted(lending, "alice", *FOUR, script=job_with(1, lines))
    assert len(lent(lending)) == 3
    assert {line.split()[3] for line in lines_of(lending, job, "all")} == {"equal"}
    assert lines_of(lending, job, "chain") == ["chain on 3 equal"]
    each = lines_of(lending, job, "each")
    assert [line.split()[1:3] for line in each] == [["0-95", "equal"]] * 4
    found = servers(lending)
    assert {(one.node, one.user) for one in found} == lent(lending)
    assert min(one.used_s for one in found) > 1, found


@pytest.mark.long("two loans in place of one")
@pytest.mark.parametrize("busy", [TWO_EACH])
def test_two_users_compute_at_once_each_in_a_server_of_their_own(lending):
    script = job_with(2, writes("pocl-compute product 96 5", "all"))
    jobs = {user: submitted(lending, user, *FOUR, script=script) for user in ("alice", "mallory")}
    ready = f"test -e /home/alice/pocl.{jobs['alice'].id}/all"
    assert lending.run("ctl", ready, check=False).code, "the second job began too late"
    for user, job in jobs.items():
        each = lines_of(lending, job, "all", user)
        assert [line.split()[1:3] for line in each] == [["0-95", "equal"]] * 4
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
    each = "pocl-compute product 96 20"
    script = job_with(1, writes(f"{each} 0; {each} 1", "all"))
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
    each = writes("pocl-compute product 96 300 $i", "$i.${SLURM_RESTART_COUNT:-0}")
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


def computes_again(cluster: Cluster, job: Job) -> None:
    """The job runs with another donor, and its kernels on that donor's node."""
    cluster.wait_running(job.id, timeout_s=200)
    [donor] = donors(cluster)
    until(lambda: compute(cluster, *donor.gpus), "it computes again", 90)


def states(cluster: Cluster, nodes: str = "dgx[1-4]") -> set[str]:
    return set(cluster.run("ctl", ["sinfo", "-h", "-n", nodes, "-o", "%T"]).out.split())
