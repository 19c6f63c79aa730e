"""Two checkouts on one machine: each has its own names, and neither ends what the other began."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def project(checkout: Path, **environ: str) -> str:
    command = [checkout / "slurm_cluster" / "cluster.sh", "project"]
    plain = {"PATH": os.environ["PATH"], **environ}
    return subprocess.check_output(command, env=plain, text=True).strip()


def test_a_cluster_is_named_after_its_checkout_by_whatever_path(run, tmp_path):
    one, two, link = tmp_path / "checkout", tmp_path / "two", tmp_path / "link"
    shutil.copytree(one, two)
    link.symlink_to(one)
    assert project(one) == project(link) != project(two)
    assert project(one, GPUTOPO_PROJECT="mine") == "mine"


def test_what_another_checkout_started_is_left_alone(run, tmp_path):
    docker = 'echo "$*" >>"$OUT/asked"; case "$1" in ps) echo by=/other ;; esac'
    done = run("slurm_cluster/cluster.sh down", docker=docker)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "was started by /other, not by this checkout" in done.stderr
    assert " down " not in (tmp_path / "asked").read_text()


def test_a_project_that_no_checkout_started_is_left_alone(run):
    done = run("slurm_cluster/cluster.sh down", docker='case "$1" in volume) echo by= ;; esac')
    assert done.returncode == 1
    assert "was started by something else" in done.stderr


def test_ones_own_cluster_is_taken_down(run, tmp_path):
    docker = f'echo "$*" >>"$OUT/asked"; case "$1" in ps) echo by={tmp_path}/checkout ;; esac'
    assert run("slurm_cluster/cluster.sh down", docker=docker).returncode == 0
    assert " down -v " in (tmp_path / "asked").read_text()


@pytest.fixture
def daemon(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A process named dockerd, and the note that this checkout started it."""
    program = tmp_path / "dockerd"
    program.symlink_to(shutil.which("sleep") or "")
    process = subprocess.Popen([program, "60"])
    started = Path(f"/proc/{process.pid}/stat").read_text().split()[21]
    (tmp_path / "checkout" / ".cluster").mkdir()
    note = f"forward=\nip_forward=\nlog={tmp_path}/log\npid={process.pid} started={started}\n"
    (tmp_path / "checkout" / ".cluster" / "dockerd").write_text(note)
    return process


def test_clean_ends_the_dockerd_that_this_checkout_started(run, tmp_path, daemon):
    done = run("slurm_cluster/cluster.sh clean", docker=":")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith(
        f"removed the dockerd that this checkout started (pid {daemon.pid})"
    )
    assert daemon.wait(1) == -15
    assert not (tmp_path / "checkout" / ".cluster").exists()


def test_clean_keeps_a_dockerd_that_others_use(run, tmp_path, daemon):
    docker = 'case "$*" in "ps -a --format {{.Names}}") echo web ;; esac'
    done = run("slurm_cluster/cluster.sh clean", docker=docker)
    assert "kept the dockerd" in done.stdout
    assert daemon.poll() is None
    # Without the note nobody would end it, later.
    assert (tmp_path / "checkout" / ".cluster" / "dockerd").exists()
    daemon.kill()


def test_clean_ends_no_process_that_has_the_number_of_our_dockerd_by_now(run, tmp_path, daemon):
    note = tmp_path / "checkout" / ".cluster" / "dockerd"
    note.write_text(note.read_text().replace("started=", "started=1"))
    done = run("slurm_cluster/cluster.sh clean", docker=":")
    assert "dockerd" not in done.stdout
    assert daemon.poll() is None
    daemon.kill()


def test_clean_asks_for_nothing_that_has_not_this_checkouts_label(run, tmp_path):
    """All lists are by label; what is removed is from these lists."""
    docker = """echo "$*" >>"$OUT/asked"
        ours="images --filter label=gputopo.checkout=$OUT/checkout --format "
        case "$*" in "$ours"*) echo ours:trixie ;; esac"""
    done = run("slurm_cluster/cluster.sh clean", docker=docker)
    assert done.stdout.splitlines()[0] == "removed images ours:trixie"
    asked = (tmp_path / "asked").read_text().splitlines()
    lists = [line for line in asked if line.split()[0] in ("ps", "images") or " ls " in line]
    assert lists
    assert all(f"label=gputopo.checkout={tmp_path}/checkout" in line for line in lists), lists
    assert [line for line in asked if line.startswith("rmi")] == ["rmi ours:trixie"]
