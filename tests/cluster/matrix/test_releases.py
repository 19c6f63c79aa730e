"""The release matrix is made of results: what each becomes in the table, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.matrix.releases import (
    COUNTS,
    DOCS,
    TESTS,
    Cell,
    MatrixError,
    Releases,
    live_files,
    main,
    merged,
    read_run,
    table,
)

NO_PLUGIN = "about the select plugin"
PASSED, FAILED = "", "<failure message='no'>text</failure>"
SKIPPED = f"<skipped message='{NO_PLUGIN}'/>"


def case(
    name: str, output: str = PASSED, mode: str = "select", slurm: str = "24.11.5", of: int = 0
) -> str:
    """One live test of test_x.py, which has so many (0: not known), as pytest reports it."""
    noted = {"mode": mode, "slurm": slurm, "origin": "Debian trixie", "plugin": "built"}
    noted |= {"of": str(of)} if of else {}
    properties = "".join(f"<property name='{n}' value='{v}'/>" for n, v in noted.items())
    own = f"classname='tests.cluster.select.test_x' name='{name}[{mode}]'"
    return f"<testcase {own}><properties>{properties}</properties>{output}</testcase>"


def junit(*cases: str, on: str = "2026-11-22") -> str:
    """A JUnit file of a run on that day."""
    suite = f"<testsuite timestamp='{on}T10:00:00'>{''.join(cases)}</testsuite>"
    return f"<testsuites>{suite}</testsuites>"


def cells(*files: str) -> dict[str, dict[str, Cell]]:
    """mode -> file -> cell of runs on 24.11.5."""
    result = merged({}, [read_run(file) for file in files])["24.11.5"]["cells"]
    assert isinstance(result, dict)
    return result


def test_results_are_counted_by_mode_with_the_reasons_of_what_was_skipped() -> None:
    """Errors of fixtures are failures, a test counts once; a test without a cluster does not."""
    error = "<error message='at its end'/>"
    text = junit(
        *(case("a"), case("b", FAILED), case("b", error), case("c", PASSED), case("c", error)),
        *(case("d", SKIPPED), case("e", SKIPPED), case("a", mode="slots")),
        "<testcase classname='tests.test_layers' name='pure'/>",
    )
    day = {"on": "2026-11-22"}
    assert cells(text) == {
        "select": {"test_x.py": {"passed": 1, "failed": 2, "skipped": {NO_PLUGIN: 2}, **day}},
        "slots": {"test_x.py": {"passed": 1, "failed": 0, "skipped": {}, **day}},
    }


def test_the_short_and_the_long_tests_of_a_file_are_one_cell() -> None:
    """The later result of a test counts, whichever file is named first."""
    later = junit(case("a"), case("c"), on="2026-11-23")
    cell = cells(later, junit(case("a", FAILED), case("b")))["select"]["test_x.py"]
    assert cell == {"passed": 3, "failed": 0, "skipped": {}, "on": "2026-11-23"}


OLD: Cell = {"passed": 9, "failed": 1, "skipped": {}, "on": "2026-11-01"}
KEPT: Releases = {
    slurm: {
        "origin": "Debian trixie",
        "plugin": "built",
        "cells": {"select": {"test_x.py": OLD, "test_y.py": OLD}},
    }
    for slurm in ("22.05.8", "24.11.5")
}


def test_a_file_that_is_run_again_takes_the_place_of_its_older_result() -> None:
    """Whatever else is known of that release and of others stays."""
    result = merged(KEPT, [read_run(junit(case("a", of=1)))])
    assert result["22.05.8"] == KEPT["22.05.8"]
    assert result["24.11.5"]["cells"]["select"]["test_y.py"] == OLD
    assert result["24.11.5"]["cells"]["select"]["test_x.py"]["passed"] == 1


@pytest.mark.parametrize("of", [12, 0], ids=["of twelve", "named by itself"])
def test_a_few_tests_of_a_file_do_not_take_the_place_of_all_of_them(of: int) -> None:
    """One that was skipped, say; a line tells, and how many of them failed."""
    said: list[str] = []
    run = read_run(junit(case("a", SKIPPED, of=of), case("b", FAILED, of=of)))
    assert merged(KEPT, [run], said.append) == KEPT
    words = "2 of its tests ran, 1 failed; the result of 2026-11-01 stays"
    assert said == [f"24.11.5 select test_x.py: {words}"]


BAD = [
    ("empty", ""),
    ("no test", "<testsuites/>"),
    ("no live test", "<testsuites><testcase name='a'/></testsuites>"),
    ("text", "Killed"),
    ("two releases", junit(case("a"), case("b", slurm="26.05.3"))),
]


@pytest.mark.parametrize("text", [b[1] for b in BAD], ids=[b[0] for b in BAD])
def test_what_is_no_result_is_an_error(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broken-off run never counts as one that passed; the line names the file."""
    with pytest.raises(MatrixError):
        read_run(text)
    (tmp_path / "bad.xml").write_text(text)
    before = DOCS.read_text(), COUNTS.read_text()
    assert main([str(tmp_path / "bad.xml")]) == 1
    assert f"{tmp_path}/bad.xml: " in capsys.readouterr().err
    assert (DOCS.read_text(), COUNTS.read_text()) == before


def counted(passed: int, failed: int = 0, **skipped: int) -> Cell:
    """A cell; the keywords are reasons with `_` for spaces."""
    reasons = {reason.replace("_", " "): count for reason, count in skipped.items()}
    return {"passed": passed, "failed": failed, "skipped": reasons, "on": "2026-11-22"}


def made(**files: Cell) -> str:
    """A table of these files' results on 24.11.5 with select."""
    known = {"origin": "Debian trixie", "plugin": "built"}
    named = {f"{name}.py": cell for name, cell in files.items()}
    releases = {"24.11.5": {**known, "cells": {"select": named}}}
    return table(dict.fromkeys(named, "It works."), releases)


WORDS = [
    ("all passed", counted(9), "9"),
    ("some failed", counted(7, 2), "**7 of 9**"),
    ("all failed", counted(0, 3), "**0 of 3**"),
    ("nothing could run here", counted(0, no_plugin=4), "- (4) [1]"),
    ("a part could", counted(5, no_plugin=1, too_old=2), "5 - (3) [1, 2]"),
    ("a part of it failed", counted(4, 1, too_old=2), "**4 of 5** - (2) [1]"),
]


@pytest.mark.parametrize(("result", "expected"), [w[1:] for w in WORDS], ids=[w[0] for w in WORDS])
def test_a_result_in_words(result: Cell, expected: str) -> None:
    """The cell of its own release and mode says it; the other mode's is empty."""
    assert f"| It works (`test_x.py`) | {expected} |  |\n" in made(test_x=result)


def test_a_release_is_a_row_with_its_sums_and_the_day() -> None:
    """Where it came from and whether the plugin was built stand there, too."""
    text = made(test_x=counted(7, 2), test_y=counted(1))
    assert "| 24.11.5 | Debian trixie | built | **8 of 10** |  | 2026-11-22 |\n" in text


def test_each_reason_is_one_note_however_often_it_is_met() -> None:
    """The notes below the table name each reason once."""
    text = made(test_x=counted(0, no_plugin=4), test_y=counted(1, no_plugin=1, too_old=1))
    assert text.endswith("\n- [1] no plugin\n- [2] too old\n")


def test_a_file_of_live_tests_becomes_a_row() -> None:
    """Its title is the first line of its docstring; files without live tests have none."""
    titles = live_files(TESTS)
    assert titles["test_min_utility.py"].startswith("Jobs that would rather wait")
    assert "test_harness_parsing.py" not in titles


def test_the_table_in_the_docs_is_made_of_the_committed_results() -> None:
    """Without a file named, the command writes it anew."""
    counts = json.loads(COUNTS.read_text())
    assert DOCS.read_text() == table(counts["titles"], counts["releases"])
