"""The nodes of a cluster, kept between questions: each question brings what changed.

Work grows with the changes, not with the cluster. Table and digest tell whether both sides mean
the same state; in doubt a question is answered for the nodes that it lists.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from gres_topology.slices import SlicedTopology, profile_of
from policies import NodeState
from policies.contract.bits import positions
from policies.contract.nodes import Candidates, FreeOn, NodeTable
from policies.contract.ranking import each
from slurm_plugin.base import node_lines
from slurm_plugin.base.node_lines import NodesPart, TableChanges
from slurm_plugin.base.placement import CandidateNode
from slurm_plugin.decide.machines import UNDECLARED, Machine, Machines, profile_for, usable
from slurm_plugin.errors import ProtocolError

logger = logging.getLogger(__name__)

#: Tables kept: that of the running slurmctld, and those of others before it or beside it.
MOST_TABLES = 4
#: Nodes of one table.
MOST_NODES = 100_000
#: Sets of nodes that are remembered as they travel: most questions name one of a few.
MOST_SETS = 32


@dataclass(frozen=True, slots=True)
class ToldNodes:
    """The columns of a table, in Slurm's order."""

    names: list[str]
    total: list[int]
    free: list[int]
    weight: list[int]
    type: list[str]


class NodesSeen:
    """The nodes of a table as policies see them, for jobs of whole GPUs or of MIG slices."""

    def __init__(self, told: ToldNodes, machines: Mapping[str, Machine], *, sliced: bool) -> None:
        #: Every told node's machine, as these jobs see it.
        self.machines: dict[str, Machine] = {}
        self.excluded: dict[str, str] = {}
        states = []
        of_type: dict[str, list[str]] = {}
        for name, total, free, weight, kind in zip(
            told.names, told.total, told.free, told.weight, told.type, strict=True
        ):
            whole = machines.get(name, UNDECLARED)
            if sliced and whole.sliced is None:
                continue
            profile = "" if sliced else profile_of(kind)
            problem = usable(whole, total) or (whole.seen_by(profile).problem if profile else "")
            machine = whole.sliced if sliced and whole.sliced is not None else whole
            if machine.topology is None or problem:
                if total:
                    self.excluded[name] = problem
                continue
            self.machines[name] = machine
            states.append(NodeState(name, machine.topology, machine.free(free), 0, weight))
            for one in _types(machine, whole, kind):
                of_type.setdefault(one, []).append(name)
        self.table = NodeTable(states)
        # Made here, and not by the first question.
        self.like = self.table.alike
        #: Each node's place in `table`, -1 where it has none.
        self.place = [self.table.place.get(name, -1) for name in told.names]
        self._in_order = self.place == list(range(len(told.names)))
        self._sets: OrderedDict[str, int] = OrderedDict()
        places = self.table.place
        self._of_type = {
            kind: sum(1 << places[name] for name in names) for kind, names in of_type.items()
        }

    def set_free(self, at: int, name: str, free: int) -> None:
        """Node `at` of the table has these of Slurm's GPUs free now (mask)."""
        if self.place[at] >= 0:
            self.table.set_free(self.place[at], self.machines[name].free(free))

    def among(self, others: str, kind: str, heaviest: int | None) -> int:
        """The places in `table` of a set that has free GPUs, of a type or profile ("": any)."""
        places = self._sets.get(others)
        if places is None:
            places = self._to_places(node_lines.places(others, len(self.place)))
            self._sets[others] = places
            if len(self._sets) > MOST_SETS:
                self._sets.popitem(last=False)
        else:
            self._sets.move_to_end(others)
        table = self.table
        places &= self._of_type.get(kind, 0)
        for number, (_, weight) in enumerate(table.kinds):
            is_heavy = heaviest is not None and weight > heaviest
            full = table.of_kind[number] if is_heavy else table.index.places(FreeOn(number, 0))
            places &= ~full
        return places

    def _to_places(self, chosen: int) -> int:
        """A set in Slurm's order as one of places."""
        if self._in_order or not chosen:
            return chosen
        at = np.array(self.place)[positions(chosen, len(self.place))]
        bits = np.zeros(len(self.table.names), dtype=np.uint8)
        bits[at[at >= 0]] = 1
        return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")

    def to_table(self, masks: Mapping[str, int]) -> dict[str, int]:
        """Slurm's masks as the topology's, of the usable nodes among these."""
        machines = self.machines
        return {n: machines[n].to_topology(mask) for n, mask in masks.items() if n in machines}


def _types(seen: Machine, whole: Machine, kind: str) -> Iterator[str]:
    """What a job may ask for to get a node's GPUs: profiles, or a type and "" for any.

    Slurm may give a job that names no type slices of a node that has some.
    """
    if isinstance(seen.topology, SlicedTopology):
        yield from (profile for profile in seen.topology.of_profile if profile)
        return
    if whole.sliced is None:
        yield ""
    if kind:
        yield kind


class KeptNodes:
    """One table: `free` in Slurm's order and masks, and its usable nodes as policies see them."""

    def __init__(self, told: ToldNodes, machines: Machines) -> None:
        self.told, self.machines = told, machines
        self.free = list(told.free)
        self.digest = node_lines.digest(self.free)
        #: What nodes that changed add to it.
        self._mixed: dict[int, int] = {}
        self.index = {name: at for at, name in enumerate(told.names)}
        #: Was it looked over to the end?
        self.is_looked_over = True
        self.whole = NodesSeen(told, machines, sliced=False)
        self.sliced = NodesSeen(told, machines, sliced=True)
        self._follow = [seen for seen in (self.whole, self.sliced) if seen.table.names]

    @property
    def table(self) -> NodeTable:
        """The nodes for jobs of whole GPUs."""
        return self.whole.table

    @property
    def excluded(self) -> Mapping[str, str]:
        """Nodes that are left to Slurm's own choice, and why."""
        return self.whole.excluded

    def take(self, free: Mapping[int, int]) -> None:
        """Nodes have these GPUs free now; raises ProtocolError for nodes or GPUs there are not."""
        for at, mask in free.items():
            if at >= len(self.free) or mask >> self.told.total[at]:
                raise ProtocolError(f"place: changed={at}:{mask:x}: no such node, or no such GPUs")
            if mask == self.free[at]:
                continue
            mixed = self._mixed.get(at)
            if mixed is None:
                mixed = node_lines.mix(at, self.free[at])
            self._mixed[at] = new = node_lines.mix(at, mask)
            self.digest ^= mixed ^ new
            self.free[at] = mask
            for seen in self._follow:
                seen.set_free(at, self.told.names[at], mask)

    def agrees(self, node: CandidateNode) -> bool:
        """Whether a listed node is known, with the same free GPUs."""
        at = self.index.get(node.name)
        return at is not None and (self.told.total[at], self.free[at]) == (node.total, node.free)


@dataclass(frozen=True, slots=True)
class Others:
    """The nodes of one question beside those it lists (`placement.OtherNodes`)."""

    kept: KeptNodes
    seen: NodesSeen
    among: int

    @property
    def excluded(self) -> Mapping[str, str]:
        """Nodes of the cluster that are left to Slurm's own choice, and why."""
        return self.seen.excluded

    def with_own(self, own: Mapping[str, int]) -> Candidates:
        """They and these, Slurm's own (masks by name), as policies see them."""
        masks = self.seen.to_table(own)
        among = self.among
        for name in masks:
            among |= 1 << self.seen.table.place[name]
        return Candidates(self.seen.table, among, masks)

    def free_on(self, name: str) -> int:
        """The GPUs (mask) that are free on a node of the cluster; 0 for one that is not known."""
        at = self.kept.index.get(name)
        return 0 if at is None else self.kept.free[at]

    def stand_in(
        self, count: int, reserved: Mapping[str, int], without: Collection[str]
    ) -> CandidateNode | None:
        """The first node, lowest weight first, with `count` GPUs free beside the reserved ones."""
        kept, table = self.kept, self.seen.table
        ranking = table.ranking("stand-in", count, lambda states, count: [()] * len(states))
        among = self.among
        for name in without:
            among &= ~(1 << table.place.get(name, len(table.names)))
        for _, places in ranking.walk(among):
            for place in each(places):
                name = table.names[place]
                at = kept.index[name]
                free = kept.free[at] & self.seen.machines[name].whole & ~reserved.get(name, 0)
                if free.bit_count() >= count:
                    return CandidateNode(name, kept.told.total[at], free, 0, kept.told.weight[at])
        return None


#: Computes ahead what questions about a new table may need; whether that is all of it.
LookOver = Callable[[NodeTable], bool]


def _built(told: ToldNodes, machines: Machines, look_over: LookOver) -> KeptNodes:
    kept = KeptNodes(told, machines)
    kept.is_looked_over = look_over(kept.table)
    return kept


class KeptTables:
    """The tables that plugins sent, the last ones used."""

    def __init__(self) -> None:
        self._tables: OrderedDict[int, KeptNodes] = OrderedDict()
        #: Parts that came of a table, the latest one alone.
        self._parts: list[NodesPart] = []
        #: The table that came last: its nodes, and when it could be used (epoch).
        self.told: dict[str, float] | None = None

    def add(self, part: NodesPart) -> ToldNodes | None:
        """A part came; with the last one the whole table. Raises ProtocolError for one too few."""
        if part.part == 1:
            self._parts = []
        came = self._parts
        first = sum(len(one.names) for one in came)
        fits = all(one.table == part.table and one.parts == part.parts for one in came)
        if part.part != len(came) + 1 or part.first != first or not fits:
            self._parts = []
            raise ProtocolError(f"nodes: part {part.part} does not follow; expected part 1")
        came.append(part)
        if part.part < part.parts:
            return None
        self._parts = []
        told = ToldNodes([], [], [], [], [])
        for one in came:
            told.names.extend(one.names)
            told.total.extend(one.total)
            told.free.extend(one.free)
            told.weight.extend(one.weight)
            told.type.extend(one.type)
        if len(told.names) > MOST_NODES or len(set(told.names)) < len(told.names):
            raise ProtocolError(f"nodes: over {MOST_NODES} nodes, or one of them twice")
        return told

    async def keep(
        self, table: int, told: ToldNodes, machines: Machines, look_over: LookOver
    ) -> KeptNodes:
        """Use this table from now on; other lines are answered while it is built.

        `look_over` computes ahead on it, in a thread, before anybody else has it.
        """
        kept = await asyncio.to_thread(_built, told, machines, look_over)
        self._tables[table] = kept
        self._tables.move_to_end(table)
        if len(self._tables) > MOST_TABLES:
            self._tables.popitem(last=False)
        self.told = {"nodes": len(told.names), "told_at": round(time.time(), 3)}
        return kept

    async def rebuilt(
        self, machines: Machines, look_over: LookOver, tables: Collection[int] | None = None
    ) -> Callable[[], None]:
        """The same nodes, in all tables or these, for these machines; call the result to use it."""
        former = {at: kept for at, kept in self._tables.items() if tables is None or at in tables}
        fresh = {}
        for table, kept in former.items():
            told = replace(kept.told, free=list(kept.free))
            fresh[table] = await asyncio.to_thread(_built, told, machines, look_over)

        def use() -> None:
            for table, new in fresh.items():
                old = former[table]
                if self._tables.get(table) is old:
                    now = {at: free for at, free in enumerate(old.free) if new.free[at] != free}
                    new.take(now)
                    self._tables[table] = new

        return use

    @property
    def latest(self) -> KeptNodes | None:
        """The table in use."""
        return next(reversed(self._tables.values()), None)

    def catch_up(self) -> bool:
        """A step of `NodeTable.catch_up` on the table in use; False where nothing is left."""
        kept = self.latest
        return kept is not None and kept.table.catch_up()

    def use_with(self, machines: Machines) -> None:
        """The tables are as good for these machines, which are the same."""
        for kept in self._tables.values():
            kept.machines = machines

    def others(
        self,
        changes: TableChanges,
        listed: Collection[CandidateNode],
        kind: str,
        machines: Machines,
    ) -> Others | None:
        """The other nodes of a question; None where the plugin means another state than we do."""
        kept = self._tables.get(changes.table)
        if kept is None or kept.machines is not machines:
            return None
        self._tables.move_to_end(changes.table)
        try:
            kept.take(changes.free)
            if kept.digest != changes.state or not all(kept.agrees(node) for node in listed):
                return None
            own = (node.name for node in listed if node.own)
            profile = profile_for(kind, own, machines)
            seen = kept.sliced if profile else kept.whole
            among = seen.among(changes.others, profile or kind, changes.heaviest)
            return Others(kept, seen, among)
        except ProtocolError as error:
            logger.error("%s; Slurm's own nodes alone", error)
            return None


def lowered(nodes: Candidates, reserved: Mapping[str, int]) -> AbstractContextManager[None]:
    """Hide these GPUs (masks by name) until the end of the block."""
    less = {name: (0, mask) for name, mask in reserved.items()}
    return _changed(nodes, less) if less else nullcontext()


def raised(nodes: Candidates, more: Mapping[str, int]) -> AbstractContextManager[None]:
    """Show these GPUs (masks by name) as free, too, until the end of the block."""
    change = {name: (mask, 0) for name, mask in more.items()}
    return _changed(nodes, change) if change else nullcontext()


@contextmanager
def _changed(nodes: Candidates, change: Mapping[str, tuple[int, int]]) -> Iterator[None]:
    """With GPUs (masks by name) more, then less, until the end of the block."""
    table = nodes.table
    places = {table.place[name]: both for name, both in change.items() if name in table.place}
    before = {place: table.index[place].free for place in places}
    for place, (more, less) in places.items():
        table.set_free(place, (before[place] | more) & ~less)
    try:
        yield
    finally:
        for place, free in before.items():
            table.set_free(place, free)
