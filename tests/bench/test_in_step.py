"""How long engine and slurmctld were out of step, from the starts of jobs."""

from __future__ import annotations

import pytest

from bench.live.in_step import Start, out_of_step
from bench.live.shim_log import Added

GOOD = Added(1, 400, "used", "all")
ALONE, REFUSED = Added(2, 400, "used", "own"), Added(3, 400, "bad_advice", "all")


@pytest.mark.parametrize(
    ("about", "starts", "expected"),
    [
        ("all in step", [(1, GOOD, 5), (2, GOOD, 5)], (0.0, 0)),
        ("from the first that is not", [(1, GOOD, 5), (2, ALONE, 1), (4, GOOD, 5)], (2.0, 1)),
        ("not asked is out of step", [(1, None, None), (2, GOOD, 5)], (1.0, 1)),
        ("refused advice, too", [(1, REFUSED, 5), (2, ALONE, 1), (3, GOOD, 5)], (2.0, 2)),
        ("what lies between counts", [(1, ALONE, 1), (2, GOOD, 5), (3, ALONE, 1), (5, GOOD, 5)],
         (4.0, 2)),
        ("before the event nothing counts", [(0, ALONE, 1), (1, GOOD, 5)], (0.0, 0)),
        ("a node too many", [(1, GOOD, 6), (3, GOOD, 5)], (2.0, 1)),
    ],
)  # fmt: skip
def test_from_the_first_start_out_of_step_to_the_next_in_step(about, starts, expected) -> None:
    made = [Start(float(at), asked, among) for at, asked, among in starts]
    assert out_of_step(list(reversed(made)), 0.5, 5) == expected


def test_starts_that_never_are_in_step_again_are_no_figure() -> None:
    starts = [Start(1.0, GOOD, 5), Start(2.0, ALONE, 1)]
    with pytest.raises(RuntimeError, match="not in step again"):
        out_of_step(starts, 0.0, None)
    with pytest.raises(RuntimeError, match="not in step again"):
        out_of_step(starts, 3.0, None)
