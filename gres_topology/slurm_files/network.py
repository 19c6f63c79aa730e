"""The network between nodes as Slurm knows it: which hang below one switch, or are one block.

`topology_conf` and `topology_yaml` read the two forms that Slurm has of it, `networks` either, and
`topology_shown` what slurmctld says that it has in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from gres_topology import hostlist
from gres_topology.errors import TopologyError

#: Kinds whose domains are known; of other kinds (ring, torus3d) only the name is.
TREE, BLOCK, FLAT = "tree", "block", "flat"
#: Sizes that Slurm enforces where none are named, in base blocks.
USUAL_RATIOS = (2, 4, 8, 16)
#: Switches above one another.
_MOST_DEEP = 64
#: The largest such size in base blocks, as a power of two.
MOST_LEVELS = 16


@dataclass(frozen=True, slots=True)
class Domain:
    """The nodes below one switch, in one block, or in several neighbouring blocks.

    `level` 0 is a leaf switch or a base block; each level above joins those below.
    """

    name: str
    level: int
    nodes: frozenset[str]


@dataclass(frozen=True)
class Network:
    """All domains, the lowest level first; `source` is what was read.

    Of a level switches are by name, blocks in the order in which Slurm joins them.
    """

    domains: tuple[Domain, ...]
    source: str
    #: Slurm's plugin: `tree`, `block`, `flat` (no domains), or another whose domains are not known.
    kind: str = TREE
    #: Nodes of a base block, and of each number of joined ones that Slurm plans with, ascending
    #: (BlockSizes), where slurmctld told them; () for trees.
    sizes: tuple[int, ...] = ()

    @cached_property
    def units(self) -> tuple[Domain, ...]:
        """Within what Slurm keeps a job of several nodes: base blocks, or trees.

        () where it may have any nodes: below one switch, or where the sizes of blocks are not told.
        """
        if self.kind == BLOCK:
            return tuple(one for one in self.domains if not one.level) if self.sizes else ()
        below: set[str] = set()
        roots = []
        for domain in reversed(self.domains):
            if not domain.nodes <= below:
                roots.append(domain)
            below |= domain.nodes
        return tuple(reversed(roots)) if len(roots) > 1 else ()

    @property
    def noun(self) -> str:
        """What one of its lowest domains is called."""
        return "block" if self.kind == BLOCK else "switch"

    @cached_property
    def top(self) -> int:
        """The highest level there is, -1 without domains."""
        return max((domain.level for domain in self.domains), default=-1)

    def common(self, nodes: Iterable[str]) -> Domain | None:
        """The lowest domain that holds all the nodes; None where nothing joins them."""
        wanted = frozenset(nodes)
        return next((domain for domain in self.domains if wanted <= domain.nodes), None)

    def hops(self, first: str, second: str) -> int:
        """Switches on the way between two nodes: 0 to itself, 1 below one leaf, then 3, 5, ...

        Nodes that no switch joins are one level farther apart than any that one does.
        """
        if first == second:
            return 0
        joined = self.common((first, second))
        return 2 * (self.top + 1 if joined is None else joined.level) + 1


@dataclass(frozen=True)
class Networks:
    """The topologies of one file by name; topology.conf has one, whose name is empty."""

    by_name: Mapping[str, Network]
    #: The one of partitions that name none.
    default: Network

    def of(self, name: str) -> Network | None:
        """The topology of that name, the default one for an empty name; None for no such name."""
        return self.by_name.get(name) if name else self.default


@dataclass(frozen=True, slots=True)
class Declared:
    """A switch or a block as written, with host lists; `where` is file and line."""

    where: str
    name: str
    nodes: str = ""
    #: The switches below a switch.
    below: str = ""

    def fail(self, text: str) -> TopologyError:
        """An error that names the line."""
        return TopologyError(f"{self.where}: {text}")

    def names(self, text: str, key: str) -> tuple[str, ...]:
        """The names of the host list that `key` has; TopologyError with the line if it is none."""
        try:
            return hostlist.expand(text) if text else ()
        except ValueError as error:
            raise self.fail(f"{key}: {error}") from error


def tree(switches: Iterable[Declared], source: str, *, may_be_empty: bool = False) -> Network:
    """Switches and what hangs below each; TopologyError names file, line and what is wrong."""
    by_name = _unique(switches)
    known: dict[str, Domain] = {}
    for name, line in by_name.items():
        if not (line.nodes or line.below or may_be_empty):
            raise line.fail(f"switch {name} has neither nodes nor switches below it")
        _switch(name, by_name, known, ())
    domains = sorted(known.values(), key=lambda domain: (domain.level, domain.name))
    return Network(tuple(domains), source, TREE)


def blocks(
    declared: Iterable[Declared],
    ratios: Sequence[int],
    source: str,
    *,
    sizes: tuple[int, ...] = (),
) -> Network:
    """Base blocks, and the sizes above them: `ratios` neighbouring blocks each, in this order.

    An empty block keeps its place among its neighbours, as since Slurm 25.05. Errors as of `tree`.
    """
    base = [
        Domain(name, 0, frozenset(line.names(line.nodes, "nodes")))
        for name, line in _unique(declared).items()
    ]
    return Network((*base, *_joined(base, ratios)), source, BLOCK, sizes)


def _joined(base: list[Domain], ratios: Sequence[int]) -> Iterator[Domain]:
    for level, many in enumerate(ratios, 1):
        for at in range(0, len(base), many):
            some = base[at : at + many]
            if len(some) > 1:
                name = f"{some[0].name}-{some[-1].name}"
                yield Domain(name, level, frozenset().union(*(block.nodes for block in some)))
        if many >= len(base):
            break  # larger sizes join nothing more


def ratios(sizes: Sequence[int]) -> tuple[int, ...] | None:
    """How many base blocks each size above the first joins; None for sizes Slurm refuses."""
    if not sizes or sizes[0] <= 0:
        return None
    found = [size // sizes[0] for size in sizes]
    is_sound = (
        all(size == sizes[0] * ratio for size, ratio in zip(sizes, found, strict=True))
        and all(ratio.bit_count() == 1 for ratio in found)
        and all(a < b for a, b in pairwise(found))
        and found[-1] < 1 << MOST_LEVELS
    )
    return tuple(found[1:]) if is_sound else None


def _unique(lines: Iterable[Declared]) -> dict[str, Declared]:
    """The lines by what they name; each name once."""
    by_name: dict[str, Declared] = {}
    for line in lines:
        if line.name in by_name:
            raise line.fail(f"{line.name} stands in {by_name[line.name].where} already")
        by_name[line.name] = line
    return by_name


def _switch(
    name: str, switches: Mapping[str, Declared], known: dict[str, Domain], above: tuple[str, ...]
) -> Domain:
    """One switch with everything below it; `above` are those it is looked at from."""
    if name in known:
        return known[name]
    line = switches[name]
    if len(above) >= _MOST_DEEP:
        raise line.fail(f"switch {name} is below more than {_MOST_DEEP} others")
    nodes, children = line.names(line.nodes, "nodes"), line.names(line.below, "switches")
    below = []
    for child in children:
        if child not in switches:
            raise line.fail(f"switch {name} lists {child}, which nothing here describes")
        if child in (*above, name):
            raise line.fail(f"switch {child} is below itself: {' > '.join((*above, name, child))}")
        below.append(_switch(child, switches, known, (*above, name)))
    level = 1 + max((domain.level for domain in below), default=-1)
    held = frozenset(nodes).union(*(domain.nodes for domain in below))
    known[name] = Domain(name, level, held)
    return known[name]
