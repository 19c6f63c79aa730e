"""DRMaestro in the simulator: by hand on few machines, and against the bound of its experiments."""

from __future__ import annotations

import pytest

from papers.experiments.drmaestro import runs, workload
from papers.simulators.planned_loans import PlannedJob, PlannedLoanSimulator
from policies import Request
from policies.remote import NodeCapacity, RemoteJob
from policies.remote.drmaestro import RODINIA, Costs, DRMaestro, NetworkProfile, by_networkx
from simulation import SimulationError

#: A fifth of the time is network, half of it on a full one.
CHATTY = NetworkProfile(0.2, 0.5)
SILENT = NetworkProfile(0.0, 0.0)


def planned(submit_s, gpus=1, alone_s=100.0, network=SILENT, **more):
    job = RemoteJob(Request((gpus,)), sensitivity=network.sensitivity, **more)
    return PlannedJob(submit_s, job, alone_s, network)


def ran(machines, *jobs, warm=(), aware=False):
    """Machines as (GPUs, CPUs)."""
    rooms = {
        f"m{number}": NodeCapacity(f"m{number}", (1 << gpus) - 1, cpus, 1000)
        for number, (gpus, cpus) in enumerate(machines)
    }
    planner = DRMaestro(Costs(network_aware=aware), solve=by_networkx)
    simulator = PlannedLoanSimulator(rooms, planner, warm)
    return simulator.run(jobs), simulator


def test_jobs_start_at_the_next_round_and_end_after_their_time():
    (first, second), simulator = ran([(1, 4)], planned(0.0), planned(0.5))
    assert (first.wait_s, first.execution_s) == (0, 100)
    assert second.wait_s == 99.5
    assert simulator.end_s == 200


def test_a_remote_gpu_costs_the_networks_share_of_the_time():
    """Alone on the network: what takes 100 s locally is four fifths of the time now."""
    (only,), _ = ran([(0, 4), (1, 0)], planned(0.0, network=CHATTY))
    assert (only.remote_gpus, only.execution_s) == (1, pytest.approx(125))


def test_others_traffic_slows_a_job_between_its_idle_and_its_loaded_figure():
    """Six jobs send a fifth of the time each: the five others of each fill its host's network."""
    jobs = [planned(0.0, network=CHATTY) for _ in range(6)]
    ended, _ = ran([(0, 6), (6, 0)], *jobs)
    assert [job.execution_s for job in ended] == [pytest.approx(200)] * 6
    two, _ = ran([(0, 6), (6, 0)], *jobs[:2])
    assert [job.execution_s for job in two] == [pytest.approx(125 * (1 + 0.2 * 0.6))] * 2


def test_a_job_speeds_up_when_its_neighbour_ends():
    jobs = planned(0.0, network=CHATTY), planned(0.0, network=CHATTY, alone_s=50.0)
    (long, short), _ = ran([(0, 2), (2, 0)], *jobs)
    assert short.execution_s == pytest.approx(50 * 1.25 * 1.12)
    assert long.execution_s == pytest.approx(70 + 125 * (1 - 70 / 140))


def test_machines_get_the_first_jobs_cpus_back():
    jobs = planned(0.0, remote_allowed=False), planned(0.0, remote_allowed=False)
    (first, second), _ = ran([(1, 1), (1, 0)], *jobs, warm=[(40.0, "m1", 1, 0)])
    assert (first.wait_s, second.wait_s) == (0, 40)


def test_jobs_that_fit_nowhere_are_counted():
    with pytest.raises(SimulationError, match="1 jobs fit no machine"):
        ran([(1, 4)], planned(0.0), planned(1.0, gpus=2))


def test_a_job_that_the_network_holds_back_starts_after_ten_rounds():
    """Five jobs fill a host's network; the sixth would take longer than its goal there."""
    rivals = [planned(0.0, network=CHATTY) for _ in range(5)]
    picky = planned(0.0, network=CHATTY, max_slowdown=1.01)
    ended, _ = ran([(0, 6), (6, 0)], *rivals, picky, aware=True)
    assert ended[5].wait_s == 0  # the network is idle when all are decided
    late = planned(0.5, network=CHATTY, max_slowdown=1.01)
    ended, _ = ran([(0, 6), (6, 0)], *rivals, late, aware=True)
    assert ended[5].wait_s == 10.5


@pytest.mark.parametrize("in_reach", workload.FREE_TASKS)
def test_so_many_of_sixteen_gpus_are_in_reach_without_remote_ones(in_reach):
    rooms, warm = workload.machines(4, in_reach)
    local = sum(min(4, room.cpus // workload.CPUS) for room in rooms.values())
    assert local == in_reach
    for _, name, cpus, memory_mb in warm:
        rooms[name].cpus += cpus
        rooms[name].memory_mb += memory_mb
    assert all(room.cpus == workload.THREADS for room in rooms.values())
    assert all(room.memory_mb == workload.MEMORY_MB for room in rooms.values())


@pytest.mark.parametrize("in_reach", workload.FREE_TASKS)
def test_remote_gpus_shorten_the_makespan_but_not_below_the_bound(in_reach):
    lines = (runs.WITHOUT, runs.WITH, runs.AWARE)
    choices = runs.Choices(in_reach)
    found = {line: runs.simulated(runs.NETWORK, 1, choices, line) for line in lines}
    bound = runs.bound_s(runs.NETWORK.machines, runs.asked(runs.NETWORK, 1, choices, runs.WITH))
    before_s = found[runs.WITHOUT]["makespan_s"]
    assert found[runs.WITHOUT]["remote_percent"] == 0
    for line in (runs.WITH, runs.AWARE):
        assert bound <= found[line]["makespan_s"] < before_s
        assert found[line]["remote_percent"] > 0
    assert 1 < found[runs.AWARE]["slowdown_mean"] < found[runs.WITH]["slowdown_mean"]


def test_the_line_without_remote_gpus_takes_as_long_as_the_thesis_prints():
    """Within 2 %, seed 1; the large scenario is left to the experiment itself."""
    for scenario in (runs.TESTBED, runs.NETWORK):
        found = runs.simulated(scenario, 1, runs.Choices(), runs.WITHOUT)
        printed = scenario.paper[runs.WITHOUT]["makespan_s"]
        assert found["makespan_s"] == pytest.approx(printed, rel=0.02)


def test_the_drawn_jobs_come_and_run_at_the_rates_that_are_stated():
    jobs = workload.jobs(1, 20_000, 60.0, remote=True)
    assert jobs[-1].submit_s == pytest.approx(20_000 / 16, rel=0.03)
    assert sum(job.alone_s for job in jobs) / 20_000 == pytest.approx(60, rel=0.01)
    assert (min(job.alone_s for job in jobs), max(job.alone_s for job in jobs)) == (
        pytest.approx(54, abs=0.1),
        pytest.approx(66, abs=0.1),
    )
    counts = {
        name: sum(job.network is profile for job in jobs) for name, profile in RODINIA.items()
    }
    assert all(count == pytest.approx(20_000 / len(RODINIA), rel=0.1) for count in counts.values())
