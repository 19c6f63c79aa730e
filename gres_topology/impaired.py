"""A node with parts that are broken or slow, as a topology of its own.

A slow link keeps its label and a share of its bandwidth; a broken one is the path over PCIe that
GPUs placed like these have otherwise. So whoever compares links avoids it by what it has lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from gres_topology import links
from gres_topology.errors import TopologyError
from gres_topology.topology import Impairment, NodeTopology


def impaired(topology: NodeTopology, impairments: Collection[Impairment]) -> NodeTopology:
    """The node with these; raises TopologyError for parts it does not have."""
    if not impairments:
        return topology
    kinds = [list(row) for row in topology.kinds]
    gbps = np.array(topology.bandwidth_gbps)
    ports = np.ones(topology.gpus)
    for one in impairments:
        _check(topology, one)
        if len(one.gpus) == 1 and one.share:
            ports[one.gpus[0]] = one.share
    # A link carries what the ports at its worse end do.
    gbps *= np.minimum.outer(ports, ports)
    for one in impairments:
        if len(one.gpus) == 2:
            a, b = one.gpus
            if not one.share:
                kinds[a][b] = kinds[b][a] = over_host(topology, a, b)
                gbps[a, b] = gbps[b, a] = min(gbps[a, b], _host_gbps(topology, kinds[a][b]))
            else:
                gbps[a, b] = gbps[b, a] = gbps[a, b] * one.share
    return replace(
        topology,
        kinds=tuple(map(tuple, kinds)),
        bandwidth_gbps=gbps,
        impairments=tuple(sorted(impairments, key=lambda one: (len(one.gpus), one.gpus))),
        healthy=topology,
    )


def over_host(topology: NodeTopology, a: int, b: int) -> str:
    """The label of the path between two GPUs without the link that joins them."""
    if not links.is_direct(topology.kinds[a][b]):
        return topology.kinds[a][b]
    is_near = topology.numa[a] is not None and topology.numa[a] == topology.numa[b]
    like = Counter(
        topology.kinds[i][j]
        for i in range(topology.gpus)
        for j in range(i)
        if not links.is_direct(topology.kinds[i][j])
        and (topology.numa[i] is not None and topology.numa[i] == topology.numa[j]) == is_near
    )
    if like:
        return like.most_common(1)[0][0]
    return "NODE" if is_near else "SYS"


def _host_gbps(topology: NodeTopology, label: str) -> float:
    """What such a path carries on this node; by the table where it has none."""
    there = np.array([[kind == label for kind in row] for row in topology.kinds])
    if there.any():
        return float(topology.bandwidth_gbps[there].min())
    return links.rates_of_model(topology.model).gbps(label)


def _check(topology: NodeTopology, one: Impairment) -> None:
    wrong = next((gpu for gpu in one.gpus if not 0 <= gpu < topology.gpus), None)
    if wrong is not None:
        raise TopologyError(
            f"{one.text()}: {topology.name} has no GPU {wrong}; expected 0 to {topology.gpus - 1}"
        )
    if len(one.gpus) > 2 or len(set(one.gpus)) < len(one.gpus):
        raise TopologyError(f"{one.text()}: expected a GPU, or a link between two GPUs")
    if not 0 <= one.share < 1 or (not one.gpus and not one.share):
        raise TopologyError(f"{one.text()}: expected a share from 0 (broken) to less than 1")
