"""What a node's fake GPU tools answer from, for any topology: a module for each vendor.

docker/image/fake-smi reads the texts. What a topology does not know (PCI addresses, UUIDs, memory)
is made up, the same every time.
"""

from gres_topology import NodeTopology
from slurm_cluster.fake_tools import amd, intel, nvidia
from slurm_cluster.fake_tools.amd import is_amd
from slurm_cluster.fake_tools.gpus import addresses, uuid_of

__all__ = ["addresses", "fake_tools", "is_amd", "uuid_of"]


def fake_tools(topology: NodeTopology) -> dict[str, str]:
    """Relative path -> text, as fake-smi reads them."""
    if "Intel" in (topology.model or ""):
        return intel.files(topology)
    return amd.files(topology) if is_amd(topology) else nvidia.files(topology)
