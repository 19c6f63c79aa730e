"""The engine is killed again and again while jobs borrow GPUs: no donor is leaked."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest
from live_harness import all_jobs
from remote_harness import ASKS, ECHO, FOUR, echoed, nothing_is_left

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]


@pytest.mark.parametrize(
    ("jobs", "kills"),
    [
        pytest.param(6, 3, marks=pytest.mark.long("a minute of kills", "slots")),
        pytest.param(
            *(50, 10),
            marks=[pytest.mark.long("50 borrowers, five minutes"), pytest.mark.timeout(900)],
        ),
    ],
)
def test_kills_of_the_engine_while_many_jobs_borrow_leak_no_donor(
    lends: Cluster, jobs: int, kills: int
) -> None:
    """Every job ends well, and nothing is left."""
    dice = random.Random(8)
    script = f"{ECHO}; sleep 0.5"
    ids = [lends.sbatch(*FOUR, ASKS, "-t", "5", script=script) for _ in range(jobs)]
    for _ in range(kills):
        time.sleep(dice.uniform(0.2, 6))
        lends.engine("kill")
        time.sleep(dice.uniform(0, 2))
        lends.engine("start")
    until(lambda: all_over(lends, ids), "all are over", 600)
    states = {job.id: job.state for job in all_jobs(lends) if job.id in ids}
    assert set(states.values()) <= {"COMPLETED"}, states
    told = [echoed(lends, jobid)[-1] for jobid in ids]
    assert set(told) == {"exit 0"}
    nothing_is_left(lends)


@pytest.mark.select_plugin
@pytest.mark.long("15 s; waits until Slurm starts a requeued job")
def test_a_job_on_fewer_gpus_does_not_run_without_its_donors(lends: Cluster) -> None:
    """No engine, and a donor that is no more: TaskProlog alone puts the job back."""
    script = f"echo ran >>$HOME/ran.$SLURM_JOB_ID; {ECHO}; sleep 600"
    jobid = lends.sbatch(*FOUR, ASKS, "-H", "--requeue", script=script)
    lends.engine("stop")
    loan = f"dgx1/c0,dgx2/3/{jobid + 100000}/50000"
    said = f"[gpu-topo: remote=allow] [gpu-loan: starts remote=1 tpn=gres/gpu:4 loan={loan} at=1]"
    words = ["gres=gpu:2", "ReqNodeList=dgx1", f"AdminComment={said}"]
    lends.run("ctl", ["scontrol", "update", f"jobid={jobid}", *words])
    lends.run("ctl", ["scontrol", "release", str(jobid)])
    until(lambda: int(lends.job(jobid).fields["Restarts"]) > 0, "the job is put back", 60)
    assert lends.run("ctl", f"cat /home/alice/ran.{jobid}", check=False).code
    lends.engine("start")
    lends.wait_running(jobid, timeout_s=120)
    assert echoed(lends, jobid)[-1] == "exit 0"
    assert lends.run("ctl", f"cat /home/alice/ran.{jobid}").out.split() == ["ran"]


def all_over(cluster: Cluster, ids: Sequence[int]) -> bool:
    """Has every one of these jobs ended?"""
    listed = ",".join(map(str, ids))
    told = cluster.run("ctl", f"squeue -h -j {listed} -o %A 2>/dev/null", check=False)
    return not told.out.strip()
