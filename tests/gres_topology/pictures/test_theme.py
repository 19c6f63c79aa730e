"""The palette can be read: on light and dark paper, in grey, and by the colour-blind."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from gres_topology.pictures import theme


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance of #rrggbb."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a: str, b: str) -> float:
    """WCAG 2's contrast of two colours, from 1 to 21."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_wcags():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("is_dark", [False, True])
def test_texts_and_lines_stand_out_from_their_paper(is_dark):
    colours = {role: pair[is_dark] for role, pair in theme.COLOURS.items()}
    for paper in (colours["paper"], colours["group"]):
        for text in ("ink", "soft"):
            assert contrast(colours[text], paper) >= 4.5, text
    for kind in theme.DASHES:
        assert contrast(colours[theme._COLOUR_OF.get(kind, kind)], colours["paper"]) >= 3, kind
    for role in (role for role in colours if role.startswith("series")):
        assert contrast(colours[role], colours["paper"]) >= 3, role


def test_shades_get_darker_step_by_step():
    for light, dark in pairwise(theme.SHADES):
        assert contrast(light, dark) >= 1.3


def test_a_gpus_number_stands_out_from_its_jobs_colour():
    for fill, ink in (*theme.JOBS, theme.BUSY, theme.CHOSEN):
        assert contrast(fill, ink) >= 4.5, fill


@pytest.mark.parametrize("one", range(theme.HATCHES * len(theme.JOBS)))
def test_two_jobs_differ_without_colour(one):
    """By their patterns, or by a contrast of their greys; those of 8 jobs in a row by patterns."""
    path = theme.hatch(one, 0, 0, 48, 6)
    for other in range(one + 1, one + theme.HATCHES):
        assert theme.hatch(other, 0, 0, 48, 6) != path


def test_colours_and_patterns_repeat_together_only_after_all_were_used():
    looks = {(n % len(theme.JOBS), n % theme.HATCHES) for n in range(56)}
    assert len(looks) == 56


def test_kinds_of_links_differ_without_colour():
    assert len(set(theme.DASHES.values())) == len(theme.DASHES)


def colour_blind(colour: str) -> tuple[float, ...]:
    """As a deuteranope sees it, in linear RGB (Machado, Oliveira and Fernandes 2009, table 1)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    rows = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
            (-0.011820, 0.042940, 0.968881))  # fmt: skip
    return tuple(sum(w * p for w, p in zip(row, linear, strict=True)) for row in rows)


def test_the_colours_of_jobs_differ_for_the_colour_blind():
    for (a, _), (b, _) in combinations(theme.JOBS, 2):
        seen = zip(colour_blind(a), colour_blind(b), strict=True)
        assert sum((x - y) ** 2 for x, y in seen) ** 0.5 > 0.1, (a, b)


def test_a_programme_without_variables_gets_the_light_colours_as_they_are():
    plain = theme.css(is_plain=True)
    assert "var(" not in plain
    assert "@media" not in plain
