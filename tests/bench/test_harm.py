"""The benchmark of harm fails where jobs wait longer, and not where they do not."""

from __future__ import annotations

import pytest

from bench.simulated import harm
from papers.experiments.harm.judging import run_one
from papers.experiments.harm.workloads import GENERATED

SEEDS = range(1, 4)


def judged(ours, cold=None):
    """Ours waits for so many seconds on each seed, the others for 100 s."""
    others = [{"wait_s": 100.0, "cold_wait_s": 100.0} for _ in ours]
    mine = [{"wait_s": a, "cold_wait_s": b} for a, b in zip(ours, cold or ours, strict=True)]
    rows = {"horizon": mine, "best-fit": others, "stock": others}
    return {figure.name: figure for figure in harm.figures("w", rows, SEEDS)}


@pytest.mark.parametrize(
    ("waits_s", "is_met"),
    [([60.0, 90.0, 165.0], True), ([105.0] * 3, True), ([60.0, 90.0, 166.0], False)],
    ids=["as long on average", "at the bar", "longer on average"],
)
def test_the_mean_over_all_seeds_counts(waits_s, is_met):
    found = judged(waits_s)
    assert {found[f"harm.w.{other}"].ok for other in harm.OTHERS} == {is_met}


def test_from_the_start_on_a_little_more_is_allowed():
    for cold_s, is_met in ((107.0, True), (108.0, False)):
        found = judged([100.0] * 3, [cold_s] * 3)
        assert found["harm.w.stock"].ok
        assert found["harm.w.stock.cold"].ok is is_met


def test_the_interval_and_both_waits_are_told():
    figure = judged([80.0, 100.0, 120.0])["harm.w.best-fit"]
    low, high = figure.detail["interval"]
    assert low < 1 < high
    assert figure.detail["wait_s"] == {"horizon": 100.0, "best-fit": 100.0}
    assert figure.detail["seeds"] == [1, 3]


def test_a_policy_that_leaves_no_node_whole_misses_the_bar():
    """Least loaded nodes first, in the place of ours: jobs of eight GPUs find none empty."""
    rows = {
        "horizon": [run_one("hgx", "stock-lln", seed, 300) for seed in SEEDS],
        **{other: [run_one("hgx", other, seed, 300) for seed in SEEDS] for other in harm.OTHERS},
    }
    found = {figure.name: figure for figure in harm.figures("hgx", rows, SEEDS)}
    assert not found["harm.hgx.best-fit"].ok
    assert not found["harm.hgx.stock"].ok
    assert found["harm.hgx.bandwidth"].ok is None


def test_its_workloads_exist_and_the_environment_makes_it_smaller(monkeypatch):
    assert set(harm.CASES) <= set(GENERATED)
    for name, value in (("WORKLOADS", "hgx"), ("SEEDS", "2"), ("JOBS", "40")):
        monkeypatch.setenv(f"HARM_{name}", value)
    names = [figure.name for figure in harm.run()]
    assert names[-1] == "harm.hgx.bandwidth"
    assert len(names) == 5
