"""From a question to a decision: checks, Cluster and Request, policy, reply, record.

Pure: no clock, no file, no socket. Slurm's GPU indices outside, the topology's inside.
Whatever is doubtful is a Pass: Slurm's own choice.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from gres_topology import Network, links
from policies import Cluster, NodeState, Placement, Policy, Request, RunningJob, Wait
from slurm_plugin.config.sections import Rule, WaitingConfig
from slurm_plugin.decide.judge import judge, with_scores
from slurm_plugin.decide.machines import UNDECLARED, Machines, mask_of, usable
from slurm_plugin.decide.notes import use_note
from slurm_plugin.decide.record import Record
from slurm_plugin.decide.wish import Wish, WishError, read_wish
from slurm_plugin.protocol import AskedNode, Pass, Place, PlaceReply, Use, WaitFor

logger = logging.getLogger(__name__)

PARTITION_OFF = "partition is off"
NO_GPUS = "Slurm chose no GPUs"


class Decision(NamedTuple):
    """The reply, a fixed sentence for the counters, and the record for after the reply."""

    reply: PlaceReply
    reason: str
    record: Callable[[], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Question:
    """A place question with everything looked up, ready for a policy."""

    asked: Place
    rule: Rule
    wish: Wish
    policy: Policy
    request: Request
    cluster: Cluster
    own: Mapping[str, AskedNode]
    excluded: Mapping[str, str]


class _Leave(Exception):
    """Slurm's own choice, and why: a fixed reason and a note for people."""

    def __init__(self, reason: str, note: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.note = note


def _pass_note(leave: _Leave) -> str:
    """Why Slurm chose; nothing where the site wants nothing of ours."""
    if leave.reason in (PARTITION_OFF, NO_GPUS):
        return ""
    return f"Slurm's own choice: {leave.note or leave.reason}"


@dataclass(frozen=True, slots=True)
class Decider:
    """Decides `place` questions over fixed machines and rules; shared by enforcements."""

    machines: Machines
    rule: Callable[[str, str, int], Rule]
    waiting: WaitingConfig
    get_policy: Callable[[str], Policy]
    neighbours: Callable[[], tuple[RunningJob, ...]] = tuple
    network: Network | None = None

    def decide(self, asked: Place) -> Decision:
        """The decision for one question; never raises."""
        rule = self.rule(asked.partition, asked.account, asked.uid)
        record = Record(asked, rule.mode, self._to_slurm, self._pcie_hops)
        try:
            question = self._prepare(asked, rule)
            record.prepared(question.wish, question.request, question.excluded)
            reply, reason = self._ask(question, record)
        except _Leave as leave:
            reply, reason = Pass(_pass_note(leave)), leave.reason
        except Exception:
            logger.exception("job %d: the decision failed; Slurm's own choice", asked.job)
            reply, reason = Pass("Slurm's own choice: internal error"), "internal error"
        record.answered(reply, reason)
        if rule.mode == "observe":
            # Nothing of ours, not even a note, may reach the job.
            observed = reason if isinstance(reply, Pass) else "observe mode"
            return Decision(Pass(), observed, record.build)
        return Decision(reply, reason, record.build)

    def settled(self, asked: Place, reply: PlaceReply, reason: str) -> Decision:
        """The decision for a question that no policy is asked."""
        rule = self.rule(asked.partition, asked.account, asked.uid)
        record = Record(asked, rule.mode, self._to_slurm, self._pcie_hops)
        record.answered(reply, reason)
        return Decision(reply, reason, record.build)

    def _prepare(self, asked: Place, rule: Rule) -> _Question:
        if rule.mode == "off":
            raise _Leave(PARTITION_OFF)
        own = {node.name: node for node in asked.nodes if node.own}
        if not own:
            raise _Leave(NO_GPUS)
        try:
            wish = read_wish(asked.hint, rule)
        except WishError as error:
            # Refused at submit where the bridge runs; here the job must not suffer for it.
            raise _Leave("bad hint", f"hint ignored: {error}") from error
        if wish.off:
            raise _Leave("opted out by hint")
        nodes, excluded = self._nodes(asked.nodes)
        for name in own:
            if name in excluded:
                raise _Leave("node left to Slurm", f"{name}: {excluded[name]}")
        counts = sorted((node.own.bit_count() for node in own.values()), reverse=True)
        request = wish.request(tuple(counts), asked.job, asked.uid)
        policy = self.get_policy(wish.policy)
        # Only who looks at neighbours has them read.
        jobs = self.neighbours() if getattr(policy, "looks_at_jobs", False) else ()
        cluster = Cluster(nodes, jobs, network=self.network)
        return _Question(asked, rule, wish, policy, request, cluster, own, excluded)

    def _nodes(self, asked: tuple[AskedNode, ...]) -> tuple[dict[str, NodeState], dict[str, str]]:
        """Candidates in the topology's indices, and why the others are left out."""
        nodes: dict[str, NodeState] = {}
        excluded: dict[str, str] = {}
        get = self.machines.get
        for node in asked:
            machine = get(node.name, UNDECLARED)
            topology = machine.topology
            problem = usable(machine, node.total)
            if problem or topology is None:
                excluded[node.name] = problem
                continue
            if machine.order is None:
                free, own = node.free, node.own
            else:
                free, own = machine.to_topology(node.free), machine.to_topology(node.own)
            nodes[node.name] = NodeState(node.name, topology, free, own, node.weight)
        return nodes, excluded

    def _ask(self, question: _Question, record: Record) -> tuple[PlaceReply, str]:
        outcome = question.policy.place(question.request, question.cluster)
        if isinstance(outcome, Wait):
            reply = self._wait(question, outcome)
            if reply is not None:
                instead = outcome.instead
                record.chosen(lambda: instead, self._own(question))
                return reply, "waits"
            outcome = self._instead(question, outcome)
        self._check(question, outcome)
        used = self._use(question, outcome)
        scored = partial(with_scores, outcome, question.request, question.cluster.nodes)
        record.chosen(scored, self._own(question))
        return used, "placed"

    def _wait(self, question: _Question, wait: Wait) -> WaitFor | None:
        """The wait within the site's bounds, None when they are used up."""
        asked, limit = question.asked, self.waiting
        left_s = limit.max_wait_s - asked.waited_s
        if asked.postponed >= limit.max_postponements or left_s <= 0:
            return None
        seconds = max(1, math.ceil(min(wait.at_most_s, limit.step_s, left_s)))
        return WaitFor(seconds, f"{question.policy.name}: {wait.reason}")

    @staticmethod
    def _instead(question: _Question, wait: Wait) -> Placement:
        if wait.instead is not None:
            return wait.instead
        patient = replace(question.request, min_utility=0.0)
        outcome = question.policy.place(patient, question.cluster)
        if isinstance(outcome, Wait):
            raise _Leave("waited long enough", "waited long enough")
        return outcome

    @staticmethod
    def _check(question: _Question, placement: Placement) -> None:
        """A policy's answer is believed only when it is possible."""
        counts = []
        for name, gpus in placement.gpus.items():
            state = question.cluster.nodes.get(name)
            mask = mask_of(gpus)
            if state is None or mask & ~state.free or mask.bit_count() != len(gpus):
                raise ValueError(f"{placement.policy} gave {name}: {gpus}, which is not free")
            counts.append(len(gpus))
        if tuple(sorted(counts, reverse=True)) != question.request.gpus_per_node:
            raise ValueError(f"{placement.policy} gave {counts} GPUs for {question.request}")

    def _use(self, question: _Question, placement: Placement) -> Use:
        nodes = self._masks(placement.gpus)
        counts = {name: mask.bit_count() for name, mask in nodes.items()}
        alt: dict[str, int] = {}
        if counts != {name: node.own.bit_count() for name, node in question.own.items()}:
            alt = self._alternative(question)
        in_order = {name: self._to_slurm(name, gpus) for name, gpus in placement.gpus.items()}
        return Use(nodes, alt, use_note(in_order, placement.policy, placement.reason))

    def _alternative(self, question: _Question) -> dict[str, int]:
        """The best GPUs on the very nodes Slurm chose, as many on each as it chose."""
        chosen: dict[str, int] = {}
        for name, node in question.own.items():
            request = replace(
                question.request, gpus_per_node=(node.own.bit_count(),), min_utility=0.0
            )
            state = question.cluster.nodes[name]
            outcome = question.policy.place(request, Cluster({name: state}, question.cluster.jobs))
            placement = outcome.instead if isinstance(outcome, Wait) else outcome
            if placement is None:
                return {}
            chosen |= self._masks(placement.gpus)
        return chosen

    @staticmethod
    def _own(question: _Question) -> Callable[[], Placement | None]:
        """What Slurm itself would have taken, scored; for the record, after the reply."""
        nodes = question.cluster.nodes
        own = {name: nodes[name].own for name in question.own}
        return lambda: judge(own, question.request, nodes)

    def _masks(self, gpus: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        return {name: mask_of(self._to_slurm(name, chosen)) for name, chosen in gpus.items()}

    def _pcie_hops(self, name: str, gpus: tuple[int, ...]) -> int:
        """Links of the ring through `gpus` (the topology's indices) that are no GPU link."""
        topology = self.machines[name].topology
        if topology is None or len(gpus) < 2:
            return 0
        after = (*gpus[1:], gpus[0]) if len(gpus) > 2 else gpus[1:]
        pairs = zip(gpus, after, strict=False)
        return sum(not links.is_direct(topology.kinds[a][b]) for a, b in pairs)

    def _to_slurm(self, name: str, gpus: tuple[int, ...]) -> tuple[int, ...]:
        return self.machines[name].to_slurm(gpus)
