"""PoCL-Remote, a real middleware: OpenCL programs on devices of their own node and of others.

Every number that a device computes is compared with the processor's. Where a kernel ran is told by
the processor time of the pocld of each node.
"""

import time
from collections.abc import Iterator

import pytest
from lending_harness import ASKS, donors, occupy
from pocl_harness import OPENCL, PARTITION, PRESET, SEVERAL, Lenders, to_file, waits_for

from slurm_cluster.hosts import until
from slurm_cluster.pytest_plugin import Factory

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(540)]

FULL = {f"dgx{i}": range(8) for i in range(1, 5)}
#: Two GPUs are free on each of two nodes, none on the others; and so on.
TWO_AND_TWO = FULL | {"dgx1": range(6), "dgx2": range(2, 8)}
ON_EACH_TWO = FULL | {node: range(6) for node in FULL}
ON_THREE_TWO = ON_EACH_TWO | {"dgx4": range(8)}
TWO_AND_ONE_EACH = FULL | {"dgx1": range(6)} | {f"dgx{i}": range(7) for i in (2, 3, 4)}
FOUR = ("-p", "dgx", "--gres=gpu:4", "--mem=200")
RIGHT = [["n-body", "4", "devices", "right"], ["reduction", "4", "devices", "right"]]
MATRIX = to_file("pocl-matrix 64", "matrix")
PYTHON = to_file(f"python3 {SEVERAL}", "python")
long = pytest.mark.long("more than a loan of one job, with a real middleware")


@pytest.fixture(scope="module")
def lenders(slurm_cluster_factory: Factory) -> Iterator[Lenders]:
    """Four nodes with PoCL-Remote."""
    cluster = slurm_cluster_factory({"dgx[1-4]": "dgx1v"}, slurm_conf=PARTITION, pocl=True)
    with cluster.at_home():
        yield Lenders(cluster)


def is_right(lines: list[str], devices: int = 4) -> bool:
    """Were all products of pocl-matrix right, and on so many devices of two platforms?"""
    words = [line.split() for line in lines]
    platforms = {name.partition(".")[0] for name, *_ in words}
    return (
        len(words) == devices
        and {word[2] for word in words} == {"equal"}
        and platforms == {"0", "1"}
    )


def test_programs_are_right_on_two_local_and_two_lent_devices(lenders):
    """A C program on each, one in Python on all; two devices compute in the other node's pocld."""
    cluster = lenders.cluster
    each = [
        f"{waits_for(f'go.{i}')}; {to_file(f'pocl-matrix 96 1.5 {i}', str(i))}" for i in range(4)
    ]
    script = "; ".join((OPENCL, MATRIX, PYTHON, *each, "sleep 600"))
    with lenders.lending(TWO_AND_TWO):
        job = cluster.started(*FOUR, ASKS, script=script, timeout_s=90)
        [donor] = donors(cluster)
        [node] = donor.gpus
        assert node not in job.gpus
        assert is_right(lenders.found(job, "matrix"))
        assert [line.split()[:4] for line in lenders.found(job, "python")] == RIGHT
        grew = []
        for i in range(4):
            before = lenders.pocld_s()
            assert list(before) == [node]
            lenders.go(job, f"go.{i}")
            [line] = lenders.found(job, str(i))
            assert " 96x96 equal " in line
            grew.append(lenders.pocld_s()[node] - before[node])
        *here, third, fourth = sorted(grew)
        # It answers a few questions of every program that lists the devices.
        assert 3 * max(here) < min(third, fourth) > 0.2, grew


@long
def test_two_users_at_once_have_their_own_servers(lenders):
    """Each computes right, and neither gets through to the other's."""
    cluster = lenders.cluster
    script = "; ".join((OPENCL, "env >$out/env", MATRIX, PYTHON, "sleep 600"))
    with lenders.lending(ON_EACH_TWO):
        ids = [cluster.sbatch(*FOUR, ASKS, script=script, user=user) for user in ("alice", "bob")]
        jobs = [cluster.wait_running(jobid, timeout_s=120) for jobid in ids]
        for job, user in zip(jobs, ("alice", "bob"), strict=True):
            assert is_right(lenders.found(job, "matrix", user=user))
            assert [line.split()[:4] for line in lenders.found(job, "python", user=user)] == RIGHT
            assert len(lenders.pocld_s(user)) == 1
        theirs = cluster.read("ctl", lenders.path(jobs[1], "env", user="bob")).splitlines()
        env = dict(line.split("=", 1) for line in theirs if line.startswith(("POCL_", "OCL_")))
        env["POCL_DEVICES"] = "remote remote"
        [host] = jobs[1].gpus
        tried = cluster.run(host, "timeout 20 pocl-matrix 64", user="alice", env=env, check=False)
        assert tried.code
        assert "equal" not in tried.out


@long
def test_three_donors_on_three_nodes(lenders):
    """On a network that is trusted: the driver connects their servers, which no relay carries."""
    preset = PRESET.replace("max_donors: 1", "max_donors: 3").replace("ports: 2", "ports: 3")
    script = "; ".join((OPENCL, MATRIX, PYTHON, "sleep 600"))
    with lenders.lending(TWO_AND_ONE_EACH, "trust_network: yes", preset):
        five = ("-p", "dgx", "--gres=gpu:5", "--mem=200")
        job = lenders.cluster.started(*five, ASKS, script=script, timeout_s=120)
        lent = [node for donor in donors(lenders.cluster) for node in donor.gpus]
        assert len(lent) == 3
        assert is_right(lenders.found(job, "matrix"), 5)
        lines = [line.split()[1:4] for line in lenders.found(job, "python")]
        assert lines == [["5", "devices", "right"]] * 2
        used = lenders.pocld_s()
        assert sorted(used) == sorted(lent)
        assert min(used.values()) > 0


@long
def test_a_server_that_stands_still_delays_and_spoils_nothing(lenders):
    cluster = lenders.cluster
    script = "; ".join(
        (OPENCL, waits_for("go"), to_file("pocl-matrix 64 2", "matrix"), "sleep 600")
    )
    with lenders.lending(TWO_AND_TWO):
        job = cluster.started(*FOUR, ASKS, script=script, timeout_s=90)
        [node] = lenders.pocld_s()
        lenders.go(job, "go")
        for _ in range(3):
            cluster.run(node, "pkill -STOP -u alice -x pocld")
            time.sleep(1.5)
            cluster.run(node, "pkill -CONT -u alice -x pocld")
            time.sleep(0.5)
        assert is_right(lenders.found(job, "matrix"))
        assert int(cluster.job(job.id).fields["Restarts"]) == 0


@long
def test_a_job_whose_server_is_killed_while_it_computes_starts_again_with_another(lenders):
    cluster = lenders.cluster
    # The first time it computes until it is killed, then for a moment.
    seconds = "$([ -z $SLURM_RESTART_COUNT ] && echo 300 || echo 0)"
    only_lent = OPENCL.replace("basic basic ", "")
    script = "; ".join((only_lent, to_file(f"pocl-matrix 64 {seconds} 0", "matrix"), "sleep 600"))
    with lenders.lending(TWO_AND_TWO):
        job = cluster.started(*FOUR, ASKS, "--requeue", script=script, timeout_s=90)
        [node] = lenders.pocld_s()
        [before] = donors(cluster)
        cluster.run(node, "pkill -KILL -u alice -x pocld")
        until(lambda: int(cluster.job(job.id).fields["Restarts"]) == 1, "it is put back", 60)
        [line] = lenders.found(job, "matrix", restarts=1, within_s=200)
        assert " equal " in line
        [after] = donors(cluster)
        assert after.id != before.id


@long
def test_a_job_whose_donors_node_is_gone_gets_another_donor(lenders):
    cluster = lenders.cluster
    script = "; ".join((OPENCL, MATRIX, "sleep 600"))
    with lenders.lending(ON_THREE_TWO):
        job = cluster.started(*FOUR, ASKS, "--requeue", script=script, timeout_s=90)
        assert is_right(lenders.found(job, "matrix"))
        [donor] = donors(cluster)
        [node] = donor.gpus
        with cluster.disconnected(node):
            until(lambda: int(cluster.job(job.id).fields["Restarts"]) > 0, "it is put back", 120)
            assert is_right(lenders.found(job, "matrix", restarts=1, within_s=240))
            assert node not in {lent for donor in donors(cluster) for lent in donor.gpus}
        # What held its GPUs has died with it.
        until(lambda: "idle" in cluster.run("ctl", f"sinfo -h -n {node} -o %T").out, "it is up", 90)
        cluster.cancel(*(job.id for job in cluster.jobs()))
        cluster.wait_idle()
        occupy(cluster, ON_THREE_TWO)
