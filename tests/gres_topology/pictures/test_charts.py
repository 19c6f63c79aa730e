"""Charts: round ticks, no axis stretched over rounding, and a look of its own for every series."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gres_topology.pictures import charts, rows, theme
from gres_topology.pictures.scale import scale_of

HOSTILE = '<script>&"\x00'
NAMES = ("mapa", "first-fit", HOSTILE)


def bars_of(svg, number):
    """(height, width) of the bars of one series; its sample in the key is 36 wide and 16 high."""
    found = re.findall(rf'<rect class="gt-job{number}"[^>]*width="([\d.]+)" height="([\d.]+)"', svg)
    return [float(high) for wide, high in found if (wide, high) != ("36", "16")]


def all_charts(names):
    points = {name: [(0.0, 1.0), (1.0, 2.0), (2.0, 1.5)] for name in names}
    yield charts.bars("t", names, {name: [1.0] * len(names) for name in names})
    yield charts.lines("t", points, has_dots=True)
    yield rows.sideways("t", dict.fromkeys(names, 1.0))
    yield rows.strips("t", {name: [0.0, 0.5, 1.0] for name in names}, end=3)
    yield rows.timeline("t", names, [(0, 0.0, 9.0, 3, names[-1])])


def test_names_stay_text_in_every_chart():
    for picture in all_charts(NAMES):
        svg = picture.svg()
        ElementTree.fromstring(svg)
        assert "<script" not in svg


def test_every_class_of_a_chart_has_a_rule():
    for picture in all_charts([*NAMES, *"abcdefgh"]):
        used = set(re.findall(r'class="gt-([\w-]+)"', picture.svg()))
        assert {name for name in used if f".gt-{name}{{" not in theme.css()} == set()


def test_a_bar_is_as_high_as_its_value_and_a_missing_value_has_none():
    svg = charts.bars("t", ["x", "y"], {"a": [10, 20], "b": [5, None]}).svg()
    low, high = bars_of(svg, 0)
    assert high == pytest.approx(2 * low, abs=0.2)
    assert bars_of(svg, 1) == [pytest.approx(low / 2, abs=0.2)]


def test_rounding_is_drawn_as_no_difference():
    """Slowdowns of 1 and 1 + 1e-12: both lines at one height, and no tick of 1e-12."""
    svg = charts.lines(
        "t", {"a": [(0, 1.0), (1, 1 + 1e-12)], "b": [(0, 1.0), (1, 1.0)]}, from_zero=False
    ).svg()
    heights = set(re.findall(r'class="gt-series\d" d="M[\d.]+ ([\d.]+)L[\d.]+ ([\d.]+)"', svg))
    assert ("230", "230") in {(a.removesuffix(".0"), b.removesuffix(".0")) for a, b in heights}
    assert not re.search(r"\de-\d", svg)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.booleans())
@example([5e-324], False)
def test_a_scale_holds_its_values_in_their_order_and_its_ticks_are_few(values, is_log):
    scale = scale_of(values, 100.0, is_log=is_log)
    places = [scale.place(value) for value in sorted(values)]
    assert all(-0.01 <= place <= 100.01 for place in places)
    assert places == sorted(places)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 25
    assert all(scale.low <= tick <= scale.high * (1 + 1e-9) + 1e-9 for tick in ticks)


@given(st.floats(1e-6, 1e9))
def test_ticks_are_round(high):
    first, second = scale_of([high], 100.0).ticks()[:2]
    digits = (second - first) / 10 ** math.floor(math.log10((second - first) * 1.0001))
    assert min(abs(digits - round_one) for round_one in (1, 2, 2.5, 5, 10)) < 1e-6


def test_a_share_is_the_darker_the_greater():
    svg = rows.strips("t", {"n": [0.0, 0.1, 0.5, 1.0]}, end=4).svg()
    drawn = re.findall(r'class="gt-shade(\d)" x="([\d.]+)"', svg)
    inside = [(int(shade), float(x)) for shade, x in drawn if x != "4"]
    assert inside == [(1, 140.0), (3, 280.0), (5, 420.0)]


def test_a_loss_is_left_of_zero_and_a_win_right_of_it():
    svg = rows.sideways("t", {"anna": 10.0, "bob": -5.0}).svg()
    right, left = (
        float(re.search(rf'class="gt-job{n}" x="([\d.]+)"', svg).group(1)) for n in (0, 5)
    )
    assert left < right
    assert "anna: +10; bob: -5" in svg
