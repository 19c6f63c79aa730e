"""Experiments have one name each, and their command prints the shape everybody can read."""

from __future__ import annotations

import importlib
import json
import sys

import pytest
from click.testing import CliRunner

from papers.experiments import _MINUTES, ROWS, Experiment, Result, experiments
from papers.experiments.drmaestro import workload as drmaestro
from papers.experiments.genie import cluster as genie
from papers.experiments.rqueue import philly
from papers.experiments.rqueue import workload as rqueue
from simulation import SimulationError


def two_jobs(seeds, variant="long"):
    """Stands for an experiment's module: this very file is what `where` names."""
    return Result(
        experiment="two-jobs",
        seeds=tuple(seeds),
        measured={"mapa": {"makespan_s": 2.0 if variant == "long" else 1.0}},
        paper={"mapa": {"makespan_s": 3.0}},
        notes=("A deviation.",),
    )


@pytest.fixture
def registered(monkeypatch):
    """One more experiment, for one test; `experiments` is as before afterwards."""
    monkeypatch.setitem(sys.modules, "an_experiment", sys.modules[__name__])
    found = Experiment(
        "two-jobs", "Two jobs.", "an_experiment:two_jobs", (7,), {"variant": ("long", "short")}
    )
    monkeypatch.setitem(experiments, found.name, found)
    return found


def command(*arguments):
    from slurm_plugin.cli import cli

    return CliRunner().invoke(cli, ["experiment", *arguments])


def test_many_seeds_are_shown_as_they_may_be_written():
    shown = command("horizon-exhaustive", "--help").output
    assert "5000-5199" in shown
    assert "5001" not in shown
    assert "1,2,3" in command("genie-cluster", "--help").output


def test_the_first_word_of_an_option_and_the_declared_seeds_are_the_default(registered):
    result = registered.run()
    assert (result.seeds, result.measured["mapa"]["makespan_s"]) == ((7,), 2.0)


def test_an_option_it_does_not_have_is_refused(registered):
    with pytest.raises(SimulationError, match="variant='odd': expected long, short"):
        registered.run(variant="odd")


def test_the_json_has_what_was_measured_and_with_which_options(registered):
    done = command("two-jobs", "--variant", "short", "--seeds", "1-2,5", "--json")
    assert json.loads(done.output) == {
        "experiment": "two-jobs",
        "seeds": [1, 2, 5],
        "measured": {"mapa": {"makespan_s": 1.0}},
        "paper": {"mapa": {"makespan_s": 3.0}},
        "notes": ["A deviation."],
        "options": {"variant": "short"},
        "series": {},
        "claimed": [],
    }


def test_the_table_shows_the_papers_figure_beside_ours_and_the_notes(registered):
    done = command("two-jobs")
    assert "2 (3)" in done.output
    assert "- A deviation." in done.output


def spread_out(seeds):
    """Stands for an experiment of many metrics, one of them with its spread."""
    row = {f"metric_{number:02}": float(number) for number in range(20)}
    return Result("many", tuple(seeds), {"mapa": row | {"metric_03_sd": 0.5}, "other": {}}, {})


def test_many_metrics_are_rows_and_a_spread_stands_beside_its_value(registered, monkeypatch):
    many = Experiment("many", "", "an_experiment:spread_out")
    monkeypatch.setitem(experiments, "many", many)
    done = command("many")
    (line,) = [line for line in done.output.splitlines() if line.startswith("metric_03")]
    assert line.split() == ["metric_03", "3", "±0.5", "-"]


def test_seeds_that_are_none_are_refused_in_one_line(registered):
    done = command("two-jobs", "--seeds", "a")
    assert done.exit_code == 2
    assert "expected seeds such as 3, 1-5 or 1,4,9" in done.output


def test_no_two_experiments_have_one_name():
    assert [row.name for row in ROWS] == list(experiments)
    assert _MINUTES.keys() <= experiments.keys()


@pytest.mark.parametrize("name", experiments)
def test_every_experiment_offered_is_there(name):
    module, function = experiments[name].where.split(":")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("name", experiments)
def test_no_seed_counts_twice(name):
    seeds = experiments[name].seeds
    assert len(set(seeds)) == len(seeds)


def test_the_words_of_an_option_are_those_its_experiment_knows():
    assert experiments["rqueue-philly"].options["nodes"] == tuple(philly.SHARES)
    for name in ("rqueue-tsubame", "rqueue-shrink"):
        assert experiments[name].options["year"] == tuple(rqueue.YEARS)
    for name in ("genie-cluster", "genie-sensitivity", "genie-scale"):
        assert experiments[name].options["task-hours"] == tuple(genie.TASK_HOURS)
    for name in ("drmaestro-testbed", "drmaestro-scale", "drmaestro-network"):
        assert experiments[name].options["in-reach"] == tuple(map(str, drmaestro.FREE_TASKS))


def test_what_draws_nothing_takes_no_seeds(registered, monkeypatch):
    drawn = Experiment("drawn", "", "an_experiment:two_jobs", seeds=())
    monkeypatch.setitem(experiments, "drawn", drawn)
    assert command("drawn", "--seeds", "1").exit_code == 2
