"""A copy of the checkout's scripts, run with no other programs than a test says."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REAL = (
    "bash sh make env dirname cat cut sed grep head tail sort xargs date mkdir rm touch id uname"
    " sha256sum flock cksum readlink sleep find wc tr"
)

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a command of a copy of the checkout; on PATH are basic tools and scripts by name."""
    checkout, tools = tmp_path / "checkout", tmp_path / "bin"
    shutil.copytree(ROOT / "slurm_cluster", checkout / "slurm_cluster")
    (checkout / "papers").mkdir()
    for name in (
        "Makefile",
        "setup.cfg",
        "pyproject.toml",
        "papers/setup.cfg",
        "papers/pyproject.toml",
    ):
        shutil.copy(ROOT / name, checkout / name)
    tools.mkdir()
    for name in REAL.split():
        program = shutil.which(name)
        assert program, f"this machine has no {name}"
        (tools / name).symlink_to(program)

    def call(command: str, **stubs: str) -> subprocess.CompletedProcess[str]:
        for name, script in stubs.items():
            path = tools / name.replace("_", "-")
            path.unlink(missing_ok=True)
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        environ = {"PATH": str(tools), "HOME": str(tmp_path), "OUT": str(tmp_path)}
        return subprocess.run(
            ["bash", "-c", command],
            cwd=checkout,
            env={**environ, "GPUTOPO_DOCKERD_LOG": os.devnull},
            capture_output=True,
            text=True,
            check=False,
        )

    return call
