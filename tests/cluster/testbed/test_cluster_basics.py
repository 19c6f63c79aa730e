"""The cluster itself: what stock Slurm does on it, and that its parts are the real ones."""

from __future__ import annotations

import pytest
from live_harness import GPUS

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import ClusterError
from slurm_cluster.slurm import RECORD_EACH_NODE

pytestmark = pytest.mark.cluster

# The last column is what 22.05 does: it finds the double link in every form.
STOCK_CHOICES = [
    ("--gres=gpu:2 takes the two lowest GPUs, one NVLink apart", "--gres=gpu:2", (0, 1), (0, 3)),
    ("--gpus-per-node=2 does the same", "--gpus-per-node=2", (0, 1), (0, 3)),
    ("--gpus=2 finds the double link", "--gpus=2", (0, 3), (0, 3)),
    ("--gres=gpu:3 takes the three lowest", "--gres=gpu:3", (0, 1, 2), (0, 1, 3)),
]
OURS_ON_A_NODE = r"find / -xdev \( -iname '*gputopo*' -o -path '/usr/local/lib/*.so' \) -print"


@pytest.mark.parametrize(
    ("request_", "expected", "on_22_05"),
    [c[1:] for c in STOCK_CHOICES],
    ids=[c[0] for c in STOCK_CHOICES],
)
def test_stock_slurm_on_an_empty_dgx1(
    cluster: Cluster, request_: str, expected: tuple[int, ...], on_22_05: tuple[int, ...]
) -> None:
    """With correct Links stock Slurm still chooses mostly by index: the baseline."""
    if cluster.release < (23, 2):
        expected = on_22_05
    cluster.switch("stock")
    jobid = cluster.sbatch("-w", "dgx1", request_, sleep_s=30)
    assert cluster.wait_running(jobid).gpus == {"dgx1": expected}
    assert cluster.visible_gpus(jobid) == expected


def test_a_two_node_job_reports_gpus_of_both_nodes(cluster: Cluster) -> None:
    """Per-node GPU indices come from Slurm and from a task on each node, and agree."""
    jobid = cluster.sbatch(
        "-p", "dgx", "-N2", "--gpus-per-node=4", script=f"{RECORD_EACH_NODE}; sleep 30"
    )
    job = cluster.wait_running(jobid)
    assert {node: len(gpus) for node, gpus in job.gpus.items()} == {"dgx1": 4, "dgx2": 4}
    for node in ("dgx1", "dgx2"):
        assert sorted(cluster.visible_gpus(jobid, node=node)) == sorted(job.gpus[node])


def test_accounting_remembers_who_used_how_many_gpus(cluster: Cluster) -> None:
    """sacct answers from slurmdbd with the user, the account and gres/gpu."""
    jobid = cluster.sbatch("-w", "minsky1", "--gres=gpu:3")
    assert cluster.wait_finished(jobid).state == "COMPLETED"
    row = cluster.run("ctl", f"sacct -n -P -X -j {jobid} -o user,account,alloctres").out.strip()
    assert row.startswith("alice|research|")
    assert "gres/gpu=3" in row


def test_gpus_are_given_back(cluster: Cluster) -> None:
    """While a job runs its GPUs are in use; after it no node reports one."""
    jobid = cluster.sbatch("-w", "bridged1", "--gres=gpu:5", sleep_s=60)
    job = cluster.wait_running(jobid)
    assert cluster.gres_used()["bridged1"] == job.gpus["bridged1"]
    cluster.cancel(jobid)
    cluster.wait_idle()
    assert cluster.gres_used() == dict.fromkeys(GPUS, ())


def test_occupy_leaves_exactly_the_wanted_gpus_in_use(cluster: Cluster) -> None:
    """A fragmented node can be made for other tests, whatever chooses the GPUs."""
    ids = cluster.occupy("dgx2", [1, 4, 6])
    assert [cluster.job(jobid).gpus["dgx2"] for jobid in ids] == [(1,), (4,), (6,)]


@pytest.mark.select_plugin
def test_jobs_survive_every_switch_of_variant(cluster: Cluster) -> None:
    """Only slurmctld restarts: the running job keeps its GPUs and slurmd keeps its process."""
    before = cluster.run("dgx1", "pidof slurmd").out
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:4", sleep_s=120)
    gpus = cluster.wait_running(jobid).gpus
    for variant in ("stock", "noop", "gputopo"):
        cluster.switch(variant)
        assert cluster.variant() == variant
        job = cluster.job(jobid)
        assert (job.state, job.gpus) == ("RUNNING", gpus)
    assert cluster.run("dgx1", "pidof -s slurmd").out.strip() in before.split()


def test_nodes_have_none_of_our_files(cluster: Cluster) -> None:
    """A compute node reads the same slurm.conf and has neither package nor plugin of ours."""
    config = cluster.run("ctl", "cat /etc/slurm/slurm.conf").out
    for node in GPUS:
        assert cluster.run(node, OURS_ON_A_NODE).out == ""
        assert cluster.run(node, "cat /etc/slurm/slurm.conf").out == config


def test_nvidia_smi_prints_the_machine_of_its_node(cluster: Cluster) -> None:
    """The fake tool answers topo -m and CSV queries; it refuses an unknown field."""
    topo = cluster.run("dgx1", "nvidia-smi topo -m").out.splitlines()
    assert topo[1].split()[:6] == ["GPU0", "X", "NV1", "NV1", "NV2", "NV2"]
    rows = cluster.run(
        "minsky1", "nvidia-smi --query-gpu=index,pci.bus_id,name,uuid --format=csv,noheader"
    ).out
    buses = ["00000002:01:00.0", "00000003:01:00.0", "0000000A:01:00.0", "0000000B:01:00.0"]
    assert [row.split(", ")[1] for row in rows.splitlines()] == buses
    assert cluster.run("dgx1", "nvidia-smi --query-gpu=no_such --format=csv", check=False).code == 2


def test_an_amd_node_has_rocm_smi_only(cluster: Cluster) -> None:
    """rocm-smi shows the XGMI links; nvidia-smi is not there."""
    assert "XGMI" in cluster.run("amd1", "rocm-smi --showtopo").out
    assert cluster.run("amd1", "command -v nvidia-smi", check=False).out == ""


def test_minor_numbers_can_differ_from_the_nvml_order(cluster: Cluster) -> None:
    """A node can be given minors that permute the order in which nvidia-smi lists its GPUs."""

    def minors() -> list[int]:
        report = cluster.run("minsky1", "nvidia-smi -q | grep Minor").out
        return [int(line.split(":")[1]) for line in report.splitlines()]

    with cluster.fake_tools_of("minsky1") as folder:
        cluster.run("minsky1", f"echo 2,0,3,1 >{folder}/minors")
        assert minors() == [2, 0, 3, 1]
    assert minors() == [0, 1, 2, 3]


CRASHES = {
    "slurmctld ended by itself": ("ctl", "kill -9 $(clusterctl slurmctld pid)"),
    "engine ended by itself": ("ctl", "kill -9 $(clusterctl engine pid)"),
    "Traceback": ("ctl", "echo 'Traceback (most recent call last):' >>/var/log/gputopo/engine.log"),
    "ended without a successor": (
        "dgx1",
        "pid=$(cat /run/slurmd.pid); kill -9 $pid; until tail -1 /home/slurmd.dgx1.log |"
        " grep -q successor; do sleep 0.2; done; slurmd",
    ),
}


@pytest.mark.parametrize("said", CRASHES)
def test_what_ended_or_crashed_by_itself_is_told_at_the_next_reset(
    cluster: Cluster, said: str
) -> None:
    """Once, and the cluster is whole again; nothing is told where a test named the crash."""
    host, crash = CRASHES[said]
    cluster.run(host, crash)
    with pytest.raises(ClusterError, match=said):
        cluster.reset()
    cluster.reset()
    cluster.run("ctl", "echo 'fatal: on purpose' >>/var/log/slurm/slurmctld.log")
    cluster.expects("fatal: on purpose")
    cluster.reset()
