"""From the sections of one node's answer to its NodeTopology.

The vendors' tools tell the links; `nvidia-smi -q` and sysfs tell each GPU's device file.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence

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

#: The sections of each of AMD's tools, the links first. amd-smi is asked for where it works: newer
#: ROCm has no rocm-smi any more.
AMD_SMI = ("amd-smi-topo", "amd-smi-asic", "amd-smi-numa")
ROCM_SMI = ("rocm-smi-topo", "rocm-smi-bus", "rocm-smi-name")
XPU_SMI = ("xpu-smi-topo", "xpu-smi-list")
#: Any one of them shows the links.
_TOPOLOGIES = ("nvidia-smi-topo", "amd-smi-topo", "rocm-smi-topo", "xpu-smi-topo")


def read_node(node: str, sections: Mapping[str, Section]) -> NodeTopology:
    """The node's hardware; PluginError when no tool ran, TopologyError for a damaged answer."""
    if sections["nvidia-smi-topo"].status == 0:
        topology = _nvidia(node, sections)
    elif sections["amd-smi-topo"].status == 0:
        topology = _amd(node, sections)
    elif sections["rocm-smi-topo"].status == 0:
        topology = _rocm(node, sections)
    elif sections["xpu-smi-topo"].status == 0:
        topology = _intel(node, sections)
    else:
        raise PluginError(f"{node}: {_why_none(sections)}")
    if sections["numactl"].status != 0:
        return topology
    try:
        return merge_numa(topology, sections["numactl"].text, source=node)
    except TopologyError as error:
        # A virtual machine or container may show GPUs of NUMA nodes it does not have.
        logger.warning("%s: numactl is left out: %s", node, error)
        return topology


def _why_none(sections: Mapping[str, Section]) -> str:
    for name in _TOPOLOGIES:
        section = sections[name]
        if section.status != 127:
            lines = section.text.strip().splitlines() or ["no message"]
            tool = name.rpartition("-")[0]
            return f"{tool} failed with status {section.status}: {lines[-1]}"
    return "none of nvidia-smi, amd-smi, rocm-smi and xpu-smi is installed there"


def _nvidia(node: str, sections: Mapping[str, Section]) -> NodeTopology:
    # The list names the model, from which the reader knows the links' generation.
    text = sections["nvidia-smi-list"].text + sections["nvidia-smi-topo"].text
    topology = nvidia_smi.read(text, name=node, source=node)
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


def _amd(node: str, sections: Mapping[str, Section]) -> NodeTopology:
    topology = amd_smi.read(_texts(sections, AMD_SMI), name=node, source=node)
    return _with_render_nodes(topology, sections)


def _rocm(node: str, sections: Mapping[str, Section]) -> NodeTopology:
    topology = rocm_smi.read(_texts(sections, ROCM_SMI), name=node, source=node)
    return _with_render_nodes(topology, sections)


def _intel(node: str, sections: Mapping[str, Section]) -> NodeTopology:
    topology = xpu_smi.read(_texts(sections, XPU_SMI), name=node, source=node)
    return _with_render_nodes(topology, sections)


def _texts(sections: Mapping[str, Section], names: Sequence[str]) -> str:
    """What a tool said where it did not fail."""
    return "".join(sections[name].text for name in names if sections[name].status == 0)


def _with_render_nodes(topology: NodeTopology, sections: Mapping[str, Section]) -> NodeTopology:
    """The topology with each GPU's device minor; for others than NVIDIA only sysfs knows it."""
    if None in topology.pci:
        return topology
    nodes = {pci.normalise(a): int(n) for n, a in _RENDER.findall(sections["drm"].text)}
    minors = tuple(nodes.get(address) for address in topology.pci)
    return dataclasses.replace(topology, minors=minors)
