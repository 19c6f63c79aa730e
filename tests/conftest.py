"""Which tests run, in which order, by which worker.

`--run short` is `make test`, `--run long` is `make test-long`; without it, all that is named.
"""

import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

#: c_program.py, which folders share; importlib mode adds no path of its own.
sys.path.insert(0, str(Path(__file__).parent))
# How long one example takes says more of the machine than of the code.
settings.register_profile("ours", deadline=None)
settings.load_profile("ours")
# A shell has what it runs in the background ignore Ctrl-C, and the commands of tests inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--run", choices=("short", "long", "all"), default="all", help="tests marked long, or not"
    )
    parser.addoption("--shard", metavar="K/N", help="every N-th group of tests, from the K-th on")


def mode_of(item: pytest.Item) -> str:
    """The way of enforcing that a live test is about: "" for a test without a cluster."""
    found = getattr(item, "callspec", None)
    return str(found.params.get("enforced_by", "")) if found else ""


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
        path, _, name = nodeid.partition("::")
        mode = re.search(r"[\[-](select|slots)[\]-]", name)
        return f"{path} {mode[1]}" if mode else path


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests without a cluster first, since images may still be in the making, then mode by mode.

    Of the files with live tests those with many come first, so that the workers end together.
    """

    def place(key: tuple[str, str]) -> tuple[object, ...]:
        return key[0], -len(groups[key]) if key[0] else 0, key[1]

    groups: dict[tuple[str, str], list[pytest.Item]] = {}
    wanted: Callable[[pytest.Item], bool] = {
        "short": lambda item: not is_long(item),
        "long": is_long,
        "all": lambda item: True,
    }[config.getoption("--run")]
    for item in filter(wanted, items):
        if item.get_closest_marker("cluster"):
            item.user_properties.append(("mode", mode_of(item) or "select"))
        groups.setdefault((mode_of(item), item.location[0]), []).append(item)
    order = sorted(groups, key=place)
    if shard := config.getoption("--shard"):
        number, _, count = shard.partition("/")
        if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
            raise pytest.UsageError(f"--shard {shard}: expected K/N with 1 <= K <= N, as in 1/4")
        order = order[int(number) - 1 :: int(count)]
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
