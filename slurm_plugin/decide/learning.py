"""Learns run times from jobs that end: what they were, where they ran, and beside what."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policies import RunningJob
from policies.best_fit import domains
from policies.contract.interference import NOBODY, Kind, kind_of_running
from slurm_plugin.decide.machines import UNDECLARED, Machines
from slurm_plugin.learn.job_profiles.learned import Learned, Sort

if TYPE_CHECKING:
    from slurm_plugin.slurm.clients.command_line import SlurmClient

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Run:
    """A job that runs and says what it is."""

    kind: Kind
    #: (node, socket).
    sockets: frozenset[tuple[str, int]]
    start_s: float
    #: The kinds of jobs with which it shared a socket.
    met: set[Kind] = field(default_factory=set)


@dataclass(slots=True)
class Teacher:
    """Follows jobs from their start to their end.

    Nothing is learned from jobs that ran before the engine, met two kinds of jobs or more, or do
    not say what they are.
    """

    learned: Learned
    machines: Machines
    on_learned: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    _running: dict[int, _Run] = field(default_factory=dict)
    _ended: dict[int, tuple[_Run, float]] = field(default_factory=dict)

    def started(self, job: RunningJob, beside: Iterable[RunningJob]) -> None:
        """A job started; `beside` are all that run on its nodes, or more."""
        if not job.profile and not self._running:
            return
        kind, sockets = kind_of_running(job), self._sockets(job.gpus)
        run = _Run(kind, sockets, self.clock())
        for other in beside:
            if other.job_id == job.job_id or not job.gpus.keys() & other.gpus.keys():
                continue
            if sockets & self._sockets(other.gpus):
                run.met.add(kind_of_running(other))
                if other.job_id in self._running:
                    self._running[other.job_id].met.add(kind)
        if job.profile and job.user is not None:
            self._running[job.job_id] = run

    def ended(self, job_id: int) -> None:
        """A job is gone; Slurm is asked later whether it completed."""
        run = self._running.pop(job_id, None)
        if run is not None:
            self._ended[job_id] = (run, self.clock() - run.start_s)

    def forget(self, job_id: int) -> None:
        """A job is gone, and it is not known since when: nothing is learned from it."""
        self._running.pop(job_id, None)

    def start_anew(self) -> None:
        """Another engine followed the jobs meanwhile: read what it learned, forget what ran."""
        self._running, self._ended = {}, {}
        self.learned.reload()
        self.on_learned()

    def learn(self, client: SlurmClient) -> None:
        """Take the jobs that Slurm calls COMPLETED into account; SlurmError as the client's."""
        if not self._ended:
            return
        states = {job.job_id: job.state for job in client.jobs()}
        for job_id, (run, seconds) in list(self._ended.items()):
            state = states.get(job_id, "")
            if state in ("RUNNING", "COMPLETING"):
                continue
            del self._ended[job_id]
            sort = self._sort(run)
            if state == "COMPLETED" and sort is not None:
                self.learned.add(sort, seconds)
        self.learned.save()
        self.on_learned()

    @staticmethod
    def _sort(run: _Run) -> Sort | None:
        is_packed = len(run.sockets) == 1
        if not run.met:
            return Sort(run.kind, is_packed)
        if len(run.met) > 1:
            return None
        (other,) = run.met
        return Sort(run.kind, is_packed, other) if other.user != NOBODY else None

    def _sockets(self, masks: Mapping[str, int]) -> frozenset[tuple[str, int]]:
        found = set()
        for name, mask in masks.items():
            topology = self.machines.get(name, UNDECLARED).topology
            if topology is None:
                continue
            for at, domain in enumerate(domains(topology)):
                if domain & mask:
                    found.add((name, at))
        return frozenset(found)
