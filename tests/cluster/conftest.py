"""The live cluster as fixtures: started once, clean before and after every test that uses it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The harness lies beside the tests that use it; importlib mode adds no path of its own.
sys.path.insert(0, str(Path(__file__).parent))

from cluster import Cluster, NoEngineError, is_running
from live_harness import asking
from modes import enforcement
from remote_harness import as_found, lent

IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")
HELD_TWICE = "GPU held by two jobs"
_skipped: list[str] = []
_again: list[str] = []


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[Cluster | str]:
    """The cluster, or why there is none. Taken down at the end unless it ran before."""
    project = os.environ.get("GPUTOPO_PROJECT") or "gputopo"
    ran_before = is_running(project)
    try:
        found = Cluster.up(project)
    except NoEngineError as reason:
        yield str(reason)
        return
    # A file whose tests keep a state among themselves may come first: in this mode from the start.
    found.reset()
    yield found
    if not ran_before and not os.environ.get("GPUTOPO_KEEP"):
        found.down()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A live test that fails is run once more, on a clean cluster, and the summary says so.

    A dozen daemons on a loaded machine now and then miss a time that a test gives them. A GPU
    held by two jobs is never a matter of time: there is no second chance for that.
    """
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return  # -p no:rerunfailures
    for item in items:
        if item.get_closest_marker("cluster") and not item.get_closest_marker("flaky"):
            item.add_marker(pytest.mark.flaky(reruns=1, rerun_except=HELD_TWICE))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keeps why a test had to be run again."""
    if report.outcome == "rerun":
        crash = getattr(report.longrepr, "reprcrash", None)
        message = str(crash.message if crash else report.longrepr).splitlines()[0]
        _again.append(f"{report.nodeid} ({report.when}): {message}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What is about one way of enforcing is skipped in the other."""
    if enforcement() == "slots" and item.get_closest_marker("select_plugin"):
        pytest.skip("about the select plugin")
    if enforcement() != "slots" and item.get_closest_marker("slots"):
        pytest.skip("about enforcement: slots (GPUTOPO_ENFORCEMENT=slots runs it)")


@pytest.fixture
def live(session_cluster: Cluster | str, request: pytest.FixtureRequest) -> Cluster:
    """The cluster as it is, for tests that keep a state among themselves."""
    if isinstance(session_cluster, str):
        if IN_CI:
            pytest.fail(f"in CI a live test must run: {session_cluster}", pytrace=False)
        _skipped.append(request.node.nodeid)
        pytest.skip(session_cluster)
    for_plugin = any(map(request.node.get_closest_marker, ("select_plugin", "enforced")))
    if for_plugin and enforcement() == "select" and not session_cluster.has_select_plugin:
        pytest.skip("the select plugin is not built: no source of this Slurm could be had")
    return session_cluster


@pytest.fixture
def cluster(live: Cluster) -> Iterator[Cluster]:
    """A clean cluster; at the end every job is gone and no node may report a GPU in use."""
    live.reset()
    yield live
    live.reset()


@pytest.fixture(scope="module")
def patience(session_cluster: Cluster | str) -> Iterator[None]:
    """For tests that look at placement and not at speed: the engine may take its time."""
    if isinstance(session_cluster, str):
        yield
        return
    with asking(session_cluster, deadline_ms=1000):
        yield


@pytest.fixture(scope="module")
def site_as_found(session_cluster: Cluster | str) -> Iterator[None]:
    """Nothing of a site that lends stays behind a file of tests."""
    with as_found(session_cluster):
        yield


@pytest.fixture
def lends(live: Cluster, site_as_found: None) -> Iterator[Cluster]:
    """A site that lends, and at the end no donor, no server, no GPU more in use."""
    if live.release < (24, 11):
        pytest.skip("Slurm 22.05 cannot give a job its own request back: nothing is lent there")
    with lent(live) as site:
        yield site


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Counts the live tests that did not run."""
    if _skipped:
        terminalreporter.write_line(
            f"{len(_skipped)} live-cluster tests skipped: no container engine"
        )
    if _again:
        terminalreporter.section("live tests that failed once and were run again", sep="-")
        for line in _again:
            terminalreporter.write_line(line)
