"""Which model stands in for an unknown one, and how uncertain that is."""

from __future__ import annotations

import pytest

from policies.performance import Run, Shape, fit
from policies.performance.similarity import LEAST, Traits, borrowed, likeness, nearest

RESNET50 = Traits("resnet50", "cnn", 25.6)
RESNET101 = Traits("resnet101", "cnn", 44.5)
BERT = Traits("bert", "transformer", 110)


def test_a_model_is_like_itself():
    assert likeness(RESNET50, RESNET50) == 1.0


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("night", "nacht", 0.25),
        ("vgg-16", "vgg11", 0.75),
        ("gpt", "bert", 0.0),
        ("a", "A", 1.0),
        ("a", "ab", 0.0),
    ],
)
def test_names_are_alike_by_their_common_pairs_of_letters(one, other, expected):
    """Dice's own example first: of four pairs each, `ht` is common."""
    assert likeness(Traits(one), Traits(other)) == likeness(Traits(other), Traits(one)) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Traits("resnet-152"), RESNET101),
        (Traits("resnet34", "cnn", 21.8), RESNET50),
        (Traits("roberta", "transformer", 125), BERT),
        (Traits("vgg16", "cnn", 40), RESNET101),
    ],
    ids=lambda traits: traits.name,
)
def test_the_likest_stands_in(wanted, expected):
    found = nearest(wanted, [BERT, RESNET101, RESNET50])
    assert found is not None
    assert found[0] == expected
    assert LEAST <= found[1] < 1


def test_nothing_stands_in_for_what_is_like_nothing():
    assert nearest(Traits("gpt"), [RESNET50, BERT]) is None
    assert nearest(Traits("gpt"), []) is None


def test_the_order_in_which_they_are_known_does_not_matter():
    twins = [Traits("net-b"), Traits("net-a")]
    assert nearest(Traits("net"), twins) == nearest(Traits("net"), twins[::-1])


def test_a_borrowed_model_says_the_same_less_surely():
    model = fit("calibrated", [Run(1, 1, 8, 0.1), Run(1, 1, 16, 0.18), Run(1, 2, 16, 0.2)])
    widths = []
    for like in (1.0, 0.8, 0.4):
        estimate = borrowed(model, like).estimate(Shape(1, 1), 16)
        assert estimate.step_s == model.estimate(Shape(1, 1), 16).step_s
        widths.append(estimate.high_s / estimate.low_s)
    assert widths[0] < widths[1] < widths[2]
