"""Stock Slurm as a policy of the simulator alone: what sites have without us.

Live, `mode: off` is stock Slurm itself, so the registry of policies does not have these. Slurm
knows which cores its jobs have and a snapshot for policies does not, so an instance remembers the
cores of what it placed: one instance for one simulated run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from policies import Cluster, NodeState, Placement, Policy, Request, RunningJob, Wait
from policies.contract.bits import gpus_of
from policies.errors import RegistryError
from policies.first_fit import FirstFit
from policies.registry import registry
from policies.scoring.measure import measured
from simulation.stock.choice import choose
from simulation.stock.nouns import Ask, NodeOrder, StockNode, Taken, machine_of

#: Cores of a simulated node per GPU. A job takes one core on each of its nodes, or these with each
#: of its GPUs, so none waits for cores; but free cores decide between nodes and sockets.
CORES_PER_GPU = 2


@dataclass(frozen=True, slots=True)
class StockKind:
    """How jobs ask, and how a site has set up Slurm."""

    #: Whether jobs ask by `--gpus=N`; else by `--gres=gpu:N`.
    is_total: bool = False
    #: `--cpus-per-gpu`, or the site's DefCpuPerGPU; 0: none.
    cpus_per_gpu: int = 0
    #: Whether gres.conf has Links, as AutoDetect=nvml gives them.
    has_links: bool = True
    order: NodeOrder = NodeOrder.BEST_FIT


#: Every kind of stock Slurm that can be compared with, by name.
STOCK = {
    "stock": StockKind(),
    "stock-cpus-per-gpu": StockKind(cpus_per_gpu=CORES_PER_GPU),
    "stock-gpus": StockKind(is_total=True),
    "stock-no-links": StockKind(has_links=False),
    "stock-gpus-no-links": StockKind(is_total=True, has_links=False),
    "stock-lln": StockKind(order=NodeOrder.LEAST_LOADED),
    "stock-serial-at-end": StockKind(order=NodeOrder.SERIAL_AT_END),
}


class Stock(Policy):
    """Slurm's own choice, for jobs and a site of one kind."""

    name = "stock"

    def __init__(self, kind: str = name) -> None:
        self.name, self._kind = kind, STOCK[kind]
        self._held: dict[int, Mapping[str, Taken]] = {}
        self._seen: Collection[RunningJob] = ()
        self._nodes: dict[str, StockNode] = {}
        self._rank: dict[str, tuple[object, ...]] = {}

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        """What Slurm would give the job, on as many nodes as the request has counts."""
        self._forget_ended(cluster.jobs)
        states = sorted(cluster.nodes.values(), key=self._slurms_order)
        nodes = [self._node(state) for state in states]
        taken = choose(self._ask(request.gpus_per_node), nodes, self._kind.order)
        if taken is None:
            other = FirstFit().place(request, cluster)
            assert isinstance(other, Placement)
            return Wait("Slurm finds no nodes for this form of request", instead=other)
        if request.job_id is not None:
            self._held[request.job_id] = taken
            self._add(taken, -1)
        gpus = {name: gpus_of(part.gpus) for name, part in taken.items()}
        return measured(gpus, request, cluster, self.name, "stock Slurm's own choice")

    def _ask(self, counts: tuple[int, ...]) -> Ask:
        """`--gres` cannot ask for unequal counts: these are asked for by `--gpus`."""
        cpus_per_gpu = self._kind.cpus_per_gpu
        if self._kind.is_total or len(set(counts)) > 1:
            return Ask(sum(counts), len(counts), is_total=True, cpus_per_gpu=cpus_per_gpu)
        return Ask(counts[0], len(counts), cpus_per_gpu=cpus_per_gpu)

    def _slurms_order(self, state: NodeState) -> tuple[object, ...]:
        """By name, numbers in it counted."""
        rank = self._rank.get(state.name)
        if rank is None:
            parts = re.split(r"(\d+)", state.name)
            rank = tuple(int(part) if part.isdigit() else part for part in parts)
            self._rank[state.name] = rank
        return rank

    def _node(self, state: NodeState) -> StockNode:
        node = self._nodes.get(state.name)
        if node is None or node.free != state.free:
            machine = machine_of(state.topology, CORES_PER_GPU, has_links=self._kind.has_links)
            cores = node.cores if node else (machine.cores_per_socket,) * len(machine.sockets)
            node = StockNode(state.name, machine, state.free, cores, state.weight)
            self._nodes[state.name] = node
        return node

    def _forget_ended(self, jobs: Collection[RunningJob]) -> None:
        if jobs is self._seen:
            return
        self._seen = jobs
        for job_id in self._held.keys() - {job.job_id for job in jobs}:
            self._add(self._held.pop(job_id), 1)

    def _add(self, taken: Mapping[str, Taken], sign: int) -> None:
        """Cores become free (1), or are taken (-1)."""
        for name, part in taken.items():
            node = self._nodes[name]
            pairs = zip(node.cores, part.cores, strict=True)
            cores = tuple(has + sign * changed for has, changed in pairs)
            self._nodes[name] = StockNode(name, node.machine, node.free, cores, node.weight)


def policy_named(name: str) -> Policy:
    """For one simulated run: a kind of stock Slurm, or a policy of the registry.

    RegistryError lists the policies there are.
    """
    if name in STOCK:
        return Stock(name)
    try:
        return registry.get(name)
    except RegistryError as error:
        raise RegistryError(f"{error}, {', '.join(STOCK)}") from None
