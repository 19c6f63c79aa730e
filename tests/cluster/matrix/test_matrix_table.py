"""The release matrix is made of results: what each becomes in the table, without a cluster."""

import json
from pathlib import Path

import pytest

from tests.cluster.matrix.matrix_table import Cell, MatrixError, cell, live_files, table

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parents[1]
NO_PLUGIN = "about the select plugin"

JUNIT = """<testsuites><testsuite tests="7">
<testcase name="a"/>
<testcase name="b"><failure message="no">text</failure></testcase>
<testcase name="b"><error message="at its end"/></testcase>
<testcase name="c"/>
<testcase name="c"><error message="at its end"/></testcase>
<testcase name="d"><skipped message="about the select plugin"/></testcase>
<testcase name="e"><skipped message="about the select plugin"/></testcase>
</testsuite></testsuites>"""


def found(passed: int, failed: int = 0, **skipped: int) -> Cell:
    """A cell; the keywords are reasons with `_` for spaces."""
    reasons = {reason.replace("_", " "): count for reason, count in skipped.items()}
    return {"passed": passed, "failed": failed, "skipped": reasons}


def row(result: Cell | None) -> list[str]:
    """The six cells of a table with one file of tests that has this result on trixie, select."""
    results = {} if result is None else {"trixie": {"select": {"test_x.py": result}}}
    lines = table({"test_x.py": "It works."}, results).splitlines()
    return next(line for line in lines if "test_x.py" in line).strip("| ").split(" | ")


def test_a_junit_file_is_counted_with_the_reasons_of_what_was_skipped():
    """Errors of fixtures are failures, a test counts once; equal reasons are one."""
    assert cell(JUNIT) == {"passed": 1, "failed": 2, "skipped": {NO_PLUGIN: 2}}


@pytest.mark.parametrize("text", ["", "<testsuites/>", "Killed"], ids=["empty", "no test", "text"])
def test_what_is_no_result_is_an_error(text):
    """A broken-off run never counts as one that passed."""
    with pytest.raises(MatrixError):
        cell(text)


WORDS = [
    ("all passed", found(9), "all 9 passed"),
    ("some failed", found(7, 2), "7 of 9"),
    ("all failed", found(0, 3), "0 of 3"),
    ("nothing could run here", found(0, no_plugin=4), "not applicable [1]"),
    ("a part could", found(5, no_plugin=1, too_old=2), "all 5 passed; 3 not applicable [1, 2]"),
    ("a part of it failed", found(4, 1, too_old=2), "4 of 5; 2 not applicable [1]"),
    ("nobody looked", None, "not run"),
]


@pytest.mark.parametrize(("result", "expected"), [w[1:] for w in WORDS], ids=[w[0] for w in WORDS])
def test_a_result_in_words(result, expected):
    """The cell of its own release and mode says it; every other one says that it was not run."""
    assert row(result) == ["It works (`test_x.py`)", *["not run"] * 2, expected, *["not run"] * 3]


def test_each_reason_is_one_note_however_often_it_is_met():
    """The notes below the table name each reason once."""
    cells = {"test_x.py": found(0, no_plugin=4), "test_y.py": found(1, no_plugin=1, too_old=1)}
    text = table({"test_x.py": "X.", "test_y.py": "Y."}, {"forky": {"select": cells}})
    assert text.endswith("\n- [1] no plugin\n- [2] too old\n")


def test_a_file_of_live_tests_becomes_a_row():
    """Its title is the first line of its docstring; files without live tests have none."""
    titles = live_files(TESTS)
    assert titles["test_min_utility.py"].startswith("Jobs that would rather wait")
    assert "test_harness_parsing.py" not in titles


def test_the_table_in_the_docs_is_made_of_the_committed_results():
    """`make test-matrix ARGS=--table` writes it anew."""
    counts = json.loads((TESTS / "assets" / "matrix.json").read_text())
    made = table(counts["titles"], counts["results"])
    assert (ROOT / "docs" / "matrix.md").read_text() == made
