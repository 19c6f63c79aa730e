"""Draws a topology: GPUs on a circle, grouped by NUMA node, an edge per link (extra `plot`).

`figure` begins every picture of the project that matplotlib makes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gres_topology import links
from gres_topology.errors import TopologyError
from gres_topology.topology import NodeTopology

#: Label family -> (colour, what the legend says); PCIe paths nearest first.
_COLOURS = {
    "NV": "#2e7d32",
    "XGMI": "#c62828",
    "C2C": "#6a1b9a",
    "PIX": "#1565c0",
    "PXB": "#1e88e5",
    "PHB": "#64b5f6",
    "NODE": "#90a4ae",
    "SYS": "#cfd8dc",
    "PCIE": "#90a4ae",
    links.UNKNOWN: "#eceff1",
}
_NUMA_COLOURS = (
    "#fff3c4",
    "#d7ecff",
    "#e2f5dd",
    "#fde0e6",
    "#ece3fa",
    "#fbe5d0",
    "#dff5f2",
    "#eee",
)
#: GPUs a job has.
_CHOSEN = "#ffb300"
#: Beyond this many GPUs paths over PCIe and numbers would only be noise.
_MANY = 20


@contextmanager
def figure(
    width: float, height: float, *, is_constrained: bool = False, font_size: float = 10
) -> Iterator[Any]:
    """An empty figure, in inches and points, on no screen; names in its SVG are always the same.

    TopologyError without matplotlib.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise TopologyError("drawing needs the extra: pip install 'slurm-gputopo[plot]'") from None
    with matplotlib.rc_context({"svg.hashsalt": "gputopo", "font.size": font_size}):
        yield Figure(figsize=(width, height), layout="constrained" if is_constrained else None)


def draw(topology: NodeTopology, target: Path, chosen: Sequence[int] = (), title: str = "") -> None:
    """Write the drawing to `target` (.svg, .png or .pdf).

    `chosen` GPUs, in rank order, are filled and numbered, and the links of the ring
    through them underlaid.
    Raises TopologyError if matplotlib is missing, there is nothing to draw, or the file
    cannot be written.
    """
    if not topology.gpus:
        raise TopologyError(f"{topology.name}: no GPUs, so nothing to draw")
    places = _places(topology)
    size = 7.0 if topology.gpus <= _MANY else 10.0
    with figure(size + 1.5, size) as drawn:
        axes = drawn.add_subplot()
        _numa_arcs(axes, topology, places)
        used = _edges(axes, topology, places)
        _gpus(axes, topology, places, chosen)
        _ring(axes, places, chosen)
        _legend(axes, used)
        axes.set_title(title or f"{topology.name}: {topology.gpus} GPUs", fontsize=13, pad=14)
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set_xlim(-1.5, 1.5)
        axes.set_ylim(-1.5, 1.5)
        try:
            drawn.savefig(target, bbox_inches="tight", dpi=130)
        except (OSError, ValueError) as error:
            raise TopologyError(
                f"{target}: {error}; expected a file to write, .svg or .png"
            ) from None


def _places(topology: NodeTopology) -> list[float]:
    """Angle of each GPU; GPUs of one NUMA node side by side with a gap to the next."""
    groups: dict[int | None, list[int]] = {}
    for gpu, numa in enumerate(topology.numa):
        groups.setdefault(numa, []).append(gpu)
    gap = 0.6 if 1 < len(groups) <= topology.gpus // 2 else 0.0
    step = 2 * math.pi / (topology.gpus + gap * len(groups))
    angles = [0.0] * topology.gpus
    position = gap / 2
    for members in groups.values():
        for gpu in members:
            angles[gpu] = math.pi / 2 - (position + 0.5) * step
            position += 1
        position += gap
    return angles


def _point(angle: float, radius: float = 1.0) -> tuple[float, float]:
    return radius * math.cos(angle), radius * math.sin(angle)


def _numa_arcs(axes: Any, topology: NodeTopology, places: list[float]) -> None:
    from matplotlib.patches import Wedge

    half = math.pi / topology.gpus * 0.9
    for rank, numa in enumerate(sorted({n for n in topology.numa if n is not None})):
        angles = [places[g] for g in range(topology.gpus) if topology.numa[g] == numa]
        first, last = min(angles) - half, max(angles) + half
        axes.add_patch(
            Wedge((0, 0), 1.2, math.degrees(first), math.degrees(last), width=0.4,
                  color=_NUMA_COLOURS[rank % len(_NUMA_COLOURS)], zorder=0)
        )  # fmt: skip
        x, y = _point((first + last) / 2, 1.38)
        text = f"NUMA {numa}" if topology.gpus <= _MANY else str(numa)
        axes.text(x, y, text, ha="center", va="center", fontsize=9, color="#555")


def _edges(axes: Any, topology: NodeTopology, places: list[float]) -> dict[str, float]:
    """Draw slow links first; returns the labels drawn with their GB/s."""
    used: dict[str, float] = {}
    pairs = [(i, j) for i in range(topology.gpus) for j in range(i)]
    for i, j in sorted(pairs, key=lambda pair: topology.bandwidth_gbps[pair]):
        label = topology.kinds[i][j]
        used[label] = float(topology.bandwidth_gbps[i, j])
        if topology.gpus > _MANY and not links.is_direct(label):
            continue
        (x, y), (u, v) = _point(places[i]), _point(places[j])
        axes.plot([x, u], [y, v], **_style(label, topology.gpus))
    return used


def _style(label: str, gpus: int) -> dict[str, Any]:
    """Line width grows with the number of links; PCIe paths are thin, SYS dashed."""
    count = links.link_count(label)
    width = 1.2 + 1.6 * min(count, 4) if count else 1.0
    return {
        "color": _COLOURS[_family(label)],
        "linewidth": width if gpus <= _MANY else 0.4,
        "linestyle": "-" if count or label in {"PIX", "PXB"} else "--",
        "alpha": 0.9 if gpus <= _MANY else 0.35,
        "zorder": 2 if count else 1,
        "solid_capstyle": "round",
    }


def _family(label: str) -> str:
    return label.rstrip("0123456789") if label not in _COLOURS else label


def _ring(axes: Any, places: list[float], chosen: Sequence[int]) -> None:
    """Underlay the steps from rank to rank, and write each rank beside its GPU."""
    steps = zip(chosen, (*chosen[1:], *chosen[:1]), strict=True)
    for a, b in steps:
        (x, y), (u, v) = _point(places[a]), _point(places[b])
        axes.plot([x, u], [y, v], color=_CHOSEN, linewidth=14, alpha=0.45, zorder=0.5)
    for rank, gpu in enumerate(chosen):
        x, y = _point(places[gpu], 1.22)
        axes.text(x, y, f"rank {rank}", ha="center", va="center", fontsize=8, color="#333")


def _gpus(axes: Any, topology: NodeTopology, places: list[float], chosen: Sequence[int]) -> None:
    size = 900 if topology.gpus <= _MANY else 160
    for gpu, angle in enumerate(places):
        x, y = _point(angle)
        fill = _CHOSEN if gpu in chosen else "white"
        axes.scatter([x], [y], s=size, color=fill, edgecolors="#222", linewidths=1.4, zorder=3)
        axes.text(
            x, y, str(gpu), ha="center", va="center", zorder=4,
            fontsize=12 if topology.gpus <= _MANY else 7, fontweight="bold",
        )  # fmt: skip


def _legend(axes: Any, used: dict[str, float]) -> None:
    from matplotlib.lines import Line2D

    order = sorted(used, key=lambda label: (-used[label], label))
    lines = [Line2D([0], [0], **_style(label, 1)) for label in order]
    texts = [f"{label}  {used[label]:g} GB/s" for label in order]
    if lines:
        axes.legend(lines, texts, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
