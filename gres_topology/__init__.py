"""What the hardware looks like: readers, the catalog of machines, gres.conf.

Knows GPUs, links, NUMA nodes, PCI addresses and NICs. Never decides a placement.
"""

from gres_topology.comparison import difference, fingerprint
from gres_topology.errors import TopologyError
from gres_topology.readers.numactl import merge_numa
from gres_topology.readers.reading import find, read
from gres_topology.slurm_files.gres_file import gres_conf
from gres_topology.slurm_files.network import Domain, Network
from gres_topology.topology import Nic, NodeTopology, NumaNode

__all__ = [
    "Domain",
    "Network",
    "Nic",
    "NodeTopology",
    "NumaNode",
    "TopologyError",
    "difference",
    "find",
    "fingerprint",
    "gres_conf",
    "merge_numa",
    "read",
]
