"""`remote=auto`: remote GPUs only where the paper's model says the job ends sooner with them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import job, rooms

from policies import Wait
from policies.remote import RemotePlacement
from policies.remote.capacity import copies
from policies.remote.r_queue import (
    LOCAL_FIRST,
    ExpectedRelease,
    JobWork,
    NetworkSpeeds,
    RQueue,
    judged,
    local_start_s,
)

#: 100,000 calls: 347 s of latency on remote GPUs instead of 99 s.
TALKATIVE = JobWork(1000.0, gpu_calls=100_000.0)
WIRES = NetworkSpeeds()


def two_nodes_with_one_idle_gpu_each():
    return rooms((0b001, 4), (0b001, 4)), {"n0": 1, "n1": 1}


def answered(asked, work, left, running, releases=(), **limit):
    """The R queue's place, judged by when local GPUs are expected."""
    answer = RQueue().decide(asked, left, running)
    wait_s = local_start_s(asked, RQueue(), left, running, releases)
    return judged(answer, work, WIRES, running, wait_s, **limit)


@pytest.mark.parametrize(
    ("sentence", "ends_s", "starts"),
    [
        ("a node is free long before the calls would be paid back", 100.0, False),
        ("it would be free just before", 248.0, False),
        ("it would be free just after", 248.3, True),
        ("it is free tomorrow", 86_400.0, True),
    ],
)
def test_remote_gpus_are_taken_only_where_waiting_takes_longer(sentence, ends_s, starts):
    left, running = two_nodes_with_one_idle_gpu_each()
    releases = [ExpectedRelease(ends_s, {"n1": 0b110}, {"n1": 4.0})]
    answer = answered(job(2), TALKATIVE, left, running, releases)
    assert isinstance(answer, RemotePlacement) == starts
    if starts:
        assert (answer.remote_gpus, answer.policy) == (1, "r-queue-auto")
    else:
        assert answer.at_most_s == ends_s


def test_the_reason_of_a_wait_names_both_predictions():
    left, running = two_nodes_with_one_idle_gpu_each()
    answer = answered(job(2), TALKATIVE, left, running, [ExpectedRelease(9.0, {"n1": 0b110})])
    assert "1347 s" in answer.reason
    assert "1108 s" in answer.reason


@pytest.mark.parametrize(("limit_s", "starts"), [(1340.0, False), (1350.0, True)])
def test_nothing_is_lent_to_a_job_that_would_meet_its_time_limit_there(limit_s, starts):
    left, running = two_nodes_with_one_idle_gpu_each()
    answer = answered(job(2), TALKATIVE, left, running, limit_s=limit_s)
    assert isinstance(answer, RemotePlacement) == starts
    assert starts or answer.reason.endswith("its time limit is 1340 s")


def test_a_crowded_donor_makes_the_same_job_wait():
    """20 GB take 3.1 s over an idle network and six times that beside five others."""
    work = JobWork(100.0, gpu_cpu_gb=20.0)
    releases = [ExpectedRelease(10.0, {"n1": 0b110}, {"n1": 4.0})]
    left, running = two_nodes_with_one_idle_gpu_each()
    assert isinstance(answered(job(2), work, left, running, releases), RemotePlacement)
    assert isinstance(answered(job(2), work, left, {"n0": 5, "n1": 5}, releases), Wait)


def test_without_an_end_in_sight_the_job_takes_remote_gpus():
    left, running = two_nodes_with_one_idle_gpu_each()
    assert local_start_s(job(2), RQueue(), left, running, []) == float("inf")
    answer = answered(job(2), TALKATIVE, left, running)
    assert isinstance(answer, RemotePlacement)


def test_what_ends_on_other_nodes_is_waited_for_by_nobody():
    """As of all the cluster's jobs, where this job may use some of its nodes."""
    left, running = two_nodes_with_one_idle_gpu_each()
    elsewhere = ExpectedRelease(9.0, {"n7": 0b1111}, {"n7": 8.0}, {"n7": 100.0})
    here = ExpectedRelease(20.0, {"n1": 0b110, "n7": 0b1}, {"n1": 4.0, "n7": 1.0})
    assert local_start_s(job(2), RQueue(), left, running, [elsewhere]) == float("inf")
    assert local_start_s(job(2), RQueue(), left, running, [elsewhere, here]) == 20.0


drawn = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 4), st.integers(0, 3)), min_size=2, max_size=4
)
ends = st.lists(st.floats(1.0, 1000.0), min_size=4, max_size=4, unique=True)


@settings(max_examples=200)
@given(drawn, ends, st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 4))
def test_local_gpus_are_predicted_for_the_first_end_after_which_the_job_fits(
    nodes, times, gpus, cpus
):
    """By releasing one running job after the other, each of which holds its node's other GPUs."""
    left = rooms(*((free, has) for free, has, _ in nodes))
    running = dict.fromkeys(left, 1)
    releases = [
        ExpectedRelease(times[n], {f"n{n}": 7 & ~free}, {f"n{n}": more})
        for n, (free, _, more) in enumerate(nodes)
    ]
    asked = job(*sorted(gpus, reverse=True), cpus=cpus)
    before = copies(left.values())
    found = local_start_s(asked, RQueue(LOCAL_FIRST), left, running, releases)
    assert left == before
    local = RQueue(LOCAL_FIRST, remote=False)
    nodes, counts, expected = copies(left.values()), dict(running), float("inf")
    for at_s, release in [(0.0, None), *sorted((one.in_s, one) for one in releases)]:
        for name, mask in release.gpus.items() if release else ():
            nodes[name].free |= mask
            nodes[name].cpus += release.cpus[name]
            counts[name] -= 1
        if isinstance(local.decide(asked, nodes, counts), RemotePlacement):
            expected = at_s
            break
    assert found == expected
