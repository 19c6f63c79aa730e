"""Application patterns: which ranks talk to which (MAPA, SC'21, section 3.1).

A pattern is a graph over the ranks 0..k-1; nothing else in the project lists patterns. Those
of every site are made for any k; a site's own, read from a file, has the ranks it has, and
where a node gives a job another number of GPUs the job is placed as a ring.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from policies.errors import PolicyError

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which ranks talk to which."""

    name: str
    edges: Callable[[int], tuple[Edge, ...]]
    #: Whether every set of a 16-GPU node can be tabulated (a solver of its own).
    tabulated: bool = False
    #: The only number of ranks it has; None: any.
    ranks: int | None = None

    @property
    def judged_as(self) -> str:
        """The name bandwidth models know it by: a file's graph may be a ring, renumbered."""
        if self.ranks is None:
            return self.name
        ends = [rank for edge in self.edges(self.ranks) for rank in edge]
        degrees = {ends.count(rank) for rank in range(self.ranks)}
        return "ring" if degrees == {2} or self.ranks == 2 else self.name

    @property
    def title(self) -> str:
        """The name as people wrote it, without the digest of its edges."""
        return self.name.partition("@")[0]


def _chain(k: int) -> tuple[Edge, ...]:
    return tuple((rank, rank + 1) for rank in range(k - 1))


def _ring(k: int) -> tuple[Edge, ...]:
    return (*_chain(k), (0, k - 1)) if k > 2 else _chain(k)


def _star(k: int) -> tuple[Edge, ...]:
    return tuple((0, rank) for rank in range(1, k))


def _tree(k: int) -> tuple[Edge, ...]:
    return tuple(((rank - 1) // 2, rank) for rank in range(1, k))


def _all_to_all(k: int) -> tuple[Edge, ...]:
    return tuple((a, b) for b in range(k) for a in range(b))


def _ring_tree(k: int) -> tuple[Edge, ...]:
    ring = {(min(edge), max(edge)) for edge in _ring(k)}
    return tuple(sorted(ring | set(_tree(k))))


def _hypercube(k: int) -> tuple[Edge, ...]:
    """Ranks that differ in one bit; of a size that is no power of two, the ranks there are."""
    return tuple((a, b) for b in range(k) for a in range(b) if (a ^ b).bit_count() == 1)


PATTERNS: dict[str, Pattern] = {
    pattern.name: pattern
    for pattern in (
        # Ring all-reduce (NCCL, RCCL); two ranks are one link.
        Pattern("ring", _ring, tabulated=True),
        # A balanced binary tree: rank r's parent is (r-1)//2.
        Pattern("tree", _tree, tabulated=True),
        # A pipeline: rank r talks to r+1.
        Pattern("chain", _chain, tabulated=True),
        # A parameter server: rank 0 talks to all.
        Pattern("star", _star, tabulated=True),
        Pattern("all-to-all", _all_to_all, tabulated=True),
        # NCCL's two algorithms.
        Pattern("ring+tree", _ring_tree),
        # Recursive doubling: ranks that differ in one bit.
        Pattern("hypercube", _hypercube),
    )
}

#: The patterns whose sets are tabulated on every node of up to 16 GPUs.
TABULATED: tuple[str, ...] = tuple(name for name, pattern in PATTERNS.items() if pattern.tabulated)


#: Patterns read from files, by a name that holds a digest of their edges. Two contents never
#: share one, so no table, cache or answer of an earlier file is ever taken for a later one's.
_SITES: dict[str, Pattern] = {}


def add_graph(name: str, ranks: int, edges: Sequence[Edge]) -> str:
    """Make a site's graph known; the name it is asked for by (`NAME@digest`).

    `edges` are those of a connected graph over 0..ranks-1, each once, the lower rank first.
    """
    kept = tuple(sorted(edges))
    digest = hashlib.sha256(repr((ranks, kept)).encode()).hexdigest()[:8]
    full = f"{name}@{digest}"
    _SITES[full] = Pattern(full, lambda _: kept, ranks=ranks)
    return full


def fitting(name: str, k: int) -> str:
    """The pattern by which k ranks are placed: itself, or ring where it has not k ranks."""
    ranks = _SITES[name].ranks if name in _SITES else None
    return name if ranks in (None, k) else "ring"


def pairs_of(name: str, gpus: Sequence[int]) -> list[Edge]:
    """The pairs of one node's GPUs (in rank order) between which ranks of the pattern talk.

    Raises PolicyError for a pattern that is not known here.
    """
    edges = pattern_of(fitting(name, len(gpus))).edges(len(gpus))
    return [(gpus[a], gpus[b]) for a, b in edges]


def described(name: str, counts: Sequence[int]) -> str:
    """The pattern in words, for jobs of these counts of GPUs per node."""
    pattern = pattern_of(name)
    fits = {fitting(name, k) == name for k in counts if k > 1}
    if False not in fits:
        return pattern.title
    if True not in fits:
        return f"ring ({pattern.title} is for {pattern.ranks} GPUs)"
    return f"{pattern.title} (ring where a node has not {pattern.ranks} GPUs)"


def pattern_of(name: str) -> Pattern:
    """The pattern of that name; PolicyError lists the names there are."""
    pattern = PATTERNS.get(name) or _SITES.get(name)
    if pattern is None:
        raise PolicyError(f"pattern {name!r}: expected one of {', '.join(PATTERNS)}")
    return pattern
