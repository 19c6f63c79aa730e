"""What mallory writes, through sbatch, slurmctld, the bridge and the engine; alice's jobs go on."""

import pytest

from slurm_cluster.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes]

#: What sbatch and slurmctld let through, or refuse by themselves: both ways are of interest.
HOSTILE = {
    "ranges of ranges": ["--nodelist=n[" + ",".join(["1-65536"] * 500) + "]"],
    "excluded again and again": ["--exclude=" + ",".join(["dgx[1-2]"] * 400)],
    "alternatives": ["--constraint=" + "|".join(["a"] * 2000)],
    "nested parentheses": ["--constraint=" + "(" * 1500 + "a" + ")" * 1500],
    "a large count": ["--gres=gpu:1000000"],
    "a long comment": ["--comment=gpu-topo: " + "pattern=ring," * 200],
    "the same tasks again and again": ["--array=" + ",".join(["1-3"] * 500)],
}


def memory_kb(cluster: Cluster) -> int:
    """The most memory that the engine ever had."""
    return int(cluster.run("ctl", f"grep VmHWM /proc/{cluster.engine_pid()}/status").out.split()[1])


SHORT = ("ranges of ranges",)
CASES = [
    pytest.param(
        options,
        id=name,
        marks=() if name in SHORT else pytest.mark.long("without a cluster in every run"),
    )
    for name, options in HOSTILE.items()
]


@pytest.mark.parametrize("options", CASES)
def test_alices_job_starts_beside_what_mallory_writes(cluster, options):
    pid, before = cluster.engine_pid(), memory_kb(cluster)
    gpus = [] if any(word.startswith("--gres") for word in options) else ["--gres=gpu:1"]
    command = ["sbatch", "--hold", "-o", "/dev/null", *gpus, *options, "--wrap", "true"]
    for _ in range(3):
        cluster.run("ctl", command, user="mallory", check=False)
    assert cluster.started("-p", "dgx", "--gres=gpu:2", sleep_s=5).gpus
    cluster.run("ctl", "scontrol release $(squeue -hu mallory -o %A | sort -u) 2>&1; true")
    assert cluster.started("-p", "dgx", "--gres=gpu:2", sleep_s=5).gpus
    assert cluster.engine_pid() == pid
    assert memory_kb(cluster) - before < 64 << 10
