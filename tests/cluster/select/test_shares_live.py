"""Shards: a job's come from a GPU in use, and Slurm's counts hold."""

import random
import re

import pytest
from live_harness import explained
from select_harness import clear

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.sliced import shared

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.select_plugin,
    pytest.mark.enforced,
    pytest.mark.long("nodes are declared with shares first"),
]

NODES = ["bridged1", "dgx1"]
EACH = 4


@pytest.fixture(scope="module")
def shards(session_cluster: Cluster):
    with shared(session_cluster, NODES, "shard", EACH):
        yield session_cluster


@pytest.fixture
def empty(live: Cluster, shards: Cluster):
    yield shards
    clear(shards)


def used(cluster: Cluster, node: str) -> list[int]:
    """Shards that are in use of each GPU, as slurmctld has it."""
    text = cluster.run("ctl", f"scontrol -d show node {node}").out
    match = re.search(r"GresUsed=\S*shard:\w+:\d+\(([\d/,-]+)\)", text)
    assert match, text
    # 26.05 writes `-/4` for a GPU that a job has whole.
    return [int(one.split("/")[0].strip("-") or 0) for one in match[1].split(",")]


def holding(cluster: Cluster, *args: str) -> int:
    """A job that goes on."""
    return cluster.started(*args, "--mem=1", sleep_s=300).id


def test_the_gpu_in_use_is_filled_whatever_index_is_free(empty):
    """GPU 0 is full, then its partner on the bridge is begun; what GPU 0 gives back stays idle."""
    jobs = [holding(empty, "-w", "bridged1", "--gres=shard:1") for _ in range(5)]
    assert used(empty, "bridged1") == [4, 0, 1, 0, 0, 0, 0, 0]
    assert empty.visible_gpus(jobs[4]) == (2,)
    empty.cancel(*jobs[:4])
    until(lambda: used(empty, "bridged1") == [0, 0, 1, 0, 0, 0, 0, 0], "the first jobs are gone")
    job = holding(empty, "-w", "bridged1", "--gres=shard:2")
    assert used(empty, "bridged1") == [0, 0, 3, 0, 0, 0, 0, 0]
    told = explained(empty, job)
    assert told["chosen"]["of_gpus"] == {"bridged1": [2]}
    assert (told["chosen"]["begun"], told["slurm"]["begun"]) == (0, 1)
    words = empty.run("ctl", ["gputopo", "explain", str(job)]).out
    assert "2 shards of GPU 2, 0 GPUs begun, 7 untouched there" in words
    drawn = empty.run("ctl", f"gputopo explain {job} --plot /tmp/s.svg && cat /tmp/s.svg").out
    assert "2 shards of GPU 2" in drawn
    assert "by shares: 2 shards: a GPU in use" in empty.job(job).fields["AdminComment"]


def test_who_asks_to_borrow_shards_is_told_why_not_and_gets_its_own(empty):
    hint = "--comment='gpu-topo: remote=allow'"
    words = f"sbatch --parsable -w bridged1 --gres=shard:1 --mem=1 {hint} --wrap 'sleep 300'"
    done = empty.run("ctl", words, user="alice")
    assert "not lent to this job: it asks for parts of GPUs" in " ".join(done.err.split())
    empty.wait_running(int(done.out))
    assert used(empty, "bridged1") == [1, 0, 0, 0, 0, 0, 0, 0]


def test_the_node_with_a_shared_gpu_is_taken_first(empty):
    """Slurm itself takes the first node, bridged1."""
    holding(empty, "-w", "dgx1", "--gres=shard:1")
    job = empty.started("--gres=shard:1", "--mem=1", sleep_s=300)
    assert job.fields["NodeList"] == "dgx1"
    assert used(empty, "dgx1") == [2, 0, 0, 0, 0, 0, 0, 0]


def test_whole_gpus_and_shards_exclude_each_other(empty):
    """A job of whole GPUs gets a pair on one bridge; shards begin the partner of one in use."""
    holding(empty, "-w", "bridged1", "--gres=gpu:1")
    holding(empty, "-w", "bridged1", "--gres=shard:1")
    holders = set(empty.gres_used()["bridged1"])
    assert holders == {0}
    assert used(empty, "bridged1") == [0, 0, 1, 0, 0, 0, 0, 0]
    pair = empty.started("-w", "bridged1", "--gres=gpu:2", "--mem=1", sleep_s=300)
    assert pair.gpus == {"bridged1": (1, 3)}


def test_a_mix_leaves_nothing_behind(empty):
    """No GPU is given to both, none has more shards than it has, and at the end none is in use."""
    draw, jobs = random.Random(5), []
    for _ in range(40):
        what = f"--gres=shard:{draw.randint(1, EACH)}" if draw.random() < 0.8 else "--gres=gpu:1"
        jobs.append(empty.sbatch("-w", draw.choice(NODES), what, "--mem=1", sleep_s=300))
        if len(jobs) > 6 and draw.random() < 0.4:
            empty.cancel(jobs.pop(draw.randrange(len(jobs))))
        for node in NODES:
            counts, whole = used(empty, node), empty.gres_used()[node]
            assert max(counts) <= EACH
            assert not [gpu for gpu in whole if counts[gpu]], (counts, whole)
    clear(empty)
    for node in NODES:
        assert used(empty, node) == [0] * 8
        assert empty.gres_used()[node] == ()


def test_shards_keep_away_from_the_jobs_that_they_would_slow(empty):
    """A job of small batches is slowed by a quarter (docs/profiles.md): the other GPU is shared."""
    small, big = (f"--comment=gpu-topo: policy=topo-aware,batch={batch}" for batch in (1, 64))
    holding(empty, "-w", "bridged1", "--gres=shard:3", small)
    # From the first such job on the queue is read, and not before.
    until(lambda: empty.status()["neighbours"]["age_s"] is not None, "the queue is read")
    holding(empty, "-w", "bridged1", "--gres=shard:2", big)
    assert used(empty, "bridged1") == [3, 0, 2, 0, 0, 0, 0, 0]
    empty.wait_reconciled()
    job = holding(empty, "-w", "bridged1", "--gres=shard:1", big)
    assert used(empty, "bridged1") == [3, 0, 3, 0, 0, 0, 0, 0]
    assert "a GPU in use" in empty.job(job).fields["AdminComment"]
