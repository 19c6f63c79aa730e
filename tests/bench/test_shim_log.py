"""What the select plugin's log lines say about the time it added."""

from __future__ import annotations

import pytest

from bench.live.shim_log import Added, own_us, read, results
from bench.live.start import figure

LOG = """\
[2026-01-01T10:00:00.000] gputopo: asking /run/gputopo/engine.sock within 50 ms
[2026-01-01T10:00:01.000] gputopo: job=12 added_us=410 result=used nodes=all
[2026-01-01T10:00:01.100] sched: Allocate JobId=12 NodeList=dgx1 #CPUs=1 Partition=gpu
[2026-01-01T10:00:02.000] gputopo: job=13 added_us=50012 result=timeout
[2026-01-01T10:00:03.000] gputopo: job=14 added_us=3000 result=alt
[2026-01-01T10:00:04.000] gputopo: stats asked=3 used=1 added_us_median=410 added_us_max=50012
""".splitlines()


def test_only_the_lines_of_jobs_are_read() -> None:
    assert read(LOG) == [
        Added(12, 410, "used", "all"),
        Added(13, 50012, "timeout"),
        Added(14, 3000, "alt"),
    ]


def test_results_are_counted() -> None:
    assert results(read(LOG)) == {"used": 1, "timeout": 1, "alt": 1}


def test_the_median_is_over_the_starts_and_tells_the_other_results() -> None:
    found = figure("start", read(LOG))
    assert found.value == 0.41
    assert found.detail["starts"] == 2
    assert found.detail["results"]["timeout"] == 1


def test_a_run_in_which_the_plugin_placed_nothing_is_no_figure() -> None:
    with pytest.raises(AssertionError, match="timeout"):
        figure("start", [Added(1, 50000, "timeout")])


def test_the_plugins_own_part_is_in_its_counters() -> None:
    line = (
        "gputopo: stats asked=3 added_us_median=410 added_us_max=50 own_us_median={} own_us_max={}"
    )
    assert own_us([*LOG, *(line.format(*pair) for pair in ((31, 96), (35, 40), (33, 90)))]) == (
        33,
        96,
    )
    assert own_us(LOG) is None
