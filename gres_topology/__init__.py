"""What the hardware looks like: readers, the catalog of machines, gres.conf.

Knows GPUs, links, NUMA nodes, PCI addresses and NICs. Never decides a placement.
"""

from gres_topology.comparison import difference, fingerprint
from gres_topology.errors import TopologyError
from gres_topology.gres_file import gres_conf
from gres_topology.mapping import SlurmIndex
from gres_topology.network import Domain, Network
from gres_topology.numactl import merge_numa
from gres_topology.reading import find, read
from gres_topology.topology import Nic, NodeTopology, NumaNode

__all__ = [
    "Domain",
    "Network",
    "Nic",
    "NodeTopology",
    "NumaNode",
    "SlurmIndex",
    "TopologyError",
    "difference",
    "find",
    "fingerprint",
    "gres_conf",
    "merge_numa",
    "read",
]
