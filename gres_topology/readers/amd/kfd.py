"""What the weights and hops of the kernel's KFD mean, which rocm-smi and amd-smi both print."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gres_topology import cpulist, links
from gres_topology.matrix import Kinds, bandwidths

#: KFD adds 15 to a link's weight per xGMI hop and at least 20 per PCIe hop.
_XGMI_HOP, _PCIE_HOP = 15, 20


def label_of(weight: int) -> str:
    """The link label of a pair of GPUs, where the tool names no types."""
    is_xgmi = weight < _PCIE_HOP or (weight < 3 * _PCIE_HOP and weight % _XGMI_HOP == 0)
    return "XGMI" if is_xgmi else "PCIE"


def hops_of(label: str, weight: int, stated: int | None) -> int:
    """The hops between a pair of GPUs; weight 0: not known, `stated` None: not in the report.

    For xGMI both tools state one hop whatever the way: the library has it that the pair is joined
    by xGMI (ROCm/rocm-systems issue 5763). Of such a pair the weight counts the hops.
    """
    if label.startswith("XGMI"):
        by_weight = weight // _XGMI_HOP if weight % _XGMI_HOP == 0 or stated is None else 1
        return max(1, by_weight, stated or 1)
    if stated is not None:
        return stated
    return 2 if 0 < weight <= 2 * _PCIE_HOP else 3


def bandwidth(
    kinds: Kinds, model: str | None, hops: Callable[[int, int], int]
) -> NDArray[np.float64]:
    """GB/s per direction, shape (gpus, gpus).

    An xGMI hop shares its link; PCIe of up to 2 hops stays below one host bridge, of 3 it leaves
    the socket.
    """
    matrix = bandwidths(kinds, links.rates_of_model(model))
    for i, row in enumerate(kinds):
        for j, label in enumerate(row):
            if label.startswith("XGMI"):
                matrix[i, j] /= max(1, hops(i, j))
            elif label == "PCIE" and hops(i, j) <= 2:
                matrix[i, j] *= links.PCIE_SHARE["PHB"]
    return matrix


def numa_of(node: object, affinity: object) -> int | None:
    """KFD's node of the nearest CPU; else the kernel's; -1 or no number means unknown."""
    numbers = (cpulist.natural(str(value)) for value in (node, affinity))
    return next((number for number in numbers if number is not None), None)
