"""Which tests run, in which order, by which worker.

`--run short` is `make test`, `--run long` is `make test-long`; without it, all that is named.
"""

import asyncio
import inspect
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

#: c_program.py, which folders share; importlib mode adds no path of its own.
sys.path.insert(0, str(Path(__file__).parent))

from browser import browser
from eighths import COUNT, LongRun, Recorder, group_of, mode_of

# How long one example takes says more of the machine than of the code.
settings.register_profile("ours", deadline=None)
settings.load_profile("ours")
# A shell has what it runs in the background ignore Ctrl-C, and the commands of tests inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--run", choices=("short", "long", "all"), default="all", help="tests marked long, or not"
    )
    parser.addoption(
        "--eighth", type=int, choices=range(1, COUNT + 1), help="that part of the long run alone"
    )


def pytest_configure(config: pytest.Config) -> None:
    eighth = config.getoption("--eighth")
    is_whole = config.args_source is config.ArgsSource.TESTPATHS and not config.option.keyword
    if eighth and is_whole and not config.option.collectonly and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(eighth))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    asyncio.run(test)
    return True


def is_long(item: pytest.Item) -> bool:
    """Whether it is left to the long run: `long(why)`, or `long(why, mode)` in that mode."""
    of_all, of_this = (), (mode_of(item),)
    return any(mark.args[1:] in (of_all, of_this) for mark in item.iter_markers("long"))


def why_long(item: pytest.Item) -> str:
    return "; ".join(str(mark.args[0]) for mark in item.iter_markers("long"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Workers take one file and mode after the other, whose tests share fixtures."""
    return FileAndMode(config, log)


class FileAndMode(LoadScopeScheduling):
    """What a worker is given at a time, in the order in which tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests without a cluster first, since images may still be in the making, then mode by mode.

    Of the files with live tests those with many come first, so that the workers end together; in
    an eighth of the long run those that took longest, whatever their mode.
    """
    eighth = config.getoption("--eighth")
    known = LongRun()

    def place(group: str) -> tuple[object, ...]:
        mode = mode_of(groups[group][0])
        if eighth:
            return bool(mode), -known.seconds(group), group
        return mode, -len(groups[group]) if mode else 0, group

    groups: dict[str, list[pytest.Item]] = {}
    wanted: Callable[[pytest.Item], bool] = {
        "short": lambda item: not is_long(item),
        "long": is_long,
        "all": lambda item: True,
    }[config.getoption("--run")]
    for item in filter(wanted, items):
        if item.get_closest_marker("cluster"):
            item.user_properties.append(("mode", mode_of(item) or "select"))
        if not eighth or known.eighth_of(group_of(item.nodeid)) == eighth:
            groups.setdefault(group_of(item.nodeid), []).append(item)
    order = sorted(groups, key=place)
    kept = [item for key in order for item in groups[key]]
    left = set(items) - set(kept)
    if left:
        config.hook.pytest_deselected(items=list(left))
    items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """`--run long --collect-only` tells why each of them is long."""
    if session.config.option.collectonly and session.config.getoption("--run") == "long":
        for item in session.items:
            print(f"{item.nodeid}: {why_long(item)}")


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    """A browser, for all tests of a file."""
    with browser() as found:
        yield found
