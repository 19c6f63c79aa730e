"""The benchmark on a large cluster, small: fifty slurmd, both sides, every form of a job."""

from __future__ import annotations

import pytest

from bench.live.cluster import BenchCluster
from bench.live.large.start_large import Size, measure
from bench.live.start_many import ManyNodes
from slurm_cluster.cluster import Cluster

SIZE = Size(ManyNodes(50, declared=50), jobs=200, rounds=2)


@pytest.mark.cluster
@pytest.mark.select_plugin
@pytest.mark.long("starts fifty slurmd and 530 jobs")
def test_both_sides_start_the_same_jobs_and_ours_are_placed(cluster: Cluster) -> None:
    large = BenchCluster(cluster.project, cluster.description, cluster.enforcement)
    found = {figure.name: figure for figure in measure(large, SIZE)}
    selection, added = found["large.selection"].detail, found["large.added"].detail
    assert selection["starts"]["stock"] >= 200
    assert selection["starts"]["ours"] >= 200
    assert added["starts"] >= 0.8 * selection["starts"]["ours"]
    # What it waits for the engine is part of a selection, and of the time under the lock.
    assert found["large.selection"].value > selection["of_ours_in_slurms_own_ms"]
    for side in ("stock", "ours"):
        per_start = found["large.locked"].detail
        assert per_start["ms_per_start"][side] > per_start["processor_ms_per_start"][side] > 0
    assert added["own_us"][0] < 1e3 * found["large.added"].value
    assert set(added["results"]) <= {"used", "alt", "timeout", "breaker", "budget_out"}
