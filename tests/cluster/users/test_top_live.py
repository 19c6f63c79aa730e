"""`gputopo top` of two users and of root beside what Slurm itself tells."""

import re

import pytest
from modes import enforcement

from slurm_cluster.cluster import Cluster
from tests.cluster.users.waiting_states import waiting

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.both_modes,
    pytest.mark.long("a queue of its own; a recorded site is tested in tests/slurm_plugin/top"),
]


def top(cluster: Cluster, user: str) -> str:
    """What it prints once, each line and blank as one blank."""
    return " ".join(cluster.run("ctl", ["gputopo", "top"], user=user).out.split())


def sentence(cluster: Cluster, job: int) -> str:
    """What `gputopo why` says of alice's job."""
    told = cluster.run("ctl", ["gputopo", "why", str(job)], user="alice").out
    return told.splitlines()[0]


def test_each_user_sees_what_why_says_and_the_gpus_that_slurm_has_given(cluster):
    name = "fragmentation" if enforcement() == "select" else "fragmentation behind a gate"
    with waiting(cluster, name) as numbers:
        words = sentence(cluster, numbers["job"])
        alices, bobs, roots = (top(cluster, user) for user in ("alice", "bob", "root"))
        for text in (alices, roots):
            assert words in text
        assert "bob" not in alices
        assert "alice" not in bobs
        assert re.search(r"dgx1 [.!]{3}##### ", alices)
        assert re.search(r"dgx1 [.!]{3}[A-Za-wyz]{5} ", bobs)
        assert re.search(r"runs on dgx1: [\d,]+", bobs)
        assert "Waiting: 1 " in alices
        assert "Waiting: 0 of 1 " in bobs
