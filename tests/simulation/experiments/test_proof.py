"""The proof judges as its plan says, and finds who is behind."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulation.core.jobs import offered_load
from simulation.experiments.proof import page, runs
from simulation.experiments.proof.cells import TRACES, workload
from simulation.experiments.proof.judging import PRIMARY, verdicts
from simulation.report.intervals import half_width, needed, t_quantile
from slurm_plugin.cli import cli

PLAN = (Path(__file__).resolve().parents[3] / "docs" / "proof-plan.md").read_text()


@pytest.mark.parametrize(
    ("p", "freedom", "expected"),
    [(0.975, 9, 2.262), (0.975, 1, 12.706), (0.95, 2, 2.920), (0.995, 9, 3.250), (0.975, 30, 2.042),
     (0.9995, 9, 4.781)],
)  # fmt: skip
def test_students_t_is_that_of_the_tables(p, freedom, expected):
    assert t_quantile(p, freedom) == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize("half", [1.0, 3.0, 0.1])
def test_so_many_values_make_the_interval_that_narrow_and_one_less_does_not(half):
    values = [0.0, 2.0, 4.0, 9.0]
    count = needed(values, 0.05, half)
    spread = half_width(values, 0.05) / t_quantile(0.975, 3) * 2

    def reached(count):
        return t_quantile(0.975, min(count, 1000) - 1) * spread / count**0.5

    assert reached(count) <= half < reached(count - 1)


def cell(**waits):
    """Policies with these mean waits by resampling; all else alike."""
    rest = {"wait_p99_s": 1.0, "bandwidth_share": 1.0, "slo": 0.0, "ideal_s": 100.0}
    return {name: [{**rest, "wait_mean_s": wait} for wait in row] for name, row in waits.items()}


TEN = [100.0 + at for at in range(10)]


@pytest.mark.parametrize(
    ("ours", "word"),
    [([wait + 10 + at % 2 for at, wait in enumerate(TEN)], "worse"),
     ([wait + 1 + at % 2 / 10 for at, wait in enumerate(TEN)], "not worse"),
     ([wait - 5 + at % 2 for at, wait in enumerate(TEN)], "better"),
     ([wait + 100 * (at % 2) for at, wait in enumerate(TEN)], "open")],
)  # fmt: skip
def test_a_verdict_needs_margin_and_interval(ours, word):
    found = {one.metric: one for one in verdicts(cell(horizon=ours, mapa=TEN), 108)}
    assert found["wait_mean_s"].word == word
    assert found["wait_mean_s"].margin == pytest.approx(0.02 * 104.5)
    assert found["slo"].word == "not worse"


def test_the_best_other_is_found_for_each_figure_and_more_bandwidth_is_better():
    rows = cell(horizon=TEN, mapa=TEN, stock=[wait - 20 for wait in TEN])
    for row in rows["mapa"]:
        row["bandwidth_share"] = 1.2
    found = {one.metric: one for one in verdicts(rows, 108)}
    assert (found["wait_mean_s"].other, found["bandwidth_share"].other) == ("stock", "mapa")
    assert found["bandwidth_share"].behind == pytest.approx(0.2)
    assert found["bandwidth_share"].word == "worse"


def test_the_plan_says_how_many_comparisons_and_seeds_there_are():
    judged = [name for name in runs.FIRST.cells if name[2] == "drawn"]
    assert f"{len(judged)} cells, four\nfigures: {len(judged) * len(PRIMARY)}" in PLAN
    assert f"seeds {runs.FIRST.seeds[0]}\nto {runs.FIRST.seeds[-1]}" in PLAN
    assert set(TRACES) <= set(re.findall(r"`([\w-]+)`", PLAN))


@pytest.mark.parametrize("trace", TRACES)
def test_a_resampling_offers_its_load_and_another_seed_is_another_one(trace):
    made = workload(trace, 90, 1)
    gpus = sum(topology.gpus for topology in made.nodes.values())
    assert offered_load(made.jobs, gpus, made.speed.ideal_s) == pytest.approx(0.9, abs=0.01)
    assert all(job.walltime_s >= made.speed.ideal_s(job) for job in made.jobs)
    assert made.jobs == workload(trace, 90, 1).jobs
    assert made.jobs != workload(trace, 90, 2).jobs


def test_an_interrupted_run_goes_on_and_the_page_names_what_is_missing(tmp_path, monkeypatch):
    ran = []

    def run(name, policy, seed):
        ran.append((name[0], policy))
        return cell(x=[5.0])["x"][0] | {"wait_p95_s": 1.0, "bounded_slowdown": 1.0,
                                        "pcie_rings": 0.0}  # fmt: skip

    monkeypatch.setattr(runs, "run_one", run)
    two = replace(runs.FIRST, seeds=(1, 2))
    monkeypatch.setattr(page, "FIRST", two)
    two.run(tmp_path, lambda _: None, ["sc17"])
    first = len(ran)
    kept = tmp_path / "sc17-80-drawn.json"
    some = json.loads(kept.read_text())
    del some["mapa"]
    kept.write_text(json.dumps(some))
    two.run(tmp_path, lambda _: None, ["sc17"], ["horizon"])
    assert sorted(set(ran[first:])) == [("sc17", "horizon"), ("sc17", "mapa")]
    text = page.page(tmp_path)
    assert "Of 12 comparisons in 3 cells: 0 worse, 0 open, 12 not worse, 0 better." in text
    assert "Not run, or not with every policy: philly-80-drawn, " in text
    assert "sc17-80" not in text.split("Not run", 1)[1].split("\n")[0]


def test_the_page_lists_where_ours_loses_and_where_it_only_seems_to(tmp_path, monkeypatch):
    more = {"wait_p95_s": 1.0, "bounded_slowdown": 1.0, "pcie_rings": 0.0}
    for load, ours in (
        (80, [wait + 10 + at % 2 for at, wait in enumerate(TEN)]),
        (90, [wait + 100 * (at % 2) for at, wait in enumerate(TEN)]),
    ):
        rows = cell(horizon=ours, stock=TEN)
        rows = {name: [row | more for row in each] for name, each in rows.items()}
        (tmp_path / f"sc17-{load}-drawn.json").write_text(json.dumps(rows))
    text = page.page(tmp_path)
    loses, seems = text.split("**Behind on average by more than the margin**")
    assert "loses** these" in loses
    assert "- sc17 at 80 %, mean wait: 115 s, `stock` 104 s" in loses
    assert "- sc17 at 90 %, mean wait: 154 s, `stock` 104 s" in seems.split("##")[0]


def test_each_policy_is_judged_as_ours_is_and_the_least_behind_comes_first(tmp_path):
    more = {"wait_p95_s": 1.0, "bounded_slowdown": 1.0, "pcie_rings": 0.0}
    rows = cell(stock=[wait + 10 + at % 2 for at, wait in enumerate(TEN)], horizon=TEN, mapa=TEN)
    rows = {name: [row | more for row in each] for name, each in rows.items()}
    (tmp_path / "sc17-80-drawn.json").write_text(json.dumps(rows))
    scores = page.page(tmp_path).split("## Each policy")[1].split("##")[0]
    assert re.findall(r"\| `(\w+)` \| (\d+) \| [\d.]+ \| (\d+)", scores) == [
        ("horizon", "0", "0"), ("mapa", "0", "0"), ("stock", "1", "1")
    ]  # fmt: skip


def test_the_plan_names_the_fresh_seeds_and_whom_they_judge():
    section = PLAN.split("## Fresh seeds")[1].split("\n## ")[0]
    assert f"seeds {runs.FRESH.seeds[0]} to {runs.FRESH.seeds[-1]}" in section
    assert f"0.05 / {len(runs.WERE_BEHIND)}." in section
    assert f"0.05 / {len(runs.FRESH.cells) * len(PRIMARY) - len(runs.WERE_BEHIND)}," in section
    assert set(runs.FRESH.policies) <= set(re.findall(r"`([\w-]+)`", section))
    assert not set(runs.FRESH.seeds) & set(runs.FIRST.seeds)


def test_fresh_seeds_judge_by_their_own_number_what_seemed_lost(tmp_path):
    more = {"wait_p95_s": 1.0, "bounded_slowdown": 1.0, "pcie_rings": 0.0}
    waits = {"horizon": [104.0 + at % 5 for at in range(40)], "stock": [100.0] * 40,
             "mapa": [109.0] * 40}  # fmt: skip
    rows = {name: [row | more for row in each] for name, each in cell(**waits).items()}
    (tmp_path / "fresh").mkdir()
    (tmp_path / "fresh" / "sc17-80-drawn.json").write_text(json.dumps(rows))
    first = cell(horizon=TEN, stock=TEN, mapa=[wait - 7 for wait in TEN])
    first = {name: [row | more for row in each] for name, each in first.items()}
    (tmp_path / "sc17-80-drawn.json").write_text(json.dumps(first))
    text = page.page(tmp_path)
    section = text.split("## Fresh seeds")[1].split("## ")[0]
    half = half_width([4.0 + at % 5 for at in range(40)], 0.05 / 9)
    line = f"| 7.0 s `mapa` | -3.0 s | 106 s | 100 s `stock` | 6.0 s ± {half:.1f} s | 2.0 s |"
    assert f"| sc17 | 80 % | mean wait {line} **worse** |" in section
    assert "The other 3 figures of these cells" in section
    top = text.split("## ")[0]
    assert "1 worse, 0 open, 0 not worse, 0 better. In the same cells' 3 other figures: 0" in top
    assert "there:\n\n- sc17 at 80 %, mean wait: 106 s, `stock` 100 s\n" in top


def test_bounds_stand_beside_ours_and_the_best_other(tmp_path):
    more = {"wait_p95_s": 1.0, "bounded_slowdown": 1.0, "pcie_rings": 0.0}
    rows = {name: [row | more for row in each]
            for name, each in cell(horizon=TEN, stock=TEN).items()}  # fmt: skip
    kept = {
        "told": [{**rows["stock"][0], "wait_mean_s": 90.0}] * 10,
        "one pool": [{"wait_mean_s": 80.0, "wait_p99_s": 0.5}] * 10,
        "least": [{"wait_mean_s": 40.0}] * 10,
    }
    (tmp_path / "sc17-80-drawn.json").write_text(json.dumps(rows))
    (tmp_path / "bounds").mkdir()
    (tmp_path / "bounds" / "sc17-80-drawn.json").write_text(json.dumps(kept))
    section = page.page(tmp_path).split("## Bounds")[1].split("\n## ")[0]
    assert "| sc17 | 80 % | mean wait | 104 s | 104 s | 90.0 s | 80.0 s | 40.0 s |" in section
    assert "| sc17 | 80 % | p99 wait | 1.0 s | 1.0 s | 1.0 s | 0.5 s |  |" in section
    assert "| share of ideal bandwidth | 1.0000 | 1.0000 | 1.0000 |  | 1.0000 |" in section


def test_a_word_that_is_no_trace_is_refused(tmp_path):
    done = CliRunner().invoke(cli, ["experiment", "proof", "--out", str(tmp_path), "--only", "x"])
    assert done.exit_code
    assert "x: expected one of philly, openb" in " ".join(done.output.split())
