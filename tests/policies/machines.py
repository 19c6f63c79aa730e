"""Named machines for the policies' tests: the catalog's, and drawn ones."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from gres_topology import NodeTopology
from gres_topology.catalog import load
from policies import Ahead, Cluster, NodeState, Request, mask_of
from policies.remote import NodeCapacity, RemoteJob

#: Labels and GB/s a drawn machine is made of.
DRAWN = (("SYS", 12.0), ("NV1", 25.0), ("NV2", 50.0))


def machine(name: str) -> NodeTopology:
    """A machine of the catalog."""
    return load(name)


def cluster(free: list[int], ahead: Ahead | None, kind: str = "dgx1v") -> Cluster:
    """One node with these GPUs free, and what is to come."""
    return Cluster({"n": NodeState("n", machine(kind), mask_of(free))}, ahead=ahead)


def asked_by(communication: str) -> Request:
    """Two GPUs for a job that says what it communicates."""
    return Request((2,), options={"communication": communication})


def drawn(gpus: int, seed: int) -> NodeTopology:
    """A machine with links thrown at random, for what must hold on any machine."""
    draw = np.random.default_rng(seed)
    kinds = [["X"] * gpus for _ in range(gpus)]
    links = np.zeros((gpus, gpus))
    for i, j in combinations(range(gpus), 2):
        kinds[i][j], links[i, j] = DRAWN[int(draw.integers(len(DRAWN)))]
        kinds[j][i], links[j, i] = kinds[i][j], links[i, j]
    none = (None,) * gpus
    rows = tuple(tuple(row) for row in kinds)
    return NodeTopology(f"drawn-{seed}", "drawn by a test", rows, links, none, none)


def of_boards(boards: int = 4, gpus: int = 8) -> NodeTopology:
    """Boards of GPUs behind one switch each."""
    n = boards * gpus
    near = np.arange(n)[:, None] // gpus == np.arange(n) // gpus
    links = np.where(near, 450.0, 20.0)
    np.fill_diagonal(links, 0.0)
    kinds = tuple(
        tuple("X" if i == j else "NV18" if near[i, j] else "SYS" for j in range(n))
        for i in range(n)
    )
    return NodeTopology("boards", "test", kinds, links, (None,) * n, (None,) * n)


def relabelled(topology: NodeTopology, order: tuple[int, ...]) -> NodeTopology:
    """The same machine with its GPU i called order[i] before."""
    kinds = tuple(tuple(topology.kinds[a][b] for b in order) for a in order)
    links = topology.bandwidth_gbps[np.ix_(order, order)]
    numa = tuple(topology.numa[a] for a in order)
    cpus = tuple(topology.cpus[a] for a in order)
    return NodeTopology(f"{topology.name}-relabelled", "by a test", kinds, links, numa, cpus)


def rooms(*nodes: tuple[int, ...], donor_cpus: int = 0) -> dict[str, NodeCapacity]:
    """Nodes n0, n1 and so on, each given as (free mask, free CPUs[, free memory in MB])."""
    found = {}
    for number, (free, cpus, *memory_mb) in enumerate(nodes):
        name = f"n{number}"
        found[name] = NodeCapacity(name, free, cpus, sum(memory_mb), donor_cpus)
    return found


def job(*gpus: int, **more: Any) -> RemoteJob:
    """A job that may borrow, by the GPUs of each task."""
    return RemoteJob(Request(gpus), **more)
