"""The clock of all simulators: the order of events, and what is left of a job's work."""

from __future__ import annotations

from functools import partial

from simulation.core.clock import Clock, JobProgress


def test_events_come_by_time_then_by_their_order_then_as_they_were_added():
    clock, seen = Clock(), []
    for name, at_s, order in (("late", 2.0, 0), ("b", 1.0, 1), ("c", 1.0, 1), ("a", 1.0, 0)):
        clock.at(at_s, partial(seen.append, name), order)
    clock.moment()
    assert (seen, clock.now_s) == (["a", "b", "c"], 1.0)
    clock.step()
    assert seen[-1] == "late"
    assert not clock


def test_a_job_that_is_slowed_and_freed_ends_once_when_its_work_is_done():
    """100 s of work: 40 s alone, 20 s at half speed (10 s of work), 50 s alone."""
    clock, ends = Clock(), []
    job = JobProgress(0.0)
    speeds = [(0.0, 100.0), (40.0, 200.0), (60.0, 100.0)]
    for at_s, full_s in speeds:
        clock.at(at_s, partial(clock.run, job, full_s, lambda: ends.append(clock.now_s)))
    while clock:
        clock.step()
    assert ends == [110.0]
