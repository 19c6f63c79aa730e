"""The engine is killed again and again while fifty jobs borrow GPUs: no donor is leaked."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

import pytest
from cluster import Cluster
from live_harness import all_jobs
from remote_harness import ASKS, ECHO, FOUR, as_found, echoed, lent, nothing_is_left
from select_harness import until

pytestmark = [pytest.mark.cluster, pytest.mark.enforced]


@pytest.fixture(scope="module", autouse=True)
def found(session_cluster: Cluster | str) -> Iterator[None]:
    """Nothing of the site stays behind."""
    with as_found(session_cluster):
        yield


@pytest.fixture
def lends(live: Cluster) -> Iterator[Cluster]:
    """A site that lends, and at the end no donor, no server, no GPU more in use."""
    if live.release < (24, 11):
        pytest.skip("Slurm 22.05 cannot give a job its own request back: nothing is lent there")
    with lent(live) as site:
        yield site


def test_fifty_jobs_and_ten_kills_of_the_engine_leak_no_donor(lends: Cluster) -> None:
    dice = random.Random(8)
    script = f"{ECHO}; sleep 0.5"
    ids = [lends.sbatch(*FOUR, ASKS, "-t", "5", script=script) for _ in range(50)]
    for _ in range(10):
        time.sleep(dice.uniform(0.2, 6))
        lends.engine("kill")
        time.sleep(dice.uniform(0, 2))
        lends.engine("start")
    until(lambda: all_over(lends, ids), "all fifty are over", 600)
    states = {job.id: job.state for job in all_jobs(lends) if job.id in ids}
    assert set(states.values()) <= {"COMPLETED"}, states
    told = [echoed(lends, jobid)[-1] for jobid in ids]
    assert set(told) == {"exit 0"}
    nothing_is_left(lends)


def all_over(cluster: Cluster, ids: Sequence[int]) -> bool:
    """Has every one of these jobs ended?"""
    listed = ",".join(map(str, ids))
    told = cluster.run("ctl", f"squeue -h -j {listed} -o %A 2>/dev/null", check=False)
    return not told.out.strip()
