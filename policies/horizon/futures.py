"""What comes if a job takes certain GPUs: the next starts, played through.

Jobs start in Slurm's order where they have room first, and by EASY backfill (Lifka 1995) where that
is on; each takes the node and the set that mapa would. What all get is summed up.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from math import inf
from statistics import fmean
from typing import NamedTuple

from gres_topology import NodeTopology
from policies.contract.bits import gpus_of
from policies.contract.hint_keys import USUAL_COMMUNICATION
from policies.contract.nodes import candidates
from policies.contract.nouns import Cluster, NodeState, Placement, Release, Request, WaitingJob
from policies.contract.ranking import each
from policies.horizon.communication import NOTHING_MEASURED, Communication
from policies.horizon.playing import DEEP, STARTS, Best, End, Later, PlayedFuture, Waits, WantedPart
from policies.horizon.run_times import FIRST, OTHERS, run_times
from policies.horizon.settings import HOP_WEIGHT
from policies.mapa.question import NodeKeys
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
#: Slurm plans by minutes (bf_resolution): a window that is shorter is none.
RESOLUTION_S = 60.0
#: Waiting jobs of which the parts are remembered.
MOST_PARTS = 4096


_host_mbps = lru_cache(maxsize=256)(host_mbps)


@lru_cache(maxsize=256)
def _links_differ(topology: NodeTopology) -> bool:
    return len(widths(link_mbps(topology))) > 1


def is_told_apart(topology: NodeTopology, most: int = MOST_GPUS) -> bool:
    """Whether it matters which GPUs of such a node a job gets, and can be told in time."""
    return 1 < topology.gpus <= most and _links_differ(topology)


class Own(NamedTuple):
    """A set that the job may get, and what it gains by it."""

    mask: int
    gain: float
    #: Of the ideal bandwidth.
    share: float


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
        self._known: dict[tuple[str, str, bool, float, int], dict[int, Best]] = {}
        #: The sets that a job may be given, by pattern, sensitivity, GPUs and state of a node.
        self._sets: dict[tuple[str, str, bool, int, int], list[Own]] = {}
        #: A job that waits, what its parts were made for (the kinds of node, as shapes, and the
        #: usual communication) and its parts, by the job's identity.
        self._parts: dict[int, tuple[WaitingJob, tuple[list[str], float], list[WantedPart]]] = {}
        self._left = MOST_CHOICES

    def _forget(self) -> None:
        """Whatever is remembered, once it is much."""
        if self._left <= 0:
            for some in (self._known, self._sets, self._parts):
                some.clear()
            self._left = MOST_CHOICES

    def known(
        self, job: WaitingJob, count: int, shape: str, communication: float
    ) -> dict[int, Best]:
        """Those for `count` GPUs of nodes of this shape, by what is free (mask)."""
        self._forget()
        return self._known.setdefault((shape, job.pattern, job.sensitive, communication, count), {})

    def find(self, part: WantedPart, topology: NodeTopology, free: int) -> Best:
        """One that is not known: of `free` (mask), which has at least as many GPUs."""
        self._left -= 1
        job, count = part.job, part.gpus
        request = Request((count,), pattern=job.pattern, sensitive=job.sensitive)
        ranked = NodeKeys(request, self._objective(request), self._tables, part.communication)
        state = NodeState("", topology, free)
        best, key = ranked.best(state, count)
        share = ranked.share(topology, best.effbw_gbps, count)
        weakest = round(best.weakest_gbps * MB_PER_GB)
        own = self._gain(topology, count, share, weakest, sensitive=job.sensitive)
        return Best(best.mask, own, share, key)

    def sets(self, request: Request, count: int, node: NodeState) -> list[Own]:
        """The sets that mapa would take there, the best first."""
        key = (node.topology.shape, request.pattern, request.sensitive, count, node.free)
        known = self._sets.get(key)
        if known is None:
            self._forget()
            self._left -= 1
            # What it communicates ranks nodes, not the sets of one.
            objective = self._objective(request)
            ranked = NodeKeys(request, objective, self._tables, USUAL_COMMUNICATION)
            known = self._sets[key] = [
                Own(
                    mask,
                    self._gain(node.topology, count, share, weakest, sensitive=request.sensitive),
                    share,
                )
                for mask, share, weakest in ranked.top_sets(node, count)
            ]
        return known

    def _gain(
        self, topology: NodeTopology, count: int, share: float, weakest: int, *, sensitive: bool
    ) -> float:
        """What a job gains by a set, as a share of its ideal; `weakest` is its link, MB/s."""
        if not sensitive or count < 2:
            return 0.0
        return share - self._hop_weight * (weakest <= _host_mbps(topology))

    def parts(
        self,
        job: WaitingJob,
        kinds: list[NodeTopology],
        shapes: list[str],
        told: Communication,
        usual: float = USUAL_COMMUNICATION,
    ) -> list[WantedPart]:
        """What the job wants of each of its nodes: made once, as long as it waits.

        `shapes` are those of the kinds of node that there are; it communicates as `usual` where
        nothing is known of it.
        """
        known, made_for = self._parts.get(id(job)), (shapes, usual)
        if known is None or known[0] is not job or known[1] != made_for:
            if len(self._parts) >= MOST_PARTS:
                self._parts.clear()
            said = told.of_waiting(job, kinds)
            communication = usual if said is None else said
            made = [
                self.part(job, count, shapes, communication, weight(said))
                for count in job.gpus_per_node
            ]
            known = self._parts[id(job)] = job, made_for, made
        return known[2]

    def part(
        self,
        job: WaitingJob,
        count: int,
        shapes: Sequence[str],
        communication: float,
        counts: float = 1.0,
    ) -> WantedPart:
        """What a job wants of one node; how much it `counts` beside others (`weight`)."""
        communication = communication if job.sensitive else 0.0
        known = [self.known(job, count, shape, communication) for shape in shapes]
        return WantedPart(job, count, known, counts, communication)


def weight(communication: float | None) -> float:
    """How much a job's gain counts: in proportion to what it communicates."""
    if communication is None:
        return 1.0
    return min(MOST_TIMES, communication / USUAL_COMMUNICATION)


class Future(NamedTuple):
    """What comes if the job takes one set."""

    #: The sum of what all gain (`gain`).
    worth: float
    #: The next start on the job's own node: GPUs (mask) beside its own; none where there is none.
    next_mask: int
    #: Which parts of those who wait start at once, by identity.
    at_once: frozenset[int] = frozenset()

    def explained(self, placement: Placement, free: int) -> Placement:
        """The placement, its reason saying what it leaves for whom; `free` is left on its node."""
        left, to_come = self.next_mask & free, self.next_mask & ~free
        if not left:
            return placement
        said = f"; leaves {_listed(left)} for the next job of {self.next_mask.bit_count()}"
        said += f", with {_listed(to_come)} once they are free" if to_come else ""
        return replace(placement, reason=f"{placement.reason}{said}")


def _listed(mask: int) -> str:
    return ",".join(map(str, gpus_of(mask)))


class World:
    """The nodes that the next starts are about, at the moment of the question."""

    def __init__(
        self,
        choices: Choices,
        cluster: Cluster,
        request: Request,
        compared: Iterable[NodeState],
        communication: float | None = None,
        told: Communication | None = None,
        *,
        usual: float = USUAL_COMMUNICATION,
        guesses: bool = True,
        users: bool = True,
        most: int = MOST_GPUS,
    ) -> None:
        """`communication`: the job's own, as far as it is known; `usual`: where it is not.

        `most`: GPUs that a node may have; `users`: their own run times count.
        """
        assert cluster.ahead is not None
        self._largest, self._usual = most, usual
        self._told = told or Communication(NOTHING_MEASURED, Tables())
        ahead = cluster.ahead
        self._choices, self._ahead, self._backfill = choices, ahead, ahead.backfill
        self._request = request
        self._table = candidates(cluster.nodes).table
        users_own = chain(
            (one.took_s for one in ahead.releases), (one.took_s for one in ahead.queue)
        )
        learned = users and (bool(ahead.took_s) or any(users_own))
        times = run_times(tuple(ahead.used), guesses, learned, tuple(ahead.used_by))
        #: How many futures there are.
        self.futures = times.futures
        found = {node.name: node for node in compared}
        seen: list[Release] = []
        for release in cluster.ahead.releases:
            name = release.node
            if name in found or (len(found) < MOST_NODES and self._add(name, found)):
                seen.append(release)
                if len(seen) == MOST_ENDS:
                    break
        table = self._table
        if len(found) < MOST_NODES:
            for place in islice(each((1 << len(table.names)) - 1 & ~table.full), 2 * MOST_NODES):
                self._add(table.names[place], found)
        #: By name, so that of equal ones the first name is taken.
        self.nodes = [found[name] for name in sorted(found)]
        self._number = {node.name: number for number, node in enumerate(self.nodes)}
        self._free = [node.free for node in self.nodes]
        kinds = {node.topology.shape: node.topology for node in self.nodes}
        self._shapes, self._kinds = [*kinds], [*kinds.values()]
        at = {shape: kind for kind, shape in enumerate(kinds)}
        self._kind_of = [at[node.topology.shape] for node in self.nodes]
        self._weight = weight(communication)
        weights = [node.weight for node in self.nodes]
        self._weights = weights if len(set(weights)) > 1 else None
        self._releases, self._times = seen, times
        self._played: dict[int, tuple[list[End], list[Waits], float]] = {}
        #: Who waits (a number, the limit and the own run times of each) with their parts.
        self._waits = self._waiting()
        #: How many of these parts come before the job.
        self._before = sum(
            len(parts) for number, _, _, parts in self._waits if number <= ahead.before
        )

    def _played_in(self, future: int) -> tuple[list[End], list[Waits], float]:
        """The ends in their order, who waits, and how long the job itself runs.

        Most questions need the first future alone, the others all.
        """
        known = self._played.get(future)
        if known is None:
            of = OTHERS if future else FIRST
            self._played.update(enumerate(self._futures(of), of.start))
            known = self._played[future]
        return known

    def _futures(self, of: slice) -> list[tuple[list[End], list[Waits], float]]:
        left_s, ahead, now_s = self._times.left_s, self._ahead, self._ahead.now_s
        ends = [
            (
                left_s(job, end_s - start_s, max(0.0, now_s - start_s), took_s, of),
                self._number[name],
                mask,
                mask.bit_count(),
            )
            for end_s, name, mask, start_s, job, took_s in self._releases
        ]
        waits = [
            (left_s(number, limit_s, 0.0, own, of), parts)
            for number, limit_s, own, parts in self._waits
        ]
        lasts_s = left_s(0, ahead.lasts_s, 0.0, ahead.took_s, of)
        return [
            (
                sorted([(times[at], node, mask, count) for times, node, mask, count in ends]),
                [(part.gpus, times[at], part) for times, parts in waits for part in parts],
                own_s,
            )
            for at, own_s in enumerate(lasts_s)
        ]

    def runs_s(self) -> float:
        """How long the job itself runs on the best GPUs, in the mean of all futures (seconds)."""
        ahead = self._ahead
        return fmean(self._times.left_s(0, ahead.lasts_s, 0.0, ahead.took_s))

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

    def sets(self, node: NodeState, count: int) -> list[Own]:
        """The sets that mapa would give the job there, the best first."""
        return self._choices.sets(self._request, count, node)

    def play(self, node: NodeState, count: int, own: Own, future: int = 0) -> Future:
        """What comes in one of the futures if the job takes this set of a node."""
        number = self._number[node.name]
        ends, waits, lasts_s = self._played_in(future)
        free, ends = self._free[:], ends[:]
        free[number] &= ~own.mask
        insort(ends, (lasts_s, number, own.mask, count))
        run = PlayedFuture(free, ends, self._kind_of, self._find, self._weights)
        run.play(waits, number, self._backfill)
        next_mask = 0 if run.next_mask & own.mask else run.next_mask
        at_once = frozenset(run.at_once)
        return Future(own.gain * self._weight + run.worth, next_mask, at_once)

    def later(
        self,
        communication: float,
        share: float,
        among: Collection[str],
        longest_s: float,
        future: int,
    ) -> Later | None:
        """The best that the job may wait for in one of the futures; None where nothing comes.

        `communication` is its share of the run time, `share` of the ideal bandwidth what it would
        get now; `among` are the nodes it may use.
        """
        [count] = self._request.gpus_per_node
        job = WaitingJob((count,), 0.0, self._request.pattern, self._request.sensitive)
        own = self._choices.part(job, count, self._shapes, communication)
        ends, waits, lasts_s = self._played_in(future)
        run = PlayedFuture(self._free[:], ends[:], self._kind_of, self._find, self._weights)
        numbers = {self._number[name] for name in among}
        order = self._backfill, self._before
        return run.wait(waits, own, lasts_s, share, numbers, longest_s, *order)

    def window_s(self, name: str) -> float:
        """How long the job may wait for its turn on a node: others have it after that (seconds).

        Once one of those before it could start there by the limits, the job, which backfill lets
        pass, has to be over. Ends that are not seen are later than those that are.
        """
        if not self._before:
            return inf
        ahead = self._ahead
        least = min(part.gpus for _, _, part in self._played_in(0)[1][: self._before])
        free, until_s = self.nodes[self._number[name]].free.bit_count(), ahead.now_s
        for end_s, node, mask, *_ in ahead.releases:
            if free >= least:
                break
            free += mask.bit_count() if node == name else 0
            until_s = end_s
        return max(0.0, until_s - ahead.now_s - ahead.lasts_s - RESOLUTION_S)

    def _find(self, part: WantedPart, node: int, free: int) -> Best:
        """What is not known yet of a part on a node."""
        best = self._choices.find(part, self.nodes[node].topology, free)
        part.known[self._kind_of[node]][free] = best
        return best

    def _waiting(self) -> list[tuple[int, float, Sequence[float], list[WantedPart]]]:
        """Who waits, and its parts; jobs too large for these nodes are others' business.

        No more parts than can start, or pass the first that waits.
        """
        left, waits = STARTS + DEEP + 1, []
        for number, job in enumerate(self._ahead.queue, 1):
            if max(job.gpus_per_node) <= self._largest:
                parts = self._choices.parts(job, self._kinds, self._shapes, self._told, self._usual)
                waits.append((number, job.lasts_s, job.took_s, parts[:left]))
                left -= len(parts)
                if left <= 0:
                    break
        return waits
