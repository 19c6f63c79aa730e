"""MIG slices and AMD partitions, by hand: GPUs in use are filled, whole ones go by links."""

import pytest
from live_harness import explained
from select_harness import clear

from slurm_cluster.cluster import Cluster
from slurm_cluster.sliced import sliced

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.select_plugin,
    pytest.mark.enforced,
    pytest.mark.long("nodes are declared with slices or partitions first"),
]

#: Slurm's 0 to 3 are whole, 4 and 5 are of GPU 4, 6 and 7 of GPU 5, 8 to 14 of GPU 6, then GPU 7.
WORDS = ["0-3", "4/3g.20gb*2", "5/3g.20gb*2", "6/1g.5gb*7", "7/1g.5gb*7"]
NODES = ["bridged1", "dgx1"]


@pytest.fixture(scope="module")
def mig(session_cluster: Cluster):
    with sliced(session_cluster, NODES, WORDS):
        yield session_cluster


@pytest.fixture
def empty(live: Cluster, mig: Cluster):
    yield mig
    clear(mig)


def holding(cluster: Cluster, *args: str) -> tuple[int, dict[str, tuple[int, ...]]]:
    """A job that goes on, and what it has."""
    job = cluster.started(*args, "--mem=1", sleep_s=300)
    return job.id, job.gpus


def test_the_gpu_in_use_is_filled_whatever_index_is_free(empty):
    """GPU 6 is left again, one slice of GPU 7 is in use: Slurm itself would begin GPU 6."""
    first = [holding(empty, "-w", "bridged1", "--gres=gpu:1g.5gb:1") for _ in range(8)]
    taken = [gpus["bridged1"][0] for _, gpus in first]
    assert taken[:7] == list(range(8, 15)), taken
    assert taken[7] == 15
    empty.end([job for job, _ in first[:7]], {"bridged1": (15,)})
    job, gpus = holding(empty, "-w", "bridged1", "--gres=gpu:1g.5gb:2")
    assert gpus == {"bridged1": (16, 17)}
    assert empty.visible_gpus(job) == (16, 17)
    told = explained(empty, job)
    assert told["chosen"]["of_gpus"] == {"bridged1": [7, 7]}
    assert (told["chosen"]["begun"], told["slurm"]["begun"]) == (0, 1)
    words = empty.run("ctl", ["gputopo", "explain", str(job)]).out
    assert "slices of GPU 7, 7, 0 GPUs begun" in words
    drawn = "gputopo explain {} --plot /tmp/mig.svg && cat /tmp/mig.svg"
    picture = empty.run("ctl", drawn.format(job)).out
    assert "15-21" in picture, "the GPU is named by its slices"


def test_the_node_with_a_gpu_in_use_is_taken_first(empty):
    """Slurm itself takes the first node, bridged1."""
    holding(empty, "-w", "dgx1", "--gres=gpu:3g.20gb:1")
    _, gpus = holding(empty, "--gres=gpu:3g.20gb:1")
    assert gpus == {"dgx1": (5,)}


def test_whole_gpus_beside_slices_go_by_links(empty):
    """The bridge joins GPU 0 and 2; slices that are in use do not matter."""
    holding(empty, "-w", "bridged1", "--gres=gpu:1g.5gb:1")
    _, gpus = holding(empty, "-w", "bridged1", "--gres=gpu:whole:2")
    assert gpus == {"bridged1": (0, 2)}


def test_a_job_that_names_no_type_is_slurms(empty):
    job, gpus = holding(empty, "-w", "bridged1", "--gres=gpu:1")
    assert len(gpus["bridged1"]) == 1
    assert "AdminComment" not in empty.job(job).fields


def test_doctor_compares_what_is_declared_with_slurms_types(empty):
    found = empty.run("ctl", ["gputopo", "doctor"], check=False).out
    assert "bridged1: Slurm counts" not in found
    assert "22 GPUs each" in found


def test_partitions_of_a_gpu_in_use_are_filled(live: Cluster):
    """GPU 6 is left again, one partition of GPU 7 is in use: Slurm itself would begin GPU 6."""
    with sliced(live, ["amd1"], ["0-5", "6/cpx*8", "7/cpx*8"], "mi300x"):
        first = [holding(live, "-w", "amd1", "--gres=gpu:cpx:1") for _ in range(9)]
        assert [gpus["amd1"][0] for _, gpus in first] == list(range(6, 15))
        live.end([job for job, _ in first[:8]], {"amd1": (14,)})
        job, gpus = holding(live, "-w", "amd1", "--gres=gpu:cpx:4")
        assert gpus == {"amd1": (15, 16, 17, 18)}
        told = explained(live, job)
        assert told["chosen"]["of_gpus"] == {"amd1": [7, 7, 7, 7]}
        assert (told["chosen"]["begun"], told["slurm"]["begun"]) == (0, 1)
