"""Which links of a machine are drawn, and how: the ones that would only be noise are left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gres_topology import links
from gres_topology.pictures.layout import Layout, groups_of
from gres_topology.pictures.legend import LegendEntry, line_entry
from gres_topology.pictures.svg import Svg, element, rect, segment, shortened, words
from gres_topology.pictures.theme import link_kind
from gres_topology.topology import Nic, NodeTopology

#: Pairs joined through the host may be so many before their commonest path is left out.
_FEW = 6
_WIDEST, _THINNEST = 6.5, 1.3
#: A machine's widest line is its fastest link, or this many GB/s where that is slower.
_WIDE_GBPS = 40.0
_WORDS = {
    "nvlink": "NVLink",
    "xgmi": "xGMI",
    "xelink": "Xe Link",
    "c2c": "NVLink-C2C",
    "pcie": "PCIe switch",
    "host": "PCIe",
    "sockets": "across sockets",
}


@dataclass(frozen=True, slots=True)
class ShownLinks:
    """What is drawn of the links: the lines, and the legend that explains them."""

    parts: list[Svg]
    entries: list[LegendEntry]


def width_of(topology: NodeTopology, gbps: float) -> float:
    """A line's width: its share of the machine's fastest link."""
    fastest = max(_WIDE_GBPS, float(topology.bandwidth_gbps.max()))
    return max(_THINNEST, _WIDEST * gbps / fastest)


def line(topology: NodeTopology, layout: Layout, a: int, b: int) -> Svg:
    """The link of two GPUs."""
    return element(
        "path",
        class_=f"gt-{link_kind(topology.kinds[a][b])}",
        d=segment(layout.places[a], layout.places[b]),
        stroke_width=width_of(topology, float(topology.bandwidth_gbps[a, b])),
    )


def shown_links(topology: NodeTopology, layout: Layout, is_small: bool) -> ShownLinks:
    """Slow links first, so that the fast ones lie on top."""
    pairs = [(a, b) for b in range(topology.gpus) for a in range(b)]
    count = Counter(topology.kinds[a][b] for a, b in pairs)
    rest = _left_out(count)
    if len(count) == 1 and len(pairs) > 1 and (links.is_direct(next(iter(count))) or not rest):
        label = next(iter(count))
        parts = [] if layout.is_table else _hub(topology, layout, label, is_small)
        return ShownLinks(parts, [_legend_entry(topology, label, ", every pair")])
    parts = _between_sockets(topology, layout, rest)
    if not layout.is_table:
        drawn = sorted(pairs, key=lambda pair: float(topology.bandwidth_gbps[pair]))
        parts += [line(topology, layout, a, b) for a, b in drawn if topology.kinds[a][b] != rest]
    labels = sorted(count, key=lambda label: (-_gbps(topology, label), label))
    return ShownLinks(
        parts,
        [
            _legend_entry(topology, label, ", every other pair" if label == rest else "")
            for label in labels
        ],
    )


def _left_out(count: Counter[str]) -> str | None:
    """The commonest path through the host, where there are many such pairs."""
    through_host = {label: n for label, n in count.items() if not links.is_direct(label)}
    if sum(through_host.values()) <= _FEW:
        return None
    return max(through_host, key=lambda label: through_host[label])


def _gbps(topology: NodeTopology, label: str) -> float:
    return max(
        float(topology.bandwidth_gbps[a, b])
        for a, row in enumerate(topology.kinds)
        for b, kind in enumerate(row)
        if kind == label and a != b
    )


def _legend_entry(topology: NodeTopology, label: str, which: str) -> LegendEntry:
    kind, gbps = link_kind(label), _gbps(topology, label)
    path = "path unknown" if label == links.UNKNOWN else _WORDS[kind]
    text = f"{label} ({path}): {gbps:g} GB/s{which}"
    return line_entry(kind, width_of(topology, gbps), text)


def _between_sockets(topology: NodeTopology, layout: Layout, rest: str | None) -> list[Svg]:
    """One line between two NUMA nodes, for all paths across them that are not drawn each."""
    groups = groups_of(topology)
    if rest is None or len(groups) != 2 or layout.is_table:
        return []
    first, second = groups.values()
    if all(topology.kinds[a][b] != rest for a in first for b in second):
        return []
    left, right = layout.groups.values()
    y = min(left.y + left.height, right.y + right.height) - 7
    return [
        element(
            "path",
            class_=f"gt-{link_kind(rest)}",
            stroke_width=4,
            d=segment((left.x + left.width, y), (right.x, y)),
        ),
    ]


def _hub(topology: NodeTopology, layout: Layout, label: str, is_small: bool) -> list[Svg]:
    """All pairs joined alike: a line from each GPU to one disc in the middle."""
    x, y = layout.centre
    kind, gbps = link_kind(label), _gbps(topology, label)
    spokes = "".join(segment((x, y), place) for place in layout.places)
    said = [label] if is_small else ["every pair", label, f"{gbps:g} GB/s"]
    texts = [
        words(word, x, y + 5 + 15 * (at - (len(said) - 1) / 2), 12, anchor="middle")
        for at, word in enumerate(said)
    ]
    return [
        element("path", class_=f"gt-{kind}", d=spokes, stroke_width=4),
        element("circle", class_="gt-hub", cx=x, cy=y, r=24 if is_small else 40, stroke_width=2),
        *texts,
    ]


def nics(topology: NodeTopology, layout: Layout) -> tuple[list[Svg], list[str]]:
    """NICs beside the GPUs they are nearest to, and the names of those near none."""
    near: dict[tuple[int, ...], list[str]] = {}
    far = []
    for nic in topology.nics:
        gpus = _nearest(nic)
        if gpus and not layout.is_table:
            near.setdefault(gpus, []).append(nic.name)
        else:
            far.append(nic.name)
    parts: list[Svg] = []
    lowest = {False: -1e9, True: -1e9}
    for gpus, names in sorted(near.items(), key=lambda item: _middle(layout, item[0])[1]):
        x, y = _middle(layout, gpus)
        is_right = x > layout.centre[0]
        y = lowest[is_right] = max(y, lowest[is_right] + 28)
        at = layout.width + 50 if is_right else -50.0
        lines = "".join(segment((at, y), layout.places[gpu]) for gpu in gpus)
        text = names[0] if len(names) == 1 else f"{shortened(names[0], 11)} +{len(names) - 1}"
        parts += [
            element("path", class_="gt-faint", d=lines, stroke_width=1.5),
            rect("free", at - 43, y - 11, 86, 22, rx=11),
            words(shortened(text, 14), at, y + 4, 10, anchor="middle"),
        ]
    return parts, far


def _nearest(nic: Nic) -> tuple[int, ...]:
    """The GPUs with the shortest path to the NIC; none where all are alike, or across sockets."""
    for kind in links.PCIE_SHARE:
        gpus = tuple(gpu for gpu, path in enumerate(nic.kinds) if path == kind)
        if gpus:
            return gpus if kind != "SYS" and len(gpus) < len(nic.kinds) else ()
    return ()


def _middle(layout: Layout, gpus: tuple[int, ...]) -> tuple[float, float]:
    xs, ys = zip(*(layout.places[gpu] for gpu in gpus), strict=True)
    return sum(xs) / len(xs), sum(ys) / len(ys)
