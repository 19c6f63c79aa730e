"""`make mutants`: 200 seeded one-line mutants of the code, 40 of the C files, and who catches them.

Which tests run which line is measured once and kept, as each verdict is, so that a run that was
broken off goes on; what changed since is done again:

  .cluster/mutants/coverage.db, tests.json   who runs which line; what each test takes
  .cluster/mutants/verdicts.json             the verdict about each mutant
  tests/mutants/judged.yaml                  why some survive, committed
  docs/mutants.md                            the report, written when every part was run
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import yaml
from coverage import CoverageData
from mutations import Mutant, digest, is_built, mutants
from trials import ROOT, copied, run, verdict

KEPT = ROOT / ".cluster" / "mutants"
DOCS = ROOT / "docs" / "mutants.md"
SEED = "1"
#: Part -> how many mutants, and its files.
PARTS: dict[str, tuple[Any, ...]] = {
    "policies": (30, "policies/**/*.py"),
    "gres_topology": (28, "gres_topology/**/*.py"),
    "simulation": (28, "simulation/**/*.py", "papers/**/*.py"),
    "engine": (28, "slurm_plugin/decide/**/*.py", "slurm_plugin/serve/**/*.py"),
    "slots": (
        28,
        *(f"slurm_plugin/{room}/**/*.py" for room in ("act/gates", "queue", "slurm/job_entries")),
    ),
    "remote": (30, "slurm_plugin/act/lending/**/*.py", "slurm_plugin/node/**/*.py"),
    "lua_bridge": (28, "lua_bridge/**/*.lua"),
    "select": (20, "slurm_plugin/select/pure/*.c", "slurm_plugin/select/nodes/*.c"),
    "spank": (20, "slurm_plugin/spank/pure/*.c"),
}
MEASURED = ("policies", "gres_topology", "simulation", "slurm_plugin", "papers")
#: What one mutant's tests may take together, by their own times; the shortest are taken first.
BUDGET_S = 25.0
MEASURING_LIMIT_S = 6 * 3600


def files(part: str) -> list[str]:
    """The part's files."""
    paths = (path for pattern in PARTS[part][1:] for path in ROOT.glob(pattern))
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def sample(part: str) -> list[Mutant]:
    """The part's mutants by the seed: lines first, then one mutant of each, if it can be built."""
    lines: dict[str, list[Mutant]] = {}
    for path in files(part):
        for one in mutants(ROOT, path):
            lines.setdefault(digest(SEED, path, one.was, str(one.nth)), []).append(one)

    def chosen() -> Iterator[Mutant]:
        for _, some in sorted(lines.items()):
            one = min(some, key=lambda one: digest(SEED, one.id))
            if is_built(ROOT, one):
                yield one

    return list(islice(chosen(), PARTS[part][0]))


class Measured:
    """Which tests pass, how long each takes, and which lines it runs."""

    def __init__(self) -> None:
        self._path = KEPT / "tests.json"
        KEPT.mkdir(parents=True, exist_ok=True)
        code = [path for name in MEASURED for path in sorted(ROOT.glob(f"{name}/**/*.py"))]
        self._code = digest(*(path.read_text() for path in code))
        kept = json.loads(self._path.read_text()) if self._path.exists() else {}
        #: File of tests -> its digest (`is`), and the seconds of each of its `tests` that passes.
        self._files: dict[str, Any] = kept["files"] if kept.get("code") == self._code else {}
        self.took_s: float = kept["took_s"] if self._files else 0.0

    def bring_up_to_date(self, tree: Path) -> None:
        """Run every pure test whose file is not the one that was measured."""
        there = {
            str(path.relative_to(tree)): digest(
                *(file.read_text() for file in (path, *sorted(path.parent.glob("*.c"))))
            )
            for path in sorted(tree.glob("tests/**/test_*.py"))
            if path.relative_to(tree).parts[1] not in ("cluster", "mutants")
        }
        known = self._files
        stale = [name for name in there if known.get(name, {}).get("is") != there[name]]
        if not stale:
            return
        print(f"measuring {len(stale)} files of tests", flush=True)
        if len(stale) == len(there):
            (KEPT / "coverage.db").unlink(missing_ok=True)
        settings = tree.parent / "coveragerc"
        settings.write_text(f"[run]\nrelative_files = true\nsource = {','.join(MEASURED)}\n")
        words = ["-m", "coverage", "run", "--append", f"--rcfile={settings}"]
        words.append(f"--data-file={KEPT / 'coverage.db'}")
        began = time.monotonic()
        done = run(tree, stale, MEASURING_LIMIT_S, coverage=words, options=["-m", "not cluster"])
        for name in stale:
            tests = {
                test: seconds
                for test, (outcome, seconds) in done.tests.items()
                if test.partition("::")[0] == name and outcome == "passed"
            }
            self._files[name] = {"is": there[name], "tests": tests}
        if done.failed:
            print(f"left out, as they fail: {len(done.failed)} tests, {done.failed[0]} first")
        self._files = {name: self._files[name] for name in there}
        self.took_s += time.monotonic() - began
        kept = {"code": self._code, "took_s": self.took_s, "files": self._files}
        self._path.write_text(json.dumps(kept))

    def tests_of(self, one: Mutant) -> dict[str, float]:
        """The tests to try it with: those that run its line, and what each takes."""
        if not one.path.endswith(".py"):
            folder = Path(one.path).parts[0 if one.path.endswith(".lua") else 1]
            names = {name for name in self.times if name.startswith(f"tests/{folder}/")}
        else:
            names = self._on_line(one)
            if not names:
                users = _importing(one.path, ("tests",))
                names = {name for name in self.times if name.partition("::")[0] in users}
                names |= self._in_files([one.path]) or self._in_files(
                    _importing(one.path, MEASURED)
                )
        result: dict[str, float] = {}
        left = BUDGET_S
        for name in sorted(names, key=lambda name: self.times[name]):
            if not result or self.times[name] <= left:
                result[name] = self.times[name]
                left -= self.times[name]
        return result

    @property
    def times(self) -> dict[str, float]:
        return {
            test: seconds
            for known in self._files.values()
            for test, seconds in known["tests"].items()
        }

    def of_tests(self, names: dict[str, float]) -> str:
        """Another one as soon as one of these tests is changed, or it is others."""
        files = {name.partition("::")[0] for name in names}
        return digest(*sorted(names), *sorted(self._files[name]["is"] for name in files))

    def _lines(self, path: str) -> dict[int, list[str]]:
        result = CoverageData(str(KEPT / "coverage.db"))
        result.read()
        return result.contexts_by_lineno(path)

    def _on_line(self, one: Mutant) -> set[str]:
        lines = self._lines(one.path)
        here = set(lines.get(one.line) or lines.get(one.first, []))
        return here & self.times.keys()

    def _in_files(self, paths: list[str]) -> set[str]:
        return {
            n for p in paths for names in self._lines(p).values() for n in names
        } & self.times.keys()


def _importing(path: str, folders: Sequence[str]) -> list[str]:
    """The files that import this one."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, module = name.rpartition(".")
    words = rf"^\s*(from {re.escape(name)} import|from {re.escape(package)} import .*\b{module}\b)"
    every = (file for folder in folders for file in ROOT.glob(f"{folder}/**/*.py"))
    return [str(p.relative_to(ROOT)) for p in every if re.search(words, p.read_text(), re.M)]


C_PARTS = ("select", "spank")
JUDGED = Path(__file__).with_name("judged.yaml")
_HEAD = """# One-line mutants

A mutant is the code with one line changed: `<` made `<=`, a call left out, nothing returned. Tests
that do not notice say nothing about that line. `make mutants` tries a seeded sample and writes
this file; `make mutants ONLY=policies` tries one part. It works on a copy of the tree.

The tests for a mutant are those that run its line (coverage by test), the shortest first, 25 s of
them at most; a line that runs at import gets the tests that run anything of its file, or stand in
a file that imports it. The Lua files get tests/lua_bridge, C files tests/select or tests/spank. A
test that fails with the mutant has to fail twice. `hung` ran past its limit and is caught, too.

What survives is looked at, and tests are written for it, so a table of lines that were drawn before
says little. The seed draws other lines when files are moved or renamed, or by another `SEED` in
tests/mutants/run_mutants.py: of lines that nobody had tried 148 of 197 (but for C) were caught, and
151 of 200 after all files had been moved: 75 % both times.

C: only files that are built without Slurm's headers (`slurm_plugin/select/pure`
and `nodes`, `slurm_plugin/spank/pure`) are tried here.
With the seeds 2 and 3 (40 each) 25 and 30 were caught at first, 7 and 3 equivalent; tests were
written for the other 15.
"""


def judged(one: Mutant) -> str:
    """What a person says of a mutant that survives; '' where nobody did."""
    said = (yaml.safe_load(JUDGED.read_text(encoding="utf-8")) or {}).get(one.id, {})
    return next((f"{word}: {why}" for word, why in said.items()), "")


Found = Sequence[tuple[Mutant, Mapping[str, Any] | None]]


def _row(name: str, result: Found) -> str:
    outcomes = [output["outcome"] for _, output in result if output]
    caught, hung = outcomes.count("caught"), outcomes.count("hung")
    equal = sum(judged(one).startswith("equivalent") for one in _left(result))
    left = len(_left(result)) - equal
    share = 100 * (caught + hung) / max(1, len(outcomes))
    cells = (len(result), len(outcomes), caught, hung, equal, left)
    return f"| {name} | {' | '.join(map(str, cells))} | {share:.1f} % |"


def _left(result: Found) -> list[Mutant]:
    return [one for one, output in result if output and output["outcome"] == "survived"]


def report(results: Mapping[str, Found], measuring_s: float) -> str:
    """docs/mutants.md."""
    rows = [_row(part, result) for part, result in results.items()]
    for name, is_c in (("**all but C**", False), ("**C**", True)):
        some = [result for part, result in results.items() if (part in C_PARTS) is is_c]
        if some:
            rows.append(_row(name, [item for result in some for item in result]))
    every = [item for result in results.values() for item in result]
    took_s = sum(output["seconds"] for _, output in every if output)
    lines = [
        _HEAD,
        "| part | drawn | tried | caught | hung | equivalent | survived | caught of tried |",
    ]
    lines += ["|---|---|---|---|---|---|---|---|", *rows, ""]
    lines.append(
        f"It took {measuring_s / 60:.0f} minutes to measure which test runs which line, and"
    )
    lines += [f"{took_s / 60:.0f} to try the mutants, one after the other.", ""]
    for word, title in (("equivalent", "Equivalent"), ("", "Survivors")):
        lines += [f"## {title}", ""]
        for one in _left(every):
            said = judged(one)
            if said.startswith("equivalent") is bool(word):
                why = said.partition(": ")[2] or "not looked at"
                lines += [f"- `{one.path}` line {one.line} (`{one.id}`): {why}", "", "  ```diff"]
                lines += [f"  - {one.was.strip()}", f"  + {one.becomes.strip()}", "  ```", ""]
    return "\n".join(lines).rstrip() + "\n"


class Verdicts:
    """The verdicts that are kept: of a mutant's file as it is, and of the tests as they are."""

    def __init__(self) -> None:
        self._path = KEPT / "verdicts.json"
        kept = self._path.read_text() if self._path.exists() else "{}"
        self._known: dict[str, dict[str, Any]] = json.loads(kept)

    def known(self, one: Mutant) -> dict[str, Any] | None:
        result = self._known.get(one.id)
        return result if result and result["code"] == _code(one) else None

    def find(self, tree: Path, one: Mutant, measured: Measured) -> None:
        """Try the mutant, unless it is known to be caught, or to survive these or any tests."""
        tests, result = measured.tests_of(one), self.known(one)
        these, is_equal = measured.of_tests(tests), judged(one).startswith("equivalent")
        if result and (result["outcome"] != "survived" or result["tests"] == these or is_equal):
            return
        output = verdict(tree, one, tests)
        print(output.outcome, f"{output.seconds} s", one.path, one.line, one.id, flush=True)
        of = {"code": _code(one), "tests": these, "of": len(tests)}
        self._known[one.id] = {**output.__dict__, **of}
        self._path.write_text(json.dumps(self._known, indent=1))


def _code(one: Mutant) -> str:
    return digest((ROOT / one.path).read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--known", action="store_true", help="try nothing, report what is known")
    options = parser.parse_args()
    parts = options.parts or list(PARTS)
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"no part {unknown[0]!r}; there are: {', '.join(PARTS)}")
    drawn, measured, verdicts = {part: sample(part) for part in parts}, Measured(), Verdicts()
    if not options.known:
        with copied() as tree:
            measured.bring_up_to_date(tree)
            for one in chain.from_iterable(drawn.values()):
                verdicts.find(tree, one, measured)
    results = {part: [(one, verdicts.known(one)) for one in some] for part, some in drawn.items()}
    text = report(results, measured.took_s)
    print(f"\n{text}")
    if len(parts) == len(PARTS):
        DOCS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
