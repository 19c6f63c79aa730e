"""docs/matrix.md: what the live tests said on each Slurm release, in each way of enforcing.

    python -m tests.cluster.matrix.releases [JUNIT_FILE...]

reads what runs of the live tests wrote (`make test`, `make test-long`, `make test-matrix`), one
release a file. The counts are kept in tests/cluster/assets/matrix.json; a file of tests that was
run again takes the place of its older result, and one that is gone loses it. Of a file of which a
few tests alone were run the older result stays, and a line says so.
"""

from __future__ import annotations

import ast
import json
import sys
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modes import MODES

TESTS = Path(__file__).parents[1]
COUNTS = TESTS / "assets" / "matrix.json"
DOCS = TESTS.parents[1] / "docs" / "matrix.md"
#: What conftest.py notes beside each live test.
NOTED = ("mode", "slurm", "origin", "plugin")

#: passed and failed: counts; skipped: reason -> count; on: the day of the run.
Cell = dict[str, Any]
#: Slurm's version -> `origin`, `plugin`, and `cells`: mode -> name of the test file -> cell.
Releases = dict[str, dict[str, Any]]

HEAD = """\
# What works on which Slurm

The live tests of this project, run on real Slurm releases in both ways of enforcing
(`enforcement: select` and `slots`). `make test-matrix` makes this file from the tests' results;
nothing in it is written by hand.

| Slurm | from | select plugin | live tests with select | with slots | run on |
|---|---|---|---|---|---|
"""
FILES = """
One row is one file of live tests. **9** tests ran and passed; **7 of 9**: two failed; `-`: not
applicable for the reason in the note (in brackets: how many of the file's tests); empty: not run.

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
        if not ("pytest.mark.cluster" in text or "IN_BOTH_MODES" in text):
            continue
        output = ast.get_docstring(ast.parse(text, str(path)))
        if not output:
            raise MatrixError(f"{path}: no docstring; its first line is a row of docs/matrix.md")
        result[path.name] = output.splitlines()[0]
    return result


@dataclass(frozen=True)
class Run:
    """One JUnit file: the day, what was noted of the cluster, and (mode, file, test) -> outcome."""

    on: str
    noted: Mapping[str, str]
    outcomes: Mapping[tuple[str, str, str], str]
    #: (mode, file) -> how many tests it has; not there where that is not known.
    of: Mapping[tuple[str, str], int]


def read_run(junit: str) -> Run:
    """The live tests in pytest's JUnit; MatrixError when it is none, or of two releases."""
    try:
        root = ET.fromstring(junit)
    except ET.ParseError as error:
        raise MatrixError(f"JUnit XML expected, read {junit[:60]!r}: {error}") from error
    values: defaultdict[str, set[str]] = defaultdict(set)
    outcomes: dict[tuple[str, str, str], str] = {}
    of: dict[tuple[str, str], int] = {}
    for case in root.iter("testcase"):
        noted = {p.get("name", ""): p.get("value", "") for p in case.iter("property")}
        if "mode" not in noted:
            continue
        for name in NOTED[1:]:
            values[name] |= {noted[name]} if name in noted else set()
        file = case.get("classname", "").rpartition(".")[2] + ".py"
        test = (noted["mode"], file, case.get("name", ""))
        if noted.get("of", "").isdigit():
            of[test[:2]] = int(noted["of"])
        # A test that fails, and again when its fixtures end, is reported twice.
        if outcomes.get(test) != "failed":
            outcomes[test] = _outcome(case)
    if not outcomes:
        raise MatrixError("the JUnit file has no live test: did the collection fail?")
    if any(len(values[name]) != 1 for name in NOTED[1:]):
        raise MatrixError(f"tests of one Slurm expected in a JUnit file, read {dict(values)}")
    days = [suite.get("timestamp", "")[:10] for suite in root.iter("testsuite")]
    return Run(max(days), {name: values[name].pop() for name in NOTED[1:]}, outcomes, of)


def _outcome(case: ET.Element) -> str:
    """`passed`, `failed`, or the reason of what was skipped."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skip = case.find("skipped")
    return "passed" if skip is None else skip.get("message") or "no reason given"


def merged(releases: Releases, runs: Iterable[Run], say: Callable[[str], None] = print) -> Releases:
    """The kept counts with the files of tests that were run in place of their older ones.

    Runs of one release complete each other: the short and the long tests of a file are one cell.
    `say` is told of which files too few were run for that.
    """
    together: dict[str, dict[tuple[str, str, str], tuple[str, str]]] = {}
    of: dict[tuple[str, str], int] = {}
    result = {slurm: {**kept, "cells": dict(kept["cells"])} for slurm, kept in releases.items()}
    for run in sorted(runs, key=lambda run: run.on):
        slurm = run.noted["slurm"]
        known = {"origin": run.noted["origin"], "plugin": run.noted["plugin"]}
        result.setdefault(slurm, {"cells": {}}).update(known)
        tests = together.setdefault(slurm, {})
        tests.update({test: (outcome, run.on) for test, outcome in run.outcomes.items()})
        of.update(run.of)
    for slurm, tests in together.items():
        files: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        for (mode, file, _), ended in tests.items():
            files[mode, file].append(ended)
        for (mode, file), ended in files.items():
            cells = result[slurm]["cells"]
            former, cell = cells.get(mode, {}).get(file), _cell(ended)
            if former and len(ended) < min(_tests(former), of.get((mode, file), _tests(former))):
                words = f"{len(ended)} of its tests ran, {cell['failed']} failed"
                say(f"{slurm} {mode} {file}: {words}; the result of {former['on']} stays")
                continue
            cells[mode] = {**cells.get(mode, {}), file: cell}
    return result


def _tests(cell: Cell) -> int:
    """How many a cell is made of."""
    return int(cell["passed"] + cell["failed"] + sum(cell["skipped"].values()))


def _cell(ended: list[tuple[str, str]]) -> Cell:
    counts = Counter(outcome for outcome, _ in ended)
    passed, failed = counts.pop("passed", 0), counts.pop("failed", 0)
    day = max(on for _, on in ended)
    return {"passed": passed, "failed": failed, "skipped": dict(counts), "on": day}


class _Notes:
    """Numbers reasons in the order in which they come up."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def of(self, skipped: Mapping[str, int]) -> str:
        """`- (3) [1, 2]`: how many are not applicable, and the notes that say why."""
        numbers = [self.numbers.setdefault(r, len(self.numbers) + 1) for r in sorted(skipped)]
        return f"- ({sum(skipped.values())}) [{', '.join(map(str, numbers))}]"


def _ran(cells: Sequence[Cell]) -> str:
    passed, failed = (sum(cell[which] for cell in cells) for which in ("passed", "failed"))
    return f"**{passed} of {passed + failed}**" if failed else str(passed or "")


def _words(cell: Cell | None, notes: _Notes) -> str:
    if cell is None:
        return ""
    return f"{_ran([cell])} {notes.of(cell['skipped']) if cell['skipped'] else ''}".strip()


def table(titles: Mapping[str, str], releases: Releases) -> str:
    """docs/matrix.md: a row per release, then one per test file, the notes."""
    text, order = HEAD, sorted(releases, key=lambda slurm: [int(n) for n in slurm.split(".")])
    columns = [(slurm, mode) for slurm in order for mode in MODES]
    for slurm in order:
        one = releases[slurm]
        sums = [_ran(list(one["cells"].get(mode, {}).values())) for mode in MODES]
        days = sorted({cell["on"] for files in one["cells"].values() for cell in files.values()})
        when = " to ".join(dict.fromkeys((days[0], days[-1])))
        text += f"| {slurm} | {one['origin']} | {one['plugin']} | {' | '.join(sums)} | {when} |\n"
    notes = _Notes()
    text += f"{FILES}| live tests | {' | '.join(f'{s} {mode}' for s, mode in columns)} |\n"
    text += "|" + "---|" * (len(columns) + 1) + "\n"
    for name, title in titles.items():
        cells = [_words(releases[s]["cells"].get(m, {}).get(name), notes) for s, m in columns]
        what = title.rstrip(".").replace("|", "\\|")
        text += f"| {what} (`{name}`) | {' | '.join(cells)} |\n"
    if notes.numbers:
        text += "\n" + "\n".join(f"- [{n}] {reason}" for reason, n in notes.numbers.items()) + "\n"
    return text


def main(names: list[str]) -> int:
    """Merge the JUnit files into the counts and write the table; 1 and one line for a bad file."""
    titles, runs = live_files(TESTS), []
    for name in names:
        try:
            runs.append(read_run(Path(name).read_text(encoding="utf-8")))
        except (OSError, MatrixError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    releases = merged(json.loads(COUNTS.read_text(encoding="utf-8"))["releases"], runs)
    for one in releases.values():
        for mode, cells in one["cells"].items():
            one["cells"][mode] = {file: cells[file] for file in cells if file in titles}
    counts = {"titles": titles, "releases": releases}
    COUNTS.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    DOCS.write_text(table(titles, releases), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
