"""MAPA's experiments: the reconstruction gives the paper's times back, the oracle is a bound."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from gres_topology.catalog import load
from papers.experiments.mapa import dgx1v, graphs, novel, overhead
from papers.experiments.mapa.jobs import ByEffBw, effbw_gbps, job_file, network_of, seconds
from papers.experiments.mapa.readings import QUANTILES, averaged, bandwidths, five
from papers.experiments.mapa.reconstruction import CURVES, NETWORKS
from policies.bandwidth.model import eq2
from simulation import SimulationError
from simulation.core.jobs import SimJob
from simulation.models.speed import PlacedJob

DGX1V = load("dgx1v")
NETWORK = {network.name: network for network in NETWORKS}
SEEDS = (0, 1, 2)
JOBS = 120


@pytest.fixture(scope="module")
def result():
    return dgx1v.run(SEEDS, jobs=JOBS)


@pytest.mark.parametrize(
    ("gpus", "links"),
    [
        ((1, 5), ["NV2"]),
        ((1, 2), ["NV1"]),
        ((1, 6), ["SYS"]),
        ((1, 2, 5), ["NV1", "NV2", "SYS"]),
        ((1, 3, 4), ["NV1", "NV2", "NV2"]),
    ],
)
def test_the_paper_numbers_gpus_as_nvidia_smi_does_from_one(gpus, links):
    """Sections 2.1 and 2.2 name the links between these."""
    assert sorted(DGX1V.kinds[a - 1][b - 1] for a, b in combinations(gpus, 2)) == links


def test_figure_2b_vgg_is_three_times_as_slow_on_pcie():
    """Between two GPUs on a double NVLink and on PCIe: what its share is taken from."""
    slow, fast = (effbw_gbps(DGX1V, gpus) for gpus in ((0, 5), (0, 4)))
    vgg = NETWORK["vgg-16"]
    assert seconds(vgg, slow) / seconds(vgg, fast) == pytest.approx(3, rel=0.01)
    assert seconds(vgg, slow, CURVES["low"]) / seconds(vgg, fast, CURVES["low"]) < 2.3


def test_section_4_1s_bad_times_are_those_of_a_bandwidth_between_pcie_and_nvlink():
    """Where VGG-16 takes 785 s by figure 2b; AlexNet's share comes from its 511 s there."""
    bad, by_vgg = np.linspace(10, 50, 401), NETWORK["vgg-16"]
    gbps = min(bad, key=lambda gbps: abs(seconds(by_vgg, gbps) - 785))
    pcie, single = (effbw_gbps(DGX1V, gpus) for gpus in ((0, 5), (0, 1)))
    assert pcie < gbps < single
    assert seconds(NETWORK["alexnet"], gbps) == pytest.approx(511, rel=0.02)


def test_the_printed_25th_percentile_is_no_sets_and_the_median_is_one_of_three_gpus():
    """12.33 GB/s is eq. 2 without links; 57.85 two double links and a single one."""
    sets = [
        effbw_gbps(DGX1V, gpus) for size in range(2, 6) for gpus in combinations(range(8), size)
    ]
    assert min(abs(gbps - 12.33) for gbps in sets) > 0.1
    assert eq2(0, 0, 0) == pytest.approx(12.33, abs=0.01)
    assert effbw_gbps(DGX1V, (0, 2, 3)) == pytest.approx(57.85, abs=0.01)


def test_insensitive_networks_lose_at_most_four_per_cent_on_pcie():
    slow = effbw_gbps(DGX1V, (0, 5))
    for network in NETWORKS:
        if not network.is_sensitive:
            assert seconds(network, slow) / network.best_s < 1.045


def test_one_gpu_takes_its_best_time_and_has_no_bandwidth():
    assert effbw_gbps(DGX1V, (3,)) is None
    assert seconds(NETWORK["vgg-16"], None) == 378.0


def test_the_job_file_is_uniform_and_the_seeds_own():
    jobs = job_file(7, 3000)
    assert jobs == job_file(7, 3000) != job_file(8, 3000)
    sizes = Counter(job.gpus_per_node[0] for job in jobs)
    names = Counter(network_of(job).name for job in jobs)
    assert set(sizes) == {1, 2, 3, 4, 5}
    assert set(names) == set(NETWORK)
    assert min(sizes.values()) > 500
    assert min(names.values()) > 400


def test_a_job_says_it_is_sensitive_as_its_network_is():
    for job in job_file(1, 50):
        assert job.hint.endswith("yes" if network_of(job).is_sensitive else "no")


def test_a_job_of_no_known_network_is_refused_by_name():
    with pytest.raises(SimulationError, match=r"job 4 is named 'bert/1'; expected vgg-16\|"):
        network_of(SimJob(4, (1,), 1.0, name="bert/1"))


def test_nobody_is_faster_than_ideal_wherever_it_is_placed():
    speed = ByEffBw(DGX1V)
    for job in job_file(3, 200):
        gpus = tuple(range(8))[-job.gpus_per_node[0] :]
        placed = PlacedJob(job, {"dgx1v": gpus})
        assert speed.full_s(placed, {"dgx1v": DGX1V}, ()) >= speed.ideal_s(job)


@pytest.mark.parametrize("policy", [*dgx1v.POLICIES, dgx1v.ORACLE])
def test_the_oracle_bounds_every_policy(result, policy):
    """Shorter jobs never start a later one later: strict order on GPUs that count alike."""
    bound, row = result.measured["oracle"], result.measured[policy]
    for name, value in row.items():
        if ("speedup" in name or name == "throughput") and not name.endswith("_sd"):
            assert value <= bound[name] + 1e-9, name


def test_sections_4_1_order_of_the_policies_is_met(result):
    """Preserve beats Baseline in the lower quartile of bandwidth, in the tail and throughput."""
    baseline, preserve = (result.measured[name] for name in ("first-fit", "mapa-preserve"))
    for metric in ("effbw", "effbw1"):
        for word in ("p25", "p50"):
            name = f"sensitive_{metric}_{word}_gbps"
            assert preserve[name] > baseline[name], name
    assert preserve["sensitive_speedup_max"] >= 1.352
    assert preserve["throughput"] == pytest.approx(1.12, abs=preserve["throughput_sd"])
    assert preserve["throughput"] > result.measured["topo-aware"]["throughput"]


def test_the_default_is_no_worse_than_preserve_by_more_than_the_spread(result):
    ours, preserve = result.measured["mapa"], result.measured["mapa-preserve"]
    assert ours["throughput"] > preserve["throughput"] - preserve["throughput_sd"]


def test_insensitive_jobs_hardly_feel_their_placement(result):
    """Figure 16: their times are not impacted by effective bandwidth."""
    for policy in (*dgx1v.POLICIES, dgx1v.ORACLE):
        assert result.measured[policy]["insensitive_speedup_p75"] < 1.02


def test_the_other_curves_move_the_result_and_keep_its_sign(result):
    lowest, low, steep = (
        result.measured[f"mapa-preserve{tail}"]["throughput"]
        for tail in (", lowest curve", ", low curve", "")
    )
    assert 1 < lowest < low < steep


def test_lowest_ids_suffer_where_the_numbering_says_nothing_of_the_links(result):
    row, same = result.measured["first-fit, renumbered"], result.measured["first-fit"]
    assert row["sensitive_effbw_p25_gbps"] < same["sensitive_effbw_p25_gbps"]
    assert row["sensitive_time_p75_s"] > same["sensitive_time_p75_s"]
    preserve = result.measured["mapa-preserve, renumbered"]
    assert preserve["throughput"] > result.measured["mapa-preserve"]["throughput"]


def test_a_job_of_one_gpu_counts_as_no_link_or_not_at_all():
    jobs = dgx1v.records_of("mapa", DGX1V, 1, jobs=40)
    found = bandwidths(jobs, DGX1V, lambda network: True)
    singles = sum(job.job.gpus_per_node == (1,) for job in jobs)
    counted = bandwidths(jobs, DGX1V, lambda network: True, eq2(0, 0, 0))
    assert sorted(counted) == sorted(found + singles * [eq2(0, 0, 0)])


def test_the_papers_figures_stand_beside_metrics_that_are_measured(result):
    assert set(result.paper) <= set(result.measured)
    for policy, row in result.paper.items():
        assert set(row) <= set(result.measured[policy]), policy
    assert result.paper["mapa-preserve"]["sensitive_speedup_p75"] == 1.124


def test_the_same_seeds_give_the_same_figures():
    first, second = (dgx1v.compare({4: DGX1V}, ("mapa",), "low", 30) for _ in range(2))
    assert first == second


def test_spread_is_that_of_the_seeds():
    rows = [{"a": 1.0}, {"a": 3.0, "b": 5.0}]
    assert averaged(rows) == {"a": 2.0, "a_sd": pytest.approx(2**0.5), "b": 5.0, "b_sd": 0.0}


def test_a_box_plot_has_five_numbers_and_nothing_has_none():
    assert five([1.0, 2.0, 3.0, 4.0, 5.0]) == dict(zip(QUANTILES, (1, 2, 3, 4, 5), strict=True))
    assert five([]) == {}


@pytest.mark.parametrize("graph", ["torus-16", "cubemesh-16"])
def test_section_5_3_preserve_lifts_the_lower_tail_of_sensitive_jobs(graph):
    found = novel.compare(dict.fromkeys(SEEDS, load(graph)), jobs=JOBS)
    ours, baseline = found["mapa-preserve"], found["first-fit"]
    for word in ("p25", "p50", "p75"):
        name = f"sensitive_effbw_{word}_gbps"
        assert ours[name] > baseline[name], word
    assert ours["sensitive_effbw_p25_gbps"] > 0.9 * baseline["sensitive_effbw_p50_gbps"]


def test_the_jobs_of_section_5_take_what_they_took_under_baseline():
    first, second = novel.timed_jobs(2, jobs=20)[:2]
    records = dgx1v.records_of("first-fit", DGX1V, 2, jobs=20)
    assert [first.duration_s, second.duration_s] == [r.end_s - r.start_s for r in records[:2]]


@pytest.mark.parametrize("graph", ["torus-16", "cubemesh-16"])
def test_the_graphs_it_is_varied_over_differ_as_said(graph):
    machine = load(graph)
    theirs, drawn = graphs.as_in_their_code(machine), graphs.renumbered(machine, 1)
    changed = np.argwhere(np.triu(theirs.bandwidth_gbps != machine.bandwidth_gbps))
    assert sorted(map(tuple, changed.tolist())) == [
        (a, b) for a, b, _ in graphs.AS_IN_THEIR_CODE[graph]
    ]
    assert (theirs.bandwidth_gbps == theirs.bandwidth_gbps.T).all()
    assert not np.array_equal(drawn.bandwidth_gbps, machine.bandwidth_gbps)
    for both in (drawn, machine):
        assert sorted(both.bandwidth_gbps.sum(axis=0)) == sorted(machine.bandwidth_gbps.sum(axis=0))


def test_each_16_gpu_experiment_says_what_the_paper_says_of_its_figure():
    for run, words in ((novel.torus16, "25th percentile is better"), (novel.cubemesh16, "near")):
        found = run((0,), jobs=20)
        assert words in found.notes[-1]
        assert "mapa-preserve, renumbered" in found.measured


def test_overhead_asks_for_every_size_up_to_the_node():
    found = overhead.run((), machines=("summit",), repeats=1)
    row = found.measured["mapa-preserve on summit"]
    assert list(row) == [
        f"gpus_{k:02}_{word}_s" for k in range(2, 7) for word in ("first", "again")
    ]
    assert all(value > 0 for value in row.values())
