"""From the sections of one node's answer to its NodeTopology.

The vendors' tools tell the links; `nvidia-smi -q` and sysfs tell each GPU's device file.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Mapping

from gres_topology import NodeTopology, TopologyError, pci
from gres_topology.readers import nvidia_smi, xpu_smi
from gres_topology.readers.amd import amd_smi, rocm_smi
from gres_topology.readers.numactl import merge_numa
from slurm_plugin.act.collect.snippet import Section
from slurm_plugin.errors import PluginError

logger = logging.getLogger(__name__)

_GPU_BLOCK = re.compile(r"^GPU ([0-9A-Fa-f:.]+)\s*$", re.MULTILINE)
_MINOR = re.compile(r"^\s+Minor Number\s*:\s*(\d+)\s*$", re.MULTILINE)
_RENDER = re.compile(r"^renderD(\d+) .*/([0-9a-fA-F:.]+)\s*$", re.MULTILINE)

#: The section with each tool's links -> its sections, as its reader wants them, and that reader.
#: The first that works is read: amd-smi before rocm-smi, which newer ROCm has no more.
_TOOLS: Mapping[str, tuple[tuple[str, ...], Callable[..., NodeTopology]]] = {
    # The list names the model, from which the reader knows the links' generation.
    "nvidia-smi-topo": (("nvidia-smi-list", "nvidia-smi-topo"), nvidia_smi.read),
    "amd-smi-topo": (("amd-smi-topo", "amd-smi-asic", "amd-smi-numa"), amd_smi.read),
    "rocm-smi-topo": (("rocm-smi-topo", "rocm-smi-bus", "rocm-smi-name"), rocm_smi.read),
    "xpu-smi-topo": (("xpu-smi-topo", "xpu-smi-list"), xpu_smi.read),
}


def read_node(node: str, sections: Mapping[str, Section]) -> NodeTopology:
    """The node's hardware; PluginError when no tool ran, TopologyError for a damaged answer."""
    links = next((name for name in _TOOLS if sections[name].status == 0), None)
    if links is None:
        raise PluginError(f"{node}: {_why_none(sections)}")
    names, read = _TOOLS[links]
    said = "".join(sections[name].text for name in names if sections[name].status == 0)
    with_minors = _with_query if read is nvidia_smi.read else _with_render_nodes
    topology = with_minors(read(said, name=node, source=node), sections)
    if sections["numactl"].status != 0:
        return topology
    try:
        return merge_numa(topology, sections["numactl"].text, source=node)
    except TopologyError as error:
        # A virtual machine or container may show GPUs of NUMA nodes it does not have.
        logger.warning("%s: numactl is left out: %s", node, error)
        return topology


def _why_none(sections: Mapping[str, Section]) -> str:
    for name in _TOOLS:
        section = sections[name]
        if section.status != 127:
            lines = section.text.strip().splitlines() or ["no message"]
            tool = name.rpartition("-")[0]
            return f"{tool} failed with status {section.status}: {lines[-1]}"
    return "none of nvidia-smi, amd-smi, rocm-smi and xpu-smi is installed there"


def _with_query(topology: NodeTopology, sections: Mapping[str, Section]) -> NodeTopology:
    """The topology with each GPU's address and device minor, as `nvidia-smi -q` tells them."""
    query = sections["nvidia-smi-query"]
    blocks = _GPU_BLOCK.split(query.text)[1:] if query.status == 0 else []
    addresses, details = blocks[::2], blocks[1::2]
    if len(addresses) != topology.gpus:
        # Without the query the links still hold; only the index mapping cannot be derived.
        return topology
    matches = [_MINOR.search(detail) for detail in details]
    return dataclasses.replace(
        topology,
        pci=tuple(pci.normalise(address) for address in addresses),
        minors=tuple(int(match[1]) if match else None for match in matches),
    )


def _with_render_nodes(topology: NodeTopology, sections: Mapping[str, Section]) -> NodeTopology:
    """The topology with each GPU's device minor; for others than NVIDIA only sysfs knows it."""
    if None in topology.pci:
        return topology
    nodes = {pci.normalise(a): int(n) for n, a in _RENDER.findall(sections["drm"].text)}
    minors = tuple(nodes.get(address) for address in topology.pci)
    return dataclasses.replace(topology, minors=minors)
