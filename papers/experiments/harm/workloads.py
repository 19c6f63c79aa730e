"""Workloads as sites have them: nodes, and jobs that are drawn by a seed.

What is assumed, and not measured anywhere: users differ in how long their jobs run and repeat
themselves; run times are log-normal; most jobs are small; a job of several GPUs communicates for a
share of its run time that is drawn. What a job takes follows Amdahl's law (`run_s`) with that share
and with the share of the ideal bandwidth of its own kind of node that it got. `horizon` reckons by
the same law, so nothing here tests the law; what a job communicates `horizon` knows only where
jobs say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from gres_topology import NodeTopology
from gres_topology.catalog import declared, load
from papers.experiments import philly
from papers.experiments.horizon_waits import COMMUNICATION, Told
from policies import Policy
from simulation.core.jobs import SimJob, at_load
from simulation.core.slurm_site import NodeRoom
from simulation.models.speed import Speed
from simulation.stock import policy_named

#: GPUs on each node of a job -> weight.
Sizes = Mapping[tuple[int, ...], float]
SIZES: Sizes = {(1,): 0.55, (2,): 0.18, (4,): 0.15, (8,): 0.12}
#: Where most nodes have two GPUs, whose users ask for eight are few.
SMALL: Sizes = {(1,): 0.6, (2,): 0.25, (4,): 0.1, (8,): 0.05}
OF_SEVERAL: Sizes = {(1,): 0.4, (2,): 0.15, (4,): 0.15, (8,): 0.18, (4, 4): 0.04, (8, 8): 0.06,
                     (8, 8, 8, 8): 0.02}  # fmt: skip
#: The one that does not communicate at all.
QUIET = (0.0,)

#: Users, each next one with fewer jobs (Zipf); the median run time, and the standard deviations of
#: its logarithm from user to user and from job to job of a user.
USERS, MEDIAN_S, AMONG_USERS, OF_A_USER = 24, 1200.0, 0.5, 0.7
#: Shortest and longest run times, seconds; and the limit of a partition.
SHORTEST_S, LONGEST_S, A_DAY_S = 60.0, 43_200.0, 86_400.0
#: Pareto's shape of the heavy tail (its variance is infinite), and its longest run times.
TAIL, TAIL_S = 1.2, 3 * A_DAY_S
#: Part of the arrivals that are bursts: one user's wide jobs, all at one moment.
BURSTS, IN_BURST, WIDE = 0.02, (4, 12), 4

#: Run time (seconds) and a source of chance -> a limit.
Limit = Callable[[float, Random], float]


def usual(lasts_s: float, draw: Random) -> float:
    """The f-model of Mu'alem and Feitelson (IEEE TPDS 12(6), 2001) with f = 3."""
    return lasts_s * draw.uniform(1.0, 4.0)


def a_day(lasts_s: float, draw: Random) -> float:
    """Nobody says anything: the partition's limit."""
    return max(A_DAY_S, lasts_s)


def ten_times_off(lasts_s: float, draw: Random) -> float:
    """From a tenth to ten times; who outlives a limit is not killed (OverTimeLimit=UNLIMITED)."""
    return float(lasts_s * 10 ** draw.uniform(-1.0, 1.0))


@dataclass(frozen=True, slots=True)
class Drawn:
    """The jobs of one seed: as policies see them, and how long they take in truth."""

    nodes: Mapping[str, NodeTopology]
    jobs: Sequence[SimJob]
    speed: Speed
    #: CPUs and memory of the nodes, where a log has them.
    rooms: Mapping[str, NodeRoom] = field(default_factory=dict)
    policy: Callable[[str], Policy] = policy_named


@dataclass(frozen=True, slots=True)
class Workload:
    """Nodes, and what comes; a seed gives the same jobs whatever the policy.

    `machines`: how many nodes of each machine. `communicates`: shares of the run time, each as
    likely, and `says` whether jobs hint theirs. `load`: the share of all GPU time that the jobs
    take at their best.
    """

    machines: Mapping[str, int]
    sizes: Sizes = field(default_factory=lambda: SIZES)
    communicates: Sequence[float] = COMMUNICATION
    says: bool = False
    limit: Limit = usual
    has_tail: bool = False
    has_bursts: bool = False
    load: float = 0.85

    def nodes(self) -> dict[str, NodeTopology]:
        """By name, in the order of their machines."""
        every = (_machine(name) for name, count in self.machines.items() for _ in range(count))
        return {f"n{number:03}": topology for number, topology in enumerate(every, 1)}

    def drawn(self, seed: int, count: int) -> Drawn:
        """So many jobs, arriving so that they bring the load."""
        nodes = self.nodes()
        gpus = sum(topology.gpus for topology in nodes.values())
        jobs = at_load(list(self._jobs(Random(seed), count)), gpus, self.load)
        told = jobs if self.says else [replace(job, hint="") for job in jobs]
        return Drawn(nodes, told, Told(jobs))

    def _jobs(self, draw: Random, count: int) -> Iterator[SimJob]:
        """Each with what it communicates in truth as its hint."""
        medians = [MEDIAN_S * math.exp(draw.gauss(0.0, AMONG_USERS)) for _ in range(USERS)]
        weights = [1 / rank for rank in range(1, USERS + 1)]
        wide = {size: weight for size, weight in self.sizes.items() if size[0] >= WIDE}
        at_s, left, user = 0.0, 0, 0
        for number in range(1, count + 1):
            if not left:
                at_s += draw.expovariate(1.0)
                [user] = draw.choices(range(USERS), weights)
                left = draw.randint(*IN_BURST) if self._is_burst(draw) else 0
            sizes = wide if left else self.sizes
            left = max(0, left - 1)
            [asked] = draw.choices([*sizes], [*sizes.values()])
            lasts_s = self._lasts_s(draw, medians[user])
            share = draw.choice(self.communicates)
            hint = f"communication={share}" if asked != (1,) else ""
            limit_s = max(SHORTEST_S, self.limit(lasts_s, draw))
            yield SimJob(number, asked, lasts_s, at_s, hint, limit_s, f"user{user}")

    def _is_burst(self, draw: Random) -> bool:
        return self.has_bursts and draw.random() < BURSTS

    def _lasts_s(self, draw: Random, median_s: float) -> float:
        if self.has_tail:
            least_s = median_s / 2 ** (1 / TAIL)
            return min(TAIL_S, max(SHORTEST_S, least_s * draw.paretovariate(TAIL)))
        drawn_s = median_s * math.exp(draw.gauss(0.0, OF_A_USER))
        return min(LONGEST_S, max(SHORTEST_S, drawn_s))


def _machine(name: str) -> NodeTopology:
    """Of the catalog, or the pair behind one PCIe switch."""
    if name == "pcie-pair":
        return declared.read(philly.PAIR, name=name, source="papers.experiments.philly")
    return load(name)


#: Jobs of eight GPUs fit on the H100 alone, whose links are the widest.
_H100_L40S = {"dgx-h100": 4, "l40s-pcie": 8}
_DGX1V, _MI250X, _BRIDGED = {"dgx1v": 6}, {"mi250x": 6}, {"a100-pcie-bridged": 6}
#: Jobs of several GPUs run so much longer on most sets of these that simple policies could not keep
#: up with 0.85, and beside an endless queue no harm is seen.
_OF_MI250X, _OF_BRIDGED = 0.7, 0.55

#: Those whose jobs are drawn.
GENERATED: Mapping[str, Workload] = {
    "h100-l40s": Workload(_H100_L40S),
    "h100-l40s-quiet": Workload(_H100_L40S, communicates=QUIET),
    "h100-l40s-told": Workload(_H100_L40S, says=True),
    "h100-l40s-large": Workload({"dgx-h100": 12, "l40s-pcie": 24}),
    "h100-l40s-8": Workload({"dgx-h100": 4, "l40s-8": 8}),
    "h100-l40s-singles": Workload(_H100_L40S, {(1,): 1.0}),
    "dgx1v-pairs": Workload({"dgx1v": 5, "pcie-pair": 16}, SMALL),
    "hgx": Workload({"dgx-a100": 6}),
    "several-nodes": Workload({"dgx-h100": 8}, OF_SEVERAL),
    "mi250x": Workload(_MI250X, load=_OF_MI250X),
    "mi250x-quiet": Workload(_MI250X, communicates=QUIET),
    "dgx1v": Workload(_DGX1V),
    "dgx1v-quiet": Workload(_DGX1V, communicates=QUIET),
    "dgx1v-told": Workload(_DGX1V, says=True),
    "dgx1v-day": Workload(_DGX1V, limit=a_day),
    "dgx1v-limits-off": Workload(_DGX1V, limit=ten_times_off),
    "dgx1v-tail": Workload(_DGX1V, has_tail=True),
    "dgx1v-bursts": Workload(_DGX1V, has_bursts=True),
    "bridged": Workload(_BRIDGED, load=_OF_BRIDGED),
    "bridged-quiet": Workload(_BRIDGED, communicates=QUIET),
    "bridged-bursts": Workload(_BRIDGED, has_bursts=True, load=_OF_BRIDGED),
    "many-kinds": Workload({"dgx1v": 3, "mi250x": 2, "dgx-a100": 2, "l40s-8": 3}, load=0.8),
}
