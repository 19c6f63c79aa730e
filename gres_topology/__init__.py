"""What the hardware looks like: readers, the catalog of machines, gres.conf.

Knows GPUs, links, NUMA nodes, PCI addresses and NICs. Never decides a placement.
"""

from gres_topology.errors import TopologyError
from gres_topology.topology import Nic, NodeTopology, NumaNode

__all__ = ["Nic", "NodeTopology", "NumaNode", "TopologyError"]
