"""Every table and figure of the papers has a row, and every row can be run and judged."""

from __future__ import annotations

import re

import pytest

from papers.experiments import experiments
from papers.reproduction import PAPERS
from papers.reproduction.checks import alike, at_most, less, more, none, printed, ratio
from papers.reproduction.claims import NO_RESULT, NOT_RUN, Claim, ExperimentRun, Row
from papers.reproduction.rule import DIRECTION, NOT, PARTLY, REPRODUCED, SHARE

ROWS = [
    pytest.param(row, id=f"{paper.name}: {row.at}: {row.says[:40]}")
    for paper in PAPERS
    for row in paper.rows
]
#: Whose tables and figures all have a row.
COMPLETE = [paper for paper in PAPERS if paper.rows]
FIGURES = {"mapa": {"time_s": 104.0, "time_s_sd": 2.0}, "fcfs": {"time_s": 130.0}}


def named(paper, kind):
    """Numbers of the figures or tables that rows stand for."""
    found = set()
    for row in paper.rows:
        for words in re.findall(rf"{kind}s? ([\d, ]+(?:(?:and|to) \d+)?)", row.at):
            low, to, high = words.partition(" to ")
            numbers = [int(number) for number in re.findall(r"\d+", low)]
            found.update(numbers, range(numbers[-1], int(high) + 1) if to else ())
    return found


@pytest.mark.parametrize("paper", COMPLETE, ids=lambda paper: paper.name)
def test_every_table_and_figure_of_a_paper_has_a_row(paper):
    assert named(paper, "Figure") == set(range(1, paper.figures + 1))
    assert named(paper, "Table") == set(range(1, paper.tables + 1))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_checked_or_says_why_not(row):
    if row.run is None:
        assert not row.checks
        assert row.because or not row.is_result
    else:
        assert row.checks
        assert row.run.chosen().keys() >= row.run.options.keys()
    assert "|" not in row.at + row.says + row.because


@pytest.mark.parametrize("name", {p: None for paper in PAPERS for p in paper.plots})
def test_plots_are_of_experiments(name):
    names = [one.name for paper in PAPERS for one in paper.plots.get(name, ())]
    assert name in experiments
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("run", [row.values[0].run for row in ROWS if row.values[0].run])
def test_a_command_names_options_that_there_are(run):
    for option, word in run.options.items():
        assert word in experiments[run.experiment].options[option]


@pytest.mark.parametrize(
    ("sentence", "checks", "verdict"),
    [
        ("a tenth off", [printed("mapa", "time_s", "95.0")], REPRODUCED),
        ("more than a tenth off", [printed("mapa", "time_s", "94.0")], NOT),
        ("a ratio's effect, a tenth off", [ratio("fcfs", "time_s", "1.27", "mapa")], REPRODUCED),
        ("a ratio's effect, a fifth off", [ratio("fcfs", "time_s", "1.30", "mapa")], NOT),
        ("one of two", [printed("mapa", "time_s", "104"), printed("fcfs", "time_s", "1")], PARTLY),
        ("a direction", [less("mapa", "time_s", "fcfs")], DIRECTION),
        ("within the seeds", [more("mapa", "time_s", 103)], NOT),
        ("a direction, not the figure",
         [ratio("fcfs", "time_s", "2.00", "mapa"), more("fcfs", "time_s", "mapa")], DIRECTION),
        ("a figure, not the direction",
         [printed("mapa", "time_s", "104"), more("mapa", "time_s", "fcfs")], PARTLY),
        ("words for sameness are no figures", [alike("mapa", "time_s", "mapa")], DIRECTION),
        ("nothing where there is something", [none("mapa", "time_s")], NOT),
        ("what is not measured", [printed("mapa", "not measured", "1")], NOT),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_row_is_judged_by_its_figures_and_statements(sentence, checks, verdict):
    row = Row("Table 1", "", ExperimentRun("sc17-table1"), tuple(checks))
    assert row.verdict(FIGURES) == verdict


@pytest.mark.parametrize("row", ROWS)
def test_no_row_has_a_bound_or_a_tolerance_of_ours(row):
    """A printed figure's tolerance is the rule's, and nothing else is near to a number but 1."""
    for check in row.checks:
        assert check.times == 1
        if check.relation == "near" and not check.is_printed:
            assert (check.to, check.off) == (1.0, SHARE)
        elif check.relation == "at most":
            assert (check.to, check.off) == (0.0, 0.0)
        else:
            assert check.relation in ("near", "less than", "more than")


def test_without_a_run_nothing_is_said_of_a_row():
    checks = (printed("mapa", "time_s", "104"),)
    assert Row("Table 1", "", ExperimentRun("sc17-table1"), checks).verdict(None) == NOT_RUN
    assert Row("Table 1", "", because="no data").verdict(None) == NOT_RUN
    assert Row("Figure 1", "a drawing", is_result=False).verdict(None) == NO_RESULT


def test_other_inputs_or_another_formula_than_the_papers_are_partly_at_best():
    run, checks = ExperimentRun("sc17-table1"), (printed("mapa", "time_s", "104"),)
    assert Row("Table 1", "", run, checks, best=PARTLY).verdict(FIGURES) == PARTLY
    corrected = (printed("topo-aware", "time_s", "104"),)
    assert Row("Table 1", "", run, corrected).verdict({"topo-aware": {"time_s": 104}}) == PARTLY


def test_a_claim_that_the_figures_do_not_carry_is_taken_back():
    claim = Claim(
        ExperimentRun("sc17-table1"), "mapa is faster.", (at_most("mapa", "time_s", "fcfs", 0.5),)
    )
    assert claim.stated(FIGURES) == (
        "Not carried by these figures: mapa is faster. (mapa time_s is not at most 0.5 x fcfs)"
    )
    claim = Claim(
        ExperimentRun("sc17-table1"), "mapa is faster.", (at_most("mapa", "time_s", "fcfs"),)
    )
    assert claim.stated(FIGURES) == "Claimed: mapa is faster."


def test_a_run_is_named_and_repeated_by_what_differs_from_the_defaults():
    assert ExperimentRun("sc17-table1", {"variant": "authors"}).name == "sc17-table1"
    run = ExperimentRun("sc17-table1", {"variant": "printed"})
    assert run.name == "sc17-table1-variant-printed"
    assert run.command == "gputopo experiment sc17-table1 --variant printed"
