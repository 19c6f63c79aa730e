"""From a question to a decision: checks, Cluster and Request, policy, reply, record.

No file, no socket, and no clock but a stopwatch for the policy. Questions and replies have Slurm's
GPU indices, policies the topology's. Whatever is doubtful is a Pass: Slurm's own choice.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from gres_topology import Network
from gres_topology.slices import SlicedTopology
from policies import (
    Ahead,
    Cluster,
    LooksAt,
    NodeState,
    Placement,
    Policy,
    Request,
    RunningJob,
    Wait,
    mask_of,
)
from policies.contract.assign import assign_ranked
from policies.contract.nodes import Candidates, candidates
from policies.contract.ranking import Key
from policies.errors import PolicyError
from policies.mapa.judge import judge, with_scores
from policies.slices import PROFILE, Shares, Slices, as_taken, by_gpu
from slurm_plugin.base.placement import CandidateNode, PlacementQuestion
from slurm_plugin.base.protocol import Pass, PlaceReply, Use, WaitFor
from slurm_plugin.base.wire import MAX_NOTE_BYTES
from slurm_plugin.config.sections import Rule, WaitingConfig
from slurm_plugin.decide import promises
from slurm_plugin.decide.kept_nodes import lowered, raised
from slurm_plugin.decide.machines import (
    UNDECLARED,
    Machines,
    SeenBy,
    not_of,
    profile_for,
    usable,
)
from slurm_plugin.decide.neighbours import NOBODY_SHARES, Sharing
from slurm_plugin.decide.networks import NetworksInForce
from slurm_plugin.decide.preferences import HintRefused, Preferences, read_preferences
from slurm_plugin.decide.record import BuildPlacing, DecisionRecord

logger = logging.getLogger(__name__)

#: Decides for jobs of MIG slices, whatever policy decides for others.
SLICES = Slices()
#: Bytes of a note that are kept for the policy's name and the beginning of its reason.
REASON_BYTES = 80


class Decision(NamedTuple):
    """What one question comes to."""

    reply: PlaceReply
    #: A fixed sentence, by which decisions are counted.
    reason: str
    #: Makes the line of the decision log, after the reply.
    record: BuildPlacing
    #: What a policy chose; None where it chose nothing.
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A question with everything looked up, ready for a policy."""

    asked: PlacementQuestion
    preferences: Preferences
    policy: Policy
    request: Request
    cluster: Cluster
    nodes: Candidates
    own: Mapping[str, CandidateNode]
    #: The nodes' machines, as jobs of this kind see them.
    machines: Machines
    excluded: Mapping[str, str]
    #: GPUs of these nodes that are kept for other jobs (the topology's masks).
    reserved: Mapping[str, int]

    def place(self, request: Request) -> Placement | Wait:
        """The policy's answer, as far as Slurm itself promises something of the nodes within it."""
        if not self.asked.topology or self.cluster.network is None:
            return self.policy.place(request, self.cluster)
        at = self.nodes.table.place
        own = sum(1 << at[name] for name in self.own)
        return promises.place(self.policy, request, self.cluster, own, self.asked.segment)


class _Leave(Exception):
    """It is Slurm's own choice, for a `reason` (a fixed sentence).

    `why` says more to the user; a `quiet` job gets no note.
    """

    def __init__(self, reason: str, why: str = "", *, quiet: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.note = "" if quiet else f"Slurm's own choice: {why or reason}"


@dataclass(frozen=True, slots=True)
class Decider:
    """Answers questions by the machines and rules of one configuration."""

    machines: Machines
    rule: Callable[[str, str, int], Rule]
    waiting: WaitingConfig
    get_policy: Callable[[str], Policy]
    neighbours: Callable[[], Collection[RunningJob]] = tuple
    networks: NetworksInForce = field(default_factory=NetworksInForce)
    #: Who has shares of GPUs beside whom.
    sharing: Sharing = NOBODY_SHARES
    ahead: Callable[[PlacementQuestion], Ahead | None] = lambda asked: None

    def decide(self, asked: PlacementQuestion) -> Decision:
        """The decision for one question; never raises."""
        rule = self.rule(asked.partition, asked.account, asked.uid)
        known = self.networks.of(asked.network)
        who_chooses = partial(promises.sentence, asked, known)
        asked, network = promises.seen(asked, known)
        record = DecisionRecord(asked, rule.mode, self.machines, nodes=who_chooses)
        placement: Placement | None = None
        try:
            prepared = self._prepare(asked, rule, network)
            record.preferences, record.request = prepared.preferences, prepared.request
            record.excluded, record.considered = prepared.excluded, len(prepared.nodes)
            record.machines = prepared.machines
            with (
                lowered(prepared.nodes, prepared.reserved),
                raised(*_despite(prepared, prepared.request, prepared.nodes)),
            ):
                reply, reason, placement = self._ask(prepared, record)
        except _Leave as leave:
            reply, reason = Pass(leave.note), leave.reason
        except Exception:
            logger.exception("job %d: the decision failed; Slurm's own choice", asked.job)
            reply, reason = Pass("Slurm's own choice: internal error"), "internal error"
        record.reply, record.reason = reply, reason
        if rule.mode == "observe":
            # Nothing of ours, not even a note, may reach the job.
            observed = reason if isinstance(reply, Pass) else "observe mode"
            return Decision(Pass(), observed, record.build)
        return Decision(reply, reason, record.build, placement)

    def settled(self, asked: PlacementQuestion, reply: PlaceReply, reason: str) -> Decision:
        """The decision for a question that no policy is asked."""
        rule = self.rule(asked.partition, asked.account, asked.uid)
        record = DecisionRecord(asked, rule.mode, self.machines, reply=reply, reason=reason)
        return Decision(reply, reason, record.build)

    def _prepare(self, asked: PlacementQuestion, rule: Rule, network: Network | None) -> _Prepared:
        if rule.mode == "off":
            raise _Leave("partition is off", quiet=True)
        own = {node.name: node for node in asked.candidates if node.own}
        if not own:
            raise _Leave("Slurm chose no GPUs", quiet=True)
        try:
            preferences = read_preferences(asked.hint, rule)
        except HintRefused as error:
            # The bridge refuses such hints at submit; this job came without the bridge.
            raise _Leave("bad hint", f"hint ignored: {error}") from error
        if preferences.off:
            raise _Leave("opted out by hint")
        profile = "" if asked.shared else profile_for(asked.type, own, self.machines)
        machines = SeenBy(self.machines, profile) if profile else self.machines
        nodes, excluded = _nodes(asked, machines, profile)
        for name in own:
            if name in excluded:
                raise _Leave("node left to Slurm", f"{name}: {excluded[name]}")
        counts = sorted((node.own.bit_count() for node in own.values()), reverse=True)
        request = preferences.request(tuple(counts), asked.job, asked.uid, asked.interactive)
        policy: Policy = SLICES
        if asked.shared:
            rooms = {
                node.name: machines[node.name].room(node.idle, node.left)
                for node in asked.candidates
                if node.name in nodes
            }
            policy = self.sharing.policy_for(request, asked.shares_in_words, rooms)
            preferences = replace(preferences, policy=policy.name)
        elif profile:
            request = replace(request, options={PROFILE: profile})
            preferences = replace(preferences, policy=policy.name)
        else:
            policy = self.get_policy(preferences.policy)
        # Running jobs are read only for a policy that looks at them.
        jobs = self.neighbours() if LooksAt.RUNNING_JOBS in policy.looks_at else ()
        ahead = self.ahead(asked) if LooksAt.QUEUE in policy.looks_at else None
        cluster = Cluster(nodes, jobs, network, ahead)
        reserved = {
            name: machines.get(name, UNDECLARED).to_topology(mask)
            for name, mask in asked.reserved.items()
        }
        return _Prepared(
            asked, preferences, policy, request, cluster, nodes, own, machines, excluded, reserved
        )

    def _ask(
        self, prepared: _Prepared, record: DecisionRecord
    ) -> tuple[PlaceReply, str, Placement | None]:
        began = time.perf_counter()
        outcome = prepared.place(prepared.request)
        record.policy_s = time.perf_counter() - began
        if isinstance(outcome, Wait):
            reply = self._wait(prepared, outcome)
            if reply is not None:
                instead = outcome.instead
                record.placement, record.own = lambda: instead, self._own(prepared)
                return reply, "waits", None
            outcome = self._instead(prepared, outcome)
        self._check(prepared, outcome)
        used = self._use(prepared, outcome)
        # As they are now: the nodes of a kept cluster change with the next question.
        states = {name: prepared.nodes[name] for name in (*outcome.gpus, *prepared.own)}
        if prepared.policy is SLICES:
            own = {name: node.own for name, node in prepared.own.items()}
            record.of_slices = partial(by_gpu, states)
            record.placement, record.own = lambda: outcome, partial(as_taken, own)
        elif isinstance(prepared.policy, Shares):
            own = {name: states[name].own for name in prepared.own}
            record.of_slices = prepared.policy.of_parents
            record.placement, record.own = lambda: outcome, partial(as_taken, own)
        else:
            scored = partial(with_scores, outcome, prepared.request, states)
            record.placement, record.own = scored, self._own(prepared)
        return used, "placed", outcome

    def _wait(self, prepared: _Prepared, wait: Wait) -> WaitFor | None:
        """The wait within the site's bounds, None when they are used up."""
        asked, limit = prepared.asked, self.waiting
        most_s = min(wait.at_most_s, limit.max_wait_s)
        left_s = most_s - asked.waited_s
        if asked.postponed >= limit.max_postponements or left_s <= 0:
            return None
        seconds = max(1, math.ceil(min(limit.step_s, left_s)))
        return WaitFor(seconds, f"{prepared.policy.name}: {wait.reason}", math.ceil(most_s))

    @staticmethod
    def _instead(prepared: _Prepared, wait: Wait) -> Placement:
        if wait.instead is not None:
            return wait.instead
        patient = replace(prepared.request, min_utility=0.0)
        outcome = prepared.place(patient)
        if isinstance(outcome, Wait):
            raise _Leave("waited long enough")
        return outcome

    @staticmethod
    def _check(prepared: _Prepared, placement: Placement) -> None:
        """A policy's answer is believed only when it is possible."""
        counts = []
        for name, gpus in placement.gpus.items():
            state = prepared.cluster.nodes.get(name)
            mask = mask_of(gpus)
            if state is None or mask & ~state.free or mask.bit_count() != len(gpus):
                raise ValueError(f"{placement.policy} gave {name}: {gpus}, which is not free")
            counts.append(len(gpus))
        if tuple(sorted(counts, reverse=True)) != prepared.request.gpus_per_node:
            raise ValueError(f"{placement.policy} gave {counts} GPUs for {prepared.request}")

    def _use(self, prepared: _Prepared, placement: Placement) -> Use:
        nodes = self._masks(prepared, placement.gpus)
        counts = {name: mask.bit_count() for name, mask in nodes.items()}
        alt: dict[str, int] = {}
        if counts != {name: node.own.bit_count() for name, node in prepared.own.items()}:
            alt = self._alternative(prepared)
        to_slurm = prepared.machines
        in_order = {node: to_slurm[node].to_slurm(g) for node, g in placement.gpus.items()}
        return Use(nodes, alt, use_note(in_order, placement.policy, placement.reason))

    def _alternative(self, prepared: _Prepared) -> dict[str, int]:
        """The best GPUs on the very nodes Slurm chose, as many on each as it chose."""
        chosen: dict[str, int] = {}
        by_count: dict[int, list[str]] = {}
        for name, node in prepared.own.items():
            by_count.setdefault(node.own.bit_count(), []).append(name)
        for count, names in by_count.items():
            counts = (count,) * len(names)
            request = replace(prepared.request, gpus_per_node=counts, min_utility=0.0)
            nodes = prepared.nodes.only(*names)
            alone = Cluster(nodes, prepared.cluster.jobs)
            with raised(*_despite(prepared, request, nodes)):
                outcome = prepared.policy.place(request, alone)
            placement = outcome.instead if isinstance(outcome, Wait) else outcome
            if placement is None:
                return {}
            chosen |= self._masks(prepared, placement.gpus)
        return chosen

    @staticmethod
    def _own(prepared: _Prepared) -> Callable[[], Placement | None]:
        """What Slurm itself would have taken, scored; for the record, after the reply."""
        states = {name: prepared.nodes[name] for name in prepared.own}
        own = {name: state.own for name, state in states.items()}
        return lambda: judge(own, prepared.request, states)

    @staticmethod
    def _masks(prepared: _Prepared, gpus: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        machines = prepared.machines
        return {node: mask_of(machines[node].to_slurm(g)) for node, g in gpus.items()}


def _nodes(
    asked: PlacementQuestion, machines: Machines, profile: str
) -> tuple[Candidates, Mapping[str, str]]:
    """Candidates in the topology's indices, and why others are left out."""
    nodes: dict[str, NodeState] = {}
    excluded: dict[str, str] = {}
    get = machines.get
    for node in asked.candidates:
        machine = get(node.name, UNDECLARED)
        topology = machine.topology
        problem = usable(machine, node.total) or not_of(machine, node.own, profile)
        if problem or topology is None:
            excluded[node.name] = problem
            continue
        if machine.order is None:
            free, own = node.free, node.own
        else:
            free, own = machine.to_topology(node.free), machine.to_topology(node.own)
        free &= ~topology.broken
        nodes[node.name] = NodeState(node.name, topology, free, own, node.weight)
    if asked.others is None:
        return candidates(nodes), excluded
    own_masks = {node.name: node.own for node in asked.candidates}
    return asked.others.with_own(own_masks), excluded or asked.others.excluded


def _despite(
    prepared: _Prepared, request: Request, nodes: Candidates
) -> tuple[Candidates, Mapping[str, int]]:
    """The nodes, and the broken GPUs (masks by name) of Slurm's own where nothing else fits.

    Only Slurm's own nodes are sure to have room, and only if their GPUs are all counted.
    """
    machines = prepared.machines
    short: dict[str, int] = {}
    for name, node in prepared.own.items():
        topology = machines[name].topology
        if name in nodes and topology is not None and topology.broken:
            hidden = machines[name].to_topology(node.free) & topology.broken
            short[name] = hidden & ~prepared.reserved.get(name, 0)
    if not any(short.values()) or _fits(request, nodes):
        return nodes, {}
    return nodes, short


def _fits(request: Request, nodes: Candidates) -> bool:
    """Whether the candidates have room for the request."""
    profile = request.options.get(PROFILE)

    def keys(states: list[NodeState], count: int) -> list[Key | None]:
        masks = (
            state.topology.of_profile.get(profile, 0)
            if profile is not None and isinstance(state.topology, SlicedTopology)
            else -1
            for state in states
        )
        return [
            () if (state.free & mask).bit_count() >= count else None
            for state, mask in zip(states, masks, strict=True)
        ]

    try:
        assign_ranked(request.gpus_per_node, nodes, keys, kind=("room", profile))
    except PolicyError:
        return False
    return True


def use_note(gpus: Mapping[str, tuple[int, ...]], policy: str, reason: str) -> str:
    """The note in AdminComment: `dgx1:0,3 by mapa: REASON`, at most 200 bytes.

    GPUs in rank order by Slurm's index; of many nodes the first are named, the others counted.
    """
    shown: list[str] = []
    left = MAX_NOTE_BYTES - REASON_BYTES
    for name, indices in gpus.items():
        word = f"{name}:{','.join(map(str, indices))}"
        if len(word) + 1 > left:
            break
        shown.append(word)
        left -= len(word) + 1
    if len(shown) < len(gpus):
        shown.append(f"and {len(gpus) - len(shown)} more nodes")
    text = f"{' '.join(shown)} by {policy}: {reason}"
    return text.encode()[:MAX_NOTE_BYTES].decode(errors="ignore")
