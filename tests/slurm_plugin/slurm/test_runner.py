"""The runner of Slurm's commands."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
