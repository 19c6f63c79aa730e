"""A large cluster as a select plugin tells of it: a table once, then what changed.

Made by a seed. Jobs start where the engine says, others end and start, so that the cluster stays
as full as it is to be, and as many nodes change between two questions as asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from slurm_plugin.base.node_lines import MOST_NODES, NodesPart, TableChanges, digest, mix
from slurm_plugin.base.placement import CandidateNode
from slurm_plugin.base.protocol import Place

TABLE = 0x5EED


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes alike: how many, how many GPUs, and their machine in gputopo.yaml."""

    prefix: str
    nodes: int
    gpus: int
    machine: str

    @property
    def hosts(self) -> str:
        """Their names, as a host list."""
        return f"{self.prefix}[{1:05d}-{self.nodes:05d}]"


class KeptCluster:
    """Free GPUs by node, in the plugin's order, and the jobs that hold the others."""

    def __init__(self, kinds: Sequence[NodeKind], busy: float, seed: int) -> None:
        self.draw = Random(seed)
        #: The GPUs (mask) that a job gets which names a type; all where it is not there.
        self.typed: dict[str, int] = {}
        named = sorted(
            (f"{kind.prefix}{at:05d}", kind.gpus)
            for kind in kinds
            for at in range(1, kind.nodes + 1)
        )
        self.names = [name for name, _ in named]
        self.total = [gpus for _, gpus in named]
        self.index = {name: at for at, name in enumerate(self.names)}
        self.free = [(1 << total) - 1 for total in self.total]
        self.digest = digest(self.free)
        #: GPUs held by a job: (node, mask).
        self.held: list[list[tuple[int, int]]] = []
        self.gpus = self.left = sum(self.total)
        self.floor = round(self.gpus * (1 - busy))
        #: Nodes that changed since the last question.
        self.changed: set[int] = set()
        self._fill()
        self.changed.clear()

    def _fill(self) -> None:
        """Each GPU is busy with the same chance, in jobs of one GPU."""
        order = list(range(self.gpus))
        self.draw.shuffle(order)
        at = [(node, gpu) for node, total in enumerate(self.total) for gpu in range(total)]
        for one in order[self.floor :]:
            node, gpu = at[one]
            self.start([(node, 1 << gpu)])

    def start(self, gpus: list[tuple[int, int]]) -> None:
        """A job holds these GPUs now."""
        for node, mask in gpus:
            self._set(node, self.free[node] & ~mask)
        self.held.append(gpus)

    def change(self, nodes: int) -> None:
        """Jobs end, and others of one GPU start, until so many nodes changed."""
        while self.left < self.floor or len(self.changed) < min(nodes, len(self.names)):
            if self.left <= self.floor and self.held:
                self._end_one()
            else:
                self._start_one()

    def _end_one(self) -> None:
        at = self.draw.randrange(len(self.held))
        self.held[at], self.held[-1] = self.held[-1], self.held[at]
        for node, mask in self.held.pop():
            self._set(node, self.free[node] | mask)

    def _start_one(self) -> None:
        node = self.draw.randrange(len(self.names))
        while not self.free[node]:
            node = self.draw.randrange(len(self.names))
        free = [gpu for gpu in range(self.total[node]) if self.free[node] >> gpu & 1]
        self.start([(node, 1 << self.draw.choice(free))])

    def _set(self, node: int, free: int) -> None:
        self.left += free.bit_count() - self.free[node].bit_count()
        self.digest ^= mix(node, self.free[node]) ^ mix(node, free)
        self.free[node] = free
        self.changed.add(node)

    def table(self) -> Iterator[NodesPart]:
        """The lines that tell all nodes."""
        starts = range(0, len(self.names), MOST_NODES)
        for part, first in enumerate(starts, 1):
            end = min(len(self.names), first + MOST_NODES)
            yield NodesPart(
                *(part, TABLE, part, len(starts), first, self.names[first:end]),
                *(self.total[first:end], self.free[first:end]),
                *([1] * (end - first), [""] * (end - first)),
            )

    def question(self, asked: Place, number: int, partition: str) -> Place | None:
        """What slurmctld would ask for such a job; None where it cannot start now.

        Of the recorded question count its GPUs per node, its hint, and the type of GPU and the
        topology plugin of Slurm's that it names.
        """
        counts = [node.own.bit_count() for node in asked.candidates if node.own]
        own = self._slurms(counts, self.typed.get(asked.type, -1))
        if own is None:
            return None
        listed = tuple(
            CandidateNode(self.names[at], self.total[at], self.free[at], mask, 1)
            for at, mask in own.items()
        )
        free = {at: self.free[at] for at in sorted(self.changed)}
        self.changed.clear()
        changes = TableChanges(TABLE, self.digest, free, f"0-{len(self.names) - 1}", 1)
        return Place(
            *(number, 0, 1000, 0, 0, listed),
            **{"id": number, "hint": asked.hint, "partition": partition, "changes": changes},
            **{"type": asked.type, "topology": asked.topology},
        )

    def _slurms(self, counts: Sequence[int], typed: int) -> dict[int, int] | None:
        """The lowest GPUs of the first nodes with room."""
        own: dict[int, int] = {}
        wanted = sorted(counts, reverse=True)
        for at, free in enumerate(self.free):
            free &= typed
            if wanted and free.bit_count() >= wanted[0]:
                mask = 0
                for _ in range(wanted.pop(0)):
                    mask |= (free & ~mask) & -(free & ~mask)
                own[at] = mask
            if not wanted:
                return own
        return None

    def take(self, masks: Mapping[str, int]) -> None:
        """The job starts on these GPUs; AssertionError where one is not free."""
        for name, mask in masks.items():
            assert not mask & ~self.free[self.index[name]], f"{name}: {mask:x} is not free"
        self.start([(self.index[name], mask) for name, mask in masks.items()])
