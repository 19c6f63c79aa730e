"""How long jobs are guessed to run: by limits, or by what their users' own jobs took."""

from __future__ import annotations

import pytest

from policies.horizon.run_times import FEWEST, FUTURES, MOST, LimitsUsed, RunTimes, _bounded


def test_durations_that_differ_are_played_as_they_are_likely():
    """Of a limit of 100 s: what jobs used of it that ran longer than this one has."""
    one = RunTimes((0.1, 0.2, 0.4, 0.6, 1.0))
    assert one.futures == 1 + FUTURES
    alone = one.left_s(3, 100.0)
    assert alone[0] == 40.0
    assert sorted(alone[1:]) == [10, 20, 40, 60, 100]
    assert set(one.left_s(3, 100.0, 40.0)) == {20.0, 60.0}
    assert max(one.left_s(3, 200.0, 199.0)) == 1.0
    assert max(RunTimes((0.1, 0.2)).left_s(3, 100.0, 30.0)) < 30, "as long again at most"
    assert one.left_s(1, 100.0) != one.left_s(2, 100.0)
    assert set(one.left_s(1, 0.0, 0.0)) == {0.0}


@pytest.mark.parametrize(
    ("used", "left_s"), [((), 60.0), ((1.0,) * 5, 60.0), ((0.49, 0.5, 0.5), 10.0)]
)
def test_where_jobs_use_as_much_of_their_limits_there_is_one_future(used, left_s):
    times = RunTimes(used)
    assert times.futures == 1
    assert list(times.left_s(5, 100.0, 40.0)) == [left_s]


@pytest.mark.parametrize("used", [(), (0.2, 0.5, 0.9), (1.0,) * 5], ids=["none", "some", "all"])
@pytest.mark.parametrize("ran_s", [100.0, 101.0, 5000.0])
def test_a_job_over_its_limit_is_not_about_to_end_for_ever(used, ran_s):
    """A job without a limit is taken to have one; OverTimeLimit lets others run on."""
    left_s = RunTimes(used).left_s(1, 100.0, ran_s)
    assert min(left_s) >= 0.05 * ran_s
    assert max(left_s) <= ran_s
    assert max(left_s) >= 0.5 * ran_s


def test_one_future_is_that_of_the_middle_guesses():
    every, middle = RunTimes((0.1, 0.5, 1.0)), RunTimes((0.1, 0.5, 1.0), guesses=False)
    assert (every.futures, middle.futures) == (1 + FUTURES, 1)
    assert list(middle.left_s(4, 100.0, 20.0)) == [every.left_s(4, 100.0, 20.0)[0]]


def test_parts_of_limits_used_are_those_of_the_last_jobs():
    used = LimitsUsed()
    first = used.parts()
    assert len(first) == FUTURES
    for ran_s, limit_s in ((-5.0, 10.0), (5.0, 0.0), (5.0, -1.0)):
        used.ended(ran_s, limit_s)
    assert used.parts() == first, "what cannot be is passed over"
    for _ in range(MOST):
        used.ended(700.0, 600.0)
    assert used.parts() == (1.0,) * MOST


@pytest.mark.parametrize("others", [0, 3, 20, 60])
def test_no_user_teaches_more_than_a_quarter_of_what_others_are_guessed_by(others):
    """One has an array of 64 jobs of a minute under a limit of 50, the others use theirs up."""
    used = LimitsUsed()
    for number in range(others):
        used.ended(600.0, 600.0, (), f"user{number}")
    for _ in range(MOST):
        used.ended(60.0, 3000.0, (), "mallory")
    parts = used.parts()
    assert sum(part == 1.0 for part in parts) >= min(others, 0.75 * MOST)
    assert 1 <= sum(part == 0.02 for part in parts) <= max(1, len(parts) / 4)


@pytest.mark.parametrize("age", [0.3, 0.45])
def test_nor_of_what_is_left_for_a_job_that_has_run_longer_than_most(age):
    """Others use a tenth of their limits; whoever is left is one user, who ends jobs at half."""
    used = LimitsUsed()
    for number in range(MOST):
        used.ended(60.0, 600.0, (), f"user{number}")
    for number in range(16):
        used.ended(500.0 + number, 1000.0, (), "mallory")
    times = RunTimes(used.parts(), True, False, used.users())
    left_s = times.left_s(3, 1000.0, 1000 * age)
    assert len(left_s) == 1 + FUTURES
    assert min(left_s) >= 0
    # Most guesses are not hers: any part that is left is as likely.
    assert sum(1000 * age + one > 520.0 for one in left_s) >= len(left_s) - 2
    # Where nobody knows whose they are, all count.
    assert max(RunTimes(used.parts()).left_s(3, 1000.0, 1000 * age)) <= 520 - 1000 * age


def test_of_a_user_of_too_many_evenly_spread_parts_count():
    others = [(0.1 + 0.05 * at, f"user{at}") for at in range(12)]
    hers = [(0.2 + 0.01 * at, "alice") for at in range(40)]
    used, users = zip(*sorted(others + hers), strict=True)
    kept = _bounded(used, users)
    assert len(kept) == 16
    assert list(kept) == sorted(kept)
    # Of 13 users four together tell nothing that others' jobs do not show.
    assert kept[0] > others[3][0]
    assert {part for part, _ in others if part >= kept[0]} <= set(kept)
    mine = sorted(set(kept) - {part for part, _ in others})
    assert mine[-1] - mine[0] > 0.25


@pytest.mark.parametrize(
    ("teachers", "honest", "soonest_s"),
    [(1, 0, 11900.0), (2, 0, 3900.0), (2, 4, 19900.0), (3, 12, 19900.0), (3, 4, 30.0)],
)
def test_a_few_users_jobs_alone_have_nobody_expect_gpus_in_a_moment(teachers, honest, soonest_s):
    """By theirs a job of a limit of 40,000 s that ran for 100 s would end in 30 s.

    Others' jobs use half of their limits. What many of few users show is taken as it is.
    """
    used = LimitsUsed()
    for number in range(MOST * (teachers + honest)):
        user = number % (teachers + honest)
        used.ended(13.0 if user < teachers else 2000.0, 4000.0, (), f"user{user}")
    times = RunTimes(used.parts(), True, False, used.users())
    assert min(times.left_s(3, 40_000.0, 100.0)) == pytest.approx(soonest_s)


def test_a_user_of_many_jobs_teaches_with_the_newest():
    used = LimitsUsed()
    for ran_s in (110.0, 210.0):
        for number in range(32):
            used.ended(ran_s, 1000.0, (), "alice" if number % 2 else f"user{number}")
    # 16 others' each time; hers are a quarter of all.
    assert used.parts().count(0.11) == 16
    assert used.parts().count(0.21) == 16 + 12


def test_a_jobs_own_run_times_are_guessed_by_and_never_more_than_its_limit():
    times, own = RunTimes((1.0,), own=True), (10.0, 20.0, 30.0, 40.0, 50.0)
    assert times.futures == 1 + FUTURES
    assert times.left_s(0, 45.0, 0.0, own)[0] == 30.0
    assert sorted(times.left_s(0, 45.0, 0.0, own)[1:]) == [10.0, 20.0, 30.0, 40.0, 45.0]
    assert sorted(times.left_s(0, 45.0, 35.0, own)[1:]) == [5.0, 5.0, 10.0, 10.0, 10.0]
    # It has run for longer than any of them: as its limit says.
    assert times.left_s(0, 100.0, 60.0, own) == times.left_s(0, 100.0, 60.0)


@pytest.mark.parametrize(("ran_s", "nearer"), [(100.0, True), (900.0, False)])
def test_own_run_times_count_once_they_have_been_nearer_than_limits(ran_s, nearer):
    """Jobs of a limit of 1,000 s whose users' others took 100 s."""
    used, own = LimitsUsed(), (90.0, 100.0, 110.0)
    for _ in range(FEWEST - 1):
        used.ended(ran_s, 1000.0, own, "alice")
    assert not used.own_are_nearer("alice"), "too few have shown it"
    used.ended(ran_s, 1000.0, own, "alice")
    used.ended(ran_s, 1000.0, (), "alice")
    assert used.own_are_nearer("alice") == nearer
    assert not used.own_are_nearer("bob"), "that is hers to show"
    for number in range(MOST):
        # Now limits say all.
        used.ended(1000.0, 1000.0, (), f"user{number}")
        used.ended(1000.0, 1000.0, own, "alice")
    assert not used.own_are_nearer("alice")
