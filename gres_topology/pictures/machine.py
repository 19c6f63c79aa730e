"""A machine as a picture: its GPUs, their links, who holds them, and one job's ring on top."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from gres_topology.errors import TopologyError
from gres_topology.pictures import theme
from gres_topology.pictures.layout import GPU_H, GPU_W, layout_of
from gres_topology.pictures.legend import LegendEntry, box_entry, filled, legend
from gres_topology.pictures.shown_links import line, nics, shown_links
from gres_topology.pictures.svg import Picture, Svg, element, rect, segment, shortened, words
from gres_topology.topology import NodeTopology

#: The holder's name where a GPU is held by a job of which nothing may be told.
BUSY = "busy"
_MARGIN, _TITLE = 16.0, 34.0
#: Holders that the legend names; every GPU has its holder's name in it as well.
_MOST_ENTRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What is drawn on a machine besides the machine. GPUs are the topology's own indices."""

    #: GPU -> the name of the job that holds it, in the words that stand in the picture ("job 14").
    #: `BUSY` is for jobs of which nothing may be told. GPUs that are missing are free.
    held: Mapping[int, str] = field(default_factory=dict)
    #: Name of a job -> the number of its colour and pattern, where a job is to look the same in
    #: several pictures. Jobs that are missing are numbered as they come.
    styles: Mapping[str, int] = field(default_factory=dict)
    #: One job's GPUs in rank order: each has its rank beside it, and is filled where `held`
    #: says nothing of it.
    chosen: Sequence[int] = ()
    #: Pairs of GPUs that talk, to be drawn on top; None: the ring through `chosen`.
    hops: Collection[tuple[int, int]] | None = None
    #: GPUs with a dashed outline: what Slurm would have taken, or any other set beside `chosen`.
    beside: Collection[int] = ()
    #: What the outline means, in the legend.
    beside_means: str = "Slurm's own choice"
    #: NUMA node -> lines of text below its GPUs.
    notes: Mapping[int, Sequence[str]] = field(default_factory=dict)
    #: What to call each GPU, by the topology's index: Slurm's index, as a rule. Empty: its index.
    names: Sequence[str | int] = ()

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The hops to draw, each pair once and in ascending order."""
        around = zip(self.chosen, (*self.chosen[1:], *self.chosen[:1]), strict=True)
        pairs = around if self.hops is None else self.hops
        return sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})


def machine_picture(
    topology: NodeTopology,
    marks: Marks | None = None,
    *,
    title: str = "",
    is_small: bool = False,
) -> Picture:
    """The picture of a machine; pure, and the same for the same input.

    GPUs stand by NUMA node. Each link is a line, as wide as its bandwidth; its colour and its
    dashes are its kind: NVLink, xGMI, PCIe, or across the sockets. Where all pairs are joined
    alike there is one hub instead of a line for each pair. The commonest path over PCIe is only
    named in the legend, and machines of more than 20 GPUs have no lines but the job's.

    `title` is the heading (by default the machine's name). `is_small` leaves out heading, legend,
    NICs and names of jobs: for many pictures beside each other. Texts of all inputs are escaped,
    so they may come from anybody. Raises TopologyError for a machine without GPUs.
    """
    if not topology.gpus:
        raise TopologyError(f"{topology.name}: no GPUs, so nothing to draw")
    drawn = _Drawn(topology, marks or Marks(), is_small)
    gpus = "1 GPU" if topology.gpus == 1 else f"{topology.gpus} GPUs"
    return drawn.picture(title or f"{topology.name}: {gpus}")


class _Drawn:
    """One machine with its marks, laid out."""

    def __init__(self, topology: NodeTopology, marks: Marks, is_small: bool) -> None:
        self.topology, self.marks, self.is_small = topology, marks, is_small
        self.notes = {} if is_small else marks.notes
        lines = max(map(len, self.notes.values()), default=0)
        self.layout = layout_of(topology, lines, is_small)
        self.links = shown_links(topology, self.layout, is_small)
        self.nics, self.far_nics = nics(topology, self.layout)
        self.looks = self._looks()

    def _looks(self) -> dict[str, tuple[str, int]]:
        """Name of a job -> its class and its pattern."""
        numbers = dict(self.marks.styles)
        taken, new = set(numbers.values()), count()
        for gpu in sorted(self.marks.held):
            name = self.marks.held[gpu]
            if name not in numbers and name != BUSY:
                numbers[name] = next(number for number in new if number not in taken)
        looks = {n: (f"job{at % len(theme.JOBS)}", at) for n, at in numbers.items()}
        return looks | {BUSY: ("busy", 3)}

    def picture(self, title: str) -> Picture:
        """The machine with its GPUs, links and what is marked, as one SVG element."""
        parts = [*self._groups(), *self.links.parts, *self._hops(), *self._marked_links()]
        parts += [] if self.is_small else self.nics
        for gpu in range(self.topology.gpus):
            parts += self._gpu(gpu)
        width, height, down, left = self.layout.width, self.layout.height, _MARGIN, _MARGIN
        around: list[Svg] = []
        if not self.is_small:
            table, legend_w, legend_h = legend(self._legend())
            room = 96.0 if self.nics else 0.0
            down += _TITLE + max(0.0, (legend_h - height) / 2)
            left += room
            right = left + width + room + 20
            heading = words(shortened(title, 90), _MARGIN, 30.0, 17)
            at = f"translate({right:g} {_MARGIN + _TITLE + 10:g})"
            around = [heading, element("g", *table, transform=at)]
            width = max(right + legend_w - _MARGIN, 9.2 * min(len(title), 90))
            height = max(height, legend_h) + _TITLE
        moved = element("g", *parts, transform=f"translate({left:g} {down:g})")
        size = round(width + 2 * _MARGIN), round(height + 2 * _MARGIN)
        return Picture([moved, *around], *size, title, self._description())

    def _groups(self) -> list[Svg]:
        """A box per NUMA node, with its notes below its GPUs."""
        parts = []
        for numa, box in self.layout.groups.items():
            if numa is None:
                continue
            parts.append(rect("group", box.x, box.y, box.width, box.height, rx=10))
            lines = [f"NUMA node {numa}", *self.notes.get(numa, ())]
            letters = int(box.width / 6.2)
            # The corner away from the middle, where a hub may be.
            is_right = box.x > self.layout.centre[0]
            parts += [
                element(
                    "text",
                    shortened(text, letters),
                    class_="gt-soft",
                    y=box.y + y,
                    x=box.x + (box.width - 10 if is_right else 10),
                    font_size=11,
                    text_anchor="end" if is_right else "start",
                )
                for text, y in zip(lines, box.texts, strict=False)
            ]
        return parts

    def _hops(self) -> list[Svg]:
        """The job's pattern: its hops underlaid, the links on them, and the weakest one's GB/s."""
        hops = self.marks.pairs
        if not hops or self.layout.is_table:
            return []
        places, parts = self.layout.places, []
        for a, b in hops:
            path = segment(places[a], places[b])
            parts.append(element("path", class_="gt-ring", stroke_width=15.0, d=path))
        parts += [line(self.topology, self.layout, a, b) for a, b in hops]
        a, b = self._weakest(hops)
        x, y = self._beside_gpus(places[a], places[b])
        text = f"{float(self.topology.bandwidth_gbps[a, b]):g} GB/s"
        if not self.is_small:
            parts += [
                rect("free", x - 28, y - 10, 56, 19, rx=4),
                words(text, x, y + 4, 11, anchor="middle"),
            ]
        return parts

    def _marked_links(self) -> list[Svg]:
        """Dots along every link that is marked broken or slow."""
        if self.layout.is_table:
            return []
        places = self.layout.places
        ends = [one.gpus for one in self.topology.impairments if len(one.gpus) == 2]
        return [
            element("path", class_="gt-marked", stroke_width=4.0, d=segment(places[a], places[b]))
            for a, b in ends
        ]

    def _beside_gpus(
        self, one: tuple[float, float], other: tuple[float, float]
    ) -> tuple[float, float]:
        """The place on a line between two points that is farthest from any GPU's box."""
        on_it = [
            (one[0] + part * (other[0] - one[0]), one[1] + part * (other[1] - one[1]))
            for part in (0.5, 0.45, 0.55, 0.4, 0.6, 0.35, 0.65, 0.3, 0.7)
        ]

        def room(at: tuple[float, float]) -> float:
            return min(
                max(abs(at[0] - x) / (GPU_W + 56), abs(at[1] - y) / (GPU_H + 20))
                for x, y in self.layout.places
            )

        # A place with room enough near the middle is better than one with more elsewhere.
        return next((at for at in on_it if room(at) > 0.5), max(on_it, key=room))

    def _weakest(self, hops: Sequence[tuple[int, int]]) -> tuple[int, int]:
        return min(hops, key=lambda pair: float(self.topology.bandwidth_gbps[pair]))

    def _gpu(self, gpu: int) -> list[Svg]:
        marks, name = self.marks, self.marks.held.get(gpu, "")
        is_chosen = gpu in marks.chosen
        look, hatch = self.looks[name] if name else ("chosen" if is_chosen else "free", 0)
        x, y = (at - size / 2 for at, size in zip(self.layout.places[gpu], _SIZE, strict=True))
        parts = filled(look, hatch, x, y, *_SIZE, stroke=3.0 if is_chosen else 1.2)
        ink = "text" if look == "free" else f"{look}-text"
        middle = x + GPU_W / 2
        is_named = bool(name) and not self.is_small
        number_y = y + (19 if is_named else 30)
        parts.append(words(self._called(gpu), middle, number_y, 18, ink, "middle", "bold"))
        if is_named:
            parts.append(words(shortened(name, 9), middle, y + 34, 10, ink, "middle"))
        if gpu in marks.beside:
            parts.append(
                rect("beside", x - 5, y - 5, GPU_W + 10, GPU_H + 10, rx=9, stroke_width=2.2)
            )
        if any(one.gpus == (gpu,) for one in self.topology.impairments):
            is_broken = bool(self.topology.broken >> gpu & 1)
            down = f"M{x:g} {y:g}l{GPU_W:g} {GPU_H:g}" if is_broken else ""
            up = f"M{x:g} {y + GPU_H:g}l{GPU_W:g} {-GPU_H:g}"
            parts.append(element("path", class_="gt-marked", d=down + up, stroke_width=3.0))
        return parts + (_rank(marks.chosen.index(gpu), x + GPU_W - 3, y + 3) if is_chosen else [])

    def _called(self, gpu: int) -> str:
        return str(self.marks.names[gpu] if self.marks.names else gpu)

    def _legend(self) -> list[LegendEntry]:
        marks, entries, topology = self.marks, list(self.links.entries), self.topology
        names = [*dict.fromkeys(marks.held[gpu] for gpu in sorted(marks.held))]
        entries += [box_entry(*self.looks[name], name) for name in names[:_MOST_ENTRIES]]
        if len(names) > _MOST_ENTRIES:
            entries.append(LegendEntry([], f"and {len(names) - _MOST_ENTRIES} more"))
        if marks.chosen:
            if any(gpu not in marks.held for gpu in marks.chosen):
                entries.append(box_entry("chosen", 0, "the job's GPUs"))
            entries.append(LegendEntry(_rank(0, 22, 0), "rank"))
        if marks.pairs and not self.layout.is_table:
            sample = element("path", class_="gt-ring", d="M4 0h36", stroke_width=13.0)
            entries.append(LegendEntry([sample], "who talks to whom; the slowest with GB/s"))
        if marks.beside:
            sample = rect("beside", 4, -8, 36, 16, rx=6, stroke_width=2.2)
            entries.append(LegendEntry([sample], marks.beside_means))
        if any(gpu not in marks.held for gpu in range(self.topology.gpus)) and marks.held:
            entries.append(box_entry("free", 0, "free"))
        sample = element("path", class_="gt-marked", d="M0 0h44", stroke_width=4.0)
        entries += [
            LegendEntry([sample], f"marked: {one.text(marks.names)}")
            for one in topology.impairments[:_MOST_ENTRIES]
        ]
        if self.far_nics:
            entries.append(LegendEntry([], f"NICs near no GPU: {', '.join(self.far_nics)}"))
        return entries

    def _description(self) -> str:
        """What the picture shows, for who cannot see it."""
        marks, topology = self.marks, self.topology
        numas = len(set(topology.numa) - {None})
        where = f" in {numas} NUMA nodes" if numas > 1 else ""
        links = ", ".join(entry.text for entry in self.links.entries)
        said = [f"{topology.gpus} GPUs{where}; links: {links}"]
        for name in dict.fromkeys(marks.held.values()):
            gpus = [self._called(gpu) for gpu in sorted(marks.held) if marks.held[gpu] == name]
            said.append(f"{name} holds {', '.join(gpus)}")
        if marks.chosen:
            said.append(f"ranks on {', '.join(map(self._called, marks.chosen))}")
        if marks.pairs:
            gbps = float(topology.bandwidth_gbps[self._weakest(marks.pairs)])
            said.append(f"slowest hop {gbps:g} GB/s")
        said += [f"marked: {one.text(marks.names)}" for one in topology.impairments]
        if marks.beside:
            said.append(f"{marks.beside_means}: {', '.join(map(self._called, marks.beside))}")
        return ". ".join(said) + "."


_SIZE = (GPU_W, GPU_H)


def _rank(rank: int, x: float, y: float) -> list[Svg]:
    return [
        element("circle", class_="gt-rank", cx=x, cy=y, r=10),
        words(str(rank), x, y + 4, 11, "rank-text", anchor="middle"),
    ]
