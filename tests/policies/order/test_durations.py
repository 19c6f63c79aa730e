"""Run times learned online: from specific to general, bounded, and never upset by what comes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from policies.order import durations
from policies.order.durations import (
    ENOUGH,
    Durations,
    Errors,
    KnownJob,
    Learning,
    to_seconds,
    to_step,
)

ANN = KnownJob("ann")


def taught(*runs: tuple[KnownJob, float]) -> Durations:
    learned = Durations()
    for job, seconds in runs:
        learned.ended(job, seconds)
    return learned


def test_of_a_job_nothing_is_told_but_by_its_users_own():
    own, others = KnownJob("ann", "lab", "train", 1), KnownJob("bob", "lab", "train", 1)
    learned = taught(*[(others, 10.0)] * 20, *[(own, 1000.0)] * 6)

    assert learned.estimate(own).quantile(0.5) == pytest.approx(1000, rel=0.05)
    assert learned.estimate(others).quantile(0.5) == pytest.approx(10, rel=0.1)
    for stranger in (KnownJob("eve", "lab", "train", 1), KnownJob(name="train", size=1)):
        assert learned.estimate(stranger).steps == ()
        assert learned.estimate(replace(stranger, limit_s=60.0)).quantile(0.9) == 60.0


def test_jobs_of_nobody_teach_nothing():
    assert len(taught(*[(KnownJob(size=1), 10.0)] * 20)) == 0


def test_the_name_counts_before_the_size_and_the_command_before_both():
    train = KnownJob("ann", "lab", "train", 4, "train.sh")
    learned = taught(
        *[(train, 5000.0)] * 6,
        *[(KnownJob("ann", "lab", "test", 4, "test.sh"), 50.0)] * 6,
        *[(KnownJob("ann", "lab", "train", 4, "quick.sh"), 500.0)] * 6,
    )

    middle = {
        (name, command): learned.estimate(KnownJob("ann", "lab", name, 4, command)).quantile(0.5)
        for name, command in (("train", "train.sh"), ("test", "test.sh"), ("train", "quick.sh"))
    }

    assert list(middle.values()) == [pytest.approx(at, rel=0.05) for at in (5000, 50, 500)]


def test_few_runs_are_filled_up_with_those_of_the_next_key():
    test, train = KnownJob("ann", name="test"), KnownJob("ann", name="train")
    learned = taught(*[(test, 8.0)] * 10, (train, 1000.0))

    assert len(learned.estimate(train).steps) >= durations.ENOUGH
    assert learned.estimate(train).quantile(1.0) == pytest.approx(1000, rel=0.05)


def test_the_limit_is_never_exceeded_and_stands_alone_where_nothing_is_known():
    learned = taught((ANN, 1000.0))

    assert learned.estimate(replace(ANN, limit_s=60)).quantile(0.9) == 60
    assert Durations().estimate(KnownJob(limit_s=60)).quantile(0.9) == 60
    assert Durations().estimate(KnownJob()).quantile(0.9) is None


def test_what_has_run_for_long_is_one_of_those_that_run_for_long():
    learned = taught(*[(ANN, seconds) for seconds in (10.0, 10.0, 10.0, 3600.0)])
    job = learned.estimate(replace(ANN, limit_s=7200))

    assert job.quantile(0.5) == pytest.approx(10, rel=0.1)
    assert job.quantile(0.5, after_s=60) == pytest.approx(3600, rel=0.05)
    assert job.quantile(0.5, after_s=5000) == 7200


@pytest.mark.parametrize("seconds", [-1.0, -math.inf, math.inf, math.nan])
def test_times_that_a_clock_made_up_are_not_taken(seconds: float):
    assert len(taught((KnownJob(user="ann"), seconds))) == 0


def test_zero_seconds_and_three_hundred_years_are_bytes():
    assert (to_step(0.0), to_step(1e12)) == (0, 255)
    assert to_seconds(0) == 0.0
    for seconds in (1.0, 60.0, 3600.0, 86_400.0, 1e7):
        assert to_seconds(to_step(seconds)) == pytest.approx(seconds, rel=0.1)


def test_names_of_ten_megabytes_and_lone_surrogates_cost_a_hash():
    long = "x" * 10_000_000
    learned = taught((KnownJob("\ud800", long, long, 1, long), 5.0))

    assert sum(len(key) + len(steps) for key, steps in learned.items()) < 100


def test_a_million_users_do_not_fill_the_memory_and_the_busy_ones_stay(monkeypatch):
    monkeypatch.setattr(durations, "MOST_KEYS", 100)
    learned = Durations()
    for number in range(2000):
        learned.ended(KnownJob(user=f"user{number}", size=1), 1000.0)
        learned.ended(KnownJob(user="busy", size=1), 10.0)

    assert len(learned) <= 100
    assert learned.estimate(KnownJob(user="busy", size=1)).quantile(0.9) == pytest.approx(
        10, rel=0.1
    )


@pytest.mark.parametrize("is_reloaded", [False, True], ids=["at once", "loaded in between"])
def test_one_users_many_names_drive_out_nobody_elses_run_times(monkeypatch, is_reloaded):
    monkeypatch.setattr(durations, "MOST_KEYS", 100)
    learned = taught(*[(KnownJob("victim", "lab", "train", 8), 500.0)] * ENOUGH)
    if is_reloaded:
        kept = dict(learned.items())
        users = {key: learned.user_of(key) for key in kept}
        learned = Durations()
        learned.load(kept, users)
    for number in range(500):
        learned.ended(KnownJob("mallory", "lab", f"n{number}", 1 + number % 8), 1.0)

    assert len(learned) == 100
    assert len(learned.estimate(KnownJob("victim", "lab", "train", 8)).steps) == ENOUGH
    assert learned.estimate(KnownJob("mallory", name="n499", size=4)).steps


def test_a_file_of_an_earlier_version_says_of_no_key_whose_it_is(monkeypatch):
    monkeypatch.setattr(durations, "MOST_KEYS", 10)
    learned = Durations()
    learned.load(dict(taught(*[(KnownJob(f"u{n}"), 5.0) for n in range(9)]).items()))
    learned.ended(KnownJob("u0"), 5.0)
    assert len(learned) == 10
    assert learned.estimate(KnownJob("u0")).steps
    assert learned.estimate(KnownJob("u8")).steps
    assert not learned.estimate(KnownJob("u1")).steps


def test_the_same_ends_give_the_same_estimates_and_what_is_kept_can_be_taken_over():
    runs = [(KnownJob(user=f"u{n % 7}", size=1 + n % 3), float(n * n % 5000)) for n in range(300)]
    one, two, third = taught(*runs), taught(*runs), Durations()
    third.load(dict(one.items()))

    assert list(one.items()) == list(two.items()) == list(third.items())


def test_errors_are_those_of_what_was_said_before_the_end():
    job, errors = ANN, Errors()
    said = taught(*[(job, 100.0)] * 6).estimate(job)
    for seconds in (100.0, 100.0, 50.0, 400.0):
        errors.add(said, seconds)

    assert errors.jobs == 4
    assert errors.median_ratio() == pytest.approx(1.0)
    assert errors.coverage() == {0.5: 0.75, 0.9: 0.75}
    assert Errors().median_ratio() is None


def test_a_users_own_run_times_are_told_from_the_first_few_on_and_anew_after_each_end():
    learning, sweep = Learning(), KnownJob("ann", name="sweep", size=2)
    learning.submitted(1, sweep)
    for job in range(2, 2 + ENOUGH):
        assert learning.took_s(1) == ()
        learning.submitted(job, sweep)
        learning.ended(job, 100.0)
    first = learning.took_s(1)
    assert first == pytest.approx([100.0] * ENOUGH, rel=0.05)
    assert learning.took_s(1) is first, "nothing was computed again"
    learning.submitted(20, KnownJob("bob"))
    learning.ended(20, 7.0)
    assert learning.took_s(1) is first
    learning.submitted(21, sweep)
    learning.ended(21, 10.0)
    assert learning.took_s(1)[0] == pytest.approx(10.0, rel=0.05)
    # Of a stranger, and of nobody, others' run times tell nothing.
    learning.submitted(22, KnownJob("eve", name="sweep", size=2))
    learning.submitted(23, KnownJob(size=2))
    assert learning.took_s(22) == learning.took_s(23) == learning.took_s(99) == ()
