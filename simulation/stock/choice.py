"""Which nodes, and what of them, a job gets from Slurm's own select/cons_tres.

A model of `common_topo_choose_nodes` with `_eval_nodes_consec`, `_eval_nodes_lln` and
`_eval_nodes_serial`, of Slurm 24.11, without topology.conf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from simulation.stock.gpus import Picker, cores_taken
from simulation.stock.nouns import Ask, NodeOrder, StockNode, Taken
from simulation.stock.offers import NodeOffer, add, cpus_offered, offer_of


def choose(
    ask: Ask, nodes: Sequence[StockNode], order: NodeOrder = NodeOrder.BEST_FIT
) -> dict[str, Taken] | None:
    """What the job gets, by node name; None where it has to wait.

    `nodes` stand in Slurm's order, which is that of their names, numbers in them counted.
    """
    offers = [offer_of(node, ask) for node in nodes]
    chosen = _nodes(ask, offers, order)
    return None if chosen is None else _taken(ask, chosen)


Offers = list[NodeOffer | None]


@dataclass(slots=True)
class _Attempt:
    """One try to find the nodes of a job."""

    ask: Ask
    is_first: bool
    got: int = 0
    #: Nodes and CPUs still to be found.
    nodes: int = field(init=False)
    cpus: int = field(init=False)
    #: CPUs that may still be given out, and tasks.
    most_cpus: int = field(init=False)
    tasks: int = field(init=False)
    chosen: dict[int, NodeOffer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ask, self.nodes = self.ask, self.ask.least_nodes
        self.cpus = ask.least_cpus
        self.most_cpus = max(self.cpus, ask.node_gpu_cpus * self.nodes)
        self.tasks = self.most_cpus // ask.cpus_per_task

    def has_gpus(self) -> bool:
        return self.got >= self.ask.per_job

    def is_done(self) -> bool:
        return self.nodes <= 0 and self.cpus <= 0 and self.has_gpus()

    def may_take(self) -> bool:
        return not self.ask.nodes or len(self.chosen) < self.ask.nodes

    def is_last(self) -> bool:
        return self.ask.nodes == len(self.chosen) + 1

    def cpus_of(self, offer: NodeOffer) -> int:
        return cpus_offered(offer, is_first_pass=self.is_first, got=self.got, nodes_left=self.nodes)

    def limited(self, offer: NodeOffer, cpus: int) -> int:
        """No more CPUs than are left to give out, with one for each node still to come."""
        ask, most = self.ask, self.most_cpus - max(self.nodes - 1, 0)
        if cpus > most:
            cpus = max(most, ask.cpus_per_task, offer.least_cpus or ask.node_gpu_cpus)
            offer.cpus = cpus
        offer.resources = offer.cpus + offer.node.free.bit_count()
        return cpus

    def take(self, at: int, offer: NodeOffer, cpus: int) -> None:
        """Adds a node with so many CPUs to the job, unless they turn out to be too few."""
        ask, cpus = self.ask, self.limited(offer, cpus)
        if ask.is_total:
            here = max(self.tasks - max(self.nodes - 1, 0), 1)
            added = add(offer, cpus, self.got, here)
            if added is None:
                offer.cpus = 0
                return
            cpus, gpus = added
            offer.cpus = cpus
            self.tasks -= min(here, cpus // ask.cpus_per_task, offer.tasks)
            self.got += gpus
        self.cpus -= cpus
        self.most_cpus -= cpus
        self.nodes -= 1
        self.chosen[at] = offer


def _nodes(ask: Ask, offers: Offers, order: NodeOrder) -> list[NodeOffer] | None:
    """The offers taken by the first pass, else by a second that is content with any socket.

    Where neither finds any, nodes with few resources are left out one after the other.
    """
    evaluate, least = _evaluation(order, ask), ask.least_nodes
    offers = list(offers)

    def tried(*, is_first: bool) -> list[NodeOffer] | None:
        if not is_first or evaluate is not _consecutive:  # whose first look was taken already
            for offer in filter(None, offers):
                offer.usable = list(offer.node.cores)
        return evaluate(_Attempt(ask, is_first), offers)

    count = sum(offer is not None for offer in offers)
    if count < least:
        return None
    result = tried(is_first=True) or (tried(is_first=False) if count <= least else None)
    if result or count <= least:
        return result
    most = max(offer.resources for offer in offers if offer is not None)
    few = 1
    while few < most:
        is_less = False
        for at, offer in enumerate(offers):
            if offer is not None and offer.resources <= few and count > least:
                offers[at], count = None, count - 1
                # From the second node of a sweep on Slurm leaves out those with still less.
                few, is_less = few - (not is_less), True
        if is_less or few == 1:
            result = tried(is_first=False)
            if result or count <= least:
                return result
        few += 1
    return None


def _evaluation(order: NodeOrder, ask: Ask) -> Callable[[_Attempt, Offers], list[NodeOffer] | None]:
    if order is NodeOrder.LEAST_LOADED:
        return _least_loaded
    if order is NodeOrder.SERIAL_AT_END and ask.least_cpus == 1 == ask.least_nodes:
        return _from_the_end
    return _consecutive


@dataclass(slots=True)
class _Set:
    """Nodes one behind the other that are alike in weight."""

    weight: int
    at: list[int] = field(default_factory=list)
    cpus: int = 0
    gpus: int = 0


def _consecutive(attempt: _Attempt, offers: Offers) -> list[NodeOffer] | None:
    """The default: the tightest set of consecutive nodes, and in it the first that suffice."""
    if attempt.is_first:
        cpus = [0 if offer is None else offer.at_first for offer in offers]
    else:
        cpus = [0 if offer is None else attempt.cpus_of(offer) for offer in offers]
    sets = _sets(offers, cpus)
    while sets and attempt.may_take():
        best = _best_set(attempt, sets)
        _take_from(attempt, best, offers, cpus)
        if attempt.is_done():
            break
        sets.remove(best)
    if attempt.cpus > 0 or attempt.nodes > 0 or not attempt.has_gpus():
        return None
    return _in_order(attempt)


def _in_order(attempt: _Attempt) -> list[NodeOffer]:
    return [attempt.chosen[at] for at in sorted(attempt.chosen)]


def _sets(offers: Offers, cpus: Sequence[int]) -> list[_Set]:
    sets: list[_Set] = []
    is_gap = True
    for at, offer in enumerate(offers):
        if offer is None or not cpus[at]:
            is_gap = True
            continue
        if is_gap or sets[-1].weight != offer.weight:
            sets.append(_Set(offer.weight))
        is_gap = False
        sets[-1].at.append(at)
        sets[-1].cpus += cpus[at]
        sets[-1].gpus += offer.gpus
    return sets


def _best_set(attempt: _Attempt, sets: Iterable[_Set]) -> _Set:
    best, is_best_enough = None, False
    for one in sets:
        is_enough = one.cpus >= attempt.cpus and len(one.at) >= attempt.nodes
        if attempt.ask.is_total:
            is_enough = is_enough and attempt.got + one.gpus >= attempt.ask.gpus
        if (
            best is None
            or one.weight < best.weight
            or (
                one.weight == best.weight
                and (
                    (is_enough and (not is_best_enough or one.cpus < best.cpus))
                    or (not is_enough and one.cpus > best.cpus)
                )
            )
        ):
            best, is_best_enough = one, is_enough
    assert best is not None
    return best


def _take_from(attempt: _Attempt, chosen: _Set, offers: Offers, cpus: list[int]) -> None:
    """Takes nodes of a set: one that suffices by itself, else from the first on."""
    if attempt.nodes <= 1:
        enough = [at for at in chosen.at if _suffices(attempt, offers[at], cpus[at])]
        if enough:
            only = min(enough, key=lambda at: (cpus[at], at))
            for at in chosen.at:
                if at != only:
                    cpus[at] = 0
    for at in chosen.at:
        if not attempt.may_take() or attempt.is_done():
            break
        offer, is_last = offers[at], attempt.is_last()
        if offer is None or not cpus[at] or (is_last and cpus[at] < attempt.cpus):
            continue
        attempt.take(at, offer, cpus[at])


def _suffices(attempt: _Attempt, offer: NodeOffer | None, cpus: int) -> bool:
    if offer is None or cpus < attempt.cpus:
        return False
    return not attempt.ask.is_total or attempt.got + offer.gpus >= attempt.ask.gpus


def _least_loaded(attempt: _Attempt, offers: Offers) -> list[NodeOffer] | None:
    """CR_LLN: by weight, then the node with the largest share of its cores free."""
    for weight in _weights(offers):
        last = -1
        while attempt.may_take():
            best: tuple[int, NodeOffer, int] | None = None
            for at, offer in enumerate(offers):
                if offer is None or offer.weight != weight or at in attempt.chosen:
                    continue
                cpus = attempt.cpus_of(offer) if offer.cpus else 0
                if not cpus:
                    continue
                cpus = attempt.limited(offer, cpus)
                if best is None or _is_less_loaded(offer.node, best[1].node):
                    best = at, offer, cpus
                    if sum(offer.node.cores) == last:
                        break
            if best is None:
                break
            attempt.take(*best)
            last = sum(best[1].node.cores)
            if attempt.is_done():
                return _in_order(attempt)
    return None


def _weights(offers: Offers) -> list[int]:
    return sorted({offer.weight for offer in offers if offer is not None})


def _is_less_loaded(node: StockNode, other: StockNode) -> bool:
    return sum(node.cores) * other.machine.cores > sum(other.cores) * node.machine.cores


def _from_the_end(attempt: _Attempt, offers: Offers) -> list[NodeOffer] | None:
    """pack_serial_at_end: by weight, then the last node."""
    for weight in _weights(offers):
        for at in reversed(range(len(offers))):
            offer = offers[at]
            if not attempt.may_take() or offer is None or offer.weight != weight:
                continue
            if offer.cpus and (cpus := attempt.cpus_of(offer)):
                attempt.take(at, offer, cpus)
                if attempt.is_done():
                    return _in_order(attempt)
    return None


def _taken(ask: Ask, chosen: Sequence[NodeOffer]) -> dict[str, Taken]:
    """The cores and GPUs of each chosen node."""
    pickers, got = [], 0
    for place, (offer, cpus) in enumerate(zip(chosen, _dealt(ask, chosen), strict=True)):
        cores = cores_taken(_given(offer), cpus, ask.cpus_per_task)
        picker = Picker(offer.node, cores)
        if ask.is_total:
            most = min(offer.gpus, sum(cores) // ask.cpus_per_gpu if ask.cpus_per_gpu else 64)
            got += picker.of_job(most, ask.gpus, got, len(chosen) - place)
        else:
            picker.of_node(ask.gpus)
        pickers.append(picker)
    for picker in pickers:
        if ask.is_total and got < ask.gpus:
            got += picker.rest_of_job(ask.gpus - got)
    return {
        offer.node.name: Taken(picker.taken, tuple(picker.cores))
        for offer, picker in zip(chosen, pickers, strict=True)
    }


def _given(offer: NodeOffer) -> list[int]:
    """Cores of each socket that the job may be given."""
    return [min(pair) for pair in zip(offer.usable, offer.limit, strict=True)]


def _dealt(ask: Ask, chosen: Sequence[NodeOffer]) -> list[int]:
    """CPUs on each node: a task on each, then more in turn, as many as GPUs need at least."""
    per_task, nodes = ask.cpus_per_task, len(chosen)
    most = [min(offer.cpus, sum(_given(offer))) for offer in chosen]
    tasks = max(nodes * per_task, ask.gpu_cpus(nodes)) // per_task
    cpus, given = [min(per_task, limit) for limit in most], [1] * nodes
    left, is_limited = tasks - nodes, True
    while left > 0:
        before = left
        for at, offer in enumerate(chosen):
            has_room = most[at] - cpus[at] >= per_task
            if left and has_room and (given[at] < offer.tasks or not is_limited):
                cpus[at] += per_task
                given[at] += 1
                left -= 1
        if before == left:
            if not is_limited:
                break
            is_limited = False
    return [
        max(has, min(offer.least_cpus, limit))
        for has, offer, limit in zip(cpus, chosen, most, strict=True)
    ]
