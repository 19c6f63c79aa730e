"""What the SC17 paper's policies must reach in its experiments; tolerances beside the bars."""

from __future__ import annotations

from pathlib import Path

import pytest

from gres_topology.catalog import load
from papers.experiments import experiments
from papers.experiments.sc17 import MACHINE, loaded, scenarios
from papers.experiments.sc17.profile import Profiled
from papers.experiments.sc17.table1 import PAPER, jobs_of
from policies.registry import registry
from simulation.models.placing import Simulator
from simulation.report.metrics import SLO_SLOWDOWN

OTHERS = ("fcfs", "best-fit", "topo-aware")


@pytest.fixture(scope="module", params=["authors", "printed"])
def variant(request):
    return request.param


@pytest.fixture(scope="module")
def table1(variant):
    return experiments["sc17-table1"].run(variant=variant)


def test_no_policy_beats_the_bound_that_sees_the_future(table1, variant):
    bound = table1.measured["exhaustive-clairvoyant"]["makespan_s"]
    assert bound <= table1.measured["exhaustive"]["makespan_s"] + 1e-6
    speed = Profiled(loaded("prof_from_experiments_full"))
    for name in registry.names():
        run = Simulator({"n": load(MACHINE)}, registry.get(name), speed).run(jobs_of(variant))
        assert bound <= max(record.end_s for record in run.records) + 1e-6, name


@pytest.mark.parametrize("other", OTHERS)
def test_postponing_is_ahead_by_what_the_authors_own_simulator_has(table1, other):
    """433.4 s for TOPO-AWARE, which is ahead of FCFS and BF, against 396.0 for TOPO-AWARE-P."""
    ours, theirs = table1.measured["topo-aware-p"], table1.measured[other]
    assert theirs["makespan_s"] / ours["makespan_s"] >= 433.4 / 396.0


def test_without_postponing_it_is_as_the_greedy_ones(table1):
    """The paper: 454.2 s against 456.2 (FCFS) and 461.7 (BF)."""
    for other in ("fcfs", "best-fit"):
        ratio = table1.measured["topo-aware"]["makespan_s"] / table1.measured[other]["makespan_s"]
        assert ratio == pytest.approx(1, abs=0.02)


def test_only_postponing_violates_no_slo_and_no_minimum_utility(table1):
    """Jobs 1, 3 and 4 suffer about 50 % under the others (section 5.2.2)."""
    for name in ("slo_violations", "below_min_utility"):
        assert table1.measured["topo-aware-p"][name] == 0
    for other in OTHERS:
        assert table1.measured[other]["slo_violations"] == 3
        assert table1.measured[other]["below_min_utility"] > 0
        assert table1.measured[other]["slowdown_max"] == pytest.approx(1.5, abs=0.15)


def test_as_printed_nothing_is_ever_postponed(table1):
    rows = [table1.measured[f"{name}, as printed"] for name in ("topo-aware", "topo-aware-p")]
    assert rows[0] == rows[1]
    assert rows[1]["below_min_utility"] > 0


def test_expecting_a_slowdown_that_is_not_there_comes_within_5_per_cent_of_the_bound(table1):
    for name in ("topo-aware", "topo-aware-p"):
        assert 1 <= table1.measured[f"{name}, pessimistic"]["over_bound"] + 1e-9 <= 1.05


@pytest.mark.parametrize(
    "load", [pytest.param("printed", marks=pytest.mark.long("the whole scenario")), "80", "95"]
)
def test_postponing_violates_the_fewest_slos_in_scenario_1(load):
    measured = experiments["sc17-scenario1"].run(load=load).measured
    fewest = min(measured[other]["slo_violations"] for other in OTHERS)
    assert measured["topo-aware-p"]["slo_violations"] <= fewest
    assert measured["topo-aware-p"]["below_min_utility"] == 0


def test_the_figures_beside_ours_are_those_that_the_documentation_gives_as_the_papers():
    text = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text()
    [row] = [line for line in text.splitlines() if line.startswith("| the paper | 4")]
    names = ("fcfs", "best-fit", "topo-aware", "topo-aware-p")
    printed = [PAPER[name]["makespan_s"] for name in names]
    assert [float(cell) for cell in row.split("|")[2:6]] == printed


def test_scenario_2_has_the_papers_order():
    """Its first 1,000 jobs. Section 5.5.2: FCFS is the worst, followed by BF."""
    jobs = scenarios.jobs_of("workloads-10000", 1000, "printed")[:1000]
    late = {
        name: sum(record.slowdown > SLO_SLOWDOWN for record in run.records)
        for name, run in scenarios.runs_of(jobs, 1000).items()
    }
    assert late["topo-aware-p"] <= late["topo-aware"] < late["best-fit"] < late["fcfs"]
