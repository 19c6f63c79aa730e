"""DRMaestro's answer for all waiting jobs together, and the R queue's where there is none."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from policies import Wait
from policies.remote import RemotePlacement
from policies.remote.drmaestro import HELD_BACK, Costs, DRMaestro
from slurm_plugin.act.lending.choice.offer import (
    NOT_PREDICTED,
    TOO_FEW,
    Borrower,
    Offer,
    Refusal,
    SpareCapacity,
    capacities_of,
    judged,
    local_wait_s,
    offer,
    too_little,
)
from slurm_plugin.act.lending.choice.solver import Solver, SolverStarting, Unsolved
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.queue.capacity import Node, with_hold

logger = logging.getLogger(__name__)

#: Only the load of the network is in the way.
NETWORK_BUSY = Refusal(f"drmaestro: {HELD_BACK.reason}", by_choice=True, is_network=True)


@dataclass(slots=True)
class Round:
    """One round over all jobs that may borrow; GPUs lent to one are not offered to the next."""

    jobs: Sequence[Borrower]
    capacity: SpareCapacity
    settings: RemoteConfig
    solver: Solver
    #: How often the load of the network alone may hold a job back.
    max_postponed: int = 10
    _left: dict[str, Node] = field(default_factory=dict)
    _answers: dict[int, Offer | Refusal] = field(default_factory=dict)

    def decide(self) -> list[Offer | Refusal]:
        """An answer for every job, in their order (that of the queue). Raises SolverStarting."""
        self._left = dict(self.capacity.nodes)
        try:
            for usable, indexes in self._groups().items():
                like = {name: min(self.settings.like(self._left[name].model)) for name in usable}
                for model in sorted(set(like.values())):
                    self._solve(indexes, [name for name in sorted(usable) if like[name] == model])
        except SolverStarting:
            raise
        except Unsolved as error:
            logger.warning("drmaestro: %s; the R queue decides", error)
            self._in_turn([index for index in range(len(self.jobs)) if not self._is_lent(index)])
        return [self._answer(index) for index in range(len(self.jobs))]

    def _answer(self, index: int) -> Offer | Refusal:
        answer = self._answers.get(index, TOO_FEW)
        left = replace(self.capacity, nodes=self._left)
        if answer is TOO_FEW:
            return too_little(self.jobs[index], left, self.settings)
        return answer

    def _groups(self) -> dict[frozenset[str], list[int]]:
        """Jobs by the nodes that they may use; groups in the order of their first job."""
        groups: dict[frozenset[str], list[int]] = {}
        for index, job in enumerate(self.jobs):
            if job.is_auto and job.use.work is None:
                self._answers[index] = NOT_PREDICTED
            else:
                groups.setdefault(job.usable.intersection(self._left), []).append(index)
        return groups

    def _is_lent(self, index: int) -> bool:
        answer = self._answers.get(index)
        return isinstance(answer, Offer) or answer is NOT_PREDICTED

    def _solve(self, indexes: Sequence[int], names: Sequence[str]) -> None:
        """Ask about the jobs without a loan so far, on these nodes of one GPU model."""
        asked = [index for index in indexes if not self._is_lent(index)]
        if not asked:
            return
        settings = self.settings
        planner = DRMaestro(
            Costs(network_aware=True, loads=dict(self.capacity.loads)),
            self.max_postponed,
        )
        jobs = []
        for job in (self.jobs[index] for index in asked):
            most = job.use.max_slowdown or settings.max_slowdown
            jobs.append(replace(job.asked, max_slowdown=most))
        # One capacity for all: where partitions differ the one that allows most CPUs counts.
        named = [self.jobs[index].partitions for index in asked]
        partitions = frozenset[str]().union(*named) if all(named) else frozenset[str]()
        capacities = capacities_of([self._left[name] for name in names], settings, partitions)
        answers = self.solver.ask(planner, jobs, capacities)
        for index, answer in zip(asked, answers, strict=True):
            if answer == HELD_BACK:
                self._answers[index] = NETWORK_BUSY
            elif isinstance(answer, Wait):
                self._answers.setdefault(index, TOO_FEW)
            else:
                self._take(index, answer, names)
        # Answers without a local GPU, or with too many donors, cannot be done: the R queue decides.
        placed = (i for i, one in zip(asked, answers, strict=True) if not isinstance(one, Wait))
        self._in_turn([index for index in placed if self._answers[index] is TOO_FEW])

    def _take(self, index: int, answer: RemotePlacement, names: Sequence[str]) -> None:
        """Turn a placement into an offer, or a refusal where it cannot be done or gains nothing."""
        job = self.jobs[index]
        nodes = [self._left[name] for name in names]
        wait_s = local_wait_s(job, self.capacity, self.settings) if job.is_auto else math.inf
        self._keep(index, judged(job, answer, nodes, self.settings, wait_s))

    def _in_turn(self, indexes: Sequence[int]) -> None:
        """The R queue's answers, one job after the other."""
        for index in indexes:
            capacity = replace(self.capacity, nodes=self._left)
            self._keep(index, offer(self.jobs[index], capacity, self.settings))

    def _keep(self, index: int, made: Offer | Refusal) -> None:
        self._answers[index] = made
        for hold in made.holds if isinstance(made, Offer) else ():
            self._left = with_hold(self._left, hold)
