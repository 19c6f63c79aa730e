"""Application patterns: which ranks talk to which (MAPA, SC'21, section 3.1).

A pattern is a graph over the ranks 0..k-1; nothing else in the project lists patterns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from policies.errors import PolicyError

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way of talking: a name, its edges for k ranks, and what it stands for."""

    name: str
    edges: Callable[[int], tuple[Edge, ...]]
    doc: str
    #: Whether every set of a 16-GPU node can be tabulated (a solver of its own).
    tabulated: bool = False


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
        Pattern(
            "ring", _ring, "ring all-reduce (NCCL, RCCL); two ranks are one link", tabulated=True
        ),
        Pattern("tree", _tree, "balanced binary tree; rank r's parent is (r-1)//2", tabulated=True),
        Pattern("chain", _chain, "pipeline: rank r talks to r+1", tabulated=True),
        Pattern("star", _star, "parameter server: rank 0 talks to all", tabulated=True),
        Pattern("all-to-all", _all_to_all, "every rank talks to every other", tabulated=True),
        Pattern("ring+tree", _ring_tree, "a ring and a balanced tree (NCCL's two algorithms)"),
        Pattern("hypercube", _hypercube, "recursive doubling: ranks that differ in one bit"),
    )
}

#: The patterns whose sets are tabulated on every node of up to 16 GPUs.
TABULATED: tuple[str, ...] = tuple(name for name, found in PATTERNS.items() if found.tabulated)


def pattern_of(name: str) -> Pattern:
    """The pattern of that name; PolicyError lists the names there are."""
    try:
        return PATTERNS[name]
    except KeyError:
        raise PolicyError(f"pattern {name!r}: expected one of {', '.join(PATTERNS)}") from None
