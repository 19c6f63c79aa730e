"""DRMaestro's flow: feasible, whole jobs only, and as cheap as trying everything."""

from __future__ import annotations

import importlib.util
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import job, rooms

from policies import Wait
from policies.errors import PolicyError
from policies.remote import RemotePlacement
from policies.remote.capacity import copies
from policies.remote.drmaestro import (
    RODINIA,
    Costs,
    DRMaestro,
    by_networkx,
    by_ortools,
    slowdown,
    utility,
)
from policies.remote.drmaestro.admission import admitted
from policies.remote.drmaestro.assigning import assign_gpus, gpu_network
from policies.remote.drmaestro.costs import SCALE, NetworkNeed, network_need
from policies.remote.drmaestro.flow import FlowNetwork
from policies.remote.drmaestro.hosting import host_tasks

ORTOOLS = importlib.util.find_spec("ortools") is not None
NO_ORTOOLS = pytest.mark.skipif(not ORTOOLS, reason="OR-Tools is not installed (extra `flow`)")
with_each_solver = pytest.mark.parametrize(
    "solve", [by_networkx, pytest.param(by_ortools, marks=NO_ORTOOLS)], ids=lambda f: f.__name__
)


def planner(**more):
    return DRMaestro(solve=by_networkx, **more)


machines = st.lists(
    st.tuples(st.integers(0, 15), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3
)
jobs = st.lists(
    st.builds(
        lambda gpus, cpus, memory, waited, sensitivity, remote: job(
            *gpus,
            cpus=cpus,
            memory_mb=memory,
            rounds_waited=waited,
            sensitivity=sensitivity,
            remote_allowed=remote,
        ),
        st.lists(st.integers(0, 3), min_size=1, max_size=3),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 3),
        st.sampled_from((0.0, 0.5)),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


def spent(asked, answers, name, donor_cpus):
    """GPUs (with repetitions), CPUs and memory the answers take on one node."""
    gpus, cpus, memory = [], 0, 0
    for request, found in zip(asked, answers, strict=True):
        for task in found.tasks if isinstance(found, RemotePlacement) else ():
            lent = [gpu for donor, gpu in task.remote if donor == name]
            gpus += lent
            cpus += donor_cpus * len(lent)
            if task.node == name:
                gpus += task.local
                cpus += request.cpus
                memory += request.memory_mb
    return gpus, cpus, memory


@with_each_solver
@settings(max_examples=150)
@given(free=machines, asked=jobs, donor_cpus=st.integers(0, 1))
def test_no_machine_gives_more_than_it_has_and_no_gpu_is_given_twice(
    solve, free, asked, donor_cpus
):
    """Ties are broken otherwise by the other solver, by which more or fewer jobs may start."""
    found = rooms(*free, donor_cpus=donor_cpus)
    answers = DRMaestro(solve=solve).decide(asked, found)
    for name, node in found.items():
        gpus, cpus, memory = spent(asked, answers, name, donor_cpus)
        assert len(gpus) == len(set(gpus))
        assert all(node.free >> gpu & 1 for gpu in gpus)
        assert cpus <= node.cpus
        assert memory <= node.memory_mb


@settings(max_examples=150)
@given(machines, jobs)
def test_a_job_gets_every_gpu_of_every_task_or_nothing(free, asked):
    for request, found in zip(asked, planner().decide(asked, rooms(*free)), strict=True):
        if isinstance(found, Wait):
            continue
        got = tuple(len(task.local) + len(task.remote) for task in found.tasks)
        assert got == request.request.gpus_per_node
        assert all(donor != task.node for task in found.tasks for donor, _ in task.remote)
        assert request.remote_allowed or not found.remote_gpus


@settings(max_examples=150)
@given(machines, jobs)
def test_nobody_waits_for_one_task_that_still_fits(free, asked):
    found = rooms(*free)
    answers = planner().decide(asked, found)
    for request, answer in zip(asked, answers, strict=True):
        if isinstance(answer, RemotePlacement) or len(request.request.gpus_per_node) > 1:
            continue
        left = {name: spent(asked, answers, name, 0) for name in found}
        gpus = {n: node.free.bit_count() - len(left[n][0]) for n, node in found.items()}
        wanted = request.request.gpus_per_node[0]
        for name, node in found.items():
            roomy = (
                node.cpus - left[name][1] >= request.cpus
                and node.memory_mb - left[name][2] >= request.memory_mb
            )
            reach = sum(gpus.values()) if request.remote_allowed else gpus[name]
            assert not (roomy and reach >= wanted), (request, name)


def cheapest_lending(asked, hosted, found, costs):
    """The second phase's optimum by trying every source of every GPU."""
    wanted = [
        (task, number)
        for task in hosted
        for number in range(asked[task[0]].request.gpus_per_node[task[1]])
    ]
    free = {name: node.free.bit_count() for name, node in found.items()}
    best = None
    for sources in product((*free, None), repeat=len(wanted)):
        if any(sources.count(name) > free[name] for name in free):
            continue
        total = 0
        for (task, _), source in zip(wanted, sources, strict=True):
            request = asked[task[0]]
            if source is None:
                total += costs.leave(request)
            elif source == hosted[task]:
                total += costs.local_gpu(network_need(request))
            elif request.remote_allowed:
                total += costs.remote_gpu(network_need(request), source)
            else:
                break
        else:
            best = total if best is None else min(best, total)
    return best


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 2), st.sampled_from((0.0, 0.5)), st.booleans()),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.sampled_from((0.0, 0.3, 1.0)), min_size=3, max_size=3),
)
def test_gpus_are_lent_at_the_cost_that_trying_everything_finds(free, drawn, loads):
    found = rooms(*((mask, 9, 9) for mask in free))
    costs = Costs(
        network_aware=True,
        unscheduled=4.0,
        loads={f"n{number}": load for number, load in enumerate(loads)},
    )
    asked = {
        number: job(gpus, sensitivity=sensitivity, remote_allowed=remote)
        for number, (gpus, _, sensitivity, remote) in enumerate(drawn)
    }
    hosted = {(number, 0): f"n{host}" for number, (_, host, _, _) in enumerate(drawn)}
    network = gpu_network(asked, hosted, copies(found.values()), costs)
    flows = by_networkx(network)
    assert network.cost(flows) == cheapest_lending(asked, hosted, found, costs)
    if ORTOOLS:
        assert network.cost(by_ortools(network)) == network.cost(flows)
    lent = assign_gpus(asked, hosted, copies(found.values()), costs, by_networkx)
    told = sum(
        sum(
            count
            * (
                costs.local_gpu(network_need(asked[task[0]]))
                if name == hosted[task]
                else costs.remote_gpu(network_need(asked[task[0]]), name)
            )
            for name, count in given.items()
        )
        + costs.leave(asked[task[0]])
        * (asked[task[0]].request.gpus_per_node[task[1]] - sum(given.values()))
        for task, given in lent.items()
    )
    assert told == network.cost(flows)


@with_each_solver
@settings(max_examples=60)
@given(
    free=machines,
    drawn=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=4),
)
def test_jobs_of_one_gpu_cost_no_more_than_trying_everything(solve, free, drawn):
    """Hosts chosen first, GPUs second: for single GPUs nothing is lost by the two steps."""
    costs, found = Costs(), rooms(*free)
    asked = [job(1, cpus=1, memory_mb=1, rounds_waited=waited) for waited, _ in drawn]
    answers = DRMaestro(costs, solve=solve).decide(asked, found)
    need = NetworkNeed(0.0, float("inf"))
    remote, local = costs.remote_gpu(need, "n0"), costs.local_gpu(need)
    paid = sum(
        (remote if answer.remote_gpus else local)
        if isinstance(answer, RemotePlacement)
        else costs.leave(request)
        for request, answer in zip(asked, answers, strict=True)
    )
    best = None
    places = [*product(found, found), None]
    for chosen in product(places, repeat=len(asked)):
        used = [place for place in chosen if place]
        fits = all(
            sum(host == name for host, _ in used) <= min(node.cpus, node.memory_mb)
            and sum(source == name for _, source in used) <= node.free.bit_count()
            for name, node in found.items()
        )
        if fits:
            total = sum(
                costs.leave(request)
                if place is None
                else (local if place[0] == place[1] else remote)
                for request, place in zip(asked, chosen, strict=True)
            )
            best = total if best is None else min(best, total)
    assert paid == best


def test_a_job_whose_cpus_are_here_takes_gpus_of_a_machine_without_cpus():
    (found,) = planner().decide([job(4, cpus=2)], rooms((0b11, 4, 0), (0b1111, 0, 0)))
    (task,) = found.tasks
    assert (task.node, task.local) == ("n0", (0, 1))
    assert task.remote == (("n1", 0), ("n1", 1))


@pytest.mark.parametrize("free", [(0b1, 0b111), (0b111, 0b1)])
def test_a_job_runs_where_the_fewest_of_its_gpus_are_lent_by_others(free):
    (found,) = planner().decide([job(4)], rooms(*((mask, 9, 9) for mask in free)))
    assert (len(found.tasks[0].local), found.remote_gpus) == (3, 1)


def test_tasks_that_fit_no_machines_gpus_are_hosted_where_the_fewest_are_missing():
    left = rooms((0b1, 9, 9), (0b111, 9, 9), (0b11, 9, 9))
    asked = {number: job(4, cpus=4) for number in range(3)}
    hosted = host_tasks(asked, left, Costs(), by_networkx)
    assert hosted == {(0, 0): "n1", (1, 0): "n1", (2, 0): "n2"}
    assert host_tasks({0: job(4, remote_allowed=False)}, left, Costs(), by_networkx) == {}


def test_without_remote_gpus_the_same_job_waits():
    (found,) = planner().decide(
        [job(4, cpus=2, remote_allowed=False)], rooms((0b11, 4, 0), (0b1111, 0, 0))
    )
    assert isinstance(found, Wait)


def test_a_donor_without_a_cpu_for_its_server_lends_nothing():
    (found,) = planner().decide([job(4)], rooms((0b11, 4, 0), (0b1111, 0, 0), donor_cpus=1))
    assert isinstance(found, Wait)


def test_memory_bounds_by_itself_whatever_the_sum_of_resources_says():
    """By eq. 10 the first machine is the roomiest; it has no memory for the task."""
    (found,) = planner().decide([job(1, memory_mb=10)], rooms((0b1111, 100, 0), (0b1, 1, 10)))
    assert found.tasks[0].node == "n1"


def test_of_two_gangs_that_block_each_other_the_one_that_waited_longer_starts():
    asked = [job(1, 1, 1), job(1, 1, 1, rounds_waited=2)]
    first, second = planner().decide(asked, rooms((0b11, 9, 9), (0b11, 9, 9)))
    assert isinstance(first, Wait)
    assert isinstance(second, RemotePlacement)


def test_a_loaded_network_postpones_at_most_as_often_as_configured():
    costs = Costs(network_aware=True, loads={"n0": 1.0, "n1": 1.0})
    asked = {"sensitivity": 0.32, "max_slowdown": 1.1}
    free = rooms((0b1, 1, 1), (0b1, 0, 0))
    (held,) = planner(costs=costs).decide([job(2, **asked)], free)
    assert isinstance(held, Wait)
    assert "network" in held.reason
    (forced,) = planner(costs=costs).decide([job(2, postponed=10, **asked)], free)
    assert slowdown(job(2, **asked), forced, costs.loads) == pytest.approx(1.32)


@pytest.mark.parametrize(("rounds", "starts"), [(0, False), (1, False), (3, True)])
def test_a_remote_gpu_that_costs_more_than_waiting_is_taken_once_waiting_has_grown_dear(
    rounds, starts
):
    """Remote it costs 2 x 1.5 on a full network, unscheduled 1 and 1 more for every round."""
    costs = Costs(network_aware=True, unscheduled=1.0, loads={"n1": 1.0})
    free = rooms((0b1, 1, 1), (0b1, 0, 0))
    (found,) = planner(costs=costs).decide([job(2, sensitivity=0.5, rounds_waited=rounds)], free)
    assert isinstance(found, RemotePlacement) == starts


@pytest.mark.parametrize(
    ("slowdown_over_alone", "goal", "importance", "expected"),
    [
        (1.0, 2.0, 1, 0.5),  # within the goal: what is left of it
        (2.0, 2.0, 1, 0.0),
        (3.0, 2.0, 1, -0.5),  # missed, of the highest importance: in full
        (3.0, 2.0, 5.5, -0.25),
        (3.0, 2.0, 10, 0.0),  # of the least importance: as if it were met
        (1.5, float("inf"), 1, -0.5),  # no goal: its time alone is the measure
    ],
)
def test_utility_is_equation_11(slowdown_over_alone, goal, importance, expected):
    assert utility(slowdown_over_alone, goal, importance) == pytest.approx(expected)


def test_costs_are_equations_12_and_13():
    """Complement of the utility, times the preference; W grows with every round left waiting."""
    costs = Costs(network_aware=True, loads={"n1": 1.0}, local=1.0, remote=2.0, waiting=3.0)
    need = NetworkNeed(sensitivity=0.5, goal=2.0)
    assert costs.local_gpu(need) == SCALE * 0.5
    assert costs.remote_gpu(need, "n1") == SCALE * 2 * 0.75
    assert costs.remote_gpu(need, "n2") == SCALE * 2 * 0.5
    assert costs.leave(job(1, rounds_waited=2)) == SCALE * (20 + 6)


def test_of_two_jobs_the_one_with_the_tighter_goal_gets_the_local_gpu():
    """A remote GPU costs a job more of its utility the less time its goal leaves."""
    tight, lax = job(1, max_slowdown=1.0), job(1, max_slowdown=4.0)
    answers = planner().decide([lax, tight], rooms((0b1, 2, 2), (0b1, 0, 0)))
    assert [answer.remote_gpus for answer in answers] == [1, 0]


def test_profiles_follow_from_the_shares_of_time_that_the_thesis_prints():
    """NW: 17 s of 100 are network; on a full one they are 49 % beside the same 83 s."""
    nw = RODINIA["nw"]
    assert 83 * (1 + nw.overhead) == pytest.approx(100)
    assert 100 * (1 + nw.sensitivity) == pytest.approx(83 / 0.51)
    assert RODINIA["lavamd"].sensitivity == pytest.approx(0.98 / 0.97 - 1)


def test_no_more_tasks_of_a_kind_are_considered_than_all_machines_could_hold():
    """Four GPUs are free, but only one beside a CPU: local jobs beyond the first need not apply."""
    left = rooms((0b1, 4, 9), (0b111, 0, 9))
    local = {number: job(1, remote_allowed=False) for number in range(3)}
    assert list(admitted(local, left)) == [0]
    assert list(admitted({number: job(1) for number in range(5)}, left)) == [0, 1, 2, 3]


def test_the_network_aware_cost_prefers_the_donor_with_the_idle_network():
    costs = Costs(network_aware=True, loads={"n1": 0.9, "n2": 0.1})
    free = rooms((0b1, 1, 1), (0b1, 0, 0), (0b1, 0, 0))
    (found,) = planner(costs=costs).decide([job(2, sensitivity=0.17)], free)
    assert found.tasks[0].remote == (("n2", 0),)


@with_each_solver
def test_a_network_without_a_solution_is_named_as_such(solve):
    network = FlowNetwork()
    network.supply("a", 2)
    network.supply("b", -2)
    network.arc("a", "b", 1, 5)
    with pytest.raises(PolicyError, match="without a solution"):
        solve(network)
