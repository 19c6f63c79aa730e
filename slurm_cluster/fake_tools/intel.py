"""What xpu-smi prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gres_topology import NodeTopology, cpulist
from gres_topology.topology import SELF
from slurm_cluster.fake_tools.gpus import addresses, as_json


def files(topology: NodeTopology) -> dict[str, str]:
    """Relative path -> text."""
    return {
        "xpu-smi/topology.txt": _tiles(topology),
        "xpu-smi/discovery.json": as_json({"device_list": list(_devices(topology))}),
    }


def _tiles(topology: NodeTopology) -> str:
    """The matrix, of one tile a GPU: how the tiles of a real one are joined is not known."""
    names = [f"GPU {gpu}/0" for gpu in range(topology.gpus)]
    lines = [" " * 9 + "|".join(names) + "|CPU Affinity"]
    for name, kinds, cpus in zip(names, topology.kinds, topology.cpus, strict=True):
        cells = ("S" if label == SELF else label for label in kinds)
        words = [*(word.ljust(7) for word in cells), cpulist.format_list(cpus or ())]
        lines.append(f"{name} |" + "|".join(words))
    return "".join(f"{line}\n" for line in lines)


def _devices(topology: NodeTopology) -> Iterable[dict[str, Any]]:
    for gpu, address in enumerate(addresses(topology)):
        named = {"device_name": topology.model, "vendor_name": "Intel(R) Corporation"}
        yield {"device_id": gpu, **named, "device_type": "GPU", "pci_bdf_address": address}
