"""Fixtures of a pytest run: `slurm_cluster(nodes={"dgx[1-2]": "dgx1v"})` is a real Slurm.

`slurm_cluster` gives a test clean clusters and checks them afterwards; `slurm_cluster_factory`
is for fixtures of a wider scope, whose owner cleans up. Equal arguments give the same cluster for
the whole run. Pytest imports this file wherever the package is installed, so what a cluster needs
is imported when a test asks for one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from slurm_cluster.cluster import Cluster

NO_ENGINE = "no container engine"
_LOGS = ("/var/log/slurm/slurmctld.log", "/var/log/gputopo/engine.log", "/home/slurmd.*.log")
#: Lines of each log in a test's report, and in the file beside it: a reader of many failures wants
#: to see what each test found.
_LOG_LINES, _FILE_LINES = 8, 1000


class Factory:
    """Starts clusters, each once, and takes down at the end what did not run before."""

    def __init__(self, folder: Path) -> None:
        """`folder` is what the clusters are named after and keep their files in."""
        self.folder = folder
        self._made: dict[str, Cluster | str] = {}
        self._ran_before: set[str] = set()

    @property
    def clusters(self) -> list[Cluster]:
        """The clusters that this run of pytest has made and not ended."""
        return [one for one in self._made.values() if not isinstance(one, str)]

    def __call__(
        self,
        nodes: Mapping[str, str] | None = None,
        *,
        release: str | None = None,
        enforcement: str | None = "select",
        slurm_conf: str = "",
        gputopo_yaml: str | None = None,
        pocl: bool = False,
    ) -> Cluster:
        """The cluster of these arguments.

        nodes: Slurm's host list -> machine of the catalog, "" for nodes without GPUs; by default
        the five of this project, with its partitions. release: Slurm's, as "24.11". enforcement:
        "select", "slots", or None for Slurm alone. slurm_conf: more lines. gputopo_yaml: the lines
        below the nodes. pocl: nodes with PoCL-Remote; skips where `cluster.sh pocl` was not run.

        Skips the test where no container engine can run, and fails it in CI. DescriptionError or
        ValueError for arguments of which no cluster can be made, ClusterError where one does not
        come up.
        """
        try:
            from slurm_cluster import cluster, description
        except ImportError as error:
            raise pytest.UsageError(
                f"slurm_cluster needs {error.name}: pip install 'slurm-gputopo[test]'"
            ) from error
        if enforcement not in cluster.VARIANTS:
            raise ValueError(f"enforcement={enforcement!r}: expected 'select', 'slots' or None")
        if release is not None and release not in cluster.SUITES:
            raise ValueError(f"release={release!r}: expected one of {', '.join(cluster.SUITES)}")
        if release is not None and os.environ.get("SLURM_PREFIX"):
            pytest.skip(f"SLURM_PREFIX is set, and this test is about Debian's Slurm {release}")
        own = description.read(description.DEFAULT)
        usual = own if nodes is None else description.Description(nodes)
        described = replace(
            usual,
            slurm_conf=usual.slurm_conf + slurm_conf,
            gputopo_yaml=usual.gputopo_yaml if gputopo_yaml is None else gputopo_yaml,
            pocl=pocl,
        )
        suite = cluster.SUITES[release] if release else None
        if pocl and not cluster.has_image("pocl", suite, self.folder):
            pytest.skip("no image with PoCL-Remote: slurm_cluster/cluster.sh pocl builds it")
        project = self._project("" if described == own else description.text_of(described), suite)
        if project not in self._made:
            self._made[project] = self._start(project, suite, described)
        started = self._made[project]
        if isinstance(started, str):
            # In continuous integration a test that cannot run must not pass for one that did.
            (pytest.fail if in_ci() else pytest.skip)(started)
        if started.enforcement != enforcement:
            started.enforcement = enforcement
            started.is_fresh = False
        return started

    @cached_property
    def _name(self) -> str:
        """What all its clusters' names begin with: a process tells, so it is asked once."""
        from slurm_cluster.cluster import default_project

        return default_project(folder=self.folder)

    def _project(self, text: str, suite: str | None) -> str:
        """A name of its own for each description and, beside others, each of pytest's workers."""
        parts = [self._name]
        if text:
            parts.append(hashlib.sha256(text.encode()).hexdigest()[:6])
        parts += filter(None, (suite, os.environ.get("PYTEST_XDIST_WORKER")))
        return "-".join(parts)

    def _start(self, project: str, suite: str | None, described: Any) -> Cluster | str:
        from slurm_cluster.cluster import Cluster
        from slurm_cluster.hosts import NoEngineError, is_running

        if is_running(project):
            self._ran_before.add(project)
        try:
            return Cluster.up(project, suite, described, self.folder)
        except NoEngineError as reason:
            return str(reason)

    def down(self) -> None:
        """Takes down what was started here, unless GPUTOPO_KEEP is set."""
        for cluster in self.clusters:
            if cluster.project not in self._ran_before and not os.environ.get("GPUTOPO_KEEP"):
                cluster.down()
        self._made.clear()


class Clean:
    """A factory whose clusters are clean when a test gets them and are reset after it."""

    def __init__(self, factory: Factory, until_end: ExitStack) -> None:
        """`until_end` is closed at the end of the test."""
        self._factory = factory
        self._until_end = until_end
        self._of_test: list[Cluster] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Cluster:
        """The cluster of this description, in its usual state until the test's end."""
        cluster = self._factory(*args, **kwargs)
        if cluster not in self._of_test:
            self._of_test.append(cluster)
            self._until_end.enter_context(cluster.at_home())
        if not cluster.is_fresh:
            cluster.reset()
        return cluster


_FACTORY = pytest.StashKey[Factory]()


@pytest.fixture(scope="session")
def slurm_cluster_factory(request: pytest.FixtureRequest) -> Iterator[Factory]:
    """Clusters for fixtures of a wider scope than a test."""
    factory = request.config.stash[_FACTORY] = Factory(request.config.rootpath.resolve())
    yield factory
    factory.down()


@pytest.fixture
def slurm_cluster(slurm_cluster_factory: Factory) -> Iterator[Clean]:
    """Clusters for one test; a daemon that ended by itself, or a crash in a log, is an error."""
    with ExitStack() as until_end:
        yield Clean(slurm_cluster_factory, until_end)


def in_ci() -> bool:
    """Whether this is continuous integration."""
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """A failure comes with the last lines of the logs, and the name of a file with more of them."""
    report = yield
    factory = item.config.stash.get(_FACTORY, None)
    if report.failed and factory:
        arguments = list(getattr(item, "funcargs", {}).values())
        used = [one for one in factory.clusters if any(one is argument for argument in arguments)]
        for cluster in used or factory.clusters:
            try:
                logs = _kept_logs(cluster, factory.folder, item.name)
            except Exception as error:
                logs = f"the logs cannot be read: {error}"
            report.sections.append((f"logs of the cluster {cluster.project}", logs))
    return report


def _kept_logs(cluster: Cluster, folder: Path, test: str) -> str:
    """The last lines of a cluster's logs; many more are written into .cluster/logs."""
    path = folder / ".cluster" / "logs" / f"{re.sub('[^A-Za-z0-9_.-]', '-', test)[:100]}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    tails = 'for f in {}; do echo "== $f"; tail -n {} $f; done'.format
    path.write_text(cluster.run("ctl", tails(" ".join(_LOGS), _FILE_LINES), check=False).out)
    last = cluster.run("ctl", tails(" ".join(_LOGS), _LOG_LINES), check=False).out
    return f"{last}more of them: {path}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Counts the tests that did not run for want of an engine."""
    skipped = terminalreporter.stats.get("skipped", [])
    why = [str(report.longrepr) for report in skipped if NO_ENGINE in str(report.longrepr)]
    if why:
        reason = why[0][why[0].index(NO_ENGINE) :].rstrip("')")
        terminalreporter.write_line(f"{len(why)} tests that need a cluster skipped: {reason}")
