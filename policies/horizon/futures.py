"""What comes if a job takes certain GPUs: the next starts, played through.

Jobs start in Slurm's order where they have room first, and by EASY backfill (Lifka 1995) where that
is on; each takes the node and the set that mapa would. What all get is summed up.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from gres_topology import NodeTopology
from policies.contract.bits import gpus_of
from policies.contract.nodes import candidates
from policies.contract.nouns import Cluster, NodeState, Placement, Release, Request, WaitingJob
from policies.contract.ranking import each
from policies.horizon.communication import NOTHING_MEASURED, Communication
from policies.horizon.playing import DEEP, STARTS, Best, End, Later, Part, Run
from policies.horizon.run_times import run_times
from policies.horizon.settings import HOP_WEIGHT, USUAL_COMMUNICATION
from policies.mapa.question import NodeKeys
from policies.matching.choice import Choice
from policies.matching.links import MB_PER_GB, host_mbps, link_mbps, widths
from policies.scoring.objectives import Objective
from policies.scoring.tables import Tables

#: Sets are compared on nodes of so many GPUs at most, and waits weighed, in one future, on twice as
#: large ones: these have too many sets to know the best of each beforehand.
MOST_GPUS, MOST_GPUS_WAITING = 8, 16
#: Nodes that are looked at: those that are compared, then where GPUs come free, then others with
#: free GPUs. Where there are more, the next starts go elsewhere.
MOST_NODES = 6
#: Parts of jobs that end there.
MOST_ENDS = 24
#: The most times that a job which says more than the usual counts as much as one that says
#: nothing: what a worse set costs grows with what it communicates.
MOST_TIMES = 3.0
#: Choices remembered, some 300 bytes each; of so many all are forgotten.
MOST_CHOICES = 50_000


_host_mbps = lru_cache(maxsize=256)(host_mbps)


@lru_cache(maxsize=256)
def _links_differ(topology: NodeTopology) -> bool:
    return len(widths(link_mbps(topology))) > 1


def is_told_apart(topology: NodeTopology, most: int = MOST_GPUS) -> bool:
    """Whether it matters which GPUs of such a node a job gets, and can be told in time."""
    return 1 < topology.gpus <= most and _links_differ(topology)


class Choices:
    """mapa's choice for each state of a node, each found once."""

    def __init__(
        self,
        tables: Tables,
        objective: Callable[[Request], Objective],
        hop_weight: float = HOP_WEIGHT,
    ) -> None:
        self._tables, self._objective = tables, objective
        self._hop_weight = hop_weight
        self._known: dict[tuple[str, str, bool, int], dict[int, Best]] = {}
        self._left = MOST_CHOICES

    def known(self, job: WaitingJob, count: int, shape: str) -> dict[int, Best]:
        """Those for `count` GPUs of nodes of this shape, by what is free (mask)."""
        if self._left <= 0:
            self._known.clear()
            self._left = MOST_CHOICES
        return self._known.setdefault((shape, job.pattern, job.sensitive, count), {})

    def find(self, job: WaitingJob, count: int, topology: NodeTopology, free: int) -> Best:
        """One that is not known: of `free` (mask), which has at least `count` GPUs."""
        self._left -= 1
        request = Request((count,), pattern=job.pattern, sensitive=job.sensitive)
        ranked = NodeKeys(request, self._objective(request), self._tables)
        state = NodeState("", topology, free)
        choice = ranked.first(state, count)
        key = ranked.keys([state], count)[0]
        own = self.gain(topology, choice, sensitive=job.sensitive)
        return Best(choice.mask, own, choice.share, key)

    def gain(self, topology: NodeTopology, choice: Choice, *, sensitive: bool) -> float:
        """What a job gains by a set, as a share of its ideal."""
        if not sensitive or choice.mask.bit_count() < 2:
            return 0.0
        hops = round(choice.weakest_gbps * MB_PER_GB) <= _host_mbps(topology)
        return choice.share - self._hop_weight * hops


def weight(communication: float | None) -> float:
    """How much a job's gain counts: in proportion to what it communicates."""
    if communication is None:
        return 1.0
    return min(MOST_TIMES, communication / USUAL_COMMUNICATION)


class Future(NamedTuple):
    """What comes if the job takes one set."""

    #: The sum of what all gain (`gain`).
    worth: float
    #: The next start on the job's own node: GPUs (mask), none where there is none.
    next_mask: int

    def explained(self, placement: Placement, node: str) -> Placement:
        """The placement, its reason saying what it leaves for whom."""
        if not self.next_mask:
            return placement
        left = ",".join(map(str, gpus_of(self.next_mask)))
        count = self.next_mask.bit_count()
        reason = f"{placement.reason}; leaves {left} for the next job of {count}"
        return replace(placement, reason=reason)


class World:
    """The nodes that the next starts are about, at the moment of the question."""

    def __init__(
        self,
        choices: Choices,
        cluster: Cluster,
        request: Request,
        compared: Iterable[NodeState],
        told: Communication | None = None,
        *,
        guesses: bool = True,
        users: bool = True,
        most: int = MOST_GPUS,
    ) -> None:
        """`most`: GPUs that a node may have; `users`: their own run times count."""
        assert cluster.ahead is not None
        self._largest = most
        self._told = told or Communication(NOTHING_MEASURED, Tables())
        self._choices, self._ahead = choices, cluster.ahead
        self._backfill = cluster.ahead.backfill
        self._job = WaitingJob(
            request.gpus_per_node,
            cluster.ahead.lasts_s,
            request.pattern,
            request.sensitive,
        )
        self._table = candidates(cluster.nodes).table
        ahead = cluster.ahead
        took_s = (*(one.took_s for one in ahead.releases), *(one.took_s for one in ahead.queue))
        learned = users and (bool(ahead.took_s) or any(took_s))
        times = run_times(tuple(cluster.ahead.used), guesses, learned)
        #: How many futures there are.
        self.futures = times.futures
        self._lasts_s = times.left_s(0, cluster.ahead.lasts_s, took_s=cluster.ahead.took_s)
        found = {node.name: node for node in compared}
        seen: list[Release] = []
        for release in cluster.ahead.releases:
            if len(seen) < MOST_ENDS and self._add(release.node, found):
                seen.append(release)
        table = self._table
        for place in islice(each((1 << len(table.names)) - 1 & ~table.full), 2 * MOST_NODES):
            self._add(table.names[place], found)
        #: By name, so that of equal ones the first name is taken.
        self.nodes = [found[name] for name in sorted(found)]
        self._number = {node.name: number for number, node in enumerate(self.nodes)}
        self._free = [node.free for node in self.nodes]
        self._kinds = list({node.topology.shape: node.topology for node in self.nodes}.values())
        at = {topology.shape: kind for kind, topology in enumerate(self._kinds)}
        self._kind_of = [at[node.topology.shape] for node in self.nodes]
        own = self._told.of_request(request, self._kinds)
        self._communication = None if own is None else own.share
        weights = [node.weight for node in self.nodes]
        self._weights = weights if len(set(weights)) > 1 else None
        self._releases, self._times = seen, times
        self._played: dict[int, tuple[list[End], list[float]]] = {}
        #: Number, limit and own run times of the waiting jobs of the parts.
        self._waits: list[tuple[int, float, Sequence[float]]] = []
        #: No more than these can start, or pass the first that waits.
        self._parts = list(islice(self._waiting(), STARTS + DEEP + 1))

    def _played_in(self, future: int) -> tuple[list[End], list[float]]:
        """The ends in their order and the waiting jobs' run times; most questions need but one."""
        known = self._played.get(future)
        if known is None:
            one_s = self._times.one_s
            ends = sorted(
                (one_s(future, job, in_s + ran_s, ran_s, took_s), self._number[name], mask,
                 mask.bit_count())
                for in_s, name, mask, ran_s, job, took_s in self._releases
            )  # fmt: skip
            lasts_s = [one_s(future, at, limit_s, 0.0, own) for at, limit_s, own in self._waits]
            known = self._played[future] = ends, lasts_s
        return known

    def lasts_s(self, future: int) -> float:
        """How long the job itself runs on the best GPUs in one of the futures (seconds)."""
        return self._lasts_s[future]

    def _add(self, name: str, nodes: dict[str, NodeState]) -> bool:
        """Whether the node is one of those that are looked at."""
        if name not in nodes:
            place = self._table.place.get(name)
            if place is None or len(nodes) >= MOST_NODES:
                return False
            node = self._table.node(place)
            if not is_told_apart(node.topology, self._largest):
                return False
            nodes[name] = node
        return True

    def play(self, node: NodeState, count: int, choice: Choice, future: int = 0) -> Future:
        """What comes in one of the futures if the job takes this set of a node."""
        number = self._number[node.name]
        ends, lasts_s = self._played_in(future)
        free, ends = self._free[:], ends[:]
        free[number] &= ~choice.mask
        insort(ends, (self._lasts_s[future], number, choice.mask, count))
        run = Run(free, ends, lasts_s, self._find, self._weights)
        run.play(self._parts, number, self._backfill)
        own = self._choices.gain(node.topology, choice, sensitive=self._job.sensitive)
        own *= weight(self._communication)
        return Future(own + run.worth, run.next_mask)

    def later(
        self, communication: float, share: float, among: Collection[str], longest_s: float,
        future: int,
    ) -> Later | None:  # fmt: skip
        """The best that the job may wait for in one of the futures; None where nothing comes.

        `communication` is its share of the run time, `share` of the ideal bandwidth what it would
        get now; `among` are the nodes it may use.
        """
        [own] = self._parts_of(self._job, 0, communication)
        ends, lasts_s = self._played_in(future)
        run = Run(self._free[:], ends[:], lasts_s, self._find, self._weights)
        numbers = {self._number[name] for name in among}
        return run.wait(
            self._parts, own, self._lasts_s[future], share, numbers, longest_s, self._backfill
        )

    def _find(self, part: Part, node: int, free: int) -> Best:
        """What is not known yet of a part on a node."""
        best = self._choices.find(part.job, part.gpus, self.nodes[node].topology, free)
        part.known[node][free] = best
        return best

    def _waiting(self) -> Iterator[Part]:
        """What waits, node by node; jobs too large for these nodes are others' business."""
        for number, job in enumerate(self._ahead.queue, 1):
            if max(job.gpus_per_node) <= self._largest:
                self._waits.append((number, job.lasts_s, job.took_s))
                communication = self._told.of_waiting(job, self._kinds)
                yield from self._parts_of(job, len(self._waits) - 1, communication)

    def _parts_of(self, job: WaitingJob, at: int, communication: float | None) -> Iterator[Part]:
        for count in job.gpus_per_node:
            of_kind = [self._choices.known(job, count, one.shape) for one in self._kinds]
            known = [of_kind[kind] for kind in self._kind_of]
            yield Part(job, count, at, known, weight(communication), communication)
