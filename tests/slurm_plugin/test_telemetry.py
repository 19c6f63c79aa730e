"""Histograms, as Prometheus reads them."""

from slurm_plugin.base.telemetry import Histogram


def test_buckets_are_cumulative_and_a_bound_belongs_to_the_one_below():
    times = Histogram((1.0, 2.5))
    for seconds in (-3, 1.0, 1.5, 9):
        times.add(seconds)
    assert times.cumulative() == ([("1.0", 2), ("2.5", 3), ("+Inf", 4)], 11.5)
