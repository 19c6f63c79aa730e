"""Which nodes a job gets: the best of those that have room, few switches apart.

Of nodes of equal rank those that keep switches whole, or suit each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from gres_topology import Network
from policies.contract.nodes import (
    Candidates,
    FreeOn,
    NodeTable,
    RankKey,
    RankKeys,
    candidates,
)
from policies.contract.nouns import NodeState
from policies.contract.ranking import Key, Ranking, each
from policies.errors import PolicyError

#: Of places that rank equal for a count of GPUs those that suit each other and those that are
#: taken: as many as nodes are asked for or more, else as many as do. It gets the places (some),
#: the GPUs on each, how many nodes, and the places that are taken with that count.
Suits = Callable[[int, int, int, list[int]], int]

#: So much of nodes' keys tells what the job feels: it is as slow as its worst node. The rest tells
#: what is left for others, of all its nodes together.
FIRST = 1

Found = TypeVar("Found")


class InDomain(NamedTuple, Generic[Found]):
    """What was found on the nodes of one domain, and what it is ranked by."""

    #: How good the nodes are that are taken, less is better.
    key: Key
    #: What is left in the domain, less is better: it is used up first, so that others stay whole.
    left: Key
    found: Found


def assign(
    counts: tuple[int, ...],
    nodes: Mapping[str, NodeState],
    key: RankKey,
    *,
    kind: Hashable = None,
    network: Network | None = None,
) -> list[tuple[NodeState, int]]:
    """A node of its own for each count, largest count first: (node, count) pairs.

    `key` ranks a node for a count that fits it, by topology, free GPUs and weight alone, whichever
    of GPUs that can take each other's place are free (`NodeTopology.runs`, `boards`); what it says
    is remembered under `kind`, unless that is None. With a `network` several nodes are as
    few switches apart as the weights allow. What has room for a large count has room for a smaller
    one, so nodes are found whenever there are any. Raises PolicyError where there are none.
    """

    def keys(states: list[NodeState], count: int) -> list[Key]:
        return [(state.topology.lag_tenths, *key(state, count)) for state in states]

    return assign_ranked(counts, nodes, keys, kind=kind, network=network)


def assign_ranked(
    counts: tuple[int, ...],
    nodes: Mapping[str, NodeState],
    keys: RankKeys,
    *,
    kind: Hashable = None,
    network: Network | None = None,
    suits: Suits | None = None,
    of_one_kind: bool = False,
) -> list[tuple[NodeState, int]]:
    """As `assign`, for a policy that ranks many nodes at once.

    Of nodes of equal rank, on one leaf of the network, several are taken by what `suits` says.
    Several are `of_one_kind` where such are no heavier, and no worse by the `FIRST` of their keys.
    """
    among = candidates(nodes)
    wanted = sorted(counts, reverse=True)
    rankings = {count: among.table.ranking(kind, count, keys) for count in set(wanted)}
    chosen = _assign(wanted, rankings, among.among, suits=suits if network is None else None)
    if isinstance(chosen, int):
        raise PolicyError(
            f"no candidate node has {chosen} free GPUs left for this request of"
            f" {'+'.join(map(str, counts))}; the caller must ask with nodes that fit"
        )
    of_one_kind = of_one_kind and len(wanted) > 1
    if network is not None:
        near = _Near(network, among)
        chosen = near.instead_of(chosen, wanted, rankings, suits, of_one_kind=of_one_kind)
    elif of_one_kind:
        kinds = _kinds(among.table)
        chosen = _of_one_kind(chosen, kinds, among.among, wanted, rankings, None, suits)
    pairs = []
    for count, (_, place) in zip(wanted, chosen, strict=True):
        name = among.table.names[place]
        pairs.append((among.table.node(place, among.own.get(name, 0)), count))
    return pairs


#: Keys (Slurm's weight first) and the places they stand for.
_Chosen = list[tuple[Key, int]]


def _assign(
    wanted: list[int],
    rankings: Mapping[int, Ranking[FreeOn]],
    among: int,
    near: _Near | None = None,
    suits: Suits | None = None,
) -> _Chosen | int:
    """A place for each count, or the count that none is left for.

    Of places of one rank the first by name, or those that keep what is `near` whole.
    """
    if len(wanted) == 1:
        suits = None
    chosen: _Chosen = []
    at, end = 0, len(wanted)
    while at < end:
        count = wanted[at]
        best = next(rankings[count].walk(among), None)
        if best is None:
            return count
        key, places = best
        alike = 1 if end == 1 else wanted[at:].count(count)
        if suits is not None and places & places - 1:
            taken = _suited(places, count, alike, near, suits, chosen, wanted)
        elif near is None or not places & places - 1:
            taken = list(islice(each(places), alike))
        elif end == 1:
            taken = [near.blocks.one(places, near.whole)]
        else:
            taken = near.blocks.several(places, alike)
        chosen += [(key, place) for place in taken]
        at += len(taken)
        for place in taken:
            among ^= 1 << place
    return chosen


def _suited(
    places: int,
    count: int,
    alike: int,
    near: _Near | None,
    suits: Suits,
    chosen: _Chosen,
    wanted: list[int],
) -> list[int]:
    """Up to `alike` places of equal rank that suit each other, on as few leaves as without that."""
    before = [place for (_, place), gpus in zip(chosen, wanted, strict=False) if gpus == count]
    if near is None:
        return list(islice(each(suits(places, count, alike, before)), alike))
    taken = near.blocks.several(places, alike)
    leaf = places & near.blocks.leaf_of(taken)
    fit = suits(leaf, count, alike, before) if leaf else 0
    return near.blocks.several(fit, alike) if fit.bit_count() >= alike else taken


class _Near:
    """The nodes that a job may use, by the network between them."""

    def __init__(self, network: Network, nodes: Candidates) -> None:
        self._network, self._nodes = network, nodes
        table = nodes.table
        self.blocks = table.blocks(network)
        #: Whoever may use them: jobs of other types and partitions need whole nodes, too.
        self.whole = table.whole
        self._usable = nodes.among & ~table.full

    def instead_of(
        self,
        anywhere: _Chosen,
        wanted: list[int],
        rankings: Mapping[int, Ranking[FreeOn]],
        suits: Suits | None,
        *,
        of_one_kind: bool,
    ) -> _Chosen:
        """As `_assign`: in the best of the lowest domains with room, no heavier than `anywhere`."""
        most = sum(key[0] for key, _ in anywhere)
        kinds = _kinds(self._nodes.table) if of_one_kind else []

        def within(places: int) -> InDomain[int] | None:
            inside = places & self._usable
            if inside.bit_count() < len(wanted):
                return None
            key = _key_of(wanted, rankings, inside, most)
            if key is None:
                return None
            fitting = _fitting(kinds, inside, wanted, rankings, most, key)
            of_kind, _ = min(fitting) if fitting else (key, 0)
            is_mixed = fitting is not None and not fitting
            left = ((self.whole & inside).bit_count(), inside.bit_count())
            return InDomain((*of_kind[:FIRST], is_mixed, *of_kind[FIRST:]), left, inside)

        inside = self._nodes.among
        if len(wanted) > 1:
            inside = in_lowest_domain(self._network, self._nodes.table, within) or inside
        nearer = _assign(wanted, rankings, inside, self, suits)
        assert not isinstance(nearer, int)
        if not of_one_kind:
            return nearer
        return _of_one_kind(nearer, kinds, inside, wanted, rankings, self, suits)


def _of_one_kind(
    chosen: _Chosen,
    kinds: Sequence[int],
    inside: int,
    wanted: list[int],
    rankings: Mapping[int, Ranking[FreeOn]],
    near: _Near | None,
    suits: Suits | None,
) -> _Chosen:
    """As `_assign`, on the kind of node that the job fits on best.

    In step with others a faster GPU waits for a slower one, and stands still for who wants it. It
    stays `chosen` where each kind would be heavier, or worse by the `FIRST` of its keys, or where
    all places are of one kind.
    """
    most = sum(key[0] for key, _ in chosen)
    bound = max(key[1 : 1 + FIRST] for key, _ in chosen)
    fitting = _fitting(kinds, inside, wanted, rankings, most, bound)
    if not fitting:
        return chosen
    alike = _assign(wanted, rankings, min(fitting)[1], near, suits)
    assert not isinstance(alike, int)
    return alike


def _kinds(table: NodeTable) -> list[int]:
    """The places of each kind of node, by its links."""
    kinds: dict[str, int] = {}
    for kind, places in zip(table.kinds, table.of_kind, strict=True):
        shape = kind.topology.shape
        kinds[shape] = kinds.get(shape, 0) | places
    return [*kinds.values()]


def _fitting(
    kinds: Sequence[int],
    inside: int,
    wanted: list[int],
    rankings: Mapping[int, Ranking[FreeOn]],
    most: float,
    bound: Key,
) -> list[tuple[Key, int]] | None:
    """The kinds that are no heavier than `most`, nor worse by the `FIRST` of `bound`.

    With the places that they have `inside`; None where there is one kind alone.
    """
    some = [here for places in kinds if (here := places & inside)]
    if len(some) < 2:
        return None
    return [
        (key, here)
        for here in some
        if (key := _key_of(wanted, rankings, here, most)) is not None
        and key[:FIRST] <= bound[:FIRST]
    ]


def _key_of(
    wanted: list[int], rankings: Mapping[int, Ranking[FreeOn]], inside: int, most: float
) -> Key | None:
    """How good the places are that `_assign` takes, without their weight; None if too heavy.

    The worst of the `FIRST` of their keys, then sums. Of equal counts it takes what comes first:
    with many domains the places are only counted.
    """
    taken: list[tuple[int, Key, int]]
    if wanted[0] != wanted[-1]:
        chosen = _assign(wanted, rankings, inside)
        if isinstance(chosen, int):
            return None
        taken = [(count, key, 1) for count, (key, _) in zip(wanted, chosen, strict=True)]
    else:
        left, taken = len(wanted), []
        for key, places in rankings[wanted[0]].walk(inside):
            some = min(left, places.bit_count())
            taken.append((wanted[0], key, some))
            left -= some
            if not left:
                break
        if left:
            return None
    if sum(some * key[0] for _, key, some in taken) > most:
        return None
    sums: dict[int, list[float]] = {}
    for count, key, some in taken:
        rest = key[1 + FIRST :]
        before = sums.get(count) or [0.0] * len(rest)
        sums[count] = [one + some * more for one, more in zip(before, rest, strict=True)]
    worst = max(key[1 : 1 + FIRST] for _, key, _ in taken)
    # Sums of the same parts in another order are the same.
    return (*worst, *(round(one, 9) for some in sums.values() for one in some))


def in_lowest_domain(
    network: Network, table: NodeTable, within: Callable[[int], InDomain[Found] | None]
) -> Found | None:
    """What `within` finds on the places of a domain, in the best of the lowest domains with any.

    That is the one with the best key, then the one with the least left (so that others stay
    whole), then by name. None where it finds nothing in any.
    """
    best: tuple[int, Key, Key, str] | None = None
    found = None
    for domain, places in zip(network.domains, table.domains(network), strict=True):
        if best is not None and domain.level > best[0]:
            break
        here = within(places)
        if here is None:
            continue
        ranked = (domain.level, here.key, here.left, domain.name)
        if best is None or ranked < best:
            best, found = ranked, here.found
    return found
