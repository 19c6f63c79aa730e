"""Runs tests on a copy of the working tree; mutants are written there and nowhere else."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from mutations import Mutant, mutated

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass
class Ran:
    """One run of pytest: its exit status (None: it ran past its limit), and each test's fate.

    That is `failed`, `skipped` or `passed`, and how long it took.
    """

    status: int | None
    tests: dict[str, tuple[str, float]] = field(default_factory=dict)

    @property
    def failed(self) -> list[str]:
        return [name for name, (outcome, _) in self.tests.items() if outcome == "failed"]


def tracked() -> list[str]:
    """The files of the working tree that are git's, or would be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in output.split("\0") if name and (ROOT / name).is_file()]


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """A copy of the working tree, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="gputopo-mutants-") as folder:
        for name in tracked():
            target = Path(folder, "tree", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        yield Path(folder, "tree")


@contextlib.contextmanager
def planted(tree: Path, one: Mutant) -> Iterator[None]:
    """The mutant in the copy, for as long as this lasts."""
    path = tree / one.path
    before, written = path.read_bytes(), path.stat().st_mtime
    try:
        path.write_text(mutated(before.decode(), one), encoding="utf-8")
        # Python takes compiled code for current that is of the same second and size.
        os.utime(path, (written + 10, written + 10))
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, (written + 20, written + 20))


def run(
    tree: Path,
    tests: Sequence[str],
    limit_s: float,
    *,
    coverage: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Ran:
    """Runs these tests in the copy, and ends whatever they leave behind."""
    noted, names = tree.parent / "noted", tree.parent / "names"
    noted.unlink(missing_ok=True)
    names.write_text("".join(f"{name}\n" for name in tests), encoding="utf-8")
    shutil.rmtree(tree / ".hypothesis", ignore_errors=True)
    environ = {**os.environ, "PYTHONPATH": f"{tree}:{HERE}", "NOTED": str(noted)}
    # A mutant of the same size in the same second would pass for the module that was compiled.
    environ["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, *coverage, "-m", "pytest", "-q", "--hypothesis-seed=0"]
    command += ["-p", "noted_tests", "-p", "no:cacheprovider"]
    with (tree.parent / "log").open("w") as log:
        child = subprocess.Popen(
            [*command, *options, f"@{names}"],
            cwd=tree,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return Ran(status, _fates(noted.read_text()) if noted.exists() else {})


def _fates(text: str) -> dict[str, tuple[str, float]]:
    """By test, the worst that became of its phases, and how long they took."""
    phases_of: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for line in text.splitlines():
        outcome, seconds, name = line.split("\t", 2)
        phases_of[name].append((outcome, float(seconds)))
    return {
        name: (
            next(word for word in ("failed", "skipped", "passed") if word in dict(phases)),
            sum(seconds for _, seconds in phases),
        )
        for name, phases in phases_of.items()
    }


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant, and the test that says so."""

    outcome: str
    by: str
    seconds: float


def verdict(
    tree: Path,
    one: Mutant,
    tests: dict[str, float],
    spare_s: float = 60.0,
) -> Verdict:
    """`caught` (by a failing test, or since nothing is imported any more), `hung` or `survived`.

    `tests` are seconds by name. A test that fails with the mutant and passes when it is run
    again catches nothing.
    """
    began, left = time.monotonic(), dict(sorted(tests.items(), key=lambda item: item[1]))

    def verdict_of(outcome: str, by: str = "") -> Verdict:
        return Verdict(outcome, by, round(time.monotonic() - began, 1))

    def ran(names: Sequence[str]) -> Ran:
        limit_s = spare_s + 5 * sum(tests[name] for name in names)
        done = run(tree, names, limit_s, options=["-x"])
        if done.status == pytest.ExitCode.USAGE_ERROR and not done.tests:
            # The parameters of a test have other names with this mutant: take all of them.
            bases = list(dict.fromkeys(name.partition("[")[0] for name in names))
            done = run(tree, bases, limit_s, options=["-x"])
        return done

    with planted(tree, one):
        while left:
            first = ran(list(left))
            if first.status is None:
                return verdict_of("hung")
            if first.status == 0:
                break
            if not first.failed:
                return verdict_of("caught", "what the tests import, or need of memory")
            by = first.failed[0]
            again = ran([by])
            if again.status != 0:
                return verdict_of("hung" if again.status is None else "caught", by)
            left = {name: s for name, s in left.items() if name != by and name not in first.tests}
    return verdict_of("survived")
