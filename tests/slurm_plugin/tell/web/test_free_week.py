"""The chart of the last seven days: what the engine noted, gaps, a damaged file."""

import json
from itertools import pairwise

import pytest
from web_in_tests import ALICE, NOW, Site, asked

from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.queue.free_history import FreeHistory, FreeReading
from slurm_plugin.tell.web import free_week
from slurm_plugin.tell.web.free_week import DAMAGED, NOTHING, WEEK_S, FreeWeek


def reading(at: float, free: int = 6, stranded: int = 2) -> FreeReading:
    return FreeReading(at, 16, free, stranded, 0.3, 2, 2)


@pytest.fixture
def log(tmp_path):
    return DecisionLogConfig(tmp_path / "decisions.jsonl")


def noted(log: DecisionLogConfig, *rows: FreeReading) -> FreeWeek:
    history = FreeHistory(log)
    for row in rows:
        history.add(row)
    return FreeWeek(history.checked, lambda: NOW)


def test_the_last_seven_days_are_told_and_nothing_older(log):
    rows = [reading(NOW - WEEK_S - 1), reading(NOW - 1200, 7), reading(NOW - 600), reading(NOW)]
    told = noted(log, *rows).summary(ALICE)
    assert told["points"] == [[NOW - 1200, 16, 7, 2, 4], [NOW - 600, 16, 6, 2, 4],
                              [NOW, 16, 6, 2, 4]]  # fmt: skip
    assert (told["from"], told["to"], told["problem"]) == (NOW - WEEK_S, NOW, "")


def test_a_time_in_which_nobody_looked_is_a_gap(log):
    """The engine was down for two hours; readings are ten minutes apart otherwise."""
    ago = [11_400, 10_800, 10_200, 3_000, 2_400, 1_800]
    told = noted(log, *(reading(NOW - seconds) for seconds in ago)).summary(None)
    times = [point[0] for point in told["points"]]
    gaps = [b - a > told["apart_s"] for a, b in pairwise(times)]
    assert gaps == [False, False, True, False, False]


def test_days_without_a_reading_are_a_gap_however_few_readings_there_are(log):
    """And a clock that was set back leaves no line backwards."""
    days = [6, 5, 3, 1, 2]
    told = noted(log, *(reading(NOW - 86_400 * day) for day in days)).summary(None)
    times = [point[0] for point in told["points"]]
    assert times == sorted(times)
    assert all(b - a > told["apart_s"] for a, b in pairwise(times))


@pytest.mark.parametrize(("rows", "most"), [(5, 5), (8, 8), (9, 5), (17, 6)])
def test_of_many_readings_every_so_manyth_is_told_and_the_last(log, monkeypatch, rows, most):
    monkeypatch.setattr(free_week, "MOST_POINTS", 8)
    points = noted(log, *(reading(NOW - 60 * ago) for ago in range(rows)[::-1])).summary(None)
    assert len(points["points"]) == most
    assert points["points"][-1][0] == NOW


def test_times_to_come_are_no_readings(log):
    assert noted(log, reading(NOW + 3600)).summary(None)["points"] == []


@pytest.mark.parametrize("text", ["[[1,", '{"a": 1}', "[[1, 2]]", '[["now", 1, 1, 1, 1, 1, 1]]'])
def test_a_damaged_file_is_one_line_whose_reason_operators_get(log, text):
    path = log.path.with_name("decisions.free.json")
    path.write_text(text)
    week = noted(log)
    told = week.summary(ALICE)
    assert (told["points"], told["problem"]) == ([], DAMAGED)
    why = week.summary(None)["problem"]
    assert str(path) in why
    assert len(why.splitlines()) == 1


def test_a_file_that_is_too_large_is_not_read(log, monkeypatch):
    monkeypatch.setattr("slurm_plugin.queue.free_history.MOST_BYTES", 1 << 20)
    log.path.with_name("decisions.free.json").write_bytes(b" " * (2 << 20))
    assert "larger than 1 MiB" in noted(log).summary(None)["problem"]


def test_no_file_is_one_line(log):
    assert noted(log).summary(ALICE)["problem"] == NOTHING


def test_the_file_is_read_once_a_minute_at_most():
    reads, clock = [], [NOW]

    def readings(first: float) -> list[FreeReading]:
        reads.append(first)
        return [reading(NOW)]

    week = FreeWeek(readings, lambda: clock[0])
    for seconds in (0, 1, 59, 60, 61):
        clock[0] = NOW + seconds
        week.summary(None)
    assert reads == [NOW - WEEK_S, NOW + 60 - WEEK_S]


@pytest.mark.parametrize(("uid", "status"), [(ALICE, 200), (0, 200), (None, 403)])
def test_all_see_it_whom_the_page_knows(tmp_path, uid, status):
    site = Site(tmp_path).as_user(uid)
    site.page.week_of_free = FreeWeek(lambda first: [reading(NOW)], lambda: NOW)
    [(got, text, _)] = asked(site, "/api/week")
    assert got == status
    assert got != 200 or json.loads(text)["points"] == [[NOW, 16, 6, 2, 4]]
