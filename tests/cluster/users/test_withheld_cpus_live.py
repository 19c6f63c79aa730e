"""CPUs and memory that are free, and that Slurm does not give every job: what `why` says of it."""

import pytest
from live_harness import at_home
from node_variants import other_gpus

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_plugin.slurm.releases import parse_version
from tests.cluster.operating.client_harness import RemoteClient
from tests.slurm_plugin.tell.why.sentences import said

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]
LINES = "PartitionName=narrow Nodes=dgx1 MaxCPUsPerNode=4 DefaultTime=10 State=UP\n"
SAYS = "waits although {} has {} free GPUs: only 1 of the 2 CPUs that it needs are free there."

MEMORY = (
    "waits although dgx2 has 7 free GPUs: only 1000 of the 1500 MB that it needs are free there."
)


#: A Slurm with a partition that allows few CPUs of a node.
limited = at_home(slurm_conf=LINES)


@pytest.fixture
def site(limited: Cluster, cluster: Cluster) -> Cluster:
    return cluster


def why(cluster: Cluster, job: int) -> str:
    return cluster.run("ctl", ["gputopo", "why", str(job)], user="alice").out


def wait_considered(cluster: Cluster, job: int) -> None:
    """Both Slurm and the engine have looked at the job, and it waits."""
    until(lambda: cluster.job(job).reason != "None", f"job {job}: looked at by Slurm")
    cluster.wait_reconciled()
    assert cluster.job(job).state == "PENDING"


def test_what_a_partition_leaves_of_a_node_is_all_that_its_jobs_get(site):
    site.started("-p", "narrow", "-c3", "--gres=gpu:1", sleep_s=60)
    # Another partition has the CPUs that this one does not give.
    site.started("-p", "gpu", "-w", "dgx1", "-c2", "--gres=gpu:1", sleep_s=60)
    waits = site.sbatch("-p", "narrow", "-c2", "--gres=gpu:1", sleep_s=60)
    wait_considered(site, waits)
    assert said(why(site, waits), str(waits)).startswith(SAYS.format("dgx1", 6)[:-1])
    # No release of it came to nothing.
    assert "tries" not in site.job(waits).admin_comment


def test_cores_beside_gpus_are_for_as_many_gpus_as_a_job_has(site):
    if parse_version(site.run("ctl", ["scontrol", "--version"]).out) < (24, 5):
        pytest.skip("RestrictedCoresPerGPU came with 24.05")
    with other_gpus(site, "s/$/ RestrictedCoresPerGPU=1/", "", types="gpu"):
        site.started("-w", "dgx2", "-c8", sleep_s=60)
        # Two GPUs open two cores.
        site.started("-w", "dgx2", "-c2", "--gres=gpu:2", sleep_s=60)
        waits = site.sbatch("-w", "dgx2", "-c2", "--gres=gpu:1", sleep_s=60)
        wait_considered(site, waits)
        assert said(why(site, waits), str(waits)).startswith(SAYS.format("dgx2", 6)[:-1])
        assert "tries" not in site.job(waits).admin_comment


def test_cores_that_are_slurms_own_are_no_jobs(site):
    """22.05 does not tell that in JSON."""
    with other_gpus(site, "s/$/ CoreSpecCount=2/", "", types="gpu"):
        assert RemoteClient(site, "command").nodes()["dgx2"].cpus == 14


def test_memory_that_is_slurms_own_is_no_jobs(site):
    with other_gpus(site, "s/$/ MemSpecLimit=1000/", "", types="gpu"):
        assert RemoteClient(site, "command").nodes()["dgx2"].memory_mb == 3000
        site.started("-w", "dgx2", "--mem=2000", "--gres=gpu:1", sleep_s=60)
        waits = site.sbatch("-w", "dgx2", "--mem=1500", "--gres=gpu:1", sleep_s=60)
        wait_considered(site, waits)
        assert said(why(site, waits), str(waits)) == MEMORY
        assert "tries" not in site.job(waits).admin_comment
