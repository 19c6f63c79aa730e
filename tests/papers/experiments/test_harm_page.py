"""What is claimed of the workloads that are to show harm, how sure, and how it is written."""

from __future__ import annotations

import random
import re
from statistics import stdev

import pytest
from click.testing import CliRunner

from papers.experiments.harm import runs
from papers.experiments.harm.intervals import (
    MANY,
    chance_below,
    holm,
    needed_to_see,
    power,
    seen,
    t_below,
    t_quantile,
)
from papers.experiments.harm.judging import seeds_needed, verdicts
from papers.experiments.harm.page import page
from papers.experiments.harm.traces import WORKLOADS
from simulation.report.recommendation import ERROR, PARTS, T_QUANTILE
from slurm_plugin.cli import cli


def row(wait_s):
    return {"wait_s": wait_s, "wait_p95_s": 2 * wait_s, "turnaround_s": wait_s + 100, "in_vain": 0,
            "share on dgx1v": 0.9}  # fmt: skip


def cell(factor, spread, seeds, others=("stock", "best-fit")):
    """Ours waits `factor` times as long, give or take."""
    draw = random.Random(1)
    base = [draw.uniform(80, 120) for _ in range(seeds)]
    ours = [row(one * factor * (1 + draw.uniform(-spread, spread))) for one in base]
    return {"horizon": ours, **{other: list(map(row, base)) for other in others}}


@pytest.mark.parametrize(
    ("factor", "spread", "word"),
    [(0.8, 0.02, "better"), (1.0, 0.02, "not worse"), (1.2, 0.02, "worse"), (1.1, 0.6, "open")],
)
def test_a_comparison_is_better_worse_not_worse_or_open(factor, spread, word):
    found = verdicts({"w": cell(factor, spread, 20)})
    assert [one.figure for one in found] == 2 * ["wait_s", "wait_p95_s"]
    assert found[0].word == word
    assert (found[0].power > 0.8) is (word != "open")
    assert (found[0].sees < 0.05) is (word != "open")


def test_each_further_comparison_makes_a_claim_harder():
    """The same cell, alone and beside forty that say nothing."""
    alone = {"w": cell(1.0, 0.08, 12)}
    others = {f"w{at}": cell(1.0, 0.9, 12) for at in range(40)}
    assert verdicts(alone)[0].word == "not worse"
    [among] = [one for one in verdicts(others | alone) if one.workload == "w"][:1]
    assert among.word == "open"
    assert among.beside.half > verdicts(alone)[0].beside.half


def test_where_nobody_waits_nobody_waits_longer():
    still = {name: [row(0.0), row(0.0)] for name in ("horizon", "stock")}
    assert {one.word for one in verdicts({"w": still})} == {"not worse"}


def test_hypotheses_fall_from_the_least_chance_on_until_one_stands():
    assert holm([0.04, 0.001, 0.03, 0.012], 0.05) == [False, True, False, True]
    assert holm([0.01, 0.02, 0.03], 0.05) == [True, True, True]
    assert holm([0.02, 0.03], 0.05) == [True, True]
    assert holm([0.03, 0.03], 0.05) == [False, False]


@pytest.mark.parametrize(
    ("p", "freedom", "expected"),
    [(0.975, 9, 2.262), (0.975, 1, 12.706), (0.95, 2, 2.920), (0.995, 9, 3.250), (0.975, 30, 2.042),
     (0.9995, 9, 4.781)],
)  # fmt: skip
def test_students_t_is_that_of_the_tables(p, freedom, expected):
    assert t_quantile(p, freedom) == pytest.approx(expected, abs=0.001)


def test_the_simulators_recommendation_goes_by_the_quantile_of_its_parts():
    assert t_quantile(1 - ERROR / 2, PARTS - 1) == T_QUANTILE


def test_chance_and_power_are_students():
    values = [-1.0, -2.0, -3.0, -2.0]
    at = t_quantile(0.975, 3)
    assert t_below(-at, 3) == pytest.approx(0.025)
    assert chance_below(values) == pytest.approx(t_below(-2 / (0.6667**0.5) * 2, 3), abs=1e-4)
    assert chance_below([2.0, 2.0]) == 1
    assert chance_below([-2.0, -2.0]) == 0
    assert power(values, 0.05, seen(values, 0.05, 0.8)) == pytest.approx(0.8)
    assert power(values, 0.05, 0.0) == pytest.approx(0.05)


def test_so_many_values_see_a_distance_and_one_less_does_not():
    values = [0.0, 2.0, 4.0, 9.0]
    many = needed_to_see(values, 0.01, 0.8, 2.0)

    def sees(count):
        both = t_quantile(0.99, count - 1) + t_quantile(0.8, count - 1)
        return both * stdev(values) / count**0.5 <= 2.0

    assert sees(many)
    assert not sees(many - 1)
    assert needed_to_see(values, 0.01, 0.8, 0.1) > MANY


def test_so_many_seeds_as_see_the_margin():
    first = cell(1.0, 0.2, 12)
    many = seeds_needed(first, 10)
    assert 12 < many < seeds_needed(first, 200) < seeds_needed(cell(1.0, 0.4, 12), 200)
    assert seeds_needed(cell(1.0, 0.0, 12), 10) == 12


def test_fewer_seeds_tell_where_ours_is_far_better():
    """An awful policy's waits scatter, and 5 % of them are not what is asked."""
    alike, better = cell(1.0, 0.4, 12), cell(0.5, 0.4, 12)
    assert seeds_needed(better, 200) < 0.3 * seeds_needed(alike, 200)
    assert seeds_needed(cell(1.01, 0.4, 12), 200) == pytest.approx(
        seeds_needed(alike, 200), rel=0.1
    )


def test_what_is_kept_is_what_was_run_but_for_some_digits(monkeypatch, tmp_path):
    rows = [{"wait_s": 123.456}, {"wait_s": 0.0, "share": 0.98765}, {"wait_s": 98765.4}]
    monkeypatch.setattr(runs, "run_one", lambda name, policy, seed, jobs: rows[seed - 7001])
    results = runs.Results(tmp_path)
    run(results, "tuning", most=3)
    kept = [{"wait_s": 123.5}, {"wait_s": 0.0, "share": 0.9877}, {"wait_s": 98770.0}]
    assert results.cell("tuning", "hgx") == dict.fromkeys(runs.POLICIES, kept)


@pytest.fixture
def ran(monkeypatch):
    """Which runs were asked for; a wait of 100 s with a little noise, ours 90 s."""
    asked = []

    def run_one(name, policy, seed, jobs):
        asked.append((name, policy, seed))
        noise = random.Random(f"{policy}{seed}").uniform(-1, 1)
        return row((90 if policy == "horizon" else 100) + noise)

    monkeypatch.setattr(runs, "run_one", run_one)
    return asked


def run(results, block, **more):
    results.run(block, lambda said: None, only=["hgx"], **more)


def test_the_first_block_says_how_many_are_judged_and_what_is_there_is_not_run_again(ran, tmp_path):
    results = runs.Results(tmp_path / "harm")
    run(results, "judged")
    assert not ran, "nobody knows how many it takes"
    run(results, "tuning", most=3)
    run(results, "tuning")
    assert len(ran) == len(set(ran)) == len(runs.TUNING) * len(runs.POLICIES)
    ran.clear()
    run(results, "judged")
    judged = list(ran)
    assert {seed for _, _, seed in judged} == set(results.seeds("judged", "hgx"))
    run(results, "judged")
    assert ran == judged
    assert results.times_judged() == 1
    run(results, "judged", again=True)
    assert {policy for _, policy, _ in ran[len(judged) :]} == {"horizon"}
    assert results.times_judged() == 2


def test_the_page_says_first_where_it_gains_and_what_was_not_run(ran, tmp_path):
    results = runs.Results(tmp_path)
    assert "Nothing has been judged yet." in page(results)
    run(results, "tuning")
    run(results, "judged")
    written = page(results)
    assert "gains on every other policy on hgx;" in written
    assert "each time with other code: 1." in written
    assert "Not run yet: h100-l40s," in written
    [line] = re.findall(r"\| hgx \| mean wait \| stock \|.*", written)
    assert re.search(r"-(9|10)\.\d ± [0-2]\.\d % \| 12 \| 100 % \| better", line), line
    run(results, "tuning", most=5)
    assert "share on dgx1v" in written.partition("### hgx")[2]


def test_the_command_knows_its_workloads(tmp_path):
    done = CliRunner().invoke(
        cli, ["experiment", "harm", "--out", str(tmp_path), "--only", "x", "--block", "tuning"]
    )
    assert done.exit_code == 2
    assert f"x: expected one of {', '.join(WORKLOADS)}" in " ".join(done.output.split())


def test_the_command_writes_the_page(ran, tmp_path):
    done = CliRunner().invoke(
        cli, ["experiment", "harm", "--out", str(tmp_path), "--only", "hgx", "--block", "tuning"]
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "harm.md").read_text().startswith("# Does `horizon` do harm?")
