"""The fixtures where there is no container engine, and what they refuse."""

import re
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster import cluster
from slurm_cluster.pytest_plugin import Factory

pytest_plugins = "pytester"

TWO_TESTS = """
def test_one(slurm_cluster):
    slurm_cluster({"dgx1": "dgx1v"})

def test_two(slurm_cluster):
    slurm_cluster({"dgx1": "dgx1v"})
"""
WHY = "no container engine: the cluster in containers needs Linux, this is Darwin"


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """cluster.sh finds itself on another system."""
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "uname").write_text("#!/bin/sh\necho Darwin\n")
    (tmp_path / "uname").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def test_without_an_engine_tests_are_skipped_with_one_line(pytester, no_engine):
    pytester.makepyfile(TWO_TESTS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines([f"2 tests that need a cluster skipped: {WHY}"])


def test_in_ci_they_fail(pytester, no_engine, monkeypatch):
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(TWO_TESTS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines([f"*Failed: {WHY}"])


def test_a_run_without_such_tests_does_not_import_what_they_need(pytester):
    """Pytest loads the plugin wherever the package is installed."""
    pytester.makepyfile(
        "import sys\n"
        "def test_one():\n"
        "    assert 'slurm_cluster.pytest_plugin' in sys.modules\n"
        "    assert not {'docker', 'yaml', 'numpy', 'slurm_cluster.cluster'} & set(sys.modules)\n"
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


class Started(list[Any]):
    """Clusters asked for, none of which is real."""

    def __call__(self, project: str, suite: str | None, *_: Any) -> Any:
        self.append((project, suite))
        return cluster.Cluster.__new__(cluster.Cluster)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Instead of `Cluster.up`."""
    monkeypatch.setenv("GPUTOPO_PROJECT", "mine")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("SLURM_PREFIX", raising=False)
    found = Started()
    monkeypatch.setattr(cluster.Cluster, "up", found)
    monkeypatch.setattr(cluster.Cluster, "enforcement", "select", raising=False)
    return found


def test_a_cluster_for_each_description_and_release(started, tmp_path):
    factory = Factory(tmp_path)
    nodes = {"dgx1": "dgx1v"}
    assert factory(nodes) is factory(dict(nodes), enforcement="slots")
    assert factory(nodes).enforcement == "select"
    factory(nodes, slurm_conf="PartitionName=x Nodes=ALL\n")
    factory(nodes, gputopo_yaml="")
    factory(nodes, release="26.05")
    factory(slurm_conf="PartitionName=x Nodes=ALL\n")
    factory()
    assert [suite for _, suite in started] == [None, None, None, "forky", None, None]
    assert len({project for project, _ in started}) == 6
    assert started[-1] == ("mine", None)


def test_workers_share_no_cluster(started, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    Factory(tmp_path)()
    assert started == [("mine-gw1", None)]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"enforcement": "slot"}, "enforcement='slot': expected 'select', 'slots' or None"),
        ({"release": "24.05"}, "release='24.05': expected one of 22.05, 24.11, 26.05"),
        ({"nodes": {"dgx1": "dgx1"}}, "nodes: no machine 'dgx1' in the catalog"),
    ],
)
def test_what_it_cannot_start(started, tmp_path, asked, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Factory(tmp_path)(**asked)
    assert not started


def test_a_test_of_debians_slurm_is_skipped_on_ones_own(started, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_PREFIX", "/opt/slurm-25.11")
    with pytest.raises(pytest.skip.Exception, match=r"this test is about Debian's Slurm 24\.11"):
        Factory(tmp_path)(release="24.11")
    assert Factory(tmp_path)() is not None
    assert len(started) == 1


PLAYED = """
import subprocess
from pathlib import Path
from types import SimpleNamespace
import pytest
from slurm_cluster import pytest_plugin

class Played:
    def __init__(self, project):
        self.project = project
    def run(self, host, command, check):
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        return SimpleNamespace(out=done.stdout)

@pytest.fixture
def used(slurm_cluster_factory, monkeypatch, tmp_path):
    (tmp_path / "slurmctld.log").write_text("".join(f"line {n}\\n" for n in range(100)))
    monkeypatch.setattr(pytest_plugin, "_LOGS", (str(tmp_path / "slurmctld.log"),))
    made = {name: Played(name) for name in ("idle", "busy")}
    monkeypatch.setattr(slurm_cluster_factory, "_made", made)
    yield made["busy"]

def test_one(used):
    assert used.project == "another"
"""


def test_a_failure_shows_a_few_lines_of_its_own_clusters_logs_and_keeps_many(pytester):
    pytester.makepyfile(PLAYED)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    shown = result.stdout.str()
    assert "logs of the cluster busy" in shown
    assert "logs of the cluster idle" not in shown
    assert "line 99\n" in shown
    assert "line 91\n" not in shown
    kept = pytester.path / ".cluster" / "logs" / "test_one.log"
    assert f"more of them: {kept}" in shown
    assert kept.read_text().splitlines()[1:] == [f"line {n}" for n in range(100)]
