"""The search over all plans finds what trying every single one finds."""

from __future__ import annotations

from itertools import product

import pytest

from gres_topology.catalog import load
from papers.experiments import experiments
from papers.experiments.horizon_exhaustive import Search, drawn, took_s
from policies.contract.bits import gpus_of, subsets
from simulation.core.jobs import SimJob
from simulation.core.link_quality import judge

TOPOLOGY = load("a100-pcie-bridged")


def brute(topology, jobs, *, is_by_share):
    """The least cost over every combination of sets and of moments at which something ends."""
    sets = [[int(mask) for mask in subsets(topology.gpus, job.gpus_per_node[0])] for job in jobs]
    costs = []
    for masks in product(*sets):
        now_s, free_s, cost = 0.0, [0.0] * topology.gpus, 0.0
        for job, mask in zip(jobs, masks, strict=True):
            gpus = gpus_of(mask)
            share = judge(topology, gpus).share
            now_s = max(now_s, job.submit_s)
            at_once_s = max(now_s, sorted(free_s)[len(gpus) - 1])
            now_s = max(now_s, *(free_s[gpu] for gpu in gpus))
            end_s = now_s + took_s(job, share)
            for gpu in gpus:
                free_s[gpu] = end_s
            if is_by_share:
                cost += float("inf") if now_s > at_once_s else (1 - share) * (len(gpus) > 1)
            else:
                cost += end_s - job.submit_s
        costs.append(cost)
    return min(costs)


@pytest.mark.parametrize("is_by_share", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_no_plan_is_better_than_the_one_that_is_found(seed, is_by_share):
    sizes = (2, 5, 2, 4) if seed % 2 else (4, 4, 7, 6)
    jobs = [
        SimJob(job.job_id, (size,), job.duration_s, job.submit_s, "communication=0.6")
        for job, size in zip(drawn(seed, "dgx1v"), sizes, strict=False)
    ][:3]
    found = Search(TOPOLOGY, jobs, is_by_share=is_by_share).best()
    assert found.cost == pytest.approx(brute(TOPOLOGY, jobs, is_by_share=is_by_share))


def test_no_policy_that_keeps_the_order_is_ahead_of_the_best_plan():
    measured = experiments["horizon-exhaustive"].run([1, 2, 3]).measured
    assert measured["soonest"]["later"] == 0
    for name in ("mapa", "mapa-preserve-site", "best-fit"):
        assert measured[name]["later"] >= -1e-9
    assert measured["best-fit"]["less-share"] > measured["mapa"]["less-share"] >= 0
