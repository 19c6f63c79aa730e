"""How often the engine looks at Slurm's queue."""

import asyncio
import time

import pytest

from slurm_plugin.base.protocol import KEEP_S
from slurm_plugin.serve.loops.poll_schedule import (
    AGE_SHARE,
    BUSY_SHARE,
    CALM_SHARE,
    ECHOES_S,
    SUBMIT_S,
    PollSchedule,
)

POLL_S = 5.0
POLL_TOOK_S = 0.2


def polled_once(next_s: float = POLL_S) -> PollSchedule:
    """A schedule after a poll of POLL_TOOK_S that ended at 100."""
    schedule = PollSchedule()
    poll(schedule, 100.0 - POLL_TOOK_S, 100.0, next_s)
    return schedule


def poll(schedule: PollSchedule, began: float, ended: float, next_s: float = POLL_S) -> None:
    schedule.begin(began)
    schedule.polled(began, ended, next_s, POLL_S)


def test_without_news_the_next_look_is_due_after_the_poll():
    assert polled_once().left_s(100.0) == POLL_S
    assert polled_once(next_s=1.5).left_s(100.0) == 1.5


def test_before_the_first_look_no_submit_is_put_off():
    schedule = PollSchedule()
    schedule.heard("submit", False, 0.0)
    assert schedule.left_s(0.0) == SUBMIT_S


def test_a_job_that_can_start_at_once_is_looked_at_soon():
    schedule = polled_once()
    schedule.heard("submit", True, 100.0)
    assert schedule.left_s(100.0) == pytest.approx(POLL_TOOK_S * (1 / BUSY_SHARE - 1))
    schedule = polled_once()
    schedule.heard("submit", at=103.0)
    assert schedule.left_s(103.0) == pytest.approx(SUBMIT_S)


def test_a_burst_of_submits_that_can_wait_takes_its_small_share_only():
    schedule, now, polls, poll_took_s = polled_once(), 100.0, 0, 0.05
    while now < 160.0:
        schedule.heard("submit", False, now)
        if schedule.left_s(now) <= 0:
            poll(schedule, now, now + poll_took_s)
            polls += 1
            now += poll_took_s
        now += 0.002
    assert 0.8 * CALM_SHARE < polls * poll_took_s / 60 <= CALM_SHARE


def test_after_a_burst_a_job_that_is_awaited_need_not_wait():
    schedule = polled_once()
    schedule.heard("submit", False, 100.1)
    assert schedule.left_s(101.0) > 2
    schedule.heard("submit", True, 101.0)
    assert schedule.left_s(101.0) == pytest.approx(SUBMIT_S)


def test_a_job_that_ended_is_looked_after_at_once_and_some_times_more():
    schedule = polled_once()
    schedule.heard("ended", at=102.0)
    assert schedule.left_s(102.0) == 0
    poll(schedule, 102.0, 102.01)
    assert 102.01 + schedule.left_s(102.01) == pytest.approx(102.0 + ECHOES_S[0])
    poll(schedule, 102.2, 102.6)
    assert schedule.due == pytest.approx(102.0 + ECHOES_S[-1]), "the second one was overtaken"
    assert ECHOES_S[-1] > KEEP_S, "jobs that were gated with an answer from before the end are seen"


def test_what_is_heard_during_a_look_is_for_the_next():
    schedule = polled_once()
    schedule.begin(105.0)
    schedule.heard("ended", at=105.1)
    schedule.polled(105.0, 105.2, POLL_S, POLL_S)
    assert schedule.due == 105.1


def test_a_look_that_hung_is_not_waited_for_for_ever():
    schedule = PollSchedule()
    poll(schedule, 0.0, 600.0)
    schedule.heard("submit", False, 600.0)
    assert schedule.left_s(600.0) == POLL_S


async def test_what_is_heard_while_it_rests_brings_the_next_look_forward():
    schedule, seen = PollSchedule(), asyncio.Queue[float]()

    async def look(_: float) -> tuple[float, float]:
        seen.put_nowait(time.monotonic())
        return 3600.0, 3600.0

    keeping = asyncio.create_task(schedule.keep(look))
    first = await seen.get()
    schedule.heard("submit")
    second = await asyncio.wait_for(seen.get(), 60)
    keeping.cancel()
    assert second - first >= SUBMIT_S


def test_a_look_that_something_led_to_sees_what_led_to_it():
    schedule = polled_once()
    schedule.heard("ended", at=101.0)
    schedule.heard("submit", True, 101.0)
    assert schedule.begin(101.0) == 101.0


def test_a_regular_look_takes_what_another_loop_read_a_moment_before():
    schedule = polled_once()
    assert schedule.begin(100.0 + POLL_S) == 100.0 + POLL_S * (1 - AGE_SHARE)


def test_no_look_takes_the_snapshot_of_the_last_one_again():
    schedule = polled_once(next_s=0.3)
    assert schedule.begin(100.2) == 100.0


def test_a_look_after_an_end_alone_has_no_news_and_leaves_waiting_submits_to_their_own():
    schedule = polled_once()
    schedule.heard("submit", False, 100.1)
    schedule.heard("ended", at=100.2)
    schedule.begin(100.2)
    assert not schedule.has_news
    due = schedule.due
    assert 100.2 < due < float("inf")
    assert schedule.begin(due) == due
    assert schedule.has_news


def test_the_first_look_after_a_burst_has_news_for_the_bridge_gates_its_last_jobs_without_a_word():
    schedule = polled_once()
    schedule.heard("submit", False, 100.1)
    schedule.begin(schedule.due)
    assert schedule.has_news
    schedule.heard("submit", True, 110.0)
    schedule.begin(110.1)
    schedule.begin(111.0)
    assert not schedule.has_news
    schedule.begin(112.0)
    assert schedule.has_news
    schedule.begin(113.0)
    assert not schedule.has_news
