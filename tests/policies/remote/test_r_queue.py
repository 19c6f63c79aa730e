"""The R queue starts what finds no whole node, on GPUs nobody uses."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import job, rooms

from policies import Wait
from policies.remote import RemotePlacement
from policies.remote.r_queue import (
    LEAST_OCCUPIED,
    LOCAL_FIRST,
    NETWORK_AWARE,
    JobWork,
    NetworkSpeeds,
    RQueue,
    execution_s,
)


def decided(queue, asked, nodes, donor_cpus=0):
    """The queue's answer on nodes that are each given as (free mask, free CPUs, jobs on it)."""
    left = rooms(*(node[:2] for node in nodes), donor_cpus=donor_cpus)
    return queue.decide(asked, left, {f"n{n}": jobs for n, (_, _, jobs) in enumerate(nodes)})


def test_a_gpu_idle_on_each_of_two_nodes_in_use_serves_a_job_of_two():
    """The paper's Figure 1."""
    found = decided(RQueue(), job(2), [(0b100, 6, 1), (0b100, 6, 1)])
    assert found.tasks[0].local == (2,)
    assert found.tasks[0].remote == (("n1", 2),)


def test_whole_nodes_come_first_and_only_the_missing_task_is_remote():
    free = [(0b111, 8, 0), (0b100, 6, 1), (0b110, 0, 1)]
    first, second = decided(RQueue(), job(3, 3), free).tasks
    assert (first.node, first.local, first.remote) == ("n0", (0, 1, 2), ())
    assert second.node == "n1"
    assert second.remote == (("n2", 1), ("n2", 2))


def test_the_papers_order_asks_the_least_occupied_and_ours_the_nearest():
    free = [(0b110, 4, 3), (0b100, 4, 1), (0b001, 0, 2)]
    papers = decided(RQueue(LEAST_OCCUPIED), job(2), free)
    assert (papers.tasks[0].node, papers.donors) == ("n1", {"n2": 0b001})
    ours = decided(RQueue(LOCAL_FIRST), job(2), free)
    assert (ours.tasks[0].node, ours.remote_gpus) == ("n0", 0)


def test_ours_asks_one_donor_that_has_all_rather_than_two():
    free = [(0, 4, 1), (0b001, 0, 1), (0b011, 0, 5)]
    assert decided(RQueue(), job(2), free).donors == {"n2": 0b011}


def test_all_or_nothing_where_the_second_task_has_no_gpus():
    assert isinstance(decided(RQueue(), job(3, 3), [(0b111, 8, 0), (0b011, 8, 1)]), Wait)


def test_a_job_that_forbids_remote_gpus_shares_a_node_or_waits():
    free = [(0b001, 8, 1), (0b011, 8, 1)]
    assert decided(RQueue(), job(2, remote_allowed=False), free).tasks[0].node == "n1"
    assert isinstance(decided(RQueue(remote=False), job(3), free), Wait)
    assert isinstance(decided(RQueue(), job(3), free), RemotePlacement)


def test_a_donor_without_a_cpu_for_its_server_lends_nothing():
    free = [(0b001, 8, 1), (0b011, 0, 1)]
    assert isinstance(decided(RQueue(), job(3), free, donor_cpus=1), Wait)
    assert decided(RQueue(), job(3), free).remote_gpus == 2


nodes = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 8), st.integers(0, 2)), min_size=1, max_size=5
)
asked = st.builds(
    lambda gpus, count, cpus, remote: job(*(gpus,) * count, cpus=cpus, remote_allowed=remote),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.booleans(),
)


@settings(max_examples=300)
@given(
    nodes, asked, st.sampled_from((LEAST_OCCUPIED, LOCAL_FIRST, NETWORK_AWARE)), st.integers(0, 2)
)
def test_a_job_gets_free_gpus_and_cpus_only_each_once_and_all_it_asked(
    free, request, donors, donor_cpus
):
    answer = decided(RQueue(donors), request, free, donor_cpus)
    if isinstance(answer, Wait):
        return
    assert tuple(len(t.local) + len(t.remote) for t in answer.tasks) == (
        request.request.gpus_per_node
    )
    pairs = [(t.node, gpu) for t in answer.tasks for gpu in t.local]
    pairs += [pair for t in answer.tasks for pair in t.remote]
    assert len(pairs) == len(set(pairs))
    assert all(free[int(name[1:])][0] >> gpu & 1 for name, gpu in pairs)
    assert all(name != t.node for t in answer.tasks for name, _ in t.remote)
    assert request.remote_allowed or not answer.remote_gpus
    for number, (_, free_cpus, _) in enumerate(free):
        cpus = sum(request.cpus for task in answer.tasks if task.node == f"n{number}")
        lent = [donor for task in answer.tasks for donor, _ in task.remote]
        assert cpus + donor_cpus * lent.count(f"n{number}") <= free_cpus


@settings(max_examples=200)
@given(nodes, asked)
def test_one_task_waits_only_where_no_node_has_its_cpus_or_too_few_gpus_are_idle(free, request):
    one = job(request.request.gpus_per_node[0], cpus=request.cpus)
    idle = sum(mask.bit_count() for mask, _, _ in free)
    fits = any(cpus >= one.cpus for _, cpus, _ in free)
    for donors in (LEAST_OCCUPIED, LOCAL_FIRST, NETWORK_AWARE):
        is_wait = isinstance(decided(RQueue(donors), one, free), Wait)
        assert is_wait == (not fits or idle < sum(one.request.gpus_per_node))


def crowd(task, running):
    return max(running[name] for name in (task.node, *(name for name, _ in task.remote)))


def every_place(gpus, left):
    """(host, source of each GPU) of one task, whatever the order."""
    for host in left:
        for sources in combinations_with_replacement(left, gpus):
            if all(sources.count(name) <= left[name].free.bit_count() for name in left):
                yield host, sources


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 4)), min_size=2, max_size=4),
    st.integers(1, 3),
)
def test_network_aware_donors_make_one_task_end_as_early_as_any_other_choice(nodes, gpus):
    """By the model, whatever the work: local if some node has all, else the least crowded place."""
    left = rooms(*((free, 8) for free, _ in nodes))
    running = {f"n{n}": 1 + jobs for n, (_, jobs) in enumerate(nodes)}
    found = RQueue(NETWORK_AWARE).decide(job(gpus), left, running)
    places = list(every_place(gpus, left))
    if isinstance(found, Wait):
        assert not places
        return
    (task,) = found.tasks
    work = JobWork(10.0, 1.0, 1.0, 1.0, 1000, 1000)
    best = min(
        execution_s(
            work,
            NetworkSpeeds(),
            any(name != host for name in sources),
            1 + max(running[name] for name in (host, *sources)),
        )
        for host, sources in places
    )
    got = execution_s(work, NetworkSpeeds(), bool(task.remote), 1 + crowd(task, running))
    assert got == pytest.approx(best)


def test_local_first_takes_one_donor_with_all_the_rest_network_aware_the_least_crowded():
    left = rooms((0, 8), (3, 0), (1, 0), (1, 0))
    running = {"n0": 1, "n1": 4, "n2": 1, "n3": 1}
    near = RQueue(LOCAL_FIRST).decide(job(2), left, running)
    far = RQueue(NETWORK_AWARE).decide(job(2), left, running)
    assert list(near.donors) == ["n1"]
    assert list(far.donors) == ["n2", "n3"]


@pytest.mark.parametrize(("lending_counts", "second"), [(True, "n2"), (False, "n1")])
def test_a_lender_is_the_next_donor_again_only_where_lending_does_not_count(lending_counts, second):
    """Both donors run one job and have no CPU left; the first lends a GPU to the first task."""
    left = rooms((0, 8), (3, 0), (3, 0))
    queue = RQueue(LEAST_OCCUPIED, lending_counts=lending_counts)
    found = queue.decide(job(1, 1), left, dict.fromkeys(left, 1))
    assert [task.remote[0][0] for task in found.tasks] == ["n1", second]


@pytest.mark.parametrize(
    ("sentence", "is_remote", "jobs", "expected"),
    [
        ("local: eq. 4 + eq. 6", False, 1, 1 + 0.12 + 99 + 7 / 171 + 1 + 10),
        ("remote: eq. 4 + eq. 2", True, 1, 1 + 0.12 + 347.12 + 14 / 7 * 1.09 + 10),
        ("remote, two jobs", True, 2, 2 + 0.12 + 347.12 + 14 / 3.5 * 1.09 + 10),
    ],
)
def test_execution_times_follow_the_papers_equations(sentence, is_remote, jobs, expected):
    """7 GB each way, 100,000 connections and calls, 10 s of all else, on Table II's node."""
    work = JobWork(10.0, 7.0, 7.0, 7.0, 100_000, 100_000)
    assert execution_s(work, NetworkSpeeds(), is_remote, jobs) == pytest.approx(expected)
