"""The release matrix as text: what the live tests said on each Slurm release, in each mode.

JUnit files go in (`cell`), a Markdown table comes out (`table`). Nothing is written that no test
said: a file of tests without a result is "not run".
"""

import ast
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from modes import MODES

from slurm_cluster.cluster import SUITES

#: Debian release -> Slurm's, oldest first: the columns.
RELEASES = {suite: release for release, suite in SUITES.items()}

#: passed and failed: counts; skipped: reason -> count.
Cell = dict[str, Any]
#: suite -> mode -> name of the test file -> cell.
Results = Mapping[str, Mapping[str, Mapping[str, Cell]]]

HEAD = """\
# What works on which Slurm

`make test-matrix` runs the live tests on each Slurm release, in both ways of enforcing
(`enforcement: select` and `slots`), and writes this file from their results; nothing in it is
written by hand. One row is one file of live tests.

- **all 9 passed**: nine tests ran and passed.
- **7 of 9**: seven of the nine that ran passed.
- **not applicable**, or so many that are: the tests were skipped for the reason in the note.
- **not run**: there is no result yet.
"""


class MatrixError(Exception):
    """A result or a test file is not as expected; the message names it."""


def live_files(folder: Path) -> dict[str, str]:
    """Name -> first docstring line of each file with live tests in `folder` and below.

    MatrixError names a file of live tests without a docstring.
    """
    result = {}
    for path in sorted(folder.rglob("test_*.py"), key=lambda path: path.name):
        text = path.read_text(encoding="utf-8")
        if "pytest.mark.cluster" not in text:
            continue
        output = ast.get_docstring(ast.parse(text, str(path)))
        if not output:
            raise MatrixError(f"{path}: no docstring; its first line is a row of docs/matrix.md")
        result[path.name] = output.splitlines()[0]
    return result


def cell(junit: str) -> Cell:
    """Counts of one JUnit file (pytest's), with the reasons of what was skipped.

    MatrixError when the text is no JUnit or has no test in it.
    """
    try:
        cases = list(ET.fromstring(junit).iter("testcase"))
    except ET.ParseError as error:
        raise MatrixError(f"JUnit XML expected, read {junit[:60]!r}: {error}") from error
    if not cases:
        raise MatrixError("the JUnit file has no test case: did the collection fail?")
    bad: set[object] = set()
    ran: set[object] = set()
    skipped: Counter[str] = Counter()
    for case in cases:
        # a test that fails, and again when its fixtures end, is reported twice
        test = (case.get("classname"), case.get("name"))
        if case.find("failure") is not None or case.find("error") is not None:
            bad.add(test)
        elif (skip := case.find("skipped")) is not None:
            skipped[skip.get("message") or "no reason told"] += 1
        else:
            ran.add(test)
    return {"passed": len(ran - bad), "failed": len(bad), "skipped": dict(skipped)}


class _Notes:
    """Numbers reasons in the order in which they come up."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def of(self, reasons: Sequence[str]) -> str:
        """`[1, 2]`, links to the notes below the table."""
        numbers = [self.numbers.setdefault(r, len(self.numbers) + 1) for r in sorted(reasons)]
        return f"[{', '.join(map(str, numbers))}]"


def words(result: Cell | None, notes: _Notes) -> str:
    """One cell in words."""
    if result is None:
        return "not run"
    passed, failed, skipped = result["passed"], result["failed"], result["skipped"]
    without = notes.of(list(skipped)) if skipped else ""
    if not passed and not failed:
        return f"not applicable {without}"
    ran = passed + failed
    output = f"{passed} of {ran}" if failed else f"all {passed} passed"
    return f"{output}; {sum(skipped.values())} not applicable {without}" if skipped else output


def table(titles: Mapping[str, str], results: Results) -> str:
    """docs/matrix.md: a row per test file, a column per release and mode, the notes."""
    columns = [(suite, mode) for suite in RELEASES for mode in MODES]
    notes = _Notes()
    names = [f"{RELEASES[suite]} {mode}" for suite, mode in columns]
    lines = [f"| live tests | {' | '.join(names)} |", "|" + "---|" * (len(columns) + 1)]
    for name, title in titles.items():
        cells = [words(results.get(s, {}).get(m, {}).get(name), notes) for s, m in columns]
        what = title.rstrip(".").replace("|", "\\|")
        lines.append(f"| {what} (`{name}`) | {' | '.join(cells)} |")
    text = f"{HEAD}\n" + "\n".join(lines) + "\n"
    if notes.numbers:
        text += "\n" + "\n".join(f"- [{n}] {reason}" for reason, n in notes.numbers.items()) + "\n"
    return text
