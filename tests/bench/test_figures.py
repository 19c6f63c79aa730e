"""A figure says what was measured and whether its bar was met."""

from __future__ import annotations

import json

import pytest

from bench.__main__ import BENCHMARKS, main
from bench.measure import Figure, at_least, at_most, quantile


@pytest.mark.parametrize(
    ("q", "expected"),
    [(0.0, 1.0), (0.25, 2.0), (0.5, 3.0), (0.99, 5.0), (1.0, 5.0)],
    ids=["the least", "a quartile", "the median", "p99 of few is the largest", "the largest"],
)
def test_a_quantile_is_one_of_the_values(q: float, expected: float) -> None:
    assert quantile([5.0, 1.0, 4.0, 2.0, 3.0], q) == expected


def test_the_median_of_an_even_number_is_the_lower_of_the_two_in_the_middle() -> None:
    assert quantile([1.0, 2.0, 10.0, 20.0], 0.5) == 2.0


def test_a_benchmark_that_measured_nothing_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="measured nothing"):
        quantile([], 0.5)


@pytest.mark.parametrize(
    ("figure", "ok"),
    [
        (at_most("a", 2.0, "ms", 2.0), True),
        (at_most("a", 2.001, "ms", 2.0), False),
        (at_least("a", 0.95, "share", 0.95), True),
        (at_least("a", 0.9499, "share", 0.95), False),
        (at_most("a", float("nan"), "ms", 2.0), False),
    ],
    ids=["at the bar", "above it", "at the floor", "below it", "not a number is not met"],
)
def test_a_bar_is_met_or_missed(figure: Figure, ok: bool) -> None:
    assert figure.ok is ok


def test_a_value_that_misses_its_bar_by_little_is_not_rounded_into_it() -> None:
    assert at_most("a", 2.00001, "ms", 2.0).ok is False


def test_a_figure_is_one_line_of_json_with_all_its_keys() -> None:
    line = at_most("a", 1.0, "ms", 2.0, compared_with="b: 3 ms", detail={"seed": 1}).line()
    assert "\n" not in line
    assert json.loads(line) == {
        "name": "a",
        "value": 1.0,
        "unit": "ms",
        "bar": "<= 2",
        "ok": True,
        "compared_with": "b: 3 ms",
        "detail": {"seed": 1},
    }


def test_an_unknown_benchmark_is_refused_with_the_names_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["speed"]) == 2
    said = capsys.readouterr().err
    assert "speed" in said
    assert all(name in said for name in BENCHMARKS)
