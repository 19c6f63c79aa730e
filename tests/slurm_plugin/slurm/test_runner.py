"""The runner of Slurm's commands."""

from __future__ import annotations

import subprocess
import sys

import pytest

from slurm_plugin.slurm import runner

RUN = (
    "from slurm_plugin.slurm.runner import run_bounded\n"
    "print(run_bounded(['sh', '-c', 'sleep 0.2; nice'], 5.0, 100).out.strip())"
)


@pytest.mark.parametrize(("ours", "theirs"), [(-5, "0"), (0, "0"), (7, "7")])
def test_a_command_has_not_the_priority_of_the_engine(ours, theirs):
    """Its unit has Nice=-5: slurmctld waits for its answers, not for what it runs."""
    argv = ["nice", "-n", str(ours), sys.executable, "-c", RUN]
    done = subprocess.run(argv, capture_output=True, text=True)
    if "cannot set niceness" in done.stderr:
        pytest.skip("no right to raise a priority")
    assert done.stdout.strip() == theirs, done.stderr


def test_a_filter_of_system_calls_that_refuses_it_stops_no_command(monkeypatch):
    def refused(*which: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(runner.os, "getpriority", refused)
    done = runner.run_bounded(["echo", "there"], 5.0, 100)
    assert done is not None
    assert done.out == "there\n"
