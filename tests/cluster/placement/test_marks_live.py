"""A site marks a link or a GPU: jobs stay off it at once, and come back when the mark is gone."""

import json

import pytest
from live_harness import GPUS, IN_BOTH_MODES, MACHINES, PICKY, TAKEN, explained
from select_harness import clear

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [*IN_BOTH_MODES, pytest.mark.enforced]

PAIR = {"dgx1": (0, 3)}
MARKS = "/var/lib/gputopo/marks.jsonl"


def marked(cluster: Cluster, *words: str, count: int) -> str:
    """What the command says, once the engine has as many nodes with marks."""
    said = cluster.run("ctl", ["gputopo", "topology", *words]).out

    def known() -> bool:
        status = json.loads(cluster.run("ctl", "gputopo status --json").out)
        return bool(status["marks"]["count"] == count)

    until(known, f"the engine has {count} nodes with marks")
    # In the slots mode submits are answered by what the last reading knew.
    cluster.wait_reconciled()
    return said


@pytest.fixture
def unmarked(cluster):
    yield cluster
    cluster.run("ctl", ["rm", "-f", MARKS])
    until(
        lambda: not json.loads(cluster.run("ctl", "gputopo status --json").out)["marks"]["count"],
        "the engine has no marks left",
    )


def pair(cluster: Cluster) -> tuple[int, dict[str, tuple[int, ...]]]:
    """A job of two GPUs on dgx1, and what it got."""
    job = cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=60)
    return job.id, job.gpus


def test_two_gpus_stay_off_a_marked_link_until_it_is_unmarked(unmarked):
    """dgx1's best pair is 0,3; with its link at half another double link is."""
    cluster = unmarked
    assert pair(cluster)[1] == PAIR
    clear(cluster)
    said = marked(
        cluster, "mark", "dgx1", "link", "0-3", "degraded", "--reason", "CRC errors", count=1
    )
    assert said == "dgx1: link 0-3 degraded to 50 % (CRC errors)\n"
    job, gpus = pair(cluster)
    assert gpus == {"dgx1": (0, 4)}, "the next double link"
    told = explained(cluster, job)
    assert told["marked"] == {"dgx1": ["link 0-3 at 50 %: CRC errors, by root"]}
    words = cluster.run("ctl", ["gputopo", "explain", str(job)]).out
    assert "marked        dgx1: link 0-3 at 50 %: CRC errors, by root" in words
    assert "dgx1: link 0-3 degraded to 50 %" in cluster.run("ctl", "gputopo status").out
    doctor = cluster.run("ctl", "gputopo doctor", check=False).out
    assert f"marks: {MARKS}: 1 nodes with marked parts" in doctor
    clear(cluster)
    assert marked(cluster, "unmark", "dgx1", "link", "0-3", count=0)
    assert pair(cluster)[1] == PAIR
    clear(cluster)


def test_a_broken_gpu_is_taken_only_where_nothing_else_fits(unmarked):
    """Seven jobs of one GPU stay off GPU 2; the eighth finds nothing else."""
    cluster = unmarked
    marked(cluster, "mark", "dgx1", "gpu", "2", "broken", count=1)
    seven = [cluster.started("-w", "dgx1", "--gres=gpu:1", sleep_s=120) for _ in range(7)]
    taken = {gpu for job in seven for gpu in job.gpus["dgx1"]}
    assert taken == set(range(8)) - {2}
    last = cluster.started("-w", "dgx1", "--gres=gpu:1", sleep_s=60)
    assert last.gpus == {"dgx1": (2,)}
    clear(cluster)


def test_a_damaged_file_changes_nothing_and_is_named_with_its_line(unmarked):
    """What was read last stays in force; status and doctor say which line is wrong."""
    cluster = unmarked
    marked(cluster, "mark", "dgx1", "link", "0-3", "broken", count=1)
    wrong = '{"node": "dgx1", "part": "link 0-3", "state": "haunted"}'
    cluster.run("ctl", ["sh", "-c", f"echo '{wrong}' >> {MARKS}"])
    until(
        lambda: "MARKS NOT READ" in cluster.run("ctl", "gputopo status").out,
        "the engine read the damaged file",
    )
    assert f"{MARKS}:2: link 0-3 is 'haunted'" in cluster.run("ctl", "gputopo status").out
    assert "fail  marks: " in cluster.run("ctl", "gputopo doctor", check=False).out
    assert pair(cluster)[1] == {"dgx1": (0, 4)}
    clear(cluster)


def test_a_node_with_a_little_less_power_serves_who_asks_for_good_links(unmarked):
    """dgx1 delivers nine tenths; what is free on dgx2, its like, has half of the bandwidth."""
    cluster = unmarked
    cluster.occupy("dgx2", TAKEN)
    marked(cluster, "mark", "dgx1", "power", "9180/10200", count=1)
    others = ",".join(node for node in GPUS if MACHINES[node] != MACHINES["dgx1"])
    job = cluster.started("-x", others, "-N1", "--gres=gpu:2", PICKY, sleep_s=60)
    assert job.gpus == PAIR
    clear(cluster)


def test_a_node_with_less_power_comes_after_its_like(unmarked):
    """dgx1 and dgx2 are one kind of machine; the first by name is taken while both deliver all."""
    cluster = unmarked
    others = ",".join(node for node in GPUS if MACHINES[node] != MACHINES["dgx1"])

    def node() -> str:
        [taken] = cluster.started("-x", others, "-N1", "--gres=gpu:2", sleep_s=60).gpus
        clear(cluster)
        return taken

    assert node() == "dgx1"
    said = marked(cluster, "mark", "dgx1", "power", "5600/10200", count=1)
    assert said == "dgx1: power capped at 5600 of 10200 W\n"
    assert node() == "dgx2"
    marked(cluster, "unmark", "dgx1", "power", count=0)
    assert node() == "dgx1"
