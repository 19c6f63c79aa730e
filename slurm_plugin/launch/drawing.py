"""Draws what the binding does on one machine: NUMA nodes, GPUs in rank order, CPUs and NICs."""

from __future__ import annotations

from pathlib import Path

from gres_topology.cpulist import format_list
from slurm_plugin.errors import PluginError
from slurm_plugin.launch.machine import LaunchMachine

_BOX_W, _BOX_H, _GPU, _GAP = 210, 154, 38, 24
_COLOURS = ("#fff3c4", "#d7ecff", "#e2f5dd", "#fde0e6", "#ece3fa", "#fbe5d0", "#dff5f2", "#eeeeee")


def draw(machine: LaunchMachine, target: Path) -> None:
    """Write an SVG: a box per NUMA node, and the ring of the whole node; may raise PluginError."""
    try:
        target.write_text(svg(machine))
    except OSError as error:
        raise PluginError(f"{target}: {error.strerror}; expected a file to write") from None


def svg(machine: LaunchMachine) -> str:
    """The drawing's text; the same machine gives the same bytes."""
    if None in machine.numa:
        raise PluginError(f"{machine.topology.name}: NUMA nodes unknown, so nothing to draw")
    nodes = sorted({numa for numa in machine.numa if numa is not None})
    columns = min(len(nodes), 4)
    rows = -(-len(nodes) // columns)
    width = _GAP + columns * (_BOX_W + _GAP)
    height = 74 + rows * (_BOX_H + _GAP)
    places: dict[int, tuple[float, float]] = {}
    boxes: list[str] = []
    for at, node in enumerate(nodes):
        x = _GAP + (at % columns) * (_BOX_W + _GAP)
        y = 54 + (at // columns) * (_BOX_H + _GAP)
        boxes += _box(machine, node, x, y, _COLOURS[at % len(_COLOURS)], places)
    order = machine.order("ring", tuple(range(machine.gpus)))
    title = f"{machine.topology.name}: ranks of a ring of {machine.gpus}, and what each binds to"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_GAP}" y="30" font-size="16">{title}</text>',
        *boxes,
        *_ring(order, places),
        *_gpus(order, places),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(
    machine: LaunchMachine,
    node: int,
    x: int,
    y: int,
    colour: str,
    places: dict[int, tuple[float, float]],
) -> list[str]:
    gpus = [gpu for gpu in range(machine.gpus) if machine.numa[gpu] == node]
    for at, gpu in enumerate(gpus):
        step = _BOX_W / (len(gpus) + 1)
        places[gpu] = (x + step * (at + 1), y + 76)
    nics = list(dict.fromkeys(nic for gpu in gpus for nic in machine.nics[gpu]))
    cpus = format_list(machine.numa_cpus.get(node, ()))
    lines = [f"CPUs {cpus}", f"memory: preferred, node {node}"]
    lines += [f"NICs {', '.join(nics)}"] if nics else []
    return [
        f'<rect x="{x}" y="{y}" width="{_BOX_W}" height="{_BOX_H}" rx="8" fill="{colour}"'
        ' stroke="#999"/>',
        f'<text x="{x + 10}" y="{y + 18}" font-weight="bold">NUMA node {node}</text>',
        *(
            f'<text x="{x + 10}" y="{y + 114 + 15 * at}">{line}</text>'
            for at, line in enumerate(lines)
        ),
    ]


def _ring(order: tuple[int, ...], places: dict[int, tuple[float, float]]) -> list[str]:
    """A hop per neighbouring ranks, bent upwards so that long ones pass over short ones."""
    parts = []
    for a, b in zip(order, [*order[1:], order[0]], strict=True):
        (x, y), (u, v) = places[a], places[b]
        top = min(y, v) - 2 * min(46.0, abs(u - x) / 9)
        parts.append(
            f'<path d="M {x:.0f} {y:.0f} Q {(x + u) / 2:.0f} {top:.0f} {u:.0f} {v:.0f}"'
            ' fill="none" stroke="#2e7d32" stroke-width="2" opacity="0.6"/>'
        )
    return parts


def _gpus(order: tuple[int, ...], places: dict[int, tuple[float, float]]) -> list[str]:
    parts = []
    for rank, gpu in enumerate(order):
        x, y = places[gpu]
        parts += [
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{_GPU / 2:.0f}" fill="white" stroke="#222"/>',
            f'<text x="{x:.0f}" y="{y - 2:.0f}" text-anchor="middle" font-weight="bold">'
            f"{gpu}</text>",
            f'<text x="{x:.0f}" y="{y + 12:.0f}" text-anchor="middle" font-size="9"'
            f' fill="#555">rank {rank}</text>',
        ]
    return parts
