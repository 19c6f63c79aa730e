"""An engine beside each of two slurmctld: the one in charge acts, the other takes over at once."""

import contextlib
import json
import time
from collections.abc import Sequence

import pytest
from lending_harness import ASKS, FOUR, borrower, donors, lending_site, taken_away_after
from lending_harness import nothing_is_left as no_loan_is_left
from live_harness import IN_BOTH_MODES, PICKY, TAKEN, by_policy, got_by, watched
from standby_harness import LOG, answered, in_charge, sharing, two_engines

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import ClusterError, until

pytestmark = [
    *IN_BOTH_MODES,
    pytest.mark.long("a standby takes over after more than a minute"),
    pytest.mark.timeout(900),
]

#: From when on every job that is submitted is to be placed by advice.
READY_S = 1.0
ONE = ("-w", "dgx2", "--gres=gpu:1")


def take_over(cluster: Cluster, *, with_engine: bool) -> list[int]:
    """slurmctld of ctl dies, and its engine; jobs that were submitted as soon as ctl2 answered.

    Those of the next second may be Slurm's own choice; what comes later may not.
    """
    cluster.saved()
    cluster.slurmctld("kill")
    if with_engine:
        cluster.engine("kill")
    answered(cluster)
    began = time.monotonic()
    first = cluster.submit_many([ONE] * 2)
    time.sleep(max(0.0, READY_S - (time.monotonic() - began)))
    later = cluster.submit_many([ONE] * 2)
    cluster.running_gpus([*first, *later])
    print(f"advised at once: {advised(cluster, first)} of {first}")
    assert advised(cluster, later) == later, [decisions(cluster, job) for job in later]
    in_charge(cluster, "ctl2")
    return [*first, *later]


def give_back(cluster: Cluster, *, with_engine: bool) -> list[int]:
    """slurmctld of ctl comes back, with its engine; jobs that were submitted a second later."""
    if with_engine:
        cluster.engine("start")
    cluster.slurmctld("start")
    answered(cluster)
    time.sleep(READY_S)
    later = cluster.submit_many([("-w", "amd1", "--gres=gpu:1")] * 2)
    cluster.running_gpus(later)
    assert advised(cluster, later) == later
    in_charge(cluster, "ctl")
    return later


def decisions(cluster: Cluster, job: int) -> list[str]:
    """What was decided about a job, by whichever engine."""
    lines = map(json.loads, cluster.read("ctl", LOG).splitlines())
    return [line["decision"] for line in lines if line["job"] == job]


def advised(cluster: Cluster, jobs: Sequence[int]) -> list[int]:
    """Which of these jobs got their GPUs from an engine."""
    with contextlib.suppress(ClusterError):
        written = "all that was decided is in the log"
        until(lambda: all("use" in decisions(cluster, job) for job in jobs), written, 5)
    return [job for job in jobs if "use" in decisions(cluster, job)]


@pytest.mark.parametrize("with_engine", [False, True], ids=["slurmctld dies", "and its engine"])
def test_a_takeover_loses_no_advice_and_no_waiting_job(cluster, with_engine):
    """There and back: jobs that wait on one engine's word start by the other's."""
    live = cluster
    with sharing(live), two_engines(live), watched(live):
        holders = dict(zip(TAKEN, live.occupy("dgx1", TAKEN), strict=True))
        waits = [live.sbatch("-w", "dgx1", "--gres=gpu:2", PICKY, sleep_s=300) for _ in range(2)]
        for job in waits:
            live.wait_postponed(job)
        more = take_over(live, with_engine=with_engine)
        assert [live.job(job).state for job in waits] == ["PENDING", "PENDING"]
        # With GPU 0 a good pair: one of the two can start, by the word of ctl2's engine alone.
        live.cancel(holders.pop(3))
        until(lambda: running(live, waits), "one of those that waited runs", 120)
        [there] = running(live, waits)
        [left] = set(waits) - {there}
        assert live.job(there).gpus == {"dgx1": (0, 3)}
        assert advised(live, [there]) == [there]
        more += give_back(live, with_engine=with_engine)
        assert live.job(there).state == "RUNNING"
        live.cancel(*holders.values())
        live.wait_running(left, timeout_s=120)
        assert advised(live, [left]) == [left]
        # Let go by one engine, and by that one once.
        assert [decisions(live, job).count("use") for job in waits] == [1, 1]
        live.end([*waits, *more])
        log = live.run("ctl2", "cat /var/log/gputopo/engine.log").out
        assert log.count("in charge: slurmctld on ctl2 is in charge") == 1
        assert "Traceback" not in log
    assert got_by(live, "-w", "dgx1", "--gres=gpu:2") == by_policy({}, (2,), ("dgx1",))


def running(cluster: Cluster, jobs: Sequence[int]) -> list[int]:
    return [job for job in jobs if cluster.job(job).state == "RUNNING"]


def test_a_takeover_keeps_a_loan_and_makes_no_second_one(live):
    """The borrower and its donors go on; afterwards the other engine ends and makes loans."""
    with taken_away_after(live), lending_site(live), sharing(live), two_engines(live):
        job = borrower(live)
        lent = sorted(donor.id for donor in donors(live))
        live.saved()
        live.slurmctld("kill")
        live.engine("kill")
        goes_on(live, job.id, lent, "ctl2")
        second = live.started(*FOUR, ASKS, sleep_s=300, timeout_s=90)
        lent = sorted(donor.id for donor in donors(live))
        assert lent
        live.engine("start")
        live.slurmctld("start")
        goes_on(live, second.id, lent, "ctl")


def goes_on(cluster: Cluster, job: int, lent: list[int], host: str) -> None:
    """`host` takes charge; the job keeps its donors, which end with it."""
    answered(cluster)
    in_charge(cluster, host)
    # Longer than it takes to see a donor as lost, or to lend anew.
    time.sleep(10)
    assert cluster.job(job).state == "RUNNING"
    assert sorted(donor.id for donor in donors(cluster)) == lent
    cluster.cancel(job)
    no_loan_is_left(cluster)
