"""Where a machine's GPUs and NUMA nodes stand in its picture.

Up to 20 GPUs stand on an ellipse, those of one NUMA node side by side, so that no line between two
of them passes under a third. Larger machines are a table of NUMA nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations

from gres_topology.topology import NodeTopology

#: Beyond this many GPUs a line per link would only be noise.
MANY = 20
#: Size of a GPU's box.
GPU_W, GPU_H = 60.0, 50.0
_PAD, _LINE = 14.0, 15.0
#: Most boxes of GPUs in one line of a table.
_PER_ROW = 4


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle: its left upper corner and its size.

    `texts` are the heights of its lines of text, the heading's first: where they are in nobody's
    way, so above GPUs in the upper half of a picture and below GPUs in the lower half.
    """

    x: float
    y: float
    width: float
    height: float
    texts: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """`places[gpu]`: the middle of a GPU's box. `groups`: NUMA node -> box; None is unknown."""

    places: tuple[tuple[float, float], ...]
    groups: dict[int | None, Box]
    width: float
    height: float
    centre: tuple[float, float]
    is_table: bool


def groups_of(topology: NodeTopology) -> dict[int | None, list[int]]:
    """NUMA node -> its GPUs, in the order of the first GPU of each."""
    groups: dict[int | None, list[int]] = {}
    for gpu, numa in enumerate(topology.numa):
        groups.setdefault(numa, []).append(gpu)
    return groups


def layout_of(topology: NodeTopology, note_lines: int, is_small: bool) -> Layout:
    """The places of all GPUs; `note_lines` texts of 14 points fit below the GPUs of a NUMA node."""
    groups = groups_of(topology)
    if topology.gpus > MANY:
        return _table(groups, topology.gpus, note_lines)
    ellipse = _ellipse(groups, topology.gpus, note_lines, is_small)
    # Where one NUMA node has most of the GPUs, its box would hold others' GPUs, too.
    if any(_meet(one, other) for one, other in combinations(ellipse.groups.values(), 2)):
        return _table(groups, topology.gpus, note_lines)
    return ellipse


def _meet(one: Box, other: Box) -> bool:
    return (
        abs(2 * one.x + one.width - 2 * other.x - other.width) < one.width + other.width
        and abs(2 * one.y + one.height - 2 * other.y - other.height) < one.height + other.height
    )


def _ellipse(
    groups: dict[int | None, list[int]], gpus: int, note_lines: int, is_small: bool
) -> Layout:
    around = gpus * (96.0 if is_small else 102.0) / (2 * math.pi)
    tall = max(84.0 if is_small else 100.0, around)
    wide = tall * 1.35
    points = {
        gpu: (wide * math.cos(angle), -tall * math.sin(angle))
        for gpu, angle in _angles(groups, gpus).items()
    }
    boxes = {
        numa: _around([points[gpu] for gpu in members], note_lines, is_small)
        for numa, members in groups.items()
    }
    left = min(box.x for box in boxes.values())
    top = min(box.y for box in boxes.values())
    places = tuple((points[gpu][0] - left, points[gpu][1] - top) for gpu in range(gpus))
    moved = {n: replace(box, x=box.x - left, y=box.y - top) for n, box in boxes.items()}
    return Layout(
        places,
        moved,
        max(box.x + box.width for box in moved.values()),
        max(box.y + box.height for box in moved.values()),
        (-left, -top),
        is_table=False,
    )


def _angles(groups: dict[int | None, list[int]], gpus: int) -> dict[int, float]:
    """Groups clockwise from the left; of two each runs from top to bottom, as do halves of one."""
    gap = 0.7 if len(groups) > 1 else 0.0
    parts = list(groups.values())
    if len(parts) == 1:
        half = (gpus + 1) // 2
        parts = [parts[0][:half], parts[0][half:]]
    step = 2 * math.pi / (gpus + gap * len(parts))
    first = (len(parts[0]) + gap) / 2 * step
    at = math.pi + first - (0.0 if len(parts) == 2 else math.pi / len(parts))
    angles = {}
    for number, members in enumerate(parts):
        ordered = reversed(members) if len(parts) == 2 and not number else members
        at -= gap / 2 * step
        for gpu in ordered:
            angles[gpu] = at - step / 2
            at -= step
        at -= gap / 2 * step
    return angles


def _around(points: list[tuple[float, float]], note_lines: int, is_small: bool) -> Box:
    """The box of GPUs at these points around (0, 0)."""
    pad = 6.0 if is_small else _PAD
    xs, ys = zip(*points, strict=True)
    x, width = min(xs) - GPU_W / 2 - pad, max(xs) - min(xs) + GPU_W + 2 * pad
    if note_lines and width < 210.0:
        x, width = x - (210.0 - width) / 2, 210.0
    lines = 0 if is_small else 1 + note_lines
    middle = sum(ys) / len(ys)
    # All above, all below, or (beside the middle) the heading above and the notes below.
    above = lines if middle < -1 else 0 if middle > 1 else min(lines, 1)
    high = max(ys) - min(ys) + GPU_H + 2 * pad
    top = above * _LINE
    texts = [_LINE * (at + 1) for at in range(above)]
    texts += [top + high + _LINE * at + 2 for at in range(lines - above)]
    return Box(x, min(ys) - GPU_H / 2 - pad - top, width, high + lines * _LINE, tuple(texts))


def _table(groups: dict[int | None, list[int]], gpus: int, note_lines: int) -> Layout:
    """Boxes of one size in lines, about as wide as high."""
    most = max(len(members) for members in groups.values())
    per_row = min(most, _PER_ROW if len(groups) > 1 else 12)
    rows = -(-most // per_row)
    width = 2 * 8 + per_row * (GPU_W + 6) - 6
    high = rows * (GPU_H + 6) + 4
    height = high + _LINE * (1 + note_lines)
    texts = (_LINE, *(_LINE + high + _LINE * at + 10 for at in range(note_lines)))
    columns = max(1, round(math.sqrt(len(groups) * 1.4 * height / width)))
    places: list[tuple[float, float]] = [(0.0, 0.0)] * gpus
    boxes: dict[int | None, Box] = {}
    for number, (numa, members) in enumerate(groups.items()):
        x, y = (number % columns) * (width + 12), (number // columns) * (height + 12)
        boxes[numa] = Box(x, y, width, height, texts)
        for at, gpu in enumerate(members):
            places[gpu] = (
                x + 8 + (at % per_row) * (GPU_W + 6) + GPU_W / 2,
                y + _LINE + 6 + (at // per_row) * (GPU_H + 6) + GPU_H / 2,
            )
    full_w = max(box.x + box.width for box in boxes.values())
    full_h = max(box.y + box.height for box in boxes.values())
    return Layout(tuple(places), boxes, full_w, full_h, (full_w / 2, full_h / 2), is_table=True)
