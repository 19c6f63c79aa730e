"""topo-aware: how long a decision takes on 1,000 and 25,000 machines, and how it grows.

Minskys (four GPUs, two sockets), and 12,500 DGX-1V. 90 % of the GPUs are in use by jobs of the
TOPO-AWARE paper's mix (1-3 GPUs; two networks; four batch sizes), all known to the policy. At every
step drawn jobs end until a new one fits, which is placed. Timed: `place` with a snapshot that
differs from the last one.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from random import Random

from bench.measure import Figure, at_most, conditions, quantile
from gres_topology import catalog
from policies import Cluster, NodeState, Placement, Request, RunningJob
from policies.contract.bits import mask_of
from policies.contract.nodes import candidates
from policies.contract.running import RunningJobs
from policies.registry import registry
from policies.topo_aware import TopoAware

SEED = 1
DECISIONS = 1000
#: Decisions before the clock runs: the engine asks every policy before the first question.
WARM_UP = 300
BUSY = 0.9
GROWTH = (100, 300, 1000, 3000, 10_000, 25_000)
#: Machines -> bars in ms: median, worst (None: none).
BARS: dict[int, tuple[float, float | None]] = {1000: (1.0, 5.0), 25_000: (10.0, None)}
#: The same on as many machines of eight GPUs, and the bars there (median, worst).
LARGER, LARGER_MS = 12_500, (1.0, 5.0)
#: Workloads' shares of batch sizes, of AlexNet, and of GPUs (workloads-10000 of the authors).
BATCHES = ((1, 0.73), (4, 0.24), (128, 0.02), (64, 0.01))


Row = dict[str, float]


class Crowd:
    """A cluster that stays 90 % full."""

    def __init__(self, machines: int, policy: TopoAware, machine: str = "minsky") -> None:
        self.draw, self.policy = Random(SEED), policy
        topology = catalog.load(machine)
        full = (1 << topology.gpus) - 1
        names = [f"node{number:05}" for number in range(machines)]
        self.nodes = candidates({name: NodeState(name, topology, full) for name in names})
        self.jobs: dict[int, RunningJob] = {}
        #: The same as the engine keeps them.
        self.running = RunningJobs()
        self.free = machines * topology.gpus
        self.floor = round(self.free * (1 - BUSY))
        self.serial = 0
        for name in names:  # fill by hand: whoever comes first
            while (count := self._gpus()) <= self.nodes[name].free.bit_count():
                free = [gpu for gpu in range(topology.gpus) if self.nodes[name].free >> gpu & 1]
                self.start(self.request(count), {name: tuple(free[:count])})
        while self.free < self.floor:
            self.end()

    def _gpus(self) -> int:
        return self.draw.choice((1, 1, 2, 2, 3))

    def request(self, count: int | None = None) -> Request:
        """A job of the mix."""
        sizes, shares = zip(*BATCHES, strict=True)
        batch = self.draw.choices(sizes, shares)[0]
        network = "bvlc_alexnet" if self.draw.random() < 0.8 else "bvlc_googlenet"
        options = {"profile": network, "batch": str(batch)}
        return Request((count or self._gpus(),), min_utility=0.3, options=options)

    def start(self, request: Request, gpus: dict[str, tuple[int, ...]]) -> None:
        """Occupy GPUs."""
        self.serial += 1
        masks = {name: mask_of(chosen) for name, chosen in gpus.items()}
        self.jobs[self.serial] = RunningJob(
            self.serial, masks, request.options["profile"], int(request.options["batch"])
        )
        self.running = self.running.changed((), [self.jobs[self.serial]])
        self._change(masks, -1)

    def end(self) -> None:
        """A drawn job ends."""
        job = self.jobs.pop(self.draw.choice(list(self.jobs)))
        self.running = self.running.changed([job.job_id], ())
        self._change(job.gpus, 1)

    def _change(self, masks: Mapping[str, int], sign: int) -> None:
        table = self.nodes.table
        for name, mask in masks.items():
            table.set_free(table.place[name], self.nodes[name].free + sign * mask)
            self.free += sign * mask.bit_count()

    def decide(self) -> tuple[float, float]:
        """One decision: its seconds by the clock and of processor time. Room is made first."""
        request = self.request()
        while self.free < self.floor or not self._fits(request.gpus_per_node[0]):
            self.end()
        cluster = Cluster(self.nodes, self.running)
        began, cpu = time.perf_counter(), time.thread_time()
        answer = self.policy.place(request, cluster)
        took = (time.perf_counter() - began, time.thread_time() - cpu)
        placement = answer if isinstance(answer, Placement) else answer.instead
        assert placement is not None
        self.start(request, dict(placement.gpus))
        return took

    def _fits(self, count: int) -> bool:
        return any(state.free.bit_count() >= count for state in self.nodes.table.index.states())


def measured(machines: int, decisions: int = DECISIONS, machine: str = "minsky") -> Row:
    """Milliseconds of a decision: the first of all, then after the warm-up."""
    crowd = Crowd(machines, registry.build("topo-aware-p"), machine)
    first_s, _ = crowd.decide()
    for _ in range(WARM_UP):
        crowd.decide()
    # As the engine runs: fewer, later collections.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    both = [crowd.decide() for _ in range(decisions)]
    took = [1000 * wall_s for wall_s, _ in both]
    gc.unfreeze()
    return {
        "first_ms": 1000 * first_s,
        "median_ms": quantile(took, 0.5),
        "p99_ms": quantile(took, 0.99),
        "worst_ms": max(took),
        # On a busy machine the clock also counts the others' turns.
        "median_cpu_ms": 1000 * quantile([cpu_s for _, cpu_s in both], 0.5),
        "worst_cpu_ms": 1000 * max(cpu_s for _, cpu_s in both),
    }


def run() -> Iterator[Figure]:
    """Median and worst beside their bars; then the growth."""
    by_size = {}
    for machines in GROWTH:
        by_size[machines] = measured(machines, DECISIONS if machines < 10_000 else 300)
    for machines, (median_ms, worst_ms) in BARS.items():
        detail = {"seed": SEED, **_rounded(by_size[machines]), **conditions()}
        name = f"topo-aware.{machines}_machines"
        yield at_most(
            f"{name}.median", by_size[machines]["median_ms"], "ms", median_ms, detail=detail
        )
        if worst_ms is not None:
            yield at_most(f"{name}.worst", by_size[machines]["worst_ms"], "ms", worst_ms)
    row = measured(LARGER, 300, "dgx1v")
    detail = {"seed": SEED, **_rounded(row), **conditions()}
    name = f"topo-aware.{LARGER}_dgx1v"
    yield at_most(f"{name}.median", row["median_ms"], "ms", LARGER_MS[0], detail=detail)
    yield at_most(f"{name}.worst", row["worst_ms"], "ms", LARGER_MS[1])
    growth = by_size[GROWTH[-1]]["median_ms"] / by_size[GROWTH[0]]["median_ms"]
    rows = {str(machines): _rounded(row) for machines, row in by_size.items()}
    times = GROWTH[-1] / GROWTH[0]
    yield Figure(
        f"topo-aware.growth_over_{times:g}x_machines", round(growth, 2), "times", detail=rows
    )


def _rounded(row: Row) -> Row:
    return {key: round(value, 3) for key, value in row.items()}
