"""Faults of hosts, networks, disks, clocks and daemons, under the whole as a site runs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster import Cluster
from live_harness import Watch, asking, watched


@pytest.fixture(scope="module")
def settings(session_cluster: Cluster | str) -> Iterator[None]:
    """A deadline that a busy machine can meet; a failed engine is soon tried again."""
    if isinstance(session_cluster, str):
        yield
        return
    with asking(session_cluster, deadline_ms=450):
        yield


@pytest.fixture
def watch(settings: None, cluster: Cluster) -> Iterator[Watch]:
    """No GPU is held by two jobs at any moment of the test."""
    with watched(cluster) as found:
        yield found
