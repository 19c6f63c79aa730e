"""Asks a policy about a job that is to get slots: nodes become candidates, its answer slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from policies.contract.bits import lowest_bits
from slurm_plugin.act.gates.plan import Choice, ChosenSlots
from slurm_plugin.base.placement import CandidateNode, PlacementQuestion
from slurm_plugin.base.protocol import Pass, WaitFor
from slurm_plugin.decide.decide import Decider, Decision, use_note
from slurm_plugin.decide.record import BuildPlacing
from slurm_plugin.queue.candidates import Group, Need


def ask(
    decider: Decider, job: PlacementQuestion, need: Need, groups: Sequence[Group]
) -> tuple[Choice, BuildPlacing]:
    """What the policy chooses for this job among the groups, and the line for the decision log."""
    # A group of several nodes is one candidate; Slurm would take the first one's lowest GPUs.
    candidates = tuple(
        CandidateNode(
            group.own,
            len(group.gpu_types),
            group.free,
            0 if i else lowest_bits(group.free, need.gpus),
            group.weight,
        )
        for i, group in enumerate(groups)
    )
    decision = decider.decide(replace(job, candidates=candidates))
    return _choice(decision, groups), decision.record


def _choice(decision: Decision, groups: Sequence[Group]) -> Choice:
    reply = decision.reply
    if isinstance(reply, WaitFor):
        return reply
    if isinstance(reply, Pass):
        return Pass(decision.reason)
    [(name, mask)] = reply.nodes.items()
    group = next(group for group in groups if group.own == name)
    note, placement = reply.note, decision.placement
    if len(group.names) > 1 and placement is not None:
        # The policy saw one of the group's nodes; the note is to name them all.
        gpus = tuple(i for i in range(len(group.gpu_types)) if mask >> i & 1)
        note = use_note(dict.fromkeys(group.names, gpus), placement.policy, placement.reason)
    return ChosenSlots(group, mask, note)
