"""DRMaestro's own process: it answers, and whatever becomes of it, nobody waits for long."""

import os
import sys
import time
from collections.abc import Iterator

import pytest

from policies import Request
from policies.remote import NodeCapacity, RemoteJob, RemotePlacement
from policies.remote.drmaestro import DRMaestro
from slurm_plugin.act.lending.choice.solver import (
    MOST_WITHOUT_ORTOOLS,
    Answers,
    Solver,
    SolverStarting,
    Unsolved,
)

JOBS = [RemoteJob(Request((2,)))]
ROOMS = {name: NodeCapacity(name, 1, 4, 1000) for name in "ab"}
#: Says that it is there, reads a question, and then does not answer or ends.
SILENT = """
import sys, time
from multiprocessing.connection import Connection
line = Connection(int(sys.argv[1]))
line.send("ready")
line.recv()
"""


@pytest.fixture
def solvers() -> Iterator[list[Solver]]:
    """Every one of these is ended."""
    made: list[Solver] = []
    yield made
    for solver in made:
        solver.close()


def asked(solver: Solver) -> Answers:
    """The answer once the process is there."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return solver.ask(DRMaestro(), JOBS, ROOMS)
        except SolverStarting:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_the_process_answers_as_the_planner_does(solvers):
    solvers.append(Solver(60.0))
    assert asked(solvers[0]) == DRMaestro().decide(JOBS, ROOMS)
    # The same process again.
    [answer] = solvers[0].ask(DRMaestro(), JOBS, ROOMS)
    assert isinstance(answer, RemotePlacement)


@pytest.mark.parametrize(
    ("then", "why"),
    [("time.sleep(600)", "no answer within 0.2 s"), ("sys.exit(1)", "the process is gone")],
    ids=["never answers", "ends"],
)
def test_a_process_that_fails_is_ended_and_not_asked_for_a_minute(solvers, then, why):
    clock = [100.0]
    command = (sys.executable, "-c", SILENT + then)
    solver = Solver(0.2 if "within" in why else 60.0, command, lambda: clock[0])
    solvers.append(solver)
    # Started here: on a busy machine the process may be there, and gone, before it is asked.
    solver._start()
    process = solver._process
    with pytest.raises(Unsolved, match=why.replace("the process", "the solver's process")):
        asked(solver)
    assert process.returncode is not None, "it may neither run on nor be left a zombie"
    with pytest.raises(Unsolved, match="failed a moment ago"):
        solver.ask(DRMaestro(), JOBS, ROOMS)
    clock[0] += 61
    with pytest.raises((SolverStarting, Unsolved)) as told:
        solver.ask(DRMaestro(), JOBS, ROOMS)
    assert "a moment ago" not in str(told.value)


def test_a_program_that_is_not_there_is_no_more_than_an_unsolved_question():
    with pytest.raises(Unsolved, match="does not start"):
        Solver(1.0, ("/no/such/program",)).ask(DRMaestro(), JOBS, ROOMS)


def test_the_process_ends_with_the_engine(solvers):
    """Killed or not, its end of the line closes."""
    solver = Solver(60.0)
    solvers.append(solver)
    asked(solver)
    solver._connection.close()
    assert solver._process.wait(60) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(solver._process.pid, 0)


def test_no_traceback_where_the_engine_stops_while_the_process_starts(solvers, capfd):
    solver = Solver(60.0)
    solvers.append(solver)
    solver._start()
    solver._connection.close()
    assert solver._process.wait(60) == 0
    assert capfd.readouterr().err == ""


def test_without_or_tools_only_small_clusters_are_solved():
    solver = Solver(1.0)
    solver._has_ortools = False
    many = JOBS * (MOST_WITHOUT_ORTOOLS // len(ROOMS) + 1)
    with pytest.raises(Unsolved, match=r"too many for NetworkX; install slurm-gputopo\[flow\]"):
        solver.ask(DRMaestro(), many, ROOMS)
