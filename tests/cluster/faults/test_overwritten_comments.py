"""Others write AdminComment at random moments: no job is lost, and none gets a wrong set."""

import random
import shlex

import pytest
from comment_writer import SEED, overwriting, written
from lending_harness import ASKS, FOUR, HOLD, borrower, donors, echoed, settings_of
from live_harness import GPUS, Watch, watched
from modes import enforcement

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes("short"), pytest.mark.enforced]

FORMS = (
    "--gres=gpu:{}", "-N1 --gpus={}", "-N1 -n{} --gpus-per-task=1",
    "--gres=gpu:{} --comment='gpu-topo: pattern=all-to-all'",
    "--gres=gpu:{} --comment='gpu-topo: min-utility=0.9'", "--array=0-1 --gres=gpu:{}",
)  # fmt: skip


@pytest.mark.long("nearly all of it is the same in the other mode", "select")
def test_every_job_ends_and_has_what_it_asked_for(cluster):
    """An engine that has just started takes nothing of what it sees for a former engine's."""
    chance = random.Random(SEED)
    cluster.engine("restart")
    cluster.wait_reconciled()
    with overwriting(cluster), watched(cluster) as watch:
        wanted = {}
        for _ in range(3):
            for jobid, count in submitted(cluster, chance, 6).items():
                wanted[jobid] = count
        until(lambda: not cluster.run("ctl", "squeue -h -o %A").out.strip(), "all have ended", 150)
    states = {job.id: job.state for job in cluster.jobs() if job.id in wanted}
    assert set(states.values()) == {"COMPLETED"}
    assert cluster.gres_used() == dict.fromkeys(GPUS, ())
    check_counts(wanted, watch)
    if enforcement() == "slots":
        assert cluster.status()["slots"]["mismatched"] == 0


def submitted(cluster: Cluster, chance: random.Random, jobs: int) -> dict[int, int]:
    """So many jobs at once, more than the GPUs of one partition; GPUs by job."""
    lines, counts = [], []
    for _ in range(jobs):
        counts.append(chance.choice((2, 3, 4)))
        args = shlex.split(chance.choice(FORMS).format(counts[-1]))
        sleep = f"sleep {chance.uniform(1, 3):.1f}"
        argv = ["sbatch", "--parsable", "-p", "dgx", "-o/dev/null", *args, "--wrap", sleep]
        lines.append(shlex.join(argv))
    ids = cluster.run("ctl", "; ".join(lines), user="alice", timeout_s=60).out.split()
    return dict(zip(map(int, ids), counts, strict=True))


def check_counts(wanted: dict[int, int], watch: Watch) -> None:
    """What ran had its GPUs, and the same ones from start to end."""
    seen = {jobid: held for jobid, held in watch.held.items() if jobid in wanted}
    assert len(seen) > len(wanted) // 3, "the watch was too slow to see them"
    for jobid, held in seen.items():
        assert len(held) == 1, (jobid, held)
        [gpus] = held
        assert sum(len(indices) for _, indices in gpus) == wanted[jobid]


@pytest.mark.long("a minute")
def test_a_loan_outlives_whoever_overwrites_its_records(lending):
    """While its donors start, while it starts, and while it runs."""
    with overwriting(lending):
        job = borrower(lending)
        [donor] = donors(lending)
        written(lending, job.id, 3)
        written(lending, donor.id, 3)
        lending.wait_reconciled() if enforcement() == "slots" else None
        assert lending.job(job.id).state == "RUNNING"
        assert [one.id for one in donors(lending)] == [donor.id]
        [node] = donor.gpus
        assert echoed(lending, job.id)[0].startswith(f"{node} ")
        waits = lending.sbatch(*FOUR, ASKS, script=HOLD)
        written(lending, waits, 2)
        lending.cancel(waits, job.id)
        until(lambda: not donors(lending), "the donor ends with its borrower", 30)


@pytest.mark.long("a minute and a half")
def test_a_loan_leaves_nothing_in_admin_comment_where_the_engine_keeps_the_notes(lending):
    """But its record for the first minute, in which TaskProlog reads it."""
    with settings_of(lending, "", "notes: engine\n"):
        job = borrower(lending)
        shown = lending.job(job.id).admin_comment
        assert "loan=dgx" in shown
        assert "gpu-topo" not in shown
        until(lambda: not lending.job(job.id).admin_comment, "the record is taken away", 90)
        assert len(donors(lending)) == 1
        assert lending.job(job.id).state == "RUNNING"
