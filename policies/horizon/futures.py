"""What comes if a job takes certain GPUs: the next starts, played through.

Jobs start in Slurm's order where they have room first, and by EASY backfill (Lifka 1995) where that
is on; each takes the node and the set that mapa would. What all get is summed up.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from gres_topology import NodeTopology
from policies.contract.bits import gpus_of
from policies.contract.hint_keys import communication_in
from policies.contract.nodes import candidates
from policies.contract.nouns import Cluster, NodeState, Placement, Request, WaitingJob
from policies.contract.ranking import Key, each
from policies.horizon.run_times import RunTimes
from policies.mapa.question import NodeKeys
from policies.matching.choice import Choice
from policies.matching.links import MB_PER_GB, host_mbps, link_mbps, widths
from policies.scoring.objectives import Objective
from policies.scoring.tables import Tables

#: Larger nodes have too many sets to know the best of each beforehand.
MOST_GPUS = 8
#: Starts that are looked at.
STARTS = 6
#: Nodes that are looked at: those that are compared, then where GPUs come free, then others with
#: free GPUs. Where there are more, the next starts go elsewhere.
MOST_NODES = 6
#: Parts of jobs that end there.
MOST_ENDS = 24
#: Jobs behind the first one that waits that backfill may start.
DEEP = 8
#: What a ring through the host costs beside its bandwidth, as a share of the ideal.
HOP_WEIGHT = 0.1
#: What share of its run time a job communicates that says nothing; and the most times that one
#: which says more counts as much: what a worse set costs grows with it.
USUAL_COMMUNICATION, MOST_TIMES = 0.2, 3.0
#: Choices remembered, some 300 bytes each; of so many all are forgotten.
MOST_CHOICES = 50_000


_host_mbps = lru_cache(maxsize=256)(host_mbps)


@lru_cache(maxsize=256)
def _links_differ(topology: NodeTopology) -> bool:
    return len(widths(link_mbps(topology))) > 1


def is_told_apart(topology: NodeTopology) -> bool:
    """Whether it matters which GPUs of such a node a job gets, and can be told in time."""
    return 1 < topology.gpus <= MOST_GPUS and _links_differ(topology)


class Best(NamedTuple):
    """What mapa takes on a node in one state."""

    mask: int
    #: What the job gains there, a share of its ideal (`gain`).
    gain: float
    #: Of the ideal bandwidth.
    share: float
    #: By what nodes are compared, smaller first.
    key: Key


class Choices:
    """mapa's choice for each state of a node, each found once."""

    def __init__(self, tables: Tables, objective: Callable[[Request], Objective]) -> None:
        self._tables, self._objective = tables, objective
        self._known: dict[tuple[str, str, bool, int], dict[int, Best]] = {}
        self._left = MOST_CHOICES

    def known(self, job: WaitingJob, count: int, topology: NodeTopology) -> dict[int, Best]:
        """Those for `count` GPUs of such a node, by what is free (mask)."""
        if self._left <= 0:
            self._known.clear()
            self._left = MOST_CHOICES
        return self._known.setdefault((topology.shape, job.pattern, job.sensitive, count), {})

    def find(self, job: WaitingJob, count: int, topology: NodeTopology, free: int) -> Best:
        """One that is not known: of `free` (mask), which has at least `count` GPUs."""
        self._left -= 1
        request = Request((count,), pattern=job.pattern, sensitive=job.sensitive)
        ranked = NodeKeys(request, self._objective(request), self._tables)
        state = NodeState("", topology, free)
        choice = ranked.first(state, count)
        key = ranked.keys([state], count)[0]
        own = gain(topology, choice, sensitive=job.sensitive)
        return Best(choice.mask, own, choice.share, key)


def gain(topology: NodeTopology, choice: Choice, *, sensitive: bool) -> float:
    """What a job gains by a set, as a share of its ideal."""
    if not sensitive or choice.mask.bit_count() < 2:
        return 0.0
    hops = round(choice.weakest_gbps * MB_PER_GB) <= _host_mbps(topology)
    return choice.share - HOP_WEIGHT * hops


def weight(communication: float | None) -> float:
    """How much a job's gain counts: in proportion to what it communicates."""
    if communication is None:
        return 1.0
    return min(MOST_TIMES, communication / USUAL_COMMUNICATION)


def run_s(ideal_s: float, communication: float, share: float) -> float:
    """How long a job runs (seconds) on GPUs with this share of the ideal bandwidth.

    Amdahl's law: what it computes takes as long anywhere.
    """
    return ideal_s * (1 - communication + communication / max(share, 0.01))


class Later(NamedTuple):
    """The better GPUs that a job may wait for, in one future."""

    in_s: float
    #: How much sooner the job ends with them than with what is free now (seconds).
    saved_s: float
    node: str
    mask: int
    share: float


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


class _End(NamedTuple):
    """GPUs that come free."""

    at_s: float
    node: str
    mask: int


class _Part(NamedTuple):
    """What a waiting job wants of one node."""

    job: WaitingJob
    gpus: int
    #: How long it runs, by future (seconds).
    lasts_s: Sequence[float]
    #: What is known of its choices, by kind of node.
    known: list[dict[int, Best]]
    weight: float


class World:
    """The nodes that the next starts are about, at the moment of the question."""

    def __init__(
        self, choices: Choices, cluster: Cluster, request: Request, compared: Iterable[NodeState]
    ) -> None:
        assert cluster.ahead is not None
        self._choices, self._ahead = choices, cluster.ahead
        self.backfill = cluster.ahead.backfill
        self._job = WaitingJob(
            request.gpus_per_node,
            cluster.ahead.lasts_s,
            request.pattern,
            request.sensitive,
            communication_in(request.options),
        )
        self._table = candidates(cluster.nodes).table
        times = RunTimes(cluster.ahead.used)
        #: How many futures there are.
        self.futures = times.futures
        self._lasts_s = times.left_s(0, cluster.ahead.lasts_s)
        #: By future.
        self._ends: list[list[_End]] = [[] for _ in range(self.futures)]
        self._nodes = {node.name: node for node in compared}
        for release in cluster.ahead.releases:
            if len(self._ends[0]) < MOST_ENDS and self._add(release.node):
                limit_s = release.in_s + release.ran_s
                left_s = times.left_s(release.job, limit_s, release.ran_s)
                for ends, in_s in zip(self._ends, left_s, strict=True):
                    ends.append(_End(in_s, release.node, release.mask))
        for ends in self._ends:
            heapq.heapify(ends)
        table = self._table
        for place in islice(each((1 << len(table.names)) - 1 & ~table.full), 2 * MOST_NODES):
            self._add(table.names[place])
        self._nodes = dict(sorted(self._nodes.items()))
        self._kinds = _kinds(self._nodes)
        kinds = {self._kinds[name]: node.topology for name, node in self._nodes.items()}
        self._topologies = [kinds[kind] for kind in sorted(kinds)]
        #: No more than these can start, or pass the first that waits.
        self._parts = list(islice(self._waiting(times), STARTS + DEEP + 1))

    @property
    def nodes(self) -> Collection[NodeState]:
        """Those that are looked at."""
        return self._nodes.values()

    def lasts_s(self, future: int) -> float:
        """How long the job itself runs on the best GPUs in one of the futures (seconds)."""
        return self._lasts_s[future]

    def _add(self, name: str) -> bool:
        """Whether the node is looked at."""
        if name not in self._nodes:
            place = self._table.place.get(name)
            if place is None or len(self._nodes) >= MOST_NODES:
                return False
            node = self._table.node(place)
            if not is_told_apart(node.topology):
                return False
            self._nodes[name] = node
        return True

    def play(self, node: NodeState, count: int, choice: Choice, future: int = 0) -> Future:
        """What comes in one of the futures if the job takes this set of a node."""
        free = {name: one.free for name, one in self._nodes.items()}
        free[node.name] &= ~choice.mask
        run = _Run(self, free, [*self._ends[future]], future)
        heapq.heappush(run.ends, _End(self._lasts_s[future], node.name, choice.mask))
        own = gain(node.topology, choice, sensitive=self._job.sensitive)
        own *= weight(self._job.communication)
        run.play(self._parts, node.name)
        return Future(own + run.worth, run.next_mask)

    def later(
        self, share: float, among: Collection[str], longest_s: float, future: int
    ) -> Later | None:
        """The best that the job may wait for in one of the futures; None where nothing comes.

        `share` of the ideal bandwidth is what it would get now; `among` are the nodes it may use.
        """
        [own] = self._parts_of(self._job, self._lasts_s)
        free = {name: one.free for name, one in self._nodes.items()}
        run = _Run(self, free, [*self._ends[future]], future)
        return run.wait(self._parts, own, share, among, longest_s)

    def best(self, part: _Part, free: dict[str, int], without: str) -> tuple[str, Best] | None:
        """Where a job's part would go now, None where no node has room."""
        found: tuple[str, Best] | None = None
        least: tuple[int, Key] | None = None
        for name, mask in free.items():  # by name: of equal ones the first
            if mask.bit_count() < part.gpus or name == without:
                continue
            kind, node = self._kinds[name], self._nodes[name]
            best = part.known[kind].get(mask)
            if best is None:
                best = self._choices.find(part.job, part.gpus, node.topology, mask)
                part.known[kind][mask] = best
            ranked = (node.weight, best.key)
            if least is None or ranked < least:
                found, least = (name, best), ranked
        return found

    def _waiting(self, times: RunTimes) -> Iterator[_Part]:
        """What waits, node by node; jobs too large for these nodes are others' business."""
        for number, job in enumerate(self._ahead.queue, 1):
            if max(job.gpus_per_node) <= MOST_GPUS:
                lasts_s = times.left_s(number, job.lasts_s)
                yield from self._parts_of(job, lasts_s)

    def _parts_of(self, job: WaitingJob, lasts_s: Sequence[float]) -> Iterator[_Part]:
        for count in job.gpus_per_node:
            known = [self._choices.known(job, count, one) for one in self._topologies]
            yield _Part(job, count, lasts_s, known, weight(job.communication))


def _kinds(nodes: Mapping[str, NodeState]) -> dict[str, int]:
    """Each node's kind, from 0."""
    numbers: dict[str, int] = {}
    return {
        name: numbers.setdefault(node.topology.shape, len(numbers)) for name, node in nodes.items()
    }


class _Run:
    """One future while it is played."""

    def __init__(self, world: World, free: dict[str, int], ends: list[_End], future: int) -> None:
        self._world, self.free, self.ends, self._future = world, free, ends, future
        self.now_s = self.worth = 0.0
        self.starts = self.next_mask = 0
        self._count_most()

    def _count_most(self) -> None:
        #: The most GPUs that are free on one node: larger parts need not be tried.
        self.most = max(map(int.bit_count, self.free.values()), default=0)

    def play(self, parts: Sequence[_Part], own: str) -> None:
        """Start what waits, in order, until enough is seen or nothing more comes free."""
        left = list(parts)
        while left and self.starts < STARTS:
            if self._try(left[0], own):
                del left[0]
                continue
            if not self.ends:
                return
            if self._world.backfill:
                self._pass(left, own)
            end = heapq.heappop(self.ends)
            self.now_s = end.at_s
            self.free[end.node] |= end.mask
            self.most = max(self.most, self.free[end.node].bit_count())

    def wait(
        self, parts: Sequence[_Part], own: _Part, share: float, among: Collection[str],
        longest_s: float,
    ) -> Later | None:  # fmt: skip
        """Let the others start while one job waits: when does it end the soonest?

        It goes first whenever GPUs come free, as it would in Slurm; others take what it leaves now.
        """
        ideal_s, communication = own.lasts_s[self._future], own.job.communication or 0.0
        found: Later | None = None
        left, now_s = list(parts), run_s(ideal_s, communication, share)
        while True:
            while left and self._try(left[0], ""):
                del left[0]
            if left and self._world.backfill:
                self._pass(left, "")
            if not self.ends or self.ends[0].at_s > longest_s or self.starts >= STARTS:
                return found
            end = heapq.heappop(self.ends)
            self.now_s = end.at_s
            self.free[end.node] |= end.mask
            self._count_most()
            some = self._world.best(own, {name: self.free[name] for name in among}, "")
            if some is None or some[1].share <= share:
                continue
            name, best = some
            saved_s = now_s - self.now_s - run_s(ideal_s, communication, best.share)
            if found is None or saved_s > found.saved_s:
                found = Later(self.now_s, saved_s, name, best.mask, best.share)

    def _try(self, part: _Part, own: str, without: str = "") -> bool:
        """Start it now if a node has room."""
        if part.gpus > self.most:
            return False
        found = self._world.best(part, self.free, without)
        if found is None:
            return False
        name, best = found
        self.free[name] &= ~best.mask
        self._count_most()
        heapq.heappush(self.ends, _End(self.now_s + part.lasts_s[self._future], name, best.mask))
        self.worth += best.gain * part.weight
        self.starts += 1
        if name == own and not self.next_mask:
            self.next_mask = best.mask
        return True

    def _pass(self, left: list[_Part], own: str) -> None:
        """Backfill: who ends before the first one starts, or takes another node than it will."""
        if all(part.gpus > self.most for part in left[1 : 1 + DEEP]):
            return
        starts_s, promised = self._promise(left[0].gpus)
        at = 1
        while at < min(len(left), 1 + DEEP):
            ends_s = self.now_s + left[at].lasts_s[self._future]
            if self._try(left[at], own, "" if ends_s <= starts_s else promised):
                del left[at]
            else:
                at += 1

    def _promise(self, count: int) -> tuple[float, str]:
        """When and where so many GPUs are free at the earliest."""
        free = {name: mask.bit_count() for name, mask in self.free.items()}
        for end in sorted(self.ends):
            free[end.node] += end.mask.bit_count()
            if free[end.node] >= count:
                return end.at_s, end.node
        return float("inf"), ""
