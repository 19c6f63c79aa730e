"""The question a policy is asked about a job in the slots mode, and its answer as slots."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_plugin.decide.notes import use_note
from slurm_plugin.protocol import AskedNode, Place, Use
from slurm_plugin.queue.candidates import Group, Need, lowest


def ask(base: Place, need: Need, groups: Sequence[Group]) -> Place:
    """`base` with the groups as nodes; what Slurm would take is the first one's lowest GPUs.

    A group of several nodes is asked about as one: what is free on all of them.
    """
    nodes = tuple(
        AskedNode(
            group.own,
            len(group.gpu_types),
            group.free,
            0 if i else lowest(group.free, need.gpus),
            group.weight,
        )
        for i, group in enumerate(groups)
    )
    return Place(
        id=base.id,
        job=base.job,
        array=base.array,
        uid=base.uid,
        postponed=base.postponed,
        waited_s=base.waited_s,
        nodes=nodes,
        account=base.account,
        partition=base.partition,
        type=base.type,
        hint=base.hint,
    )


def answer(use: Use, groups: Sequence[Group]) -> tuple[Group, int]:
    """The group and the slots that a policy chose."""
    [(name, mask)] = use.nodes.items()
    return next(group for group in groups if group.own == name), mask


def named(note: str, group: Group, mask: int) -> str:
    """The note for a job of several nodes: a policy saw one of them only."""
    if len(group.names) == 1:
        return note
    _, by, reason = note.partition(" by ")
    gpus = tuple(i for i in range(len(group.gpu_types)) if mask >> i & 1)
    policy, _, reason = reason.partition(": ")
    return use_note(dict.fromkeys(group.names, gpus), policy, reason) if by else note
