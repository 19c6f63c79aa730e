"""What can be checked of MAPA's fit without its data, and what fragmentation leaves (Figure 4)."""

from __future__ import annotations

import numpy as np
import pytest

from gres_topology.catalog import load
from papers.experiments.mapa import dgx1v, fit, fragments
from papers.experiments.mapa.links import aggregate_gbps, clique_links, ring_links
from papers.experiments.mapa.readings import best_figures, logged_gbps
from policies.bandwidth.model import TABLE_2, eq2

DGX1V = load("dgx1v")
EVERY_RING = fit.allocations(DGX1V, "every ring")


def test_the_ring_of_two_is_there_and_back_in_the_authors_code():
    assert ring_links(DGX1V, (0, 4)) == ((1, 0, 0),)
    assert ring_links(DGX1V, (0, 4), pair=2) == ((2, 0, 0),)


def test_a_ring_has_as_many_links_as_gpus_and_a_clique_all_pairs():
    for gpus in ((0, 1, 4), (0, 1, 2, 3), (0, 2, 4, 5, 7)):
        assert {sum(links) for links in ring_links(DGX1V, gpus)} == {len(gpus)}
        assert sum(clique_links(DGX1V, gpus)) == len(gpus) * (len(gpus) - 1) // 2


def test_section_2_2s_example_has_87_of_125_gbps():
    """GPUs 1, 2 and 5, counted from 1."""
    assert aggregate_gbps(clique_links(DGX1V, (0, 1, 4))) == 87
    assert fragments.share(DGX1V, (0, 1, 4)) == pytest.approx(87 / 125)
    assert fragments.share(DGX1V, (0, 2, 3)) == 1


def refit(sets, gbps):
    """Eq. 2's coefficients by least squares of measured bandwidths (GB/s), as section 3.4.3."""
    return np.linalg.lstsq(fit.design(sets), np.asarray(gbps), rcond=None)[0]


def test_a_fit_gives_its_coefficients_back():
    """The rings tell all 14 apart, so the measured bandwidths would have decided Table 2."""
    found = refit(EVERY_RING, [eq2(*links) for links in EVERY_RING])
    assert found == pytest.approx(TABLE_2, abs=1e-6)


def test_errors_of_a_fit_are_at_right_angles_to_what_it_predicts():
    """Which is what `implied` rests on, whatever was measured."""
    measured = np.random.default_rng(1).uniform(5, 70, len(EVERY_RING))
    predicted = fit.design(EVERY_RING) @ refit(EVERY_RING, measured)
    errors = measured - predicted
    assert np.sum(measured**2) == pytest.approx(np.sum(predicted**2) + np.sum(errors**2))


def test_the_printed_errors_fit_together_only_in_the_authors_definition():
    """No RMSE is below the mean absolute error; over 31 instead of its root it may be."""
    implied = fit.implied()
    assert fit.RMSE_GBPS < fit.MAE_GBPS < implied["error_rms_gbps"]
    assert implied["measured_rms_gbps"] < 50  # the peak of the widest link, Table 1


def test_the_rings_come_nearest_to_what_the_printed_errors_imply():
    """30.5 GB/s of RMS; all pairs would have bandwidths below 0."""
    wanted = fit.implied()["predicted_rms_gbps"]
    rows = {way: fit.described(fit.allocations(DGX1V, way)) for way in fit.WAYS}
    off = {way: abs(row["predicted_rms_gbps"] / wanted - 1) for way, row in rows.items()}
    assert off["every ring"] == min(off.values()) < 0.15
    assert rows["all pairs of each set"]["predicted_min_gbps"] < 0
    assert min(row["sets"] for row in rows.values()) < fit.SAMPLES < rows["every ring"]["sets"]


@pytest.fixture(scope="module")
def figure4():
    return fragments.run((0, 1, 2, 3)).measured


def test_figure_4_most_jobs_get_less_than_the_best_and_small_ones_the_least(figure4):
    for numbering in ("", ", renumbered"):
        rows = [figure4[f"first-fit, {size} GPUs{numbering}"] for size in fragments.SIZES]
        assert rows[1]["suboptimal"] > 0.5
        shares = [row["share_p25"] for row in rows]
        assert max(shares[:2]) < min(shares[2:])


def test_figure_4s_printed_quartiles_are_met_where_ids_say_nothing_of_the_links(figure4):
    """75 % of the jobs of three GPUs at 0.80 or less, 25 % at 0.55 or less."""
    row = figure4["first-fit, 3 GPUs, renumbered"]
    assert row["share_p75"] <= 0.80
    assert row["share_p25"] <= 0.55 + row["share_p25_sd"]


def test_the_printed_median_is_one_only_in_the_reading_of_the_authors_log():
    """57.85 GB/s for Greedy and Preserve; a bound for any policy on 300 jobs of each seed."""
    for seed in range(5):
        jobs = dgx1v.job_file(seed)
        best = best_figures(jobs, DGX1V)
        assert best["sensitive_effbw1_p50_gbps"] < 57.85 - 1
        assert best["sensitive_logged_p50_gbps"] >= 57.85


def test_the_log_has_the_ring_that_the_policy_chose_by():
    records = dgx1v.records_of("first-fit", DGX1V, 3, jobs=60)
    for record in records:
        (gpus,) = record.placement.gpus.values()
        logged = logged_gbps(record, DGX1V)
        if len(gpus) == 1:
            assert logged == eq2(0, 0, 0)
        else:
            rings = [eq2(*links) for links in ring_links(DGX1V, tuple(sorted(gpus)), 2)]
            assert min(rings) <= logged <= max(rings)
