"""Asks DRMaestro, which runs in a process of its own, and waits for a bounded time."""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from policies import Wait
from policies.remote import NodeCapacity, RemoteJob, RemotePlacement
from policies.remote.drmaestro import DRMaestro, best_solver, by_ortools

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "slurm_plugin.act.lending.choice.solve_process")
#: Seconds after which a process that does not answer yet is started anew.
START_S = 30.0
#: Seconds after a failure in which the R queue decides.
PAUSE_S = 60.0
#: The most nodes times waiting jobs for NetworkX: 200 times 200 takes half a second on one core.
MOST_WITHOUT_ORTOOLS = 40_000

Answers = Sequence[RemotePlacement | Wait]


class Unsolved(Exception):
    """There is no answer in time. The text says why."""


class SolverStarting(Unsolved):
    """The process is not there yet: there will be an answer soon."""


@dataclass(slots=True)
class Solver:
    """One process, started when first needed and ended with `close`; one thread at a time."""

    limit_s: float
    command: Sequence[str] = COMMAND
    clock: Callable[[], float] = time.monotonic
    _process: subprocess.Popen[bytes] | None = None
    _connection: Connection | None = None
    _is_ready: bool = False
    _started: float = 0.0
    _not_before: float = float("-inf")
    _has_ortools: bool = field(default_factory=lambda: best_solver() is by_ortools)

    def ask(
        self, planner: DRMaestro, jobs: Sequence[RemoteJob], capacities: Mapping[str, NodeCapacity]
    ) -> Answers:
        """DRMaestro's answer for every job. Raises Unsolved where there is none in time."""
        if not self._has_ortools and len(jobs) * len(capacities) > MOST_WITHOUT_ORTOOLS:
            raise Unsolved(
                f"{len(jobs)} jobs on {len(capacities)} nodes are too many for NetworkX; install"
                " slurm-gputopo[flow]"
            )
        if self.clock() < self._not_before:
            raise Unsolved("the solver failed a moment ago")
        connection = self._ready()
        try:
            connection.send((planner, list(jobs), dict(capacities)))
            if not connection.poll(self.limit_s):
                raise Unsolved(f"no answer within {self.limit_s:g} s")
            answers = connection.recv()
        except (EOFError, OSError) as error:
            self._fail()
            raise Unsolved("the solver's process is gone") from error
        except Unsolved:
            self._fail()
            raise
        if isinstance(answers, str):
            raise Unsolved(answers)
        return list(answers)

    def _ready(self) -> Connection:
        """The connection to a process that listens. Raises SolverStarting until it does."""
        if self._process is None or self._connection is None:
            self._start()
        assert self._connection is not None
        if self._is_ready:
            return self._connection
        try:
            if self._connection.poll(0):
                self._is_ready = self._connection.recv() is not None
                return self._connection
        except (EOFError, OSError) as error:
            self._fail()
            raise Unsolved("the solver's process does not start") from error
        if self.clock() - self._started > START_S:
            self._fail()
            raise Unsolved(f"the solver's process did not start within {START_S:g} s")
        raise SolverStarting("the solver starts")

    def _start(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        words = [*self.command, str(theirs.fileno())]
        try:
            # In a session of its own, so that it ends when its connection closes, not by a signal.
            self._process = subprocess.Popen(
                words,
                # Where our modules are, even if only this program's first lines know it.
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self._not_before = self.clock() + PAUSE_S
            raise Unsolved(f"the solver's process does not start: {error}") from error
        finally:
            theirs.close()
        self._connection, self._is_ready, self._started = ours, False, self.clock()

    def _fail(self) -> None:
        self.close()
        self._not_before = self.clock() + PAUSE_S

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None
        self._is_ready = False
