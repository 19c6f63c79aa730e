"""The benchmark of a day with lending: its jobs, what counts as stranded, what counts as wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.live.large import lending_day
from bench.live.large.lending_day import GPUS, LOAD, SPAN_S, DayJob, Done

JOBS = [DayJob(0, 0.0, 4, 9.0), DayJob(1, 1.0, 2, 9.0)]
SUBMITS = {0: 1000.0, 1: 1001.0}
LINES = "0 1002.5 1012 2 0 dgx2:1,dgx3:1 4\n1 1001.5 1011 2 0 - 2\n"


def test_a_day_is_its_seed_and_brings_its_load():
    day = lending_day.day(1, 300)
    assert day == lending_day.day(1, 300) != lending_day.day(2, 300)
    work = sum(job.gpus * job.sleep_s for job in day)
    assert work == pytest.approx(LOAD * GPUS * SPAN_S, rel=0.01)
    assert day[0].at_s == 0
    assert day[-1].at_s <= SPAN_S


def test_jobs_lines_are_read():
    one, other = lending_day.read(LINES, JOBS, SUBMITS)
    assert (one.wait_s, one.life_s, one.own, one.lent, one.donors) == (2.5, 12, 2, 2, 2)
    assert (other.at_s, other.lent, other.donors) == (1, 0, 0)
    assert lending_day.wrong([one, other], JOBS) == []


def test_of_a_job_that_ran_twice_the_last_line_counts():
    again = LINES + "0 1020 1030 4 1 - 4\n"
    assert lending_day.read(again, JOBS, SUBMITS)[0].restarts == 1


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (LINES.replace(" 4\n", " 3\n"), "0: 2 + 2 of 4 GPUs, 3"),
        (LINES.replace(" 4\n", " 4:no_device\n"), "0: 2 + 2 of 4 GPUs, 4:no_device"),
        (LINES.replace("dgx2:1,dgx3:1", "-"), "0: 2 + 0 of 4 GPUs, 4"),
        (LINES.partition("\n")[2], "0: did not end"),
    ],
)
def test_a_job_that_computed_wrongly_is_told(lines, said):
    done = lending_day.read(lines, JOBS, SUBMITS)
    assert lending_day.wrong(done, JOBS) == [said]
    [figure] = lending_day.of_side("on", done, JOBS)
    assert figure.ok is False


def test_gpus_are_stranded_while_somebody_waits_who_asks_for_no_more():
    job = Done(0, 0.0, GPUS, 1.0, 2.0, 5.0, GPUS, 0, 0, 0, "")
    assert lending_day.stranded([job]) == (2.0 * GPUS, 2.0)
    # While all GPUs are in use nobody's are stranded; then they are until the next one starts.
    waits = replace(job, number=1, at_s=2.0, gpus=1, wait_s=4.0, life_s=6.0)
    assert lending_day.stranded([job, waits]) == (2.0 * GPUS + 1.0 * GPUS, 3.0)
