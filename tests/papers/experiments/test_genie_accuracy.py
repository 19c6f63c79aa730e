"""The performance models against the committed measurements."""

from __future__ import annotations

import pytest

from papers.experiments.genie.accuracy import of_profile
from papers.experiments.pollux import PROFILES, runs_of
from policies.performance import lightweight

#: Cross-validated, per cent: the mean and the 95th percentile stay below.
MEAN, P95 = 13.0, 35.0


def test_the_measurements_are_all_there():
    assert {profile: len(runs_of(profile)) for profile in PROFILES} == {
        "bert": 720, "cifar10": 1512, "deepspeech2": 952, "imagenet": 1152, "ncf": 2119,
        "yolov3": 648,
    }  # fmt: skip


@pytest.mark.parametrize("profile", PROFILES)
def test_the_calibrated_model_holds_on_placements_it_has_not_seen(profile):
    figures = of_profile(profile, (1,))
    assert figures["cv_mean_pct"] <= MEAN
    assert figures["cv_p95_pct"] <= P95


@pytest.mark.parametrize("profile", PROFILES)
def test_from_lightweight_runs_it_is_better_than_eqs_5_to_8(profile):
    figures = of_profile(profile, (1,))
    for measure in ("mean", "median", "p95"):
        assert figures[f"light_{measure}_pct"] < figures[f"genie_light_{measure}_pct"]
        assert figures[f"light_{measure}_pct"] < figures[f"genie_all_{measure}_pct"]
    assert figures["light_gap_pct"] > 10


def test_lightweight_runs_are_few():
    assert all(len(lightweight(runs_of(profile))) <= 31 for profile in PROFILES)
