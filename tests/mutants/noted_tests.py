"""A plugin for pytest (`-p noted_tests`): what became of each test, written to $NOTED as it ends.

One line per phase of a test: its outcome, seconds, name. Where coverage is measured, each line
of code is noted for the test that ran it. A mutant that eats memory without end is ended.
"""

import os
import resource
import sys
import threading
import time
from pathlib import Path

import pytest

MOST_BYTES = 6 << 30


def _watch() -> None:
    # No rlimit on addresses: the sanitizers of the C tests need more of them than there are.
    while resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < MOST_BYTES:
        time.sleep(0.5)
    os._exit(1)


def pytest_configure() -> None:
    threading.Thread(target=_watch, daemon=True).start()


def _is_for(name: str) -> None:
    measured = sys.modules.get("coverage")
    if measured is not None and (current := measured.Coverage.current()) is not None:
        current.switch_context(name)


def pytest_runtest_logstart(nodeid: str) -> None:
    _is_for(nodeid)


def pytest_runtest_logfinish() -> None:
    _is_for("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    with Path(os.environ["NOTED"]).open("a", encoding="utf-8") as noted:
        noted.write(f"{report.outcome}\t{report.duration:.4f}\t{report.nodeid}\n")
