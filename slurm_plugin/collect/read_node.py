"""From the sections of one node's answer to its NodeTopology.

The vendors' tools tell the links; `nvidia-smi -q` and sysfs tell each GPU's device file.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping

from gres_topology import NodeTopology, TopologyError, pci
from gres_topology.readers import nvidia_smi, rocm_smi
from gres_topology.readers.numactl import merge_numa
from slurm_plugin.collect.snippet import Section
from slurm_plugin.errors import PluginError

logger = logging.getLogger(__name__)

_GPU_BLOCK = re.compile(r"^GPU ([0-9A-Fa-f:.]+)\s*$", re.MULTILINE)
_MINOR = re.compile(r"^\s+Minor Number\s*:\s*(\d+)\s*$", re.MULTILINE)
_ROCM_BUS = re.compile(r"^GPU\[(\d+)\]\s*:\s*PCI Bus:\s*(\S+)\s*$", re.MULTILINE)
_RENDER = re.compile(r"^renderD(\d+) .*/([0-9a-fA-F:.]+)\s*$", re.MULTILINE)


def read_node(node: str, sections: Mapping[str, Section]) -> NodeTopology:
    """The node's hardware; PluginError when no tool ran, TopologyError for a damaged answer."""
    if sections["nvidia-smi-topo"].status == 0:
        topology = _nvidia(node, sections)
    elif sections["rocm-smi-topo"].status == 0:
        topology = _rocm(node, sections)
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
    for name in ("nvidia-smi-topo", "rocm-smi-topo"):
        section = sections[name]
        if section.status != 127:
            lines = section.text.strip().splitlines() or ["no message"]
            tool = name.rpartition("-")[0]
            return f"{tool} failed with status {section.status}: {lines[-1]}"
    return "neither nvidia-smi nor rocm-smi is installed there"


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
    found = [_MINOR.search(detail) for detail in details]
    return dataclasses.replace(
        topology,
        pci=tuple(pci.normalise(address) for address in addresses),
        minors=tuple(int(match[1]) if match else None for match in found),
    )


def _rocm(node: str, sections: Mapping[str, Section]) -> NodeTopology:
    topology = rocm_smi.read(sections["rocm-smi-topo"].text, name=node, source=node)
    addresses = {
        int(number): pci.normalise(address)
        for number, address in _ROCM_BUS.findall(sections["rocm-smi-bus"].text)
    }
    if sorted(addresses) != list(range(topology.gpus)):
        return topology
    nodes = {pci.normalise(a): int(n) for n, a in _RENDER.findall(sections["drm"].text)}
    ordered = [addresses[i] for i in range(topology.gpus)]
    return dataclasses.replace(
        topology,
        pci=tuple(ordered),
        minors=tuple(nodes.get(address) for address in ordered),
    )
