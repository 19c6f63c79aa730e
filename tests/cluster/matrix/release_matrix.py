"""Runs the live tests on every Slurm release in both modes; writes docs/matrix.md from the results.

One file of tests at a time, so that a run that is broken off keeps what it has:

  .cluster/matrix/SUITE-MODE/FILE.xml   pytest's JUnit, and FILE.log beside it
  tests/cluster/assets/matrix.json      the counts of the latest result of each, committed
  docs/matrix.md                        the table
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from modes import MODES

from slurm_cluster.cluster import Cluster, default_project
from slurm_cluster.hosts import ClusterError, NoEngineError
from tests.cluster.matrix.matrix_table import RELEASES, MatrixError, cell, live_files, table

TESTS = Path(__file__).parents[1]
ROOT = Path(__file__).resolve().parents[3]
RAW = ROOT / ".cluster" / "matrix"
COUNTS = TESTS / "assets" / "matrix.json"
DOCS = ROOT / "docs" / "matrix.md"
FILE_LIMIT_S = 1800


def run_file(name: str, suite: str, mode: str, project: str) -> str:
    """Runs one file of live tests against a cluster that is up; the line to print."""
    folder = RAW / f"{suite}-{mode}"
    folder.mkdir(parents=True, exist_ok=True)
    junit, log = folder / f"{name}.xml", folder / f"{name}.log"
    junit.unlink(missing_ok=True)
    environ = {**os.environ, "SUITE": suite, "GPUTOPO_PROJECT": project}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cluster", f"--junitxml={junit}"]
    with log.open("w", encoding="utf-8") as out:
        try:
            subprocess.run(
                [*command, str(next(TESTS.rglob(name)))],
                cwd=ROOT,
                env={**environ, "GPUTOPO_ENFORCEMENT": mode, "GPUTOPO_KEEP": "1"},
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=FILE_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"did not end within {FILE_LIMIT_S} s, see {log}"
    if not junit.exists():
        return f"no result, see {log}"
    found = cell(junit.read_text(encoding="utf-8"))
    skipped = sum(found["skipped"].values())
    return f"{found['passed']} passed, {found['failed']} failed, {skipped} skipped"


def committed() -> dict[str, Any]:
    """suite -> mode -> file -> cell, as committed."""
    results: dict[str, Any] = json.loads(COUNTS.read_text())["results"] if COUNTS.exists() else {}
    return results


def collected() -> dict[str, Any]:
    """The committed counts, with every result under .cluster/matrix in place of the older one."""
    counts = committed()
    for junit in sorted(RAW.glob("*-*/test_*.py.xml")):
        suite, _, mode = junit.parent.name.partition("-")
        name = junit.name.removesuffix(".xml")
        counts.setdefault(suite, {}).setdefault(mode, {})[name] = cell(junit.read_text())
    return counts


def write_table() -> None:
    """Writes the counts and the table made of them; files that are gone lose their results."""
    titles = live_files(TESTS)
    results = {
        suite: {
            mode: {name: found for name, found in cells.items() if name in titles}
            for mode, cells in modes.items()
        }
        for suite, modes in collected().items()
    }
    counts = {"titles": titles, "results": results}
    COUNTS.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    DOCS.write_text(table(titles, results), encoding="utf-8")


def run_suite(suite: str, modes: list[str], files: list[str], project: str) -> None:
    """Brings up a cluster of one release, runs the files in each mode, takes it down."""
    cluster = Cluster.up(project, suite)
    print(f"{suite}: {cluster.run('ctl', 'sinfo -V').out.strip()}", flush=True)
    try:
        for mode in modes:
            for name in files:
                output = run_file(name, suite, mode, project)
                print(f"{suite} {mode} {name}: {output}", flush=True)
                write_table()
    finally:
        if not os.environ.get("GPUTOPO_KEEP"):
            cluster.down()


def failures(suites: list[str], modes: list[str], files: list[str]) -> int:
    """How many of the wanted cells have a failed test or no result."""
    counts = committed()
    found = [counts.get(s, {}).get(m, {}).get(f) for s in suites for m in modes for f in files]
    return sum(1 for result in found if result is None or result["failed"])


def main() -> int:
    """Exit 0: all wanted cells have results and no failure; 1: not so; 3: no container engine."""
    ask = argparse.ArgumentParser(prog="make test-matrix ARGS='...'", description=__doc__)
    ask.formatter_class = argparse.RawDescriptionHelpFormatter
    titles = live_files(TESTS)
    ask.add_argument("--suite", action="append", choices=list(RELEASES), help="default: all")
    ask.add_argument("--mode", action="append", choices=MODES, help="default: both")
    ask.add_argument("--file", action="append", choices=list(titles), metavar="TEST_FILE")
    ask.add_argument("--table", action="store_true", help="run nothing, write the table anew")
    wanted = ask.parse_args()
    suites, modes = wanted.suite or list(RELEASES), wanted.mode or list(MODES)
    files = wanted.file or list(titles)
    if wanted.table:
        write_table()
        return 0
    try:
        for suite in suites:
            run_suite(suite, modes, files, default_project("-matrix"))
    except NoEngineError as reason:
        print(reason, file=sys.stderr)
        return 3
    except (ClusterError, MatrixError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 1 if failures(suites, modes, files) else 0


if __name__ == "__main__":
    sys.exit(main())
