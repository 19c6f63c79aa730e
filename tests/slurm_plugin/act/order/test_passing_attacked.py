"""What a user could make of `order: predicted`: to hold others up for longer than is promised."""

from __future__ import annotations

from dataclasses import replace

import pytest
from passing_in_tests import NOW, RULE, job, look, runs

from slurm_plugin.act.order import passing
from slurm_plugin.act.order.learned_durations import LearnedDurations
from slurm_plugin.act.order.passing import PassingInPartition
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

DAY_S = 86_400
VICTIM = {"user": "victim", "uid": 1}
HOLDS, WAITS = runs(job(1, 6, DAY_S, **VICTIM), *range(6)), job(2, 8, DAY_S, **VICTIM)


def mallorys(job_id: int, limit_s: int = 7 * DAY_S, **more: object) -> QueuedJob:
    """A job named x of one GPU."""
    mine = {"user": "mallory", "uid": 7, "job_name": "x", "priority": 900}
    return job(job_id, 1, limit_s, **mine | more)


def taught(count: int, seconds: int, learned: LearnedDurations, **whose: object) -> None:
    """So many jobs of one user ended after so many seconds."""
    for job_id in range(100, 100 + count):
        began = NOW - 10_000
        begun = mallorys(job_id, state="RUNNING", start=began, **whose)
        learned.look([begun], began)
        learned.look([begun], began + seconds)
        learned.look([], began + seconds + 0.2)


@pytest.fixture
def learned() -> LearnedDurations:
    """What the site has learned: nothing yet."""
    return LearnedDurations()


@pytest.fixture
def queue(learned: LearnedDurations) -> PassingInPartition:
    """A partition in which jobs pass by predictions."""
    rule = replace(RULE, order_by="predictions")
    return PassingInPartition("batch", rule, learned.learning)


def let_pass(queue: PassingInPartition, *jobs: QueuedJob, at: float = NOW) -> set[int]:
    """Of these jobs and those that are there."""
    updates = look(queue, HOLDS, WAITS, *jobs, at=at)
    return {job_id for job_id, update in updates.items() if update.site_factor}


def test_six_jobs_of_a_second_do_not_let_one_of_a_week_pass(queue, learned):
    taught(6, 1, learned)
    # What Slurm ends in time passes whatever its user's other jobs took.
    assert let_pass(queue, mallorys(3), mallorys(4, 600)) == {4}


def test_nobody_teaches_what_others_jobs_are_reckoned_with(queue, learned):
    """Mallory's jobs have the victim's account, name, size and command."""
    victims = mallorys(3, 900, user="victim", uid=1)
    taught(24, 500, learned)
    assert let_pass(queue, victims) == set()
    taught(24, 500, learned, user="victim", uid=1)
    taught(24, 5, learned)
    assert let_pass(queue, mallorys(4, 900, user="victim", uid=1)) == {4}


def test_who_lets_jobs_run_on_passes_by_limits_for_a_time(queue, learned):
    taught(6, 500, learned)
    taught(6, 500, learned, user="ann", uid=3)
    assert let_pass(queue, mallorys(3, 900)) == {3}
    begun = runs(mallorys(3, 900), 6, since=NOW + 1)
    # It outlives its prediction. Whatever else its user has waiting has lost that; others' has not.
    waiting = mallorys(4, 900), mallorys(5, 900, user="ann", uid=3), mallorys(6, 550)
    assert let_pass(queue, begun, *waiting, at=NOW + 700) == {5, 6}


def test_a_limit_that_was_raised_since_the_submit_counts(queue):
    assert let_pass(queue, mallorys(3, 300, reason="Dependency")) == set()
    assert let_pass(queue, mallorys(3)) == set()


def test_the_first_in_line_is_due_once_its_gpus_are_free_whatever_else_it_lacks(queue):
    """What passed may hold CPUs or memory, too, of which nothing is reckoned here."""
    assert look(queue, WAITS, used=0) == {}
    assert let_pass(queue, mallorys(3, 300), mallorys(4, 60), at=NOW + 500) == {4}


def test_jobs_that_come_before_the_first_in_line_bring_nobody_more_time(queue):
    """Else one of high priority now and then would let one short job after the other pass."""
    look(queue, WAITS, used=0)
    before = mallorys(9, 60, priority=999, tres_per_node="gres/gpu:8")
    assert let_pass(queue, before, mallorys(3, 300), mallorys(4, 60), at=NOW + 500) == {4}
    # A job that is held keeps nobody from passing.
    held = replace(WAITS, priority=0)
    updates = look(queue, HOLDS, held, before, mallorys(3, 300), at=NOW + 530)
    assert {job_id for job_id, update in updates.items() if update.site_factor} == {3}


@pytest.mark.parametrize("limit_s", [7 * DAY_S, 360, 240, 0])
def test_who_changes_a_limit_after_passing_by_it_waits_at_the_own_place(queue, limit_s):
    assert let_pass(queue, mallorys(3, 300)) == {3}
    raised = mallorys(3, limit_s, priority=999)
    ((job_id, update),) = look(queue, HOLDS, WAITS, raised, at=NOW + 1).items()
    assert (job_id, update.site_factor) == (3, 0)
    assert let_pass(queue, raised, at=NOW + 2) == set()


def began(limit_s: int) -> QueuedJob:
    """Job 3, which Slurm started a second after it was let pass."""
    return runs(mallorys(3, limit_s), 6, since=NOW + 1)


@pytest.mark.parametrize("limit_s", [7 * DAY_S, 360, 0], ids=["a week", "a minute", "no limit"])
def test_who_began_with_a_longer_limit_than_passed_by_gets_that_one(queue, limit_s):
    assert let_pass(queue, mallorys(3, 300)) == {3}
    for at in (2, 7):
        # Until Slurm shows it; said once.
        updates = look(queue, HOLDS, WAITS, began(limit_s), at=NOW + at)
        assert updates == {3: JobUpdate(time_limit=5)}
    said = [said for job, said in queue.told if "began with a longer one" in said]
    assert said == [
        "passed by a limit of 300 s and began with a longer one: it has the limit that it passed by"
    ]


def test_what_an_operator_gives_a_job_that_runs_stays(queue):
    assert let_pass(queue, mallorys(3, 300)) == {3}
    for at, limit_s in ((2, 240), (7, DAY_S)):
        assert look(queue, HOLDS, WAITS, began(limit_s), at=NOW + at) == {}


def tried(queue: PassingInPartition, monkeypatch: pytest.MonkeyPatch, *jobs: QueuedJob) -> int:
    """For how many requests one look went through the nodes, beside that of the first in line."""
    needs = []
    place = passing._place
    monkeypatch.setattr(passing, "_place", lambda *of: needs.append(of) or place(*of))
    look(queue, HOLDS, WAITS, *jobs)
    return sum(need.gpus != 8 for need, _ in needs)


def test_many_jobs_that_fit_nowhere_cost_a_look_no_more_than_one(queue, monkeypatch):
    wide = [mallorys(job, 60, tres_per_node="gres/gpu:3") for job in range(10, 500)]
    assert tried(queue, monkeypatch, *wide) == 1


def test_requests_of_one_user_that_all_differ_are_tried_a_few_times_and_keep_nobody_out(
    queue, monkeypatch
):
    mine = [mallorys(job, 60, req_nodes=f"n1,n{job}", min_nodes=2) for job in range(10, 500)]
    anns = mallorys(600, 300, user="ann", uid=3)
    assert tried(queue, monkeypatch, *mine, anns) == passing.MOST_TRIED_OF_USER + 1
    assert 600 in queue.raised


def test_many_users_requests_are_bounded_together(queue, monkeypatch):
    many = [mallorys(job, 60, req_nodes=f"n{job}", uid=job) for job in range(10, 500)]
    assert tried(queue, monkeypatch, *many) == passing.MOST_TRIED
