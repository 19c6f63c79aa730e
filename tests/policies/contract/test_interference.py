"""What the interference model says of measured pairs, and of those nobody measured."""

from __future__ import annotations

import pytest

from policies import Request, RunningJob
from policies.contract.interference import (
    UNKNOWN_SLOWED,
    WORST,
    Interference,
    Kind,
    kind_of_request,
    kind_of_running,
    weight_of,
)

BERT, VGG = Kind("bert", 4, 2), Kind("vgg", 64, 2)
NONE = Kind("nobody", 1, 1)


@pytest.mark.parametrize(
    ("sentence", "batch", "factor"),
    [
        ("a tiny batch is slowed by 24 %", 1, 1.24),
        ("a small one by 21 %", 4, 1.21),
        ("a medium one not at all", 64, 1.0),
        ("a big one not at all", 128, 1.0),
        ("one that says nothing by the mean", 0, UNKNOWN_SLOWED),
    ],
)
def test_the_default_is_the_papers_word_by_batch_size(sentence, batch, factor):
    assert Interference().factor(Kind("any", batch, 2), NONE) == factor


def test_a_measured_pair_overrides_the_default_in_one_direction_only():
    known = Interference({(BERT, VGG): 1.05})
    assert known.factor(BERT, VGG) == 1.05
    assert known.factor(VGG, BERT) == 1.0


@pytest.mark.parametrize(("measured", "factor"), [(0.9, 1.0), (2.6, WORST)])
def test_measurements_beyond_all_sense_are_bounded(measured, factor):
    assert Interference({(BERT, VGG): measured}).factor(BERT, VGG) == factor


def test_kinds_that_behave_alike_are_not_told_apart():
    known = Interference({(BERT, VGG): 1.05})
    assert known.told_apart(BERT) == BERT
    assert known.told_apart(Kind("x", 1, 3)) == known.told_apart(Kind("y", 2, 1))
    for batch in (0, 1, 2, 3, 16, 17, 64, 65, 10**9):
        kind = Kind("x", batch, 2)
        assert known.factor(kind, BERT) == known.factor(known.told_apart(kind), BERT)


def test_a_job_is_the_same_kind_when_it_asks_and_when_it_runs():
    asked = Request((2, 1), options={"profile": "bert", "batch": "4"})
    runs = RunningJob(1, {"a": 0b11, "b": 0b100}, "bert", 4)
    assert kind_of_request(asked) == kind_of_running(runs) == Kind("bert", 4, 3)


def test_small_batches_weigh_most_in_the_job_graph():
    assert [weight_of(batch) for batch in (1, 4, 64, 128)] == [4, 3, 2, 1]
