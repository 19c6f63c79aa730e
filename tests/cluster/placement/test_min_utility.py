"""Jobs that would rather wait than run on badly connected GPUs: min-utility, live and whole."""

import re

import pytest
from live_harness import PICKY, TAKEN, by_policy, configure_engine
from modes import enforcement

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.slurm_text import Job

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]

IN_SLOTS = re.compile(
    r"\[gpu-topo: min-utility=0\.9 \| mapa: the best free GPUs have 0\.\d\d of the bandwidth"
    r" of the best GPUs of an empty node, and the job asks for 0\.90\] \[gpu-slots: gated .*\]"
)
SENTENCE = re.compile(
    r"\[gpu-topo: min-utility=0\.9 \| waiting (\d+)/\d+ since \d+: .*the best free GPUs have"
    r" 0\.\d\d of the bandwidth of the best GPUs of an empty node, and the job asks for 0\.90 .*"
    r"\(until (\d+), begin \d+\)\]"
)


@pytest.fixture
def holders(cluster: Cluster) -> list[int]:
    """The jobs that hold all of dgx1 but GPUs 0 and 5."""
    return cluster.occupy("dgx1", TAKEN)


def picky(cluster: Cluster, *args: str) -> Job:
    """A picky job on dgx1, once it says why it waits: where GPUs just came free, not at once."""
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", PICKY, *args, sleep_s=300)
    cluster.wait_postponed(jobid)
    says = "the job asks for"
    until(lambda: says in cluster.job(jobid).fields["AdminComment"], f"job {jobid} says {says!r}")
    return cluster.job(jobid)


def test_the_user_reads_why_the_job_waits(cluster, holders):
    """Reason=BeginTime, and AdminComment has the share reached and the share asked for."""
    job = picky(cluster)
    assert job.state == "PENDING"
    sentence = IN_SLOTS if enforcement() == "slots" else SENTENCE
    assert sentence.fullmatch(job.fields["AdminComment"]), job.fields["AdminComment"]


@pytest.mark.both_modes("short")
def test_a_job_end_wakes_it_for_the_better_set(cluster, holders):
    """GPU 3 comes free, a double link to GPU 0: the job starts on both, before its time."""
    job = picky(cluster)
    cluster.cancel(holders[TAKEN.index(3)])
    started = cluster.wait_running(job.id, timeout_s=60)
    assert started.gpus == {"dgx1": (0, 3)}
    if result := SENTENCE.fullmatch(job.fields["AdminComment"]):
        assert cluster.time_of(job.id, "StartTime") < int(result[2])
    assert "waiting" not in started.fields["AdminComment"]


def test_nobody_else_waits(cluster, holders):
    """Jobs of lower priority start beside it, on the very GPUs it does not want."""
    job = picky(cluster, "--nice=0")
    ids = [
        cluster.sbatch("-w", "dgx1", "--nice=500", "--gres=gpu:1", sleep_s=300) for _ in range(2)
    ]
    got = sorted(cluster.wait_running(jobid).gpus["dgx1"] for jobid in ids)
    assert got == [(0,), (5,)]
    assert cluster.job(job.id).state == "PENDING"


@pytest.mark.long("a detail of what a shorter test shows")
def test_after_so_many_waits_it_takes_the_best_that_is_free(cluster):
    """The cap of gputopo.yaml: then the policy's best of what is left, not Slurm's."""
    configure_engine(cluster, "waiting: {step_s: 1, max_postponements: 2}")
    busy = (1, 2, 3, 4, 6)  # Slurm would take 0,5; one link joins 5 and 7
    cluster.occupy("dgx1", busy)
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", PICKY, sleep_s=300)
    waits = "since=" if enforcement() == "slots" else "waiting 2/"
    until(lambda: waits in cluster.job(jobid).admin_comment, "it waits")
    assert cluster.wait_running(jobid, timeout_s=60).gpus == by_policy(
        {"dgx1": busy}, (2,), ("dgx1",)
    )


def test_a_node_that_is_good_enough_needs_no_wait(cluster, holders):
    """The same job without --nodelist starts at once, elsewhere."""
    got = cluster.started("--gres=gpu:2", PICKY, sleep_s=300)
    assert got.gpus == by_policy({"dgx1": TAKEN}, (2,), ("amd1", "bridged1", "dgx2", "minsky1"))
    assert "waiting" not in got.fields["AdminComment"]
