"""The EpilogSlurmctld script: one line to the engine, and never a failure."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "lua_bridge" / "epilog-slurmctld"


@pytest.fixture(autouse=True)
def silent(engine):
    """A notice gets no reply."""
    engine.behaviour = lambda peer, request: None


def run(tmp_path: Path, before: bytes = b"", **env: str) -> subprocess.CompletedProcess[str]:
    """The script as slurmctld calls it, with gputopo-bridge.conf beside slurm.conf."""
    text = f"deadline_ms = 1000\nsocket = {tmp_path / 'engine.sock'}  # ours\n"
    (tmp_path / "gputopo-bridge.conf").write_bytes(before + text.encode())
    env = {"SLURM_CONF": str(tmp_path / "slurm.conf"), **env}
    return subprocess.run([SCRIPT], env=env, capture_output=True, text=True, timeout=10)


def test_the_engine_is_told_which_job_ended(tmp_path, engine, eventually):
    assert run(tmp_path, SLURM_JOB_ID="7").returncode == 0
    assert run(tmp_path, SLURM_JOB_ID="9", SLURM_ARRAY_JOB_ID="8").returncode == 0
    eventually(lambda: len(engine.requests) == 2)
    assert sorted(engine.requests) == ["ended job=7 array=0", "ended job=9 array=8"]


def test_without_an_engine_it_says_nothing_and_succeeds(tmp_path, engine):
    engine.stop()
    done = run(tmp_path, SLURM_JOB_ID="7")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_engine_that_accepts_nobody_does_not_hold_it(tmp_path, engine):
    engine.stop()
    engine.start(backlog=0, accepts=False)
    for _ in range(3):
        assert run(tmp_path, SLURM_JOB_ID="7").returncode == 0


def test_nothing_but_a_number_is_passed_on(tmp_path, engine, eventually):
    run(tmp_path, SLURM_JOB_ID="7 x\nreload")
    eventually(lambda: engine.requests == ["ended job=0 array=0"])


def test_a_settings_file_in_another_encoding_tells_the_engine_all_the_same(
    tmp_path, engine, eventually
):
    done = run(tmp_path, b"# f\xfcr Slurm\n", SLURM_JOB_ID="7")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    eventually(lambda: engine.requests == ["ended job=7 array=0"])


def test_a_path_that_no_socket_can_have_is_no_failure(tmp_path):
    for path in (b"/run/\0/engine.sock", b"/run/\xff/engine.sock", b""):
        done = run(tmp_path, b"socket = " + path + b"\n", SLURM_JOB_ID="7")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
