"""PoCL-Remote, a real middleware: OpenCL programs on devices of their own node and of another's.

A fake GPU is an OpenCL device of PoCL on the processor. Where a kernel ran is told by the processor
time of the pocld of each node.
"""

from collections.abc import Iterator

import pytest
from lending_harness import ASKS, donors, nothing_is_left, prepare, remote

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.pytest_plugin import Factory
from slurm_cluster.slurm_text import Job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

#: Two GPUs are free on the first two nodes, none on the others.
TWO_AND_TWO = {"dgx1": range(6), "dgx2": range(2, 8), "dgx3": range(8), "dgx4": range(8)}
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
#: The job's own two GPUs, as PoCL's devices.
LOCAL = 'export POCL_DEVICES="basic basic $POCL_DEVICES"; out=$HOME/pocl.$SLURM_JOB_ID'
#: Each device for itself, when the test says so.
EACH = f"""{LOCAL}; mkdir $out
pocl-matrix 64 >$out/all.part 2>&1; echo exit $? >>$out/all.part; mv $out/all.part $out/all
for i in 0 1 2 3; do
    until [ -e $out/go.$i ]; do sleep 0.1; done
    pocl-matrix 96 1.5 $i >$out/part 2>&1; mv $out/part $out/$i
done; sleep 600"""


@pytest.fixture(scope="module")
def lenders(slurm_cluster_factory: Factory) -> Iterator[Cluster]:
    """Four nodes with PoCL-Remote."""
    partition = "PartitionName=dgx Nodes=dgx[1-4] DefaultTime=10 MaxTime=INFINITE State=UP\n"
    cluster = slurm_cluster_factory({"dgx[1-4]": "dgx1v"}, slurm_conf=partition, pocl=True)
    with cluster.at_home():
        yield cluster


@pytest.fixture
def lending(lenders: Cluster) -> Iterator[Cluster]:
    """The site lends two GPUs; at the end nothing is left of a loan."""
    prepare(lenders, TWO_AND_TWO)
    lenders.put("ctl", "/etc/slurm/pocl-fake.yaml", PRESET)
    config = "/etc/slurm/gputopo.yaml"
    text = lenders.read("ctl", config)
    lenders.put("ctl", config, text.replace(remote(""), remote("preset: pocl-fake.yaml")))
    lenders.engine("restart")
    lenders.wait_reconciled()
    yield lenders
    users = {job.id: job.fields["UserId"] for job in lenders.jobs()}
    lenders.cancel(*(jobid for jobid, user in users.items() if not user.startswith("bob(")))
    nothing_is_left(lenders, TWO_AND_TWO)


def pocld_s(cluster: Cluster) -> dict[str, float]:
    """Processor seconds of alice's pocld on each node that has one."""
    sum_up = "pgrep -u alice -x pocld | while read pid; do cut -d' ' -f14,15 /proc/$pid/stat; done"
    used = {node: cluster.run(node, sum_up, check=False).out.split() for node in cluster.gpus}
    return {node: sum(map(int, ticks)) / 100 for node, ticks in used.items() if ticks}


def lines_of(cluster: Cluster, job: Job, name: str) -> list[str]:
    """What the job wrote into this file of its folder."""
    path = f"/home/alice/pocl.{job.id}/{name}"
    return cluster.read("ctl", path, timeout_s=60).splitlines()


def test_a_matrix_product_is_right_on_two_local_and_two_lent_devices(lending):
    job = lending.started(*FOUR, ASKS, script=EACH, timeout_s=90)
    [donor] = donors(lending)
    [node] = donor.gpus
    assert node not in job.gpus
    *each, last = lines_of(lending, job, "all")
    assert last == "exit 0", each
    assert [line.split()[1:3] for line in each] == [["64x64", "equal"]] * 4
    assert {line[:2] for line in each} == {"0.", "1."}
    grew = []
    for i in range(4):
        before = pocld_s(lending)
        assert list(before) == [node]
        lending.run("ctl", f"touch /home/alice/pocl.{job.id}/go.{i}")
        [line] = lines_of(lending, job, str(i))
        assert " 96x96 equal " in line
        grew.append(pocld_s(lending)[node] - before[node])
    # Two devices compute in the server on the other node, the others nowhere near it.
    here, there = sorted(grew)[:2], sorted(grew)[2:]
    assert 3 * max(here) < min(there) > 0.2, grew
    lending.cancel(job.id)
    until(lambda: not pocld_s(lending), "no server is left", 30)
