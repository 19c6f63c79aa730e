"""Faults of hosts, networks, disks, clocks and daemons, under the whole as a site runs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from live_harness import Watch, watched

from slurm_cluster.cluster import Cluster


@pytest.fixture
def watch(cluster: Cluster) -> Iterator[Watch]:
    """No GPU is held by two jobs at any moment of the test."""
    with watched(cluster) as found:
        yield found
