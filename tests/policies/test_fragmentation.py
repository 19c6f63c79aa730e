"""Stranded GPUs and fragmentation, by GPUs per node alone."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.fragmentation import Fragmentation, by_count, fragmentation_of


def of(frees, waiting=(), running=()):
    free = {f"n{i}": count for i, count in enumerate(frees, 1)}
    return fragmentation_of(free, Counter(waiting), Counter(running), by_count(free))


@pytest.mark.parametrize(
    ("sentence", "frees", "waiting", "running", "stranded", "share"),
    [
        ("one job of four can use eight, and not three", (3, 8), [4], [], 3, 3 / 11),
        ("half of the jobs can use three", (3, 8), [4, 2], [], 0, 1.5 / 11),
        ("two of three cannot, and of those that run one can", (3,), [4, 8], [1], 3, 2 / 3),
        ("every job needs but one", (1, 1, 1), [1], [1], 0, 0),
        ("none can use any", (1, 1, 1), [2], [4], 3, 1),
        ("nothing waits: the usual request is two", (1, 2), [], [2, 2, 1], 1, 2 / 3 / 3),
        ("nothing waits and as many ask for two as for one", (1,), [], [2, 1], 0, 0.5),
        ("nobody is there", (1, 2), [], [], 0, 0),
        ("nothing is free", (0, 0), [1], [], 0, 0),
    ],
)
def test_figures(sentence, frees, waiting, running, stranded, share):
    found = of(frees, waiting, running)
    assert (found.free, found.stranded) == (sum(frees), stranded)
    assert found.share == pytest.approx(share)


def test_a_job_counts_only_where_it_may_run():
    """Otherwise each partition would fragment the others."""
    free = {"a": 1, "b": 4}

    def fits(job, node):
        where, gpus = job
        return free[node] >= gpus if where == node else None

    found = fragmentation_of(free, {("b", 2): 5}, {("a", 2): 1}, fits)
    assert (found.stranded_on, found.unusable) == ({"a": 1}, 1.0)


def test_free_gpus_by_largest_set():
    found = of((8, 3, 3, 3, 0))
    assert found.nodes_with == (4, 4, 4, 1, 1, 1, 1, 1)
    assert found.by_largest_set == {3: 9, 8: 8}
    assert (found.largest, found.largest_over_nodes) == (8, (4, 3))
    assert (Fragmentation().by_largest_set, Fragmentation().largest_over_nodes) == ({}, (0, 0))


sizes = st.lists(st.integers(0, 8), max_size=6)


@given(sizes, sizes, sizes)
def test_bounds_and_what_smaller_jobs_change(frees, waiting, running):
    found = of(frees, waiting, running)
    assert 0 <= found.stranded <= found.free == sum(found.by_largest_set.values())
    assert 0 <= found.share <= 1
    assert of(frees, [*waiting, 0], running).stranded == 0
    assert of(frees, [*waiting, 0], running).share <= found.share
