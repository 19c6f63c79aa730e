"""The rule for verdicts, as its text in docs/reproduction.md has it."""

import pytest

from papers.reproduction.rule import DIRECTION, NOT, PARTLY, REPRODUCED, is_less, tolerance, verdict


@pytest.mark.parametrize(
    ("sentence", "figures", "statements", "expected"),
    [
        ("every figure and every statement", [1, 1], [1], REPRODUCED),
        ("every figure, where nothing else is said", [1], [], REPRODUCED),
        ("every figure, and a statement fails", [1, 1], [1, 0], PARTLY),
        ("one figure of two", [1, 0], [1], PARTLY),
        ("one figure of two, and no statement holds", [1, 0], [0], PARTLY),
        ("no figure, and every statement", [0, 0], [1, 1], DIRECTION),
        ("nothing printed, and every statement", [], [1], DIRECTION),
        ("no figure, and a statement fails", [0], [1, 0], NOT),
        ("nothing printed, and a statement fails", [], [1, 0], NOT),
        ("no figure, and nothing else is said", [0], [], NOT),
        ("nothing", [], [], NOT),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_verdict_follows_from_figures_and_statements(sentence, figures, statements, expected):
    found = verdict([bool(one) for one in figures], [bool(one) for one in statements])
    assert found == expected


@pytest.mark.parametrize(
    ("sentence", "printed", "same", "expected"),
    [
        ("a tenth", "461.7", 0, 46.17),
        ("a tenth of a negative one", "-907.29", 0, 90.729),
        ("of a ratio a tenth of its effect", "1.30", 1, 0.03),
        ("of a ratio below 1, too", "0.87", 1, 0.013),
        ("half a unit of the last digit where that is more", "0.03", 0, 0.005),
        ("of a ratio with hardly any effect, too", "1.002", 1, 0.0005),
        ("digits say how exact a figure is, zeros at its end, too", "2.0", 1, 0.1),
        ("and without them it is less exact", "2", 1, 0.5),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tolerance_follows_from_what_is_printed(sentence, printed, same, expected):
    assert tolerance(printed, same=same) == pytest.approx(expected)


def test_less_is_strict_and_beyond_what_the_seeds_differ_by():
    assert is_less(1.0, 1.1)
    assert not is_less(1.0, 1.0)
    assert is_less(1.0, 1.1, 0.02, 0.07)
    assert not is_less(1.0, 1.1, 0.03, 0.08)
