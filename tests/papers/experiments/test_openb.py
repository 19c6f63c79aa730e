"""Alibaba's OpenB trace: what is read of it, and the R queue on a slice."""

from __future__ import annotations

import pytest

from papers.experiments import experiments, openb
from papers.experiments.rqueue.openb import log
from papers.experiments.rqueue.tsubame import OURS, QUEUES, R_QUEUE, SHARED
from papers.simulators.queued_loans import QueuedLoanSimulator


def test_the_whole_cluster_and_every_task_are_there():
    """Weng et al.: 1,213 nodes, 6,212 GPUs."""
    cluster = openb.nodes(1213)
    assert len(cluster) == 1213
    assert sum(node.free.bit_count() for node in cluster.values()) == 6212
    assert len(openb.tasks(cluster)) == 7228
    few = openb.nodes(8)
    assert all(any(openb.fits(task, node) for node in few.values()) for task in openb.tasks(few))


def test_a_part_of_a_gpu_is_a_whole_one_or_left_out():
    cluster = openb.nodes(1213)
    whole, rest = openb.tasks(cluster), openb.tasks(cluster, "left-out")
    assert {task.gpus for task in whole} == {task.gpus for task in rest} == {0, 1, 2, 4, 8}
    assert 0.3 < 1 - len(rest) / len(whole) < 0.4


def test_its_options_are_the_words_of_the_experiments():
    for name in ("rqueue-openb", "drmaestro-openb"):
        options = experiments[name].options
        assert options["fractions"] == openb.FRACTIONS
        assert options["nodes"] == openb.NODES


@pytest.mark.parametrize("name", [R_QUEUE, OURS])
def test_remote_gpus_shorten_the_wait_where_cpus_and_memory_bind(name):
    """A slice on four nodes; with nothing remote GPUs are idle beside tasks that took all CPUs."""
    asked = [one for one in log(1, 4, "whole") if one.submit_s < 6 * 86_400]
    waits = {}
    for queue in (SHARED, name):
        ended = QueuedLoanSimulator(openb.nodes(4), QUEUES[queue]).run(asked)
        waits[queue] = sum(job.wait_s for job in ended)
    assert waits[name] < 0.5 * waits[SHARED]
