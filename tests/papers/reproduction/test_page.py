"""The page says what the results say; a run whose result is there is not made again."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from papers.experiments import Experiment, Result, experiments
from papers.reproduction import PAPERS, page, running
from papers.reproduction.checks import at_least, figure, figures_of, less, printed
from papers.reproduction.claims import Claim, ExperimentRun, Paper, Row, Sweep
from papers.reproduction.plots import Plot
from papers.reproduction.rule import NOT, PARTLY
from simulation.core.steps import watched

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reproduction.md"
RESULTS = ROOT / "papers" / "results" / "reproduction"
CALLS = []


def toy(seeds, kind="slow"):
    """Stands for an experiment's module: this very file is what `where` names."""
    CALLS.append(kind)
    row = {"time_s": 104.0 if kind == "slow" else 90.0, "time_s_sd": 1.5}
    row |= {
        f"gbps_{word}": 10.0 * at for at, word in enumerate(("min", "p25", "p50", "p75", "max"))
    }
    series = {"waits": {"mapa": [(0, 3.0), (1, 1.0)]}, "gpus": {"mapa": [(0, 1.0, 2.0, 7)]}}
    return Result("toy", tuple(seeds), {"mapa": row}, {"mapa": {"time_s": 100.0}}, series=series)


PLOTS = (
    Plot("bars", "Bars", "bars", "s", metrics={"time_s": "time"}),
    Plot("lines", "Lines", "lines", "s", metrics={"time_s": 5.0}),
    Plot("boxes", "Boxes", "boxes", "GB/s", metrics={"gbps_{}": "sensitive"}),
    Plot("curves", "Curves", "curves", "s", source="waits", is_log=True),
    Plot("timeline", "Timeline", "timeline", "", "s", source="gpus"),
)


@pytest.fixture
def papers(monkeypatch):
    """A paper of one experiment, which is registered for one test."""
    monkeypatch.setitem(sys.modules, "a_toy", sys.modules[__name__])
    options = {"kind": ("slow", "fast")}
    monkeypatch.setitem(experiments, "toy", Experiment("toy", "", "a_toy:toy", (3,), options))
    CALLS.clear()
    run, check = ExperimentRun("toy"), printed("mapa", "time_s", "100")
    rows = (
        Row("Table 1", "it takes 100 s", run, (check,)),
        Row("Figure 1", "a machine", is_result=False),
        Row("Figure 2", "power", because="no meter"),
    )
    claims = (Claim(run, "it is slow.", (at_least("mapa", "time_s", 100),)),)
    sweeps = (Sweep("toy", "kind", (("mapa", "time_s"),)),)
    return (Paper("p", "A paper", 2, 1, rows, claims, {"toy": PLOTS}, sweeps),)


def test_the_page_has_a_row_for_everything_with_its_verdict(papers, tmp_path):
    running.run_all(running.needed(papers), tmp_path, lambda line: None)
    text = page.page(papers, tmp_path)
    assert (
        "mapa, `time_s`: 100 to within 10; 104 ± 1.5 | reproduced | `gputopo experiment toy` |"
        in text
    )
    assert "| Figure 2 | power |  | not run: no meter |  |" in text
    assert "- `gputopo experiment toy`: Claimed: it is slow." in text
    assert "| `fast` | 90 ± 1.5 |" in text
    assert "| A paper | 1 | 0 | 0 | 0 | 1 | 1 |" in text


def test_a_result_that_is_there_is_not_made_again(papers, tmp_path):
    lines = []
    for again in (False, False, True):
        running.run_all(running.needed(papers), tmp_path, lines.append, again=again)
    assert CALLS == ["slow", "fast"] * 2
    assert [line.endswith("there already") for line in lines] == [0, 0, 1, 1, 0, 0]


def test_a_result_that_is_there_counts_for_nothing_in_the_time_left(papers, tmp_path):
    first, second = running.needed(papers)
    running.run_all([first], tmp_path, lambda line: None)
    shares: list[float] = []
    with watched(shares.append):
        running.run_all([first, second], tmp_path, lambda line: None)
    assert shares == [1.0]


def test_a_result_of_other_seeds_does_not_count(papers, tmp_path):
    running.run_all(running.needed(papers), tmp_path, lambda line: None)
    path = tmp_path / "toy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seeds": [1, 2]}))
    assert running.stored(tmp_path, ExperimentRun("toy")) is None
    assert "its command was not run for this page" in page.page(papers, tmp_path)


def test_every_kind_of_plot_is_drawn_with_its_seeds_and_the_papers_figure(papers, tmp_path):
    running.run_all(running.needed(papers), tmp_path, lambda line: None)
    drawn = list(running.draw(papers, tmp_path))
    assert [path.name for path in drawn] == [f"toy-{one.name}.svg" for one in PLOTS]
    assert "Bars (seed 3)" in drawn[0].read_text()
    assert "the paper" in drawn[0].read_text()
    assert "![Bars](" in page.page(papers, tmp_path)


def test_the_command_draws_all_plots_into_one_file(papers, tmp_path, monkeypatch):
    from slurm_plugin.cli import cli

    monkeypatch.setattr("papers.reproduction.PAPERS", papers)
    done = CliRunner().invoke(cli, ["experiment", "toy", "--plot", str(tmp_path / "a.svg")])
    assert "Claimed: it is slow." in done.output
    assert "Timeline" in (tmp_path / "a.svg").read_text()
    CliRunner().invoke(cli, ["experiment", "toy", "--plot", str(tmp_path)])
    assert (tmp_path / "toy-bars.svg").is_file()


def test_with_other_options_the_claim_stands_only_if_the_figures_carry_it(papers, monkeypatch):
    from slurm_plugin.cli import cli

    monkeypatch.setattr("papers.reproduction.PAPERS", papers)
    done = CliRunner().invoke(cli, ["experiment", "toy", "--kind", "fast"])
    assert "Not carried by these figures: it is slow." in done.output


def test_a_sweep_has_a_row_for_each_word(papers, monkeypatch):
    from slurm_plugin.cli import cli

    monkeypatch.setattr("papers.reproduction.PAPERS", papers)
    done = CliRunner().invoke(cli, ["experiment", "toy", "--sweep", "kind", "--json"])
    found = json.loads(done.output)["measured"]
    assert found["kind fast"] == {"mapa: time_s": 90.0, "mapa: time_s_sd": 1.5}


def test_all_of_it_is_one_command(papers, tmp_path, monkeypatch):
    from slurm_plugin.cli import cli

    monkeypatch.setattr("papers.reproduction.PAPERS", papers)
    arguments = ["experiment", "all", "--out", str(tmp_path)]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "reproduction.md").read_text() == page.page(
        papers, tmp_path / "reproduction"
    )
    elsewhere = ["experiment", "all", "--out", str(tmp_path / "pages"), "--only", "none"]
    done = CliRunner().invoke(cli, [*elsewhere, "--results", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "](../reproduction/toy-bars.svg)" in (tmp_path / "pages/reproduction.md").read_text()
    refused = CliRunner().invoke(cli, [*arguments, "--only", "odd"])
    assert refused.exit_code == 2


def test_every_figure_of_a_row_is_there_and_what_is_not_reproduced_says_why():
    for paper in PAPERS:
        for row in paper.rows:
            found = row.run and running.stored(RESULTS, row.run)
            if found:
                where = f"{paper.name}: {row.at}: {row.says}"
                pairs = figures_of(row.checks)
                assert None not in [figure(found.measured, *pair) for pair in pairs], where
                assert row.because or row.verdict(found.measured) not in (PARTLY, NOT), where


def test_a_row_with_our_topo_aware_says_that_its_formula_is_corrected(papers, tmp_path):
    running.run_all(running.needed(papers), tmp_path, lambda line: None)
    row = Row("Table 1", "", ExperimentRun("toy"), (less("topo-aware", "time_s", "mapa"),))
    text = page.page((replace(papers[0], rows=(row,)),), tmp_path)
    assert "| not: `topo-aware` is [a corrected formula](" in text


def test_the_page_of_the_documentation_is_that_of_the_results_beside_it():
    """If not: make papers ONLY=none."""
    expected = page.page(PAPERS, RESULTS, "../papers/results/reproduction")
    assert PAGE.read_text(encoding="utf-8") == expected
