"""The live cluster as fixtures: started once, clean before and after every test that uses it."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

# The harness lies beside the tests that use it; importlib mode adds no path of its own.
sys.path.insert(0, str(Path(__file__).parent))

from eighths import mode_of
from lending_harness import lending_site, taken_away_after
from live_harness import Watch, at_home, watched
from modes import MODES, enforcement, use, wanted
from select_harness import FakeEngine, scripted_engine

from slurm_cluster.cluster import Cluster
from slurm_cluster.pytest_plugin import Factory

#: With another project's tests, which are run as it would run them.
collect_ignore = ["assets"]
ALSO_WITH_SLOTS = pytest.param(
    "slots", marks=pytest.mark.long("the same in the other mode", "slots")
)


def modes_of(test: pytest.Function) -> tuple[str, ...]:
    """The ways of enforcing in which a live test is run: by its marks; select without any."""
    if test.get_closest_marker("slots"):
        return ("slots",)
    if test.get_closest_marker("both_modes") and not test.get_closest_marker("select_plugin"):
        return MODES
    return ("select",)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A live test is one test for each way of enforcing."""
    if "enforced_by" in metafunc.fixturenames:
        modes = modes_of(metafunc.definition)
        # What is about the other way alone stays, and is skipped with the reason.
        modes = tuple(mode for mode in modes if mode in wanted()) or modes
        both = metafunc.definition.get_closest_marker("both_modes")
        is_short = not both or "short" in both.args
        params = [m if is_short or m == "select" else ALSO_WITH_SLOTS for m in modes]
        metafunc.parametrize("enforced_by", params, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each notes how many tests its file has in its mode (docs/matrix.md), before some are left."""
    if any("::" in arg for arg in config.args):
        return
    of_file = [(item.location[0], mode_of(item)) for item in items]
    counts = Counter(of_file)
    for item, where in zip(items, of_file, strict=True):
        if item.get_closest_marker("cluster"):
            item.user_properties.append(("of", counts[where]))


@pytest.fixture(scope="session")
def enforced_by(request: pytest.FixtureRequest) -> str:
    """The way of enforcing; `modes.enforcement()` tells it everywhere."""
    use(request.param)
    return str(request.param)


@pytest.fixture(scope="session")
def running_cluster(slurm_cluster_factory: Factory) -> Cluster:
    return slurm_cluster_factory()


@pytest.fixture(scope="session")
def session_cluster(running_cluster: Cluster, enforced_by: str) -> Iterator[Cluster]:
    """The cluster in this way of enforcing; plugin and bridge wait for an engine that is slow."""
    running_cluster.enforcement = enforced_by
    with running_cluster.at_home():
        yield running_cluster


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What is about the way of enforcing that was not asked for is skipped."""
    if item.get_closest_marker("cluster") and not set(modes_of(item)) & set(wanted()):
        pytest.skip(f"about enforcement: {modes_of(item)[0]}")


@pytest.fixture
def live(session_cluster: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """The cluster as it is, for tests that keep a state among themselves."""
    # What docs/matrix.md says of the Slurm that the test ran on.
    request.node.user_properties += [
        ("slurm", session_cluster.version),
        ("origin", session_cluster.origin),
        ("plugin", "built" if session_cluster.has_select_plugin else "not built"),
    ]
    for_plugin = any(map(request.node.get_closest_marker, ("select_plugin", "enforced")))
    if for_plugin and enforcement() == "select" and not session_cluster.has_select_plugin:
        pytest.skip("the select plugin is not built: no source of this Slurm could be had")
    return session_cluster


@pytest.fixture
def cluster(live: Cluster) -> Iterator[Cluster]:
    """A clean cluster; at the end every job is gone and no node may report a GPU in use."""
    with live.clean():
        yield live


@pytest.fixture
def watch(cluster: Cluster) -> Iterator[Watch]:
    """No GPU is held by two jobs at any moment of the test."""
    with watched(cluster) as samples:
        yield samples


@pytest.fixture(scope="module")
def scripted(session_cluster: Cluster) -> Iterator[FakeEngine]:
    """The scripted engine in place of the real one, for all tests of a file."""
    with scripted_engine(session_cluster) as fake:
        yield fake


@pytest.fixture
def engine(cluster: Cluster, scripted: FakeEngine) -> FakeEngine:
    """The scripted engine; it answers `pass` until a test gives it a rule."""
    scripted.fresh()
    return scripted


#: The usual deadline, but a failed engine is tried again after a second.
usual_deadline = at_home(deadline_ms=50)


@pytest.fixture(scope="module")
def lending_is_taken_away(session_cluster: Cluster) -> Iterator[None]:
    """Nothing of a site that lends stays behind a file of tests."""
    with taken_away_after(session_cluster):
        yield


@pytest.fixture
def lending(live: Cluster, lending_is_taken_away: None) -> Iterator[Cluster]:
    """A site that lends, and at the end no donor, no server, no GPU more in use."""
    if live.release < (24, 11):
        pytest.skip("lending needs Slurm 24.11 or later")
    with lending_site(live) as site:
        yield site
