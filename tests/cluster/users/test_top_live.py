"""`gputopo top` of two users and of root beside what Slurm itself tells."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from lending_harness import borrower, lending_site, taken_away_after
from modes import enforcement

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from tests.cluster.users.waiting_states import waiting

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.both_modes,
    pytest.mark.long(
        "a queue of its own; a recorded site is tested in tests/slurm_plugin/tell/top"
    ),
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


LOG = "/var/log/gputopo/decisions.jsonl"
#: What others may have left in the log: half a line, another program's, right JSON of wrong types.
GARBAGE = (
    r'{"time":"T","job":7,"deci\n\0377\0376\n[[[[\n"text"\n{"decision":"of later","job":7}\n'
    r'{"decision":"use","job":7,"chosen":{"gpus":[0,3]}}\n{"decision":"use","job":"7"}\n'
    r'{"decision":"lent","job":7,"host":5,"gpus":{"dgx1":[1]},"donors":[]}\n'
)


@contextmanager
def littered_log(cluster: Cluster) -> Iterator[None]:
    """A block in which garbage stands in the log; the engine finds another file there after it."""
    cluster.run("ctl", f"cp -p {LOG} {LOG}.kept")
    try:
        cluster.run("ctl", ["sh", "-c", f"printf %b '{GARBAGE}' >>{LOG}"])
        yield
    finally:
        cluster.run("ctl", f"mv {LOG}.kept {LOG}")


@pytest.mark.enforced
def test_where_gpus_are_lent_the_view_goes_on_whatever_stands_in_the_log(cluster):
    with taken_away_after(cluster), lending_site(cluster):
        job = borrower(cluster)
        loan = f'"decision":"lent".*"job":{job.id},'
        until(
            lambda: cluster.run("ctl", f"grep '{loan}' {LOG}", check=False).out,
            lambda: f"the loan is in the log: {cluster.run('ctl', f'tail -n 5 {LOG}').out}",
            10,
        )
        with littered_log(cluster):
            shown_beside_garbage(cluster, job.id)


def shown_beside_garbage(cluster: Cluster, job: int) -> None:
    alices, bobs, roots = (top(cluster, user) for user in ("alice", "bob", "root"))
    words = rf" {job} alice runs on dgx[12]: [\d,]+"
    for text in (alices, roots):
        assert re.search(words, text), text
        assert "cannot be shown" not in text
    assert not re.search(words, bobs), bobs
    assert "decision log: 8 lines of it cannot be read, and left out" in roots
    assert "cannot be read" not in alices + bobs
    told = cluster.run("ctl", ["gputopo", "explain", str(job)]).out
    assert "lent GPUs of other nodes" in told or "placed" in told, told
    report = cluster.run("ctl", ["gputopo", "report"]).out
    assert "lines of the log that cannot be read, and are left out: 8" in report, report
