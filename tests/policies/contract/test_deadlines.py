"""Deadlines as users write them."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.contract.deadlines import deadline_s, duration_s, read, time_s

NOW = 1_795_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("1d12h", 129600), ("45s", 45), ("2d", 172800), ("1h1m1s", 3661), ("0m", 0)],
)
def test_a_duration_counts_from_now(text, seconds):
    assert duration_s(text) == seconds
    assert deadline_s(text, NOW) == NOW + seconds


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30T08:00Z",
        "2026-11-30T08:00+01:00",
        "2026-11-30T08:00:30-05:30",
        "2024-02-29T23:59Z",
        "1970-01-01T00:00+02:00",
    ],
)
def test_a_time_with_its_zone_is_that_moment(text):
    assert read(text) == text
    assert deadline_s(text, NOW) == datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    "text",
    ["", "soon", "-5m", "12h1d", "5", "2026-11-30T08:00", "2026-11-30", "2026-02-30T08:00Z",
     "2026-13-01T08:00Z", "2026-11-30T24:00Z", "2026-11-30T08:60Z", "2026-11-30T08:00+15:00",
     "1969-12-31T00:00Z", "2026-11-30T08:00Z "],
)  # fmt: skip
def test_what_is_neither_is_refused(text):
    assert read(text) is None


@given(
    st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1)),
    st.integers(-14, 14),
    st.integers(0, 59),
)
def test_every_time_is_that_of_the_standard_library(when, hours, minutes):
    zone = f"{'-' if hours < 0 else '+'}{abs(hours):02}:{minutes:02}"
    text = f"{when:%Y-%m-%dT%H:%M:%S}{zone}"
    assert time_s(text) == datetime.fromisoformat(text).timestamp()
