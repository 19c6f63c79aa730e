"""The cluster as another project's tests use it: from the wheel, by the pytest plugin alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: A project with the tests that docs/testing-with-slurm.md shows.
PROJECT = Path(__file__).parents[1] / "assets" / "foreign_project"
NO_SOURCE = (".git", ".venv", ".cluster", ".*_cache", ".hypothesis", "build", "*.egg-info")

pytestmark = pytest.mark.cluster


def test_machines_of_the_catalog_and_a_node_without_gpus(slurm_cluster):
    cluster = slurm_cluster({"hgx1": "dgx-h100", "mi[1-2]": "mi300x", "cpu1": ""})
    pair = cluster.sbatch("-w", "hgx1", "--gres=gpu:h100:2", sleep_s=30)
    node = cluster.sbatch("-w", "mi2", "--gres=gpu:8", sleep_s=30)
    plain = cluster.sbatch("-w", "cpu1", "-n4", sleep_s=30)
    assert len(cluster.wait_running(pair).gpus["hgx1"]) == 2
    assert cluster.visible_gpus(pair) == cluster.job(pair).gpus["hgx1"]
    assert cluster.wait_running(node).gpus == {"mi2": tuple(range(8))}
    assert cluster.wait_running(plain).gpus == {}
    output = cluster.run("hgx1", "nvidia-smi -L").out.splitlines()
    assert [line.split(" (")[0] for line in output] == [
        f"GPU {gpu}: NVIDIA H100 80GB HBM3" for gpu in range(8)
    ]
    assert cluster.run("cpu1", "nvidia-smi", check=False).code == 127
    assert " placed\n" in cluster.run("ctl", ["gputopo", "explain", str(pair)]).out


def test_the_same_nodes_are_the_same_cluster_and_clean(slurm_cluster):
    nodes = {"hgx1": "dgx-h100", "mi[1-2]": "mi300x", "cpu1": ""}
    cluster = slurm_cluster(nodes)
    cluster.put("ctl", "/home/alice/mine.txt", "a\nb", user="alice")
    assert cluster.read("cpu1", "/home/alice/mine.txt") == "a\nb"
    assert cluster.run("ctl", "stat -c %U /home/alice/mine.txt").out == "alice\n"
    left = cluster.started("-w", "hgx1", "--gres=gpu:8", sleep_s=300).id
    assert slurm_cluster(nodes, enforcement=None) is cluster
    assert cluster.variant() == "stock"
    assert cluster.job(left).state == "CANCELLED"
    assert not any(cluster.gres_used().values())


@pytest.mark.long("a wheel, images of their own and two foreign packages: minutes")
@pytest.mark.timeout(1800)
def test_a_foreign_project_from_the_wheel(tmp_path):
    """Nothing of the checkout is on its path: a wheel, a fresh Python, and the page's words."""
    wheels, project = tmp_path / "wheels", tmp_path / "project"
    python = tmp_path / "venv" / "bin" / "python"
    # A build leaves files beside the sources.
    shutil.copytree(ROOT, tmp_path / "source", ignore=shutil.ignore_patterns(*NO_SOURCE))
    build = [sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "-w", wheels, "./source"]
    subprocess.run(build, cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
    [wheel] = wheels.iterdir()
    subprocess.run([python, "-m", "pip", "-q", "install", f"{wheel}[test]"], check=True)
    subprocess.run(["cp", "-r", str(PROJECT), str(project)], check=True)
    plain = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    try:
        done = subprocess.run(
            [python, "-m", "pytest", "-v", "-p", "no:cacheprovider"],
            cwd=project,
            env={**plain, "CI": "true"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.count(" PASSED ") == 5, done.stdout + done.stderr
        [failed] = [line for line in done.stdout.splitlines() if " FAILED " in line]
        assert "test_that_fails" in failed
        # A failure comes with what Slurm said.
        assert "== /var/log/slurm/slurmctld.log" in done.stdout
        assert "== /home/slurmd.dgx1.log" in done.stdout
        left = ["docker", "ps", "-aq", "--filter", f"label=gputopo.checkout={project}"]
        assert subprocess.check_output(left, text=True) == ""
    finally:
        clean = [python, "-m", "slurm_cluster", "clean"]
        cleaned = subprocess.run(
            clean, cwd=project, env=plain, capture_output=True, text=True, check=False
        )
    assert cleaned.returncode == 0, cleaned.stderr
    assert "removed images" in cleaned.stdout
    assert not (project / ".cluster").exists()
