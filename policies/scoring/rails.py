"""Rails: what a job of several nodes sends over the spine, and which GPUs spare it.

On a rail-optimised network NIC i of every node is at leaf switch i: what goes from a rail to itself
stays below one leaf, and all else crosses the spine. Collectives run over as many channels as a
node has GPUs of the job; the r-th GPU of each node, in rank order, talks to the r-th of others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

#: The rails of one node's GPUs, in rank order.
Rails = tuple[int, ...]

#: Rails that are tried where no nodes can have the same, those that most nodes have.
_MOST_TRIED = 4


class Spine(NamedTuple):
    """Bytes over the spine for each byte that an all-reduce reduces, and all between nodes."""

    ring: float
    tree: float
    ring_total: float
    tree_total: float
    #: The same where switches reduce (SHARP); None where those of these rails do not.
    sharp: float | None = None
    sharp_total: float | None = None


def spine_bytes(rails: Sequence[Rails], sharp: Collection[int] = ()) -> Spine:
    """What one all-reduce sends between nodes, by the rails of each node's GPUs in rank order.

    `rails` has the nodes in rank order, `sharp` the rails whose switches reduce; unit: bytes per
    byte of the buffer that is reduced. All are counted as NCCL builds them, with one channel for
    each GPU of the node that has most; a node with fewer uses its own in turn.

    - `ring`: each channel passes all nodes once and carries 2 (P - 1) / P of its share of the
      buffer over each of its N steps between N nodes, P GPUs in all (Patarasuk and Yuan, JPDC
      2009).
    - `tree`: each channel's share is halved over the two trees of Sanders, Speck and Traff (2009)
      as in NCCL's src/graph/trees.cc; each of their N - 1 edges carries its half up and down.
      NVLS, by which a node's GPUs reduce in their NVSwitches, has the same trees between nodes.
    - `sharp`: every node sends each channel's share to its leaf switch and gets the result (Graham
      et al., COMHPC 2016). Below one leaf it is reduced there; else each leaf sends its sum to the
      spine and gets the result.

    0 for a job of one node. All-to-all is not counted.
    """
    nodes, gpus = len(rails), sum(map(len, rails))
    if nodes < 2:
        return Spine(0.0, 0.0, 0.0, 0.0)
    channels = max(map(len, rails))
    step = 2 * (gpus - 1) / gpus / channels
    ring = sum(_crossing(rails[at], rails[at - 1], channels) for at in range(nodes))
    edges = list(_edges(nodes))
    tree = sum(_crossing(rails[one], rails[other], channels) for one, other in edges)
    reduces = sharp and all(rail in sharp for some in rails for rail in some)
    leaves = [len({some[at % len(some)] for some in rails}) for at in range(channels)]
    above = sum(2 * count for count in leaves if count > 1) / channels
    # An edge carries half of a channel's share up, and the same down.
    return Spine(
        ring * step,
        tree / channels,
        nodes * channels * step,
        float(len(edges)),
        above if reduces else None,
        2.0 * nodes if reduces else None,
    )


def _crossing(one: Rails, other: Rails, channels: int) -> int:
    """Over how many channels two nodes talk across the spine."""
    return channels - _same(one, other, channels)


def _same(one: Rails, other: Rails, channels: int) -> int:
    pairs = ((one[at % len(one)], other[at % len(other)]) for at in range(channels))
    return sum(a == b for a, b in pairs)


def _edges(nodes: int) -> Iterator[tuple[int, int]]:
    """The edges between nodes of both of NCCL's binary trees."""
    for node in range(1, nodes):
        bit = node & -node
        up = (node ^ bit) | bit << 1
        parent = up if up < nodes else node ^ bit
        yield node, parent
        # The other tree is the first one mirrored, or shifted by one where that is no other.
        if nodes % 2:
            yield (node + 1) % nodes, (parent + 1) % nodes
        else:
            yield nodes - 1 - node, nodes - 1 - parent


class EqualSets(NamedTuple):
    """The sets of GPUs of a node that are equally good for the job, in the policy's order."""

    masks: tuple[int, ...]
    rails: tuple[Rails, ...]
    #: The first of them: those that leave NUMA nodes as whole for other jobs as can be.
    whole: tuple[Rails, ...]
    #: Those of `rails` whose switches reduce (SHARP).
    reducing: frozenset[Rails] = frozenset()


def choose(offers: Sequence[EqualSets]) -> list[int]:
    """A set (mask) for each node, so that the nodes' ranks are on the same rails.

    Of several the first node's first, those whose switches reduce (SHARP) before others; sets
    that split NUMA nodes only where no others do. Where all nodes cannot have the same, as many
    ranks as can be are on the same rail, by the few sets of rails that most nodes have.
    """
    distinct = {id(offer): offer for offer in offers}
    first, others = offers[0], distinct.values()
    reducing = frozenset.intersection(*(one.reducing for one in others))
    target = _shared(first.whole, [set(one.whole) for one in others], reducing)
    if target is None:
        target = _shared(first.rails, [set(one.rails) for one in others], reducing)
    if target is None:
        at = _nearest(offers, distinct)
    else:
        at = {key: offer.rails.index(target) for key, offer in distinct.items()}
    return [offer.masks[at[id(offer)]] for offer in offers]


def _shared(
    ordered: Sequence[Rails], sets: Sequence[set[Rails]], reducing: frozenset[Rails]
) -> Rails | None:
    """The first that is in all of the sets; one of those that reduce, if there is any."""
    shared = set.intersection(*sets)
    among = shared & reducing or shared
    return next((rails for rails in ordered if rails in among), None)


def _nearest(offers: Sequence[EqualSets], distinct: dict[int, EqualSets]) -> dict[int, int]:
    """For each of the offers the set that is nearest to the rails which suit all best."""
    channels = max(len(offer.rails[0]) for offer in offers)
    nodes = Counter(map(id, offers))
    votes: Counter[Rails] = Counter()
    for key, offer in distinct.items():
        if len(offer.rails[0]) == channels:
            votes.update(dict.fromkeys(offer.rails, nodes[key]))
    best: tuple[int, dict[int, int]] = (-1, {})
    for target, _ in votes.most_common(_MOST_TRIED):
        total, at = 0, {}
        for key, offer in distinct.items():
            same = [_same(target, rails, channels) for rails in offer.rails]
            most = max(same)
            at[key] = same.index(most)
            total += nodes[key] * most
        if total > best[0]:
            best = total, at
    return best[1]


def suiting(offers: Iterable[tuple[int, EqualSets]], nodes: int, taken: Sequence[EqualSets]) -> int:
    """Places (a set) whose nodes can have the same rails, those of the `taken` ones where possible.

    `offers` are sets of places with what each of them offers. Those whose switches reduce (SHARP)
    where they suffice; then as few places as suffice for that many nodes, so that more jobs find
    such places; where none suffice, as many as there are. Sets that split NUMA nodes count only
    where no others suffice.
    """
    known, found = list(offers), 0
    for splits in (False, True):
        if found.bit_count() < nodes:
            every = _by_rails(known, taken, splits)
            found = _fewest(_reducing(known, every), nodes) or _fewest(every, nodes)
            if not found:
                found = max(every.items(), key=lambda one: (one[1].bit_count(), one[0]))[1]
    return found


def _fewest(by_rails: dict[Rails, int], nodes: int) -> int:
    """The fewest places that suffice for so many nodes; none where none do."""
    counts = [(places.bit_count(), rails) for rails, places in by_rails.items()]
    enough = min((one for one in counts if one[0] >= nodes), default=None)
    return by_rails[enough[1]] if enough else 0


def _reducing(
    offers: Sequence[tuple[int, EqualSets]], by_rails: dict[Rails, int]
) -> dict[Rails, int]:
    """Of these places, by their rails, those whose switches reduce there."""
    found: dict[Rails, int] = {}
    for places, offer in offers:
        for rails in offer.reducing & by_rails.keys():
            found[rails] = found.get(rails, 0) | places & by_rails[rails]
    return found


def _by_rails(
    offers: Sequence[tuple[int, EqualSets]], taken: Sequence[EqualSets], splits: bool
) -> dict[Rails, int]:
    """Places by the rails that they can have in common, with most of the taken ones if any can."""
    by_rails: dict[Rails, int] = {}
    for places, offer in offers:
        for rails in offer.rails if splits else offer.whole:
            by_rails[rails] = by_rails.get(rails, 0) | places
    if not taken:
        return by_rails
    votes = Counter(rails for offer in taken for rails in offer.rails if rails in by_rails)
    most = max(votes.values(), default=0)
    return {rails: by_rails[rails] for rails, count in votes.items() if count == most} or by_rails
