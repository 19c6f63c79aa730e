"""Links: their labels, and how many GB/s each carries. The one table of bandwidths.

All numbers are GB/s (10^9 bytes), per direction, for one link (NVLink, xGMI) or for
sixteen lanes (PCIe). Labels are those of `nvidia-smi topo -m` (`NV4`, `PIX`, ...), `XGMI`
with an optional count for AMD (`XGMI4`), `XL` with the count of lanes for Intel (`XL16`), and
`PCIE` where a tool says no more than that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Paths over PCIe, nearest first; the share of a x16 slot that peer traffic gets.
#: SYS is the anchor: 12 GB/s on generation 3 (MAPA, SC'21, table 1, "16-lanes PCIe Gen 3").
#: PIX is what remains of 15.75 GB/s after packet headers with 128-byte payloads (13.1).
#: The three between are interpolated: they keep the order and claim no more.
PCIE_SHARE = {
    "PIX": 13.0 / 12.0,
    "PXB": 12.8 / 12.0,
    "PHB": 12.5 / 12.0,
    "NODE": 12.2 / 12.0,
    "SYS": 1.0,
}

#: PCIe generation -> GB/s of a SYS path (x16). Generation 3 as above; the others scale with
#: the signalling rate (PCI-SIG: 2.5, 5, 8, 16, 32, 64 GT/s; 8b/10b up to generation 2).
PCIE_GBPS = {1: 3.0, 2: 6.0, 3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}

#: NVLink generation -> (GB/s per link and direction, source).
NVLINK_GBPS = {
    1: (20.0, "MAPA table 1; NVIDIA Tesla P100 whitepaper: 4 links, 160 GB/s both ways"),
    2: (25.0, "MAPA table 1; NVIDIA Tesla V100 whitepaper: 6 links, 300 GB/s both ways"),
    3: (25.0, "NVIDIA A100 whitepaper: 12 links, 600 GB/s both ways"),
    4: (25.0, "NVIDIA H100 whitepaper: 18 links, 900 GB/s both ways"),
    5: (50.0, "NVIDIA Blackwell architecture brief: 18 links, 1800 GB/s both ways"),
}

#: AMD architecture -> (GB/s per xGMI link and direction, source).
XGMI_GBPS = {
    "gfx906": (46.0, "AMD Instinct MI50/MI60 data sheet: 2 links, 184 GB/s both ways"),
    "gfx908": (46.0, "AMD Instinct MI100 data sheet: 3 links, 276 GB/s both ways"),
    "gfx90a": (50.0, "AMD CDNA 2 whitepaper: 100 GB/s both ways per link"),
    "gfx942": (64.0, "AMD CDNA 3 whitepaper: 128 GB/s both ways per link"),
    "gfx950": (76.8, "AMD CDNA 4 whitepaper: 153.6 GB/s both ways per link"),
}

#: A lane of Intel's Xe Link. `xpu-smi discovery` in XPU Manager's user guide: 51,880 MiB/s sent and
#: received by a port of four lanes.
XELINK_GBPS = 51_880 * 1.048576e-3 / 2 / 4

#: NVLink-C2C between the dies of a superchip (NVIDIA Grace Hopper whitepaper: 900 both ways).
C2C_GBPS = 450.0

#: Other names for the labels used here: drivers before 384 said SOC for SYS.
SYNONYMS = {"SOC": "SYS", "XGMI1": "XGMI"}

#: Where the source does not know the path. Scored as the slowest kind.
UNKNOWN = "N/A"

EXPECTED = "X, NV<n>, C2C, PIX, PXB, PHB, NODE, SYS (SOC), XGMI, XL<n>, PCIE or N/A"

_COUNTED = re.compile(r"(NV|XGMI|XL)([1-9]\d?)")


@dataclass(frozen=True, slots=True)
class LinkRates:
    """What the links of one generation of machine carry, GB/s per direction.

    `nvlink_gbps` and `xgmi_gbps` are per link, `pcie_gbps` is a SYS path of sixteen
    lanes (see PCIE_SHARE for the shorter ones). `measured` replaces single labels.
    """

    nvlink_gbps: float = NVLINK_GBPS[2][0]
    xgmi_gbps: float = XGMI_GBPS["gfx90a"][0]
    pcie_gbps: float = PCIE_GBPS[3]
    measured: tuple[tuple[str, float], ...] = ()

    def gbps(self, label: str) -> float:
        """Bandwidth of one label of `canonical`'s vocabulary; 0 for `X`."""
        if label == "X":
            return 0.0
        if label in dict(self.measured):
            return dict(self.measured)[label]
        if label == "C2C":
            return C2C_GBPS
        if label.startswith("NV"):
            return self.nvlink_gbps * link_count(label)
        if label.startswith("XL"):
            return XELINK_GBPS * link_count(label)
        if label.startswith("XGMI"):
            return self.xgmi_gbps * link_count(label)
        return self.pcie_gbps * PCIE_SHARE.get(label, 1.0)


def canonical(label: str) -> str | None:
    """The label in this module's vocabulary (`SOC` -> `SYS`); None if it is no link."""
    text = label.strip()
    text = SYNONYMS.get(text, text)
    if text in PCIE_SHARE or text in {"X", "C2C", "XGMI", "PCIE", UNKNOWN}:
        return text
    return text if _COUNTED.fullmatch(text) else None


def link_count(label: str) -> int:
    """Point-to-point links (of Xe Link: lanes): NV4 -> 4, XGMI -> 1, C2C -> 1, PCIe paths -> 0."""
    if label in {"XGMI", "C2C"}:
        return 1
    match = _COUNTED.fullmatch(label)
    return int(match.group(2)) if match else 0


def is_direct(label: str) -> bool:
    """Whether GPUs so joined talk without the PCIe tree (NVLink, xGMI, Xe Link, C2C)."""
    return link_count(label) > 0


def rates(nvlink: int, pcie: int, xgmi: str = "gfx90a") -> LinkRates:
    """The table's rows for an NVLink generation, a PCIe generation and an AMD architecture."""
    return LinkRates(NVLINK_GBPS[nvlink][0], XGMI_GBPS[xgmi][0], PCIE_GBPS[pcie])


def rates_of_model(model: str | None) -> LinkRates:
    """Rates by a GPU's product name; NVLink 25, xGMI 50 and PCIe 3 for an unknown one."""
    name = (model or "").lower().replace(" ", "")
    return next((of_model for part, of_model in _MODELS if re.search(part, name)), LinkRates())


_MODELS = (
    (r"k20|k40|m2050|c2050", rates(1, 2)),
    (r"p100|gp100", rates(1, 3)),
    (r"v100|gv100|titanv", rates(2, 3)),
    (r"gb[23]00|b[23]00|b100", rates(5, 5)),
    (r"gh200|h[128]00|h20\b|gh100", rates(4, 5)),
    (r"a100|a800|a[34]0\b|a10\b|a6000|a5500|a5000|a4500|a30|3090", rates(3, 4)),
    (r"rtxpro[456]\d{3}", rates(3, 5)),
    (r"l40|l4\b|l20\b|6000ada|4090", rates(3, 4)),
    (r"gpumax1[15]\d\d", rates(2, 5)),
    (r"mi35\d|gfx950", rates(2, 5, "gfx950")),
    (r"mi3\d\d|gfx94", rates(2, 5, "gfx942")),
    (r"mi2\d\d|gfx90a", rates(2, 4, "gfx90a")),
    (r"mi100|gfx908", rates(2, 4, "gfx908")),
    (r"mi[56]0|vega20|gfx906", rates(2, 4, "gfx906")),
)
