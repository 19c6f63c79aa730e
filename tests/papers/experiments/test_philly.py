"""The trace that comes with the project is whole, and its cluster has the size it says."""

from __future__ import annotations

from papers.experiments import philly


def test_the_cluster_has_as_many_nodes_and_gpus_as_the_trace_says():
    cluster = philly.cluster()
    assert (len(cluster), sum(kind.gpus for kind in cluster.values())) == (552, 2490)


def test_every_job_after_the_quiet_days_can_run():
    trace = philly.trace()
    assert not trace.rejected
    assert len(trace.jobs) == 15_000 - trace.left_out["submitted in the first 47 days"] == 14_282
