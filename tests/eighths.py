"""The long run in eighths: which tests are in each, how long they take, when it last ran.

All of it stands in long_run.json, which each run of an eighth brings up to date. Tests go with
their group, a file in one mode, since one worker runs those one after the other; in a few files
each test is a group.

    python tests/eighths.py         deals the groups out anew, by the seconds that they took
    python tests/eighths.py K       the groups of eighth K, a line each
    python tests/eighths.py table   when each eighth ran, on which commit, with what result
"""

import json
import re
import subprocess
import sys
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

COUNT = 8
HERE = Path(__file__).parent
FILE = HERE / "long_run.json"
#: Files whose tests take minutes each and share nothing: each test is a group by itself, lest one
#: worker is at them when the others have long been done.
BY_TEST = {
    f"tests/{name}.py"
    for name in (
        "cluster/faults/test_clocks",
        "cluster/faults/test_nodes",
        "cluster/faults/test_standby_engine",
        "cluster/lending/test_pocl_live",
        "cluster/lending/test_pocl_slow_live",
        "cluster/placement/test_stock_live",
        "cluster/placement/test_told_of_blocks",
        "cluster/users/test_try_live",
        "packaging/test_on_a_host",
        "packaging/test_removal_on_a_host",
    )
}


#: Files that take longer than an eighth should, and whose tests share what is dear to make: so many
#: groups each, a test's being by its name alone.
PARTS = {
    f"tests/{name}.py": parts
    for name, parts in (
        ("cluster/lending/test_remote_live", 2),
        ("cluster/operating/test_slurm_clients_live", 2),
        ("cluster/select/test_select_soup", 3),
        ("cluster/slots/test_slots_repair", 2),
        ("cluster/slots/test_slots_soup", 3),
        ("cluster/users/test_why_live", 2),
        ("packaging/test_faults_on_a_host", 3),
        ("packaging/test_forms_on_a_host", 2),
    )
}


def mode_of(item: pytest.Item) -> str:
    """The way of enforcing that a live test is about: "" for a test without a cluster."""
    found = getattr(item, "callspec", None)
    return str(found.params.get("enforced_by", "")) if found else ""


def group_of(nodeid: str) -> str:
    """The file of a test, for a live one the way of enforcing behind it, and which part of it."""
    path, _, name = nodeid.partition("::")
    if path in BY_TEST:
        return nodeid
    mode = re.search(r"[\[-](select|slots)[\]-]", name)
    group = f"{path} {mode[1]}" if mode else path
    parts = PARTS.get(path, 1)
    return group if parts == 1 else f"{group} part {zlib.crc32(name.encode()) % parts + 1}"


class LongRun:
    """What long_run.json says.

    `groups` has by name the eighth and the seconds of all tests of the group; `eighths` has by
    number the last run of each: day, commit, wall_s, passed, failed, skipped.
    """

    def __init__(self) -> None:
        said = json.loads(FILE.read_text()) if FILE.exists() else {}
        self.groups: dict[str, dict[str, int]] = said.get("groups", {})
        self.eighths: dict[str, dict[str, Any]] = said.get("eighths", {})

    def eighth_of(self, group: str) -> int:
        """From 1 on. A group that never ran is in one that hangs on its name alone, so that no
        run of the others moves it."""
        known = self.groups.get(group)
        return known["eighth"] if known else zlib.crc32(group.encode()) % COUNT + 1

    def seconds(self, group: str) -> int:
        """0 for a group that never ran."""
        return self.groups.get(group, {}).get("seconds", 0)

    def deal(self) -> None:
        """The longest group first, each into the eighth that has least so far."""
        groups: dict[str, dict[str, int]] = {}
        for name, found in self.groups.items():
            path = re.split("::| ", name)[0]
            parts = PARTS.get(path, 1)
            if not (HERE.parent / path).exists() or ("::" in name) != (path in BY_TEST):
                continue
            if parts == 1 or " part " in name:
                groups[name] = found
            else:  # Once in one piece: each part has its share until it has run.
                share = {"eighth": 0, "seconds": found["seconds"] // parts}
                groups |= {f"{name} part {k + 1}": dict(share) for k in range(parts)}
        self.groups = groups
        sums = dict.fromkeys(range(1, COUNT + 1), 0)
        for name in sorted(self.groups, key=lambda name: (-self.seconds(name), name)):
            least = min(sums, key=lambda eighth: (sums[eighth], eighth))
            self.groups[name]["eighth"] = least
            sums[least] += self.seconds(name)

    def ran(self, eighth: int, seconds: Mapping[str, float], result: Mapping[str, Any]) -> None:
        """`seconds` by group: those of an eighth that ran whole."""
        # What the eighth had before and has no more was renamed or is not long any more.
        kept = {name: found for name, found in self.groups.items() if found["eighth"] != eighth}
        self.groups = kept | {
            name: {"eighth": eighth, "seconds": round(took)} for name, took in seconds.items()
        }
        self.eighths[str(eighth)] = dict(result)

    def write(self) -> None:
        """A line for each eighth and each group, so that a change is read as one."""
        parts = {"eighths": self.eighths, "groups": self.groups}
        texts = []
        for part, rows in parts.items():
            lines = (f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
            texts.append(f'"{part}": {{\n' + ",\n".join(lines) + "\n}")
        FILE.write_text("{\n" + ",\n".join(texts) + "\n}\n")

    def table(self) -> list[str]:
        """When which eighth ran on which commit, a line each."""
        lines = []
        for eighth in range(1, COUNT + 1):
            ran = self.eighths.get(str(eighth))
            if ran is None:
                lines.append(f"{eighth}/{COUNT}  never ran")
                continue
            minutes, seconds = divmod(ran["wall_s"], 60)
            counts = ", ".join(f"{ran[how]} {how}" for how in ("passed", "failed", "skipped"))
            when = f"{ran['day']} on {ran['commit']}"
            lines.append(f"{eighth}/{COUNT}  {when}: {counts}, {minutes}:{seconds:02d} min")
        return lines


class Recorder:
    """A plugin of pytest's in the process that sees all reports: notes what an eighth did."""

    def __init__(self, eighth: int) -> None:
        self._eighth = eighth
        self._began = time.monotonic()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[group_of(report.nodeid)] += report.duration
        # A test that passed and whose fixture fails behind it has failed.
        if report.failed or report.nodeid not in self._outcomes or report.when == "call":
            self._outcomes[report.nodeid] = report.outcome

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        # A run that was broken off, or took no test, says nothing of the eighth.
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        counts = Counter(self._outcomes.values())
        known = LongRun()
        known.ran(
            self._eighth,
            self._seconds,
            {
                "day": str(date.today()),
                "commit": commit(),
                "wall_s": round(time.monotonic() - self._began),
                **{how: counts[how] for how in ("passed", "failed", "skipped")},
            },
        )
        known.write()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("the long run")
        for line in LongRun().table():
            terminalreporter.line(line)


def commit() -> str:
    """The commit that is checked out, with a + where files differ from it."""

    def git(*args: str) -> str:
        command = ("git", "-C", str(HERE), *args)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", ":/", f":!{FILE.name}")
        return git("rev-parse", "--short=8", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return "no commit"


def main(wanted: str = "") -> None:
    known = LongRun()
    if wanted == "table":
        print(*known.table(), sep="\n")
    elif wanted:
        groups = (name for name in sorted(known.groups) if known.eighth_of(name) == int(wanted))
        print(*groups, sep="\n")
    else:
        known.deal()
        known.write()


if __name__ == "__main__":
    main(*sys.argv[1:])
