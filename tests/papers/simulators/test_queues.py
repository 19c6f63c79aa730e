"""The G queue beside the R queue, and the queue that borrows only where that gains."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from papers.simulators.queues import AutoRQueue, GQueue
from policies import Wait
from policies.remote import RemotePlacement
from policies.remote.r_queue import (
    LEAST_OCCUPIED,
    LOCAL_FIRST,
    NETWORK_AWARE,
    ExpectedRelease,
    JobWork,
    NetworkSpeeds,
    RQueue,
    execution_s,
    local_start_s,
)
from tests.policies.machines import job, rooms

#: (free mask, free CPUs, jobs) of each node.
drawn = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 8), st.integers(0, 2)), min_size=1, max_size=5
)


def on(nodes):
    """What is free on such nodes, and the jobs that run on each."""
    return rooms(*(node[:2] for node in nodes)), {
        f"n{n}": jobs for n, (*_, jobs) in enumerate(nodes)
    }


def test_the_g_queue_leaves_the_papers_figure_1_waiting():
    """One GPU idle on each of two nodes in use; a job of two GPUs on one node."""
    free = on([(0b100, 6, 1), (0b100, 6, 1)])
    assert isinstance(GQueue().decide(job(2), *free), Wait)
    assert isinstance(RQueue().decide(job(2), *free), RemotePlacement)


@settings(max_examples=200)
@given(
    drawn,
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from((LEAST_OCCUPIED, LOCAL_FIRST, NETWORK_AWARE)),
)
def test_whatever_the_g_queue_starts_the_r_queue_starts_on_the_same_nodes(
    nodes, gpus, count, cpus, remote, donors
):
    free, asked = on(nodes), job(*(gpus,) * count, cpus=cpus, remote_allowed=remote)
    plain = GQueue().decide(asked, *free)
    if isinstance(plain, RemotePlacement):
        assert RQueue(donors).decide(asked, *free).tasks == plain.tasks


def test_a_job_with_all_its_gpus_on_its_own_node_is_not_judged():
    free = on([(0b111, 8, 0)])
    assert AutoRQueue().decide(job(2), JobWork(1.0), *free, []) == RQueue().decide(job(2), *free)


def test_the_model_chooses_between_the_orders_of_donors():
    """One crowded donor has both GPUs, two others one each; few bytes leave both orders equal."""
    left = rooms((0, 4), (0b11, 0), (0b01, 0), (0b01, 0))
    running = {"n0": 1, "n1": 5, "n2": 1, "n3": 1}
    heavy = AutoRQueue().decide(job(2), JobWork(100.0, gpu_cpu_gb=20.0), left, running, [])
    light = AutoRQueue().decide(job(2), JobWork(100.0), left, running, [])
    assert list(heavy.donors) == ["n2", "n3"]
    assert list(light.donors) == ["n1"]


@settings(max_examples=200)
@given(
    drawn.filter(lambda nodes: len(nodes) > 1),
    st.lists(st.floats(1.0, 1000.0), min_size=5, max_size=5, unique=True),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.floats(100, 100_000),
    st.floats(0, 11),
)
def test_no_job_takes_remote_gpus_that_is_predicted_to_lose(nodes, times, gpus, calls, gb):
    left, running = on(nodes)
    releases = [ExpectedRelease(times[n], {name: 7}) for n, name in enumerate(left)]
    asked = job(*sorted(gpus, reverse=True))
    work = JobWork(60.0, gb, gb, gb, calls, calls)
    answer = AutoRQueue().decide(asked, work, left, running, releases)
    if isinstance(answer, RemotePlacement) and answer.remote_gpus:
        used = {task.node for task in answer.tasks} | set(answer.donors)
        crowd = 1 + max(running[name] for name in used)
        wait_s = local_start_s(asked, RQueue(), left, running, releases)
        assert execution_s(work, NetworkSpeeds(), True, crowd) < wait_s + execution_s(
            work, NetworkSpeeds(), False
        )
