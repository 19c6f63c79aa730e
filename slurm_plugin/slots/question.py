"""The question a policy is asked about a job in the slots mode, and its answer as slots."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_plugin.protocol import AskedNode, Place, Use
from slurm_plugin.slots.candidates import Group, Need
from slurm_plugin.slots.names import lowest


def ask(base: Place, need: Need, groups: Sequence[Group]) -> Place:
    """`base` with the groups as nodes; what Slurm would take is the first one's lowest GPUs.

    A group of several nodes is asked about as one: what is free on all of them.
    """
    nodes = tuple(
        AskedNode(
            group.own,
            len(group.slots),
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
