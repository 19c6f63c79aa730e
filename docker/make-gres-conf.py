"""Writes the cluster's gres.conf to standard output, from the catalog: the one place it is made.

With --slots as one GRES type per GPU (the variant gputopo-slots).

The fake nodes have sockets of 4 or 8 cores, so the machines' NUMA nodes are laid over those.
"""

from __future__ import annotations

import sys

from gres_topology import catalog
from gres_topology.gres_file import gres_conf

#: (nodes, machine of the catalog, cores of the fake node)
NODES = (
    ("dgx[1-2]", "dgx1v", 16),
    ("minsky1", "minsky", 8),
    ("bridged1", "a100-pcie-bridged", 16),
    ("amd1", "mi250x", 16),
)


def cores_of(machine: str, cores: int) -> dict[int, range]:
    """The fake node's cores dealt out over the machine's NUMA nodes that have GPUs."""
    numbers = sorted({node for node in catalog.load(machine).numa if node is not None})
    share = cores // len(numbers)
    return {node: range(i * share, (i + 1) * share) for i, node in enumerate(numbers)}


if __name__ == "__main__":
    print("# Made by docker/make-gres-conf.py")
    for nodes, machine, cores in NODES:
        text = gres_conf(
            catalog.load(machine),
            nodes,
            "/dev/fakegpu{index}",
            numa_cores=cores_of(machine, cores),
            slots="--slots" in sys.argv,
        )
        print(text, end="")
