"""Ctrl-C while an image is built, with a `docker` that is a script."""

import os
import signal
import subprocess
import time
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "slurm_cluster" / "cluster.sh"
#: Knows every image, and never ends a build.
DOCKER = """#!/bin/sh
[ "$1" != build ] || { touch {folder}/builds; exec sleep 60; }
"""


def test_it_is_one_line_and_what_runs_ends(tmp_path):
    (tmp_path / "docker").write_text(DOCKER.replace("{folder}", str(tmp_path)))
    (tmp_path / "docker").chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env |= {"GPUTOPO_CHECKOUT": str(tmp_path), "GPUTOPO_STARTED": ""}
    process = subprocess.Popen(
        ["bash", str(SCRIPT), "site"],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + 30
    while not (tmp_path / "builds").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it, to the script and its children
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert told.endswith("\ninterrupted\n")
    assert "failed" not in told
