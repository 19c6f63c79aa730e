"""Application patterns: which ranks talk to which (MAPA, SC'21, section 3.1).

A pattern is a graph over the ranks 0..k-1. Each names the solver that finds its best
matching on a set of GPUs; nothing else in the project lists patterns.
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


PATTERNS: dict[str, Pattern] = {
    pattern.name: pattern
    for pattern in (
        Pattern("ring", _ring, "ring all-reduce (NCCL, RCCL); two ranks are one link"),
        Pattern("tree", _tree, "balanced binary tree; rank r's parent is (r-1)//2"),
        Pattern("chain", _chain, "pipeline: rank r talks to r+1"),
        Pattern("star", _star, "parameter server: rank 0 talks to all"),
        Pattern("all-to-all", _all_to_all, "every rank talks to every other"),
    )
}


def pattern_of(name: str) -> Pattern:
    """The pattern of that name; PolicyError lists the names there are."""
    try:
        return PATTERNS[name]
    except KeyError:
        raise PolicyError(f"pattern {name!r}: expected one of {', '.join(PATTERNS)}") from None
