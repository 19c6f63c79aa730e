"""GPUs that Slurm names by UUID (Flags=env_uuid in gres.conf): the launch puts them in rank order.

Slurm learns UUIDs from a vendor's library. On a node without one it can read them, with all else
that the library would say, from fake_gpus.conf beside slurm.conf, as Slurm's own tests do. What
follows is the same code: slurmd, the step, the task's environment.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from node_variants import DGX2, other_gpus

from slurm_cluster.cluster import Cluster
from tests.cluster.users.launched import (
    MACHINES,
    RECORDED,
    Seen,
    launch,
    launching,
    srun,
    task_of,
    with_launch,
)

pytestmark = [pytest.mark.cluster, pytest.mark.long("GPUs with UUIDs are declared first")]

MACHINE = MACHINES["dgx1"]
#: In the order of GPUs, which is not that of their names.
UUIDS = [f"GPU-8932f937-d72c-4106-c12f-20bd9faed9f{digit}" for digit in "52703614"]
#: A folder like the driver's, where the launch looks for UUIDs.
DRIVER = "/cluster/launch/gpus"
#: Without the cores, which slurmd checks against what the host of the containers has.
ENV_UUID = r";s/\(\nNodeName=dgx2 .*\) Cores=[^ ]*\(.*\)/\1\2 Flags=env_uuid/"


@pytest.fixture(scope="module", autouse=True)
def with_plugin(session_cluster: Cluster) -> Iterator[None]:
    if session_cluster.release < (26, 5):
        pytest.skip("Slurm names whole GPUs by UUID since 26.05")
    with with_launch(session_cluster):
        yield


@contextmanager
def uuids(cluster: Cluster) -> Iterator[None]:
    """dgx2's GPUs have UUIDs, for Slurm and for the launch, and Slurm names them so."""
    gres = cluster.run("ctl", "grep NodeName=dgx /cluster/gres.conf").out.splitlines()
    lines = []
    for line, uuid in zip(gres, UUIDS, strict=True):
        words = dict(word.split("=", 1) for word in line.split())
        told = [words[key] for key in ("Cores", "Links", "File")]
        lines.append("|".join([words["Type"], "16", *told, uuid, "nvidia_gpu_env"]))
    for gpu, uuid in enumerate(UUIDS):
        folder = f"{DRIVER}/0000:1{gpu}:00.0"
        cluster.run("ctl", ["mkdir", "-p", folder])
        cluster.put("ctl", f"{folder}/information", f"GPU UUID: \t {uuid}\n")
    cluster.put("dgx2", "/etc/slurm/fake_gpus.conf", "\n".join(lines) + "\n")
    with other_gpus(cluster, "", DGX2 + ENV_UUID, types="gpu"):
        try:
            yield
        finally:
            # Gone before slurmd starts with the usual gres.conf again.
            cluster.run("dgx2", "rm -f /etc/slurm/fake_gpus.conf")


def order(seen: Seen) -> tuple[int, ...]:
    """The task's GPUs in the order that its CUDA has them in."""
    return tuple(UUIDS.index(uuid) for uuid in seen.cuda.split(","))


def test_tasks_have_their_gpus_in_rank_order(cluster):
    """As with numbers; `off` leaves the list as Slurm has it."""
    with launching(cluster, f"{RECORDED} uuids={DRIVER}"), uuids(cluster):
        for args in (("-n2", "--gres=gpu:4"), ("-n4", "--gpus-per-task=1")):
            for rank, seen in srun(cluster, "-w", "dgx2", *args).items():
                task = task_of(seen, rank, int(args[0][2:]))
                assert order(seen) == launch(MACHINE, task).visible
                assert seen.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        cluster.wait_idle()
        cluster.occupy("dgx2", [2, 3, 6, 7])
        for hint, ordered in (("pattern=ring", (0, 1, 5, 4)), ("off", (0, 1, 4, 5))):
            args = ("-w", "dgx2", "-n1", "--gres=gpu:4", f"--gpu-topo={hint}")
            assert order(srun(cluster, *args)[0]) == ordered


def test_the_task_prolog_orders_them_as_well(cluster):
    """It leaves each task the GPUs that Slurm gave it."""
    with launching(cluster):
        cluster.configure_extra("TaskProlog=/cluster/launch/task-prolog")
        conf = f"table=/cluster/launch/%n.table\nuuids={DRIVER}\n"
        cluster.put("ctl", "/cluster/launch/task-prolog.conf", conf)
        cluster.put("ctl", "/cluster/plugstack.conf", "\n")
        with uuids(cluster):
            (seen,) = srun(cluster, "-w", "dgx2", "-n1", "--gres=gpu:4").values()
            assert order(seen) == launch(MACHINE, task_of(seen, 0, 1)).visible
            result = srun(cluster, "-w", "dgx2", "-n4", "--gpus-per-task=1")
            assert sorted(map(order, result.values())) == [(0,), (1,), (2,), (3,)]
