"""Choosing the nodes: shared by every policy that ranks nodes by what it would do on each.

Nodes of equal (shape, free GPUs, weight) are one group, so a thousand candidates cost as
much as their few different states. Slurm's node Weight comes first: a heavier node is
never taken while a lighter one has room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from policies.errors import PolicyError
from policies.nouns import NodeState

#: Smaller is better; compared after the weight and before the node's name.
Key = tuple[float, ...]


@dataclass(slots=True)
class Group:
    """Nodes that no policy can tell apart, names ascending; `state` is one of them."""

    state: NodeState
    names: list[str]


def groups_of(nodes: Mapping[str, NodeState]) -> list[Group]:
    """The candidates as groups, in the order of their first names."""
    found: dict[tuple[str, int, int], Group] = {}
    for name in sorted(nodes):
        state = nodes[name]
        group = found.setdefault((state.topology.shape, state.free, state.weight), Group(state, []))
        group.names.append(name)
    return list(found.values())


def assign(
    counts: tuple[int, ...],
    nodes: Mapping[str, NodeState],
    groups: list[Group],
    key: Callable[[NodeState, int], Key],
) -> list[tuple[NodeState, int]]:
    """One node for each count: (node, count) pairs, distinct nodes, lightest and best first.

    `groups` is `groups_of(nodes)`; `key` ranks a node for a count that fits it. Counts are
    served largest first; whatever has room for a larger one has room for a smaller one, so
    this finds nodes whenever there are any. Raises PolicyError when there are none.
    """
    taken = [0] * len(groups)
    pairs = []
    for count in sorted(counts, reverse=True):
        best = min(
            (
                (group.state.weight, key(group.state, count), group.names[used], at)
                for at, (group, used) in enumerate(zip(groups, taken, strict=True))
                if used < len(group.names) and group.state.free.bit_count() >= count
            ),
            default=None,
        )
        if best is None:
            raise PolicyError(
                f"no candidate node has {count} free GPUs left for this request of"
                f" {'+'.join(map(str, counts))}; the caller must ask with nodes that fit"
            )
        taken[best[3]] += 1
        pairs.append((nodes[best[2]], count))
    return pairs
