"""Choosing the nodes: shared by every policy that ranks nodes by what it would do on each.

Slurm's node Weight comes first: a heavier node is never taken while a lighter one has room. Then,
for several nodes, as few switches between them as can be (`assign_near`), as with Slurm's own
topology plugins. Nodes of equal (shape, free GPUs, weight) are ranked once, as one group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from gres_topology import Network
from policies.contract.nouns import NodeState
from policies.errors import PolicyError

#: Smaller is better; compared after the weight and before the node's name.
Key = tuple[float, ...]


Found = TypeVar("Found")


class InDomain(NamedTuple, Generic[Found]):
    """What was found on the nodes of one domain, and what it is ranked by."""

    #: The key of the worst node that is taken.
    worst: Key
    #: GPUs that are free in the domain.
    free: int
    found: Found


@dataclass(slots=True)
class AlikeNodes:
    """Nodes that no policy can tell apart, names ascending; `state` is one of them."""

    state: NodeState
    names: list[str]


def groups_of(nodes: Mapping[str, NodeState], *, by_nic: bool = False) -> list[AlikeNodes]:
    """The candidates as groups, in the order of their first names.

    `by_nic`: nodes whose GPUs are not equally far from their NICs are in different groups.
    """
    groups: dict[tuple[object, ...], AlikeNodes] = {}
    for name in sorted(nodes):
        state = nodes[name]
        kind: tuple[object, ...] = (state.topology.shape, state.free, state.weight)
        if by_nic:
            kind = (*kind, state.topology.nic_distance)
        groups.setdefault(kind, AlikeNodes(state, [])).names.append(name)
    return list(groups.values())


def assign(
    counts: tuple[int, ...],
    nodes: Mapping[str, NodeState],
    groups: list[AlikeNodes],
    key: Callable[[NodeState, int], Key],
) -> list[tuple[NodeState, int]]:
    """A node of its own for each count, largest count first: (node, count) pairs.

    `groups` is `groups_of(nodes)`; `key` ranks a node for a count that fits it. What has room for a
    large count has room for a smaller one, so nodes are found whenever there are any. Raises
    PolicyError where there are none.
    """
    wanted = sorted(counts, reverse=True)
    alike = groups[0] if len(groups) == 1 else None
    if alike and len(wanted) <= len(alike.names) and wanted[0] <= alike.state.free.bit_count():
        # Nothing to rank: one node, or nodes all alike.
        return [(nodes[name], count) for name, count in zip(alike.names, wanted, strict=False)]
    taken = [0] * len(groups)
    pairs = []
    for count in wanted:
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


def assign_near(
    counts: tuple[int, ...],
    nodes: Mapping[str, NodeState],
    groups: list[AlikeNodes],
    key: Callable[[NodeState, int], Key],
    network: Network | None,
) -> list[tuple[NodeState, int]]:
    """As `assign`, for several nodes as few switches apart as the weights allow.

    `groups` are made with `by_nic`.
    """
    anywhere = assign(counts, nodes, groups, key)
    if network is None or len(counts) < 2:
        return anywhere
    weight = sum(state.weight for state, _ in anywhere)
    remembered: dict[tuple[int, int], Key] = {}
    group_of = {name: at for at, group in enumerate(groups) for name in group.names}

    def once(state: NodeState, count: int) -> Key:
        asked = (group_of[state.name], count)
        if asked not in remembered:
            remembered[asked] = key(state, count)
        return remembered[asked]

    def within(names: frozenset[str]) -> InDomain[list[tuple[NodeState, int]]] | None:
        inside = {name: nodes[name] for name in names if name in nodes}
        pairs = _assign_within(counts, inside, once)
        if pairs is None or sum(state.weight for state, _ in pairs) > weight:
            return None
        worst = max(once(state, count) for state, count in pairs)
        return InDomain(worst, sum(state.free.bit_count() for state in inside.values()), pairs)

    return in_lowest_domain(network, within) or anywhere


def in_lowest_domain(
    network: Network, within: Callable[[frozenset[str]], InDomain[Found] | None]
) -> Found | None:
    """What `within` finds on the nodes of a domain, in the best of the lowest domains with any.

    That is the one whose worst node ranks best, then the one with the fewest free GPUs (so that
    others stay whole), then by name. None where it finds nothing in any.
    """
    best: tuple[int, Key, int, str] | None = None
    found = None
    for domain in network.domains:
        if best is not None and domain.level > best[0]:
            break
        here = within(domain.nodes)
        if here is None:
            continue
        ranked = (domain.level, here.worst, here.free, domain.name)
        if best is None or ranked < best:
            best, found = ranked, here.found
    return found


def _assign_within(
    counts: tuple[int, ...], inside: Mapping[str, NodeState], key: Callable[[NodeState, int], Key]
) -> list[tuple[NodeState, int]] | None:
    """`assign` on the nodes of one domain; None where they do not have the room."""
    free = sorted((state.free.bit_count() for state in inside.values()), reverse=True)
    wanted = sorted(counts, reverse=True)
    if len(free) < len(wanted) or any(w > r for w, r in zip(wanted, free, strict=False)):
        return None
    return assign(counts, inside, groups_of(inside, by_nic=True), key)
