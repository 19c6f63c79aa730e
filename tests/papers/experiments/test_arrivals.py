"""The order of arrival beside another one; tests/policies/order/test_passing.py has more of it."""

from __future__ import annotations

from papers.experiments.order.arrivals import Arrivals


def test_a_late_job_may_have_ended_long_ago_in_the_order_of_arrival():
    order = Arrivals(2)
    for job in (1, 2, 3):
        order.submitted(job, 1, 0.0)
    assert order.due_s(1, 0.0) == order.due_s(2, 0.0) == 0.0
    order.started(2, 0.0)
    order.started(1, 5.0)
    order.ended(2, 8.0)

    # Job 1, which has run for three seconds since, would have ended at 3 at the earliest.
    assert order.due_s(3, 8.0) == 3.0
    order.ended(1, 4.0)
    assert order.due_s(3, 9.0) == 4.0
