"""What amd-smi of ROCm 7 and rocm-smi of ROCm 6 print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import networkx as nx

from gres_topology import NodeTopology, links
from slurm_cluster.fake_tools.gpus import addresses, as_json, number_or

#: Hops and weight that KFD reports of two GPUs on different sockets without a fabric between.
_PCIE_HOPS, _PCIE_WEIGHT = 3, 72
_XGMI_HOP_WEIGHT = 15


def files(topology: NodeTopology) -> dict[str, str]:
    """Relative path -> text."""
    return {
        "amd-smi/topology.json": as_json(_amd_links(topology)),
        "amd-smi/asic-bus.json": as_json({"gpu_data": list(_amd_cards(topology))}),
        "amd-smi/numa.json": as_json({"gpu_data": list(_amd_places(topology))}),
        "rocm-smi/showtopo.txt": _showtopo(topology),
        "rocm-smi/showbus.txt": _showbus(topology),
        "rocm-smi/showproductname.txt": _showproductname(topology),
    }


def is_amd(topology: NodeTopology) -> bool:
    """Whether its tools are AMD's."""
    labels = {label for row in topology.kinds for label in row}
    return "AMD" in (topology.model or "") or any(label.startswith("XGMI") for label in labels)


def _amd_links(topology: NodeTopology) -> list[dict[str, Any]]:
    hops, known = _hops(topology), addresses(topology)
    return [
        {
            "gpu": gpu,
            "bdf": address,
            "links": [
                {"gpu": other, "bdf": known[other], **_amd_link(gpu, other, hops[gpu])}
                for other in range(topology.gpus)
            ],
        }
        for gpu, address in enumerate(known)
    ]


def _amd_link(gpu: int, other: int, hops: Mapping[int, int]) -> dict[str, Any]:
    """One link as `amd-smi topology --json` of ROCm 7 tells it."""
    is_self, is_xgmi = gpu == other, other in hops
    of_link = ("SELF",) * 4 if is_self else ("C", "64,32", "T", "T")
    return {
        "weight": hops[other] * _XGMI_HOP_WEIGHT if is_xgmi else _PCIE_WEIGHT,
        "link_status": "ENABLED",
        "link_type": "SELF" if is_self else "XGMI" if is_xgmi else "PCIE",
        "num_hops": hops.get(other, _PCIE_HOPS),
        "bandwidth": "50000-50000" if is_xgmi and not is_self else "N/A",
        **dict(zip(("coherent", "atomics", "dma", "bi_dir"), of_link, strict=True)),
    }


def _amd_cards(topology: NodeTopology) -> Iterable[dict[str, Any]]:
    for gpu, address in enumerate(addresses(topology)):
        asic = {"market_name": topology.model or "N/A", "vendor_id": "0x1002", "oam_id": gpu}
        yield {"gpu": gpu, "asic": asic, "bus": {"bdf": address, "slot_type": "OAM"}}


def _amd_places(topology: NodeTopology) -> Iterable[dict[str, Any]]:
    for gpu, numa in enumerate(topology.numa):
        node = -1 if numa is None else numa
        yield {"gpu": gpu, "numa": {"node": node, "affinity": node, "cpu_affinity": "N/A"}}


def _showtopo(topology: NodeTopology) -> str:
    hops = _hops(topology)

    def weight(i: int, j: int) -> str:
        return str(_PCIE_WEIGHT if j not in hops[i] else hops[i][j] * _XGMI_HOP_WEIGHT)

    def hop_count(i: int, j: int) -> str:
        return str(hops[i].get(j, _PCIE_HOPS))

    def link(i: int, j: int) -> str:
        # XGMI over several hops too, and never how many links.
        return "0" if i == j else "XGMI" if j in hops[i] else "PCIE"

    gpus = range(topology.gpus)
    lines = [
        *_square("Weight between two GPUs", topology.gpus, weight),
        *_square("Hops between two GPUs", topology.gpus, hop_count),
        *_square("Link Type between two GPUs", topology.gpus, link),
        _title("Numa Nodes"),
    ]
    for gpu in gpus:
        node = number_or(topology.numa[gpu], "-1")
        lines += [_fact(gpu, f"(Topology) Numa {what}: {node}") for what in ("Node", "Affinity")]
    return _report(lines)


def _hops(topology: NodeTopology) -> dict[int, dict[int, int]]:
    """GPU -> GPUs that the fabric reaches from it -> links on the way."""
    gpus = range(topology.gpus)
    fabric = nx.Graph()
    fabric.add_nodes_from(gpus)
    kinds = topology.kinds
    fabric.add_edges_from((i, j) for i in gpus for j in gpus if links.is_direct(kinds[i][j]))
    return dict(nx.all_pairs_shortest_path_length(fabric))


def _showbus(topology: NodeTopology) -> str:
    facts = [
        _fact(gpu, f"PCI Bus: {address.upper()}") for gpu, address in enumerate(addresses(topology))
    ]
    return _report([_title("PCI Bus ID"), *facts, "=" * 90])


def _showproductname(topology: NodeTopology) -> str:
    model = topology.model or "N/A"
    facts = [_fact(gpu, f"Card Series: \t\t{model}") for gpu in range(topology.gpus)]
    return _report([_title("Product Info"), *facts, "=" * 90])


def _square(title: str, gpus: int, cell: Callable[[int, int], str]) -> list[str]:
    def row(first: str, cells: Sequence[str]) -> str:
        return (first.ljust(7) + "".join(word.ljust(13) for word in cells)).rstrip()

    names = [f"GPU{i}" for i in range(gpus)]
    rows = [row(names[i], [cell(i, j) for j in range(gpus)]) for i in range(gpus)]
    return [_title(title), row("", names), *rows, ""]


def _title(text: str) -> str:
    return f" {text} ".center(90, "=")


def _fact(gpu: int, text: str) -> str:
    return f"GPU[{gpu}]\t\t: {text}"


def _report(lines: Sequence[str]) -> str:
    first, last = _title("ROCm System Management Interface"), _title("End of ROCm SMI Log")
    return "\n".join(["", "", first, *lines, last, ""])
