"""MAPA (SC'21): the numbers the paper prints, on inputs it describes.

Deviations: the paper draws 300 jobs of nine applications and measures their run time; here
times are stated, so only the quality of allocations is compared, 150 jobs per seed.
"""

from __future__ import annotations

from math import floor
from statistics import fmean, median

import pytest

from gres_topology.catalog import load
from policies.registry import registry
from policies.scoring.objectives import AGGREGATE
from policies.scoring.tables import tables
from simulation.core.jobs import mixed_jobs
from simulation.core.link_quality import judge
from simulation.models.placing import Simulator
from simulation.report.pareto import main, run

SEEDS = range(20)
#: Printed for the best ring of three, which eq. 2 has at 57.857: cut and not rounded.
MEDIAN_GBPS = 57.85


def test_section_2_2_gpus_1_2_and_5_have_87_gbps():
    """The paper counts GPUs from 1."""
    topology = load("dgx1v")
    worth = tables.worth(topology, "all-to-all", (0, 1, 4), 255)
    assert worth.agg_gbps == 50 + 25 + 12


def test_section_2_2_the_ideal_three_have_125_gbps():
    choice = tables.top(load("dgx1v"), "all-to-all", 3, 255, AGGREGATE)[0]
    assert choice.agg_gbps == 125


def test_the_papers_median_is_the_best_ring_of_three():
    choice = tables.top(load("dgx1v"), "ring", 3, 255, AGGREGATE)[0]
    assert cut(choice.effbw_gbps) == MEDIAN_GBPS


def cut(gbps: float) -> float:
    """Two digits, as the paper prints that median."""
    return floor(100 * gbps) / 100


@pytest.fixture(scope="module")
def runs():
    return {name: run(name, "dgx1v", SEEDS, 150) for name in registry.names()}


def test_eq_2_alone_is_far_above_lowest_ids_and_takes_more_pcie_hops_than_the_default(runs):
    """It prefers some rings of five with a hop to those without (section 3.4.3's regression)."""
    lowest, preserve = (
        fmean(r.share for r in runs[name]) for name in ("first-fit", "mapa-preserve")
    )
    assert preserve > lowest + 0.1
    hops = {name: fmean(r.pcie_hops for r in runs[name]) for name in ("mapa-preserve", "mapa")}
    assert hops["mapa-preserve"] > hops["mapa"]


def test_the_default_reaches_the_bar(runs):
    assert fmean(r.share for r in runs["mapa"]) >= 0.94
    assert fmean(r.pcie_hops for r in runs["mapa"]) <= 0.24


def test_no_policy_that_looks_at_one_job_beats_the_default_in_both(runs):
    """The default is on their Pareto front; `horizon`, which knows the queue, beats it."""
    share = fmean(r.share for r in runs["mapa"])
    hops = fmean(r.pcie_hops for r in runs["mapa"])
    better = {
        name
        for name, found in runs.items()
        if fmean(r.share for r in found) >= share and fmean(r.pcie_hops for r in found) <= hops
    }
    assert better == {"mapa", "genie", "horizon"}  # genie's GPUs are mapa's


def test_the_default_beats_weakest_link_first_at_its_own_game(runs):
    """Weakest link first measured 0.92 and 16 %; `mapa-widest` is no worse in either."""
    assert fmean(r.share for r in runs["mapa-widest"]) >= 0.92
    assert fmean(r.pcie_hops for r in runs["mapa-widest"]) <= 0.165


def test_figure_13c_pattern_matching_lifts_the_median_over_lowest_ids():
    """The paper prints 57.85 GB/s for Greedy, too: ours, on other jobs, is within a tenth."""
    topology = load("dgx1v")

    def effbws(policy: str) -> list[float]:
        simulator = Simulator({"n": topology}, registry.get(policy))
        records = simulator.run(mixed_jobs(0, 300)).records
        verdicts = [judge(topology, record.placement.gpus["n"]) for record in records]
        return [verdict.effbw_gbps for verdict in verdicts if verdict.gpus > 1]

    assert cut(median(effbws("mapa-preserve"))) == cut(median(effbws("mapa"))) == MEDIAN_GBPS
    greedy = median(effbws("mapa-greedy"))
    assert greedy == pytest.approx(MEDIAN_GBPS, rel=0.1)
    assert greedy > median(effbws("first-fit"))


def test_the_table_is_one_command(capsys):
    main(["--seeds", "2", "--jobs", "20"])
    table = capsys.readouterr().out
    assert "seeds 0-1" in table
    assert all(name in table for name in registry.names())
