"""Tables and solvers are used by several threads: who answers, who computes ahead, who reloads."""

import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from machines import machine

from policies.matching import kept as kept_module
from policies.matching import solvers
from policies.matching.links import link_mbps
from policies.matching.solved import KEPT, Solved, solver_for
from policies.matching.solvers import NARROWEST, PathSolver
from policies.matching.tree_widths import TreeWidths
from policies.scoring import tables as module
from policies.scoring.node_tables import FUTURES
from policies.scoring.tables import Tables

DGX1 = machine("dgx1v")
LINKS = link_mbps(DGX1)


@pytest.fixture
def busy_threads() -> Iterator[None]:
    """Threads take turns a thousand times as often as usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(usual)


def at_once(
    *tasks: Callable[[random.Random], object], for_s: float = 0.5, least: int = 100
) -> None:
    """Each task again and again in a thread of its own; raises what one of them raised.

    So many times at least, whatever the machine is busy with.
    """
    end, raised = time.monotonic() + for_s, []

    def run(task: Callable[[random.Random], object], seed: int) -> None:
        chance = random.Random(seed)
        try:
            rounds = itertools.count()
            while (next(rounds) < least or time.monotonic() < end) and not raised:
                task(chance)
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(task, n)) for n, task in enumerate(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def test_paths_that_another_thread_grows_meanwhile_are_the_same(monkeypatch):
    """The other thread's turn comes within a step."""
    alone = PathSolver(LINKS, closed=True)
    shared = PathSolver(LINKS, closed=True)
    steps = solvers._steps

    def interrupted(n: int, size: int, *, closed: bool) -> object:
        monkeypatch.setattr(solvers, "_steps", steps)
        shared.sums(5)
        return steps(n, size, closed=closed)

    monkeypatch.setattr(solvers, "_steps", interrupted)
    shared.sums(3)
    monkeypatch.setattr(solvers, "_steps", steps)
    for k in range(1, 9):
        assert np.array_equal(shared.sums(k), alone.sums(k))
    assert shared.order(0b11111) == alone.order(0b11111)


def test_tree_widths_that_another_thread_reads_meanwhile_are_the_same():
    """The other thread's turn comes as soon as a table can be seen."""
    alone, shared = TreeWidths(LINKS), TreeWidths(LINKS)
    (one,) = shared._passes
    seen = []

    class Watched(dict[int, object]):
        def __setitem__(self, size: int, table: object) -> None:
            super().__setitem__(size, table)
            if not seen:
                seen.append(None)
                seen[0] = shared.sums(6)

    one._tops = Watched()
    assert np.array_equal(shared.sums(6), alone.sums(6))
    assert np.array_equal(seen[0], alone.sums(6))


def test_solvers_are_found_made_and_dropped_by_several_threads_at_once(busy_threads, monkeypatch):
    monkeypatch.setattr(kept_module, "_LEAST_SETS", 1 << 16)  # each counts as one of 16 GPUs
    kept = Solved()
    matrices = [LINKS[:4, :4] + n for n in range(2 * KEPT)]
    right = [solver_for("chain", links, NARROWEST).sums(3).tolist() for links in matrices]

    def ask(chance: random.Random) -> None:
        at = chance.randrange(len(matrices))
        assert kept.widest("chain", matrices[at]).sums(3).tolist() == right[at]

    at_once(ask, ask, ask, lambda _: kept.size_bytes())
    assert len(kept._kept.values()) == KEPT


def test_tables_are_asked_for_and_counted_by_several_threads_at_once(
    busy_threads, monkeypatch, made_tables
):
    """None is computed twice for want of another thread's, and none is lost."""
    monkeypatch.setattr(module, "KINDS", 4)
    tables = Tables()
    patterns = ("ring", "chain", "star", "all-to-all")
    for pattern in patterns:
        tables.of(DGX1, pattern)

    def ask(chance: random.Random) -> None:
        one = tables.of(DGX1, chance.choice(patterns))
        one.sets(2)
        one.future_of(tuple((k, 1.0) for k in range(2, 2 + chance.randrange(1, FUTURES + 3))))

    at_once(ask, ask, ask, lambda _: tables.size_bytes())
    assert len(made_tables) == len(patterns)
