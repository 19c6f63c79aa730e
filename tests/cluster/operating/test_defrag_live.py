"""Moving a running job that allows it, so that a job that waits for a whole node starts."""

import json
import time

import pytest
from live_harness import IN_BOTH_MODES, at_home
from modes import enforcement
from select_harness import clear

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = IN_BOTH_MODES

MOVES = "/var/lib/gputopo/moves.json"
CONSENT = "defrag: {move: yes, every_s: 0, start_s: 20}\n"
MOVABLE = "--comment=gpu-topo: movable=30"
#: The engine looks every ten seconds, at jobs that have waited for ten.
LOOKS_S = 60
HALF = ("-p", "dgx", "--gres=gpu:4")
WHOLE = ("-p", "dgx", "--gres=gpu:8")


consenting = at_home(yaml=CONSENT)


@pytest.fixture
def site(live: Cluster, consenting: Cluster):
    consenting.run("ctl", ["rm", "-f", MOVES])
    consenting.engine("restart")
    # Until it has read the queue, jobs have Slurm's own choice of slots, and are not ours to move.
    consenting.wait_reconciled()
    yield consenting
    clear(consenting)
    consenting.run("ctl", ["rm", "-f", MOVES])


def half(cluster: Cluster, node: str, *args: str) -> int:
    """A job on half of a node."""
    job = cluster.started("-w", node, *HALF, *args, sleep_s=600)
    assert list(job.gpus) == [node]
    return job.id


def movable(cluster: Cluster) -> int:
    """A job that allows it, on half of dgx1: the first node with room."""
    job = cluster.started(*HALF, MOVABLE, sleep_s=600)
    assert list(job.gpus) == ["dgx1"]
    is_ours = "[gpu-slots: placed " in job.fields["AdminComment"]
    assert is_ours == (enforcement() == "slots")
    return job.id


def moves(cluster: Cluster) -> dict:
    """The record of moves."""
    text = cluster.run("ctl", ["cat", MOVES], check=False).out
    return json.loads(text) if text else {"open": None, "past": []}


def ended(cluster: Cluster) -> list[tuple[int, str, str]]:
    """The moves that are over: job, state, why."""
    return [(one["job"], one["state"], one["why"]) for one in moves(cluster)["past"]]


def test_a_job_that_allows_it_makes_room_for_one_that_waits(site):
    """Two half-full nodes: one job moves, the job of eight GPUs starts, nobody else is touched."""
    first = movable(site)
    other = half(site, "dgx2")
    waiting = site.sbatch(*WHOLE, sleep_s=600)
    site.wait_state(waiting, "PENDING")
    told = site.run("ctl", "gputopo defrag --plan").out
    assert f"job {waiting} starts on dgx1, at " in told
    assert f"job {first} of alice, 4 GPUs, from dgx1 to dgx2: " in told
    assert "(a checkpoint every 30 min, as its hint says)" in told
    assert site.wait_running(waiting, timeout_s=LOOKS_S).gpus == {"dgx1": tuple(range(8))}
    until(lambda: ended(site), "the move is over", 30)
    assert ended(site) == [(first, "done", "it runs on dgx2")]
    job = site.job(first)
    assert (job.state, list(job.gpus)) == ("RUNNING", ["dgx2"])
    assert job.fields["Restarts"] == "1"
    if enforcement() == "select":
        assert f"moved from dgx1 for job {waiting}" in job.fields["AdminComment"]
        assert job.fields["ReqNodeList"] == "(null)", "it is bound to no node"
    else:
        assert site.status()["slots"]["mismatched"] == 0
    assert site.job(other).fields["Restarts"] == "0"
    assert "done: it runs on dgx2" in site.run("ctl", "gputopo defrag").out
    # It was moved once: never again, whatever waits.
    again = site.sbatch(*WHOLE, sleep_s=600)
    site.cancel(waiting)
    site.wait_running(again)
    last = site.sbatch(*WHOLE, sleep_s=600)
    time.sleep(25)
    assert site.job(last).state == "PENDING"
    assert site.job(first).fields["Restarts"] == "1"


@pytest.mark.long("the engine looks every ten seconds")
def test_jobs_without_consent_are_never_touched(site):
    """One has no hint, the other --no-requeue."""
    pinned = half(site, "dgx1")
    filled = site.sbatch(*HALF, "--no-requeue", MOVABLE, "-x", "dgx1", sleep_s=600)
    assert list(site.wait_running(filled).gpus) == ["dgx2"]
    waiting = site.sbatch(*WHOLE, sleep_s=600)
    time.sleep(25)
    assert site.job(waiting).state == "PENDING"
    assert {site.job(job).fields["Restarts"] for job in (pinned, filled)} == {"0"}
    assert ended(site) == []


@pytest.mark.long("the engine looks every ten seconds")
def test_an_engine_that_is_killed_in_between_goes_on_and_repeats_nothing(site):
    first = movable(site)
    half(site, "dgx2")
    waiting = site.sbatch(*WHOLE, sleep_s=600)
    until(lambda: moves(site)["open"], "a move is under way", LOOKS_S)
    site.engine("kill")
    assert moves(site)["open"]["job"] == first
    site.wait_state(first, "PENDING", "RUNNING", timeout_s=60)
    site.engine("start")
    assert list(site.wait_running(first, timeout_s=60).gpus) == ["dgx2"]
    assert site.wait_running(waiting).gpus == {"dgx1": tuple(range(8))}
    until(lambda: ended(site), "the move is over", 30)
    assert ended(site) == [(first, "done", "it runs on dgx2")]
    assert site.job(first).fields["Restarts"] == "1"


@pytest.mark.long("the engine looks every ten seconds")
def test_a_move_that_fails_leaves_a_job_that_starts_where_there_is_room(site):
    """Its new place is taken while the engine is gone."""
    first = movable(site)
    half(site, "dgx2")
    waiting = site.sbatch(*WHOLE, sleep_s=600)
    until(lambda: moves(site)["open"], "a move is under way", LOOKS_S)
    site.engine("kill")
    if moves(site)["open"]["state"] != "asked":
        pytest.fail(f"it was let go already: {moves(site)['open']}")
    site.wait_state(first, "PENDING", timeout_s=60)
    taker = half(site, "dgx2")
    site.engine("start")
    until(lambda: ended(site), "the move is over", 60)
    ((job, state, why),) = ended(site)
    assert (job, state) == (first, "undone")
    whys = {
        "select": "dgx2 has no room left; it starts where there is",
        "slots": "it did not start on dgx2 within 20 s; it starts where there is room",
    }
    assert why == whys[enforcement()]
    assert not site.job(first).fields["Reason"].startswith("JobHeld")
    site.wait_running(waiting)
    site.cancel(taker)
    assert list(site.wait_running(first, timeout_s=60).gpus) == ["dgx2"]
    assert site.job(first).fields["Restarts"] == "1"
