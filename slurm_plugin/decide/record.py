"""One line of the decision log, assembled after the reply has gone out.

GPU indices are Slurm's, in rank order, as `scontrol show job -d` and users count them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gres_topology import links
from policies import Candidate, Placement, Request
from policies.contract.bits import gpus_of
from policies.patterns.pattern import pairs_of
from policies.scoring.rails import spine_bytes
from slurm_plugin.base.log_lines import (
    Line,
    LoggedSet,
    LoggedSpine,
    PassLine,
    Placing,
    StartedLine,
    UseLine,
    WaitLine,
)
from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.base.protocol import Notice, Pass, PlaceReply, Use, WaitFor
from slurm_plugin.decide.machines import UNDECLARED, Machine, Machines, impaired_parts
from slurm_plugin.decide.preferences import Preferences

#: Makes a line of the decision log, once the answer is out.
Build = Callable[[], Line]
#: The same of one that answers a question.
BuildPlacing = Callable[[], Placing]

MAX_CANDIDATES = 16
MAX_EXCLUDED = 16
MAX_MARKED = 8

Scored = Callable[[], Placement | None]


@dataclass(slots=True)
class DecisionRecord:
    """What a line is made of; `build` makes it after the reply."""

    asked: PlacementQuestion
    mode: str
    machines: Machines
    #: The question as the policy got it, and why it did not get some of the nodes.
    preferences: Preferences | None = None
    request: Request | None = None
    excluded: Mapping[str, str] = field(default_factory=dict)
    #: How many nodes the policy could choose among.
    considered: int | None = None
    #: The policy's choice (of a wait: what the job would have got), and Slurm's own.
    placement: Scored = lambda: None
    own: Scored = lambda: None
    #: Who chose the nodes (ours, or None), where Slurm weighs the network itself; else "".
    nodes: Callable[[Collection[str] | None], str] = lambda _: ""
    #: What a choice of MIG slices or shares means for their GPUs; None for whole GPUs.
    of_slices: Callable[[Placement], dict[str, Any]] | None = None
    #: What the decision came to; in observe mode what it would have come to.
    reply: PlaceReply = field(default_factory=Pass)
    reason: str = ""
    #: How long the policy took; None where none was asked.
    policy_s: float | None = None

    def build(self) -> Placing:
        """The decision as a line of the log."""
        reply = self.reply
        line = first_keys(self.asked, self.mode, reply, self.reason)
        if isinstance(reply, Use) and reply.alt:
            line.alt = {name: gpus_of(mask) for name, mask in reply.alt.items()}
        if self.preferences is not None and self.request is not None:
            line.policy = self.preferences.policy
            line.pattern = self.request.pattern
            line.gpus_per_node = self.request.gpus_per_node
        if self.asked.shared:
            line.shares = self.asked.shares_in_words
        if self.policy_s is not None:
            line.policy_ms = round(self.policy_s * 1e3, 3)
        if self.considered is not None:
            line.candidate_nodes = self.considered
        ours = reply.nodes if isinstance(reply, Use) else None
        if not isinstance(reply, WaitFor) and (nodes := self.nodes(ours)):
            line.nodes = nodes
        if self.excluded:
            line.excluded_nodes = dict(islice(self.excluded.items(), MAX_EXCLUDED))
        line.slurm = self._slurm()
        placement = self.placement()
        if marked := self._marked(placement):
            line.marked = marked
        if placement is not None:
            line.chosen = self._judged(placement)
            if self.of_slices is None:
                line.chosen.utility = round(placement.utility, 4)
            line.reason = placement.reason
            candidates = placement.candidates[:MAX_CANDIDATES]
            line.candidates = tuple(self._scored(candidate) for candidate in candidates)
        return line

    def _marked(self, placement: Placement | None) -> dict[str, tuple[str, ...]]:
        """Broken and slow parts of the nodes in question: those chosen and Slurm's own first."""
        asked = sorted(self.asked.candidates, key=lambda node: not node.own)
        names = [*(placement.gpus if placement else ()), *(node.name for node in asked)]
        parts = ((n, impaired_parts(self.machines.get(n, UNDECLARED))) for n in names)
        return dict(islice(((name, tuple(some)) for name, some in parts if some), MAX_MARKED))

    def _slurm(self) -> LoggedSet:
        """Slurm's own choice, with its scores where the policy could judge it."""
        own = self.own()
        # Judged in the best order there is for that set: Slurm gives none.
        choice = LoggedSet() if own is None else self._judged(own)
        choice.gpus = {n.name: gpus_of(n.own) for n in self.asked.candidates if n.own}
        return choice

    def _judged(self, placement: Placement) -> LoggedSet:
        """What a choice is worth; slices have no links, and what counts are their GPUs."""
        if self.of_slices is not None:
            machines = self.machines
            gpus = {name: machines[name].to_slurm(some) for name, some in placement.gpus.items()}
            return LoggedSet(gpus=gpus, **self.of_slices(placement))
        choice = self._scored(placement)
        choice.pcie_hops = self._hops(placement)
        self._add_rails(choice, placement)
        return choice

    def _add_rails(self, choice: LoggedSet, placement: Placement) -> None:
        """The rails of a job of several nodes, and what its collectives send over the spine.

        Bytes per byte that is reduced, with nodes in the order of their names.
        """
        names = sorted(placement.gpus)
        topologies = [self.machines[name].topology for name in names]
        known = [one for one in topologies if one is not None and one.rails]
        if len(names) < 2 or len(known) < len(names):
            return
        rails = [
            tuple(topology.rails[gpu] for gpu in placement.gpus[name])
            for name, topology in zip(names, known, strict=True)
        ]
        sharp = frozenset.intersection(*(topology.sharp_rails for topology in known))
        counted = spine_bytes(rails, sharp)._asdict()
        spine = {key: round(value, 4) for key, value in counted.items() if value is not None}
        choice.rails, choice.spine = dict(zip(names, rails, strict=True)), LoggedSpine(**spine)
        choice.rails_declared = all(topology.declares_rails for topology in known)

    def _hops(self, placement: Placement) -> int:
        """How many of the pattern's pairs, on all nodes together, no link of the GPUs joins."""
        pattern = self.request.pattern if self.request else "ring"
        return sum(_hops(self.machines[n], gpus, pattern) for n, gpus in placement.gpus.items())

    def _scored(self, choice: Placement | Candidate) -> LoggedSet:
        gpus = {node: self.machines[node].to_slurm(gpus) for node, gpus in choice.gpus.items()}
        scored = LoggedSet(gpus=gpus, score=choice.score)
        if choice.terms:
            scored.terms = dict(choice.terms)
        # A policy of terms judges no links of what it did not choose.
        if isinstance(choice, Placement) or not choice.terms:
            scored.effbw_gbps = choice.effbw_gbps
            scored.agg_gbps = choice.agg_gbps
            scored.preserved_gbps = choice.preserved_gbps
        return scored


def first_keys(asked: PlacementQuestion, mode: str, reply: PlaceReply, reason: str) -> Placing:
    """How a decision's line begins: the job, and what it was answered."""
    line = _KINDS[type(reply)](
        job=asked.job,
        array=asked.array,
        uid=asked.uid,
        account=asked.account,
        partition=asked.partition,
        hint=asked.hint,
        mode=mode,
        applied=mode == "enforce",
        why=reason,
        note=reply.note,
        postponed=asked.postponed,
        waited_s=asked.waited_s,
        candidate_nodes=len(asked.candidates),
    )
    if isinstance(reply, WaitFor):
        line.wait_s = reply.seconds
    return line


def started(notice: Notice) -> StartedLine:
    """The line that says where a job really started."""
    gpus = {name: gpus_of(mask) for name, mask in notice.gpus.items()}
    return StartedLine(job=notice.job, array=notice.array, gpus=gpus)


def _hops(machine: Machine, gpus: tuple[int, ...], pattern: str) -> int:
    """The pairs of `gpus` (the topology's indices, in rank order) that talk, but over no link."""
    topology = machine.topology
    if topology is None or len(gpus) < 2:
        return 0
    return sum(not links.is_direct(topology.kinds[a][b]) for a, b in pairs_of(pattern, gpus))


_KINDS: dict[type[PlaceReply], type[Placing]] = {
    Use: UseLine,
    WaitFor: WaitLine,
    Pass: PassLine,
}
