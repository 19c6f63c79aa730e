"""Workloads of real logs and of the papers' jobs, as a seed has them.

A seed shifts each job of a log by up to half an hour, or draws the jobs of a mix anew, and draws
limits, where a log has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from random import Random

from gres_topology import NodeTopology
from gres_topology.catalog import declared, load
from papers.experiments import openb, philly, sc17
from papers.experiments.genie.workload import Models, Spec, TrueTimes, make, models
from papers.experiments.harm.workloads import GENERATED, Drawn, Workload, usual
from papers.experiments.mapa.jobs import ByEffBw, job_file
from papers.experiments.sc17.profile import Profiled, interference_of
from policies import Policy, Site
from policies.contract.scheduling import Platform
from policies.genie.tasks import TaskMaker
from policies.registry import registry
from simulation.core.jobs import SimJob, at_load
from simulation.core.slurm_site import NodeRoom
from simulation.models.speed import ByBandwidth, Speed
from simulation.stock import STOCK, policy_named

#: By how much (seconds) a seed may shift a log's submits.
JITTER_S = 1800.0
#: The part of a log's job that grows as its bandwidth shrinks: a guess, as in docs/simulator.md.
COMMUNICATION = 0.2
#: Of OpenB's 1,213; fewer hold no queue of three hundred tasks.
OPENB_NODES = 16
_SINGLE = "{name: one, source: assumed, model: Tesla P100-PCIE-16GB, rates: {pcie: 3}, gpus: 1}"
_PCIE_8 = """
name: pcie-8
source: assumed, four GPUs on each socket, in pairs behind a PCIe switch
model: Tesla P100-PCIE-16GB
rates: {pcie: 3}
gpus: 8
links: {PIX: [0-1, 2-3, 4-5, 6-7], NODE: [0-2, 0-3, 1-2, 1-3, 4-6, 4-7, 5-6, 5-7]}
other_links: SYS
numa: [0, 0, 0, 0, 1, 1, 1, 1]
"""


@dataclass(frozen=True, slots=True)
class TraceWorkload:
    """Jobs of `source`, for a seed and at most so many, that arrive so that they bring the load."""

    source: Callable[[int, int], Drawn]
    load: float = 0.9
    #: A whole log takes minutes: so many seeds, whatever they show.
    seeds: int = 0

    def drawn(self, seed: int, count: int) -> Drawn:
        """The same for every policy."""
        made, draw = self.source(seed, count), Random(seed)
        gpus = sum(topology.gpus for topology in made.nodes.values())
        ideal_s = made.speed.ideal_s
        jobs = (
            replace(job, walltime_s=max(60.0, usual(ideal_s(job), draw)))
            for job in at_load(made.jobs, gpus, self.load, ideal_s)
        )
        return replace(made, jobs=[*jobs])


def _jittered(jobs: Sequence[SimJob], seed: int) -> list[SimJob]:
    draw = Random(seed)
    moved = [(max(0.0, j.submit_s + draw.uniform(-JITTER_S, JITTER_S)), j) for j in jobs]
    in_turn = sorted(moved, key=lambda one: one[0])
    return [replace(job, job_id=at, submit_s=at_s) for at, (at_s, job) in enumerate(in_turn, 1)]


def _philly(seed: int, count: int) -> Drawn:
    """Microsoft's log after its quiet days, on a cluster of its size."""
    return Drawn(philly.cluster(), _jittered(_philly_jobs(), seed), ByBandwidth(COMMUNICATION))


@cache
def _philly_jobs() -> Sequence[SimJob]:
    return philly.trace().jobs


@cache
def _of_openb(gpus: int, model: str) -> NodeTopology:
    """The wiring is assumed: the log names models alone."""
    if gpus == 8 and model.startswith("V100"):
        return load("dgx1v")
    text = {8: _PCIE_8, 2: philly.PAIR, 1: _SINGLE}.get(gpus)
    return load("l40s-pcie") if text is None else declared.read(text, name="pcie", source="assumed")


def _openb(seed: int, count: int) -> Drawn:
    """On sixteen of its nodes with their CPUs and memory; part of a GPU counts as a whole one."""
    kept = openb.nodes(OPENB_NODES)
    kinds = openb.models(OPENB_NODES)
    nodes = {name: _of_openb(kept[name].free.bit_count(), kinds[name]) for name in kept}
    rooms = {name: NodeRoom(node.cpus, node.memory_mb) for name, node in kept.items()}
    jobs = [
        SimJob(
            at,
            (task.gpus,),
            task.duration_s,
            task.submit_s,
            cpus=task.cpus,
            memory_mb=task.memory_mb,
        )
        for at, task in enumerate(openb.tasks(kept), 1)
        if task.gpus
    ]
    return Drawn(nodes, _jittered(jobs, seed), ByBandwidth(COMMUNICATION), rooms)


def _arriving(jobs: Sequence[SimJob], draw: Random) -> list[SimJob]:
    """The jobs one by one, at random; `at_load` sets the pace."""
    at_s, coming = 0.0, []
    for number, job in enumerate(jobs, 1):
        coming.append(replace(job, job_id=number, submit_s=at_s))
        at_s += draw.expovariate(1 / 60)
    return coming


def _mapa(seed: int, count: int, machine: str, nodes: int) -> Drawn:
    """MAPA's job file (SC'21, section 4), its times by bandwidth as in `mapa-dgx1v`."""
    topology = load(machine)
    cluster = {f"n{number}": topology for number in range(1, nodes + 1)}
    return Drawn(cluster, _arriving(job_file(seed, count), Random(seed)), ByEffBw(topology))


def _sc17(seed: int, count: int) -> Drawn:
    """The authors' 10,000 jobs, so many drawn with replacement, on five of their machines.

    Execution times are their profile's, and every policy is told that profile.
    """
    data = sc17.loaded("prof_from_experiments_full")
    draw = Random(seed)
    jobs = _arriving(draw.choices(sc17.workload("workloads-10000"), k=count), draw)
    return Drawn(sc17.cluster(5), jobs, Profiled(data), policy=partial(_told, _profile()))


@cache
def _profile() -> Site:
    return Site(interference=interference_of(sc17.loaded("prof_from_experiments_full")))


def _told(site: Site, name: str) -> Policy:
    return policy_named(name) if name in STOCK else registry.build(name, site=site)


def _genie(seed: int, count: int) -> Drawn:
    """GENIE's tasks with the shapes that users ask for, as long as they take in truth."""
    platform = Platform(4, 4)
    maker = TaskMaker(platform, _models(True))
    made = make(Spec(per_hour=10, hours=count / 10), seed, maker)
    truth = TrueTimes(platform, made.works, _models(False))
    machine = load("l40s-pcie")
    jobs = []
    for task in made.tasks:
        shape = task.requested
        each = shape.gpus // shape.nodes
        jobs.append(SimJob(task.job_id, (each,) * shape.nodes, truth(task, shape), task.arrival_s))
    return Drawn({f"n{number}": machine for number in range(1, 5)}, jobs, Speed())


@cache
def _models(light: bool) -> Models:
    return models(light=light)


TRACES: Mapping[str, TraceWorkload] = {
    "philly-85": TraceWorkload(_philly, 0.85, seeds=10),
    "philly-95": TraceWorkload(_philly, 0.95, seeds=10),
    "openb": TraceWorkload(_openb, seeds=10),
    "mapa-dgx1v": TraceWorkload(partial(_mapa, machine="dgx1v", nodes=4)),
    "mapa-torus-16": TraceWorkload(partial(_mapa, machine="torus-16", nodes=2)),
    "mapa-cubemesh-16": TraceWorkload(partial(_mapa, machine="cubemesh-16", nodes=2)),
    "mapa-a100-bridged": TraceWorkload(partial(_mapa, machine="a100-pcie-bridged", nodes=4)),
    "mapa-mi250x": TraceWorkload(partial(_mapa, machine="mi250x", nodes=4)),
    "sc17": TraceWorkload(_sc17),
    "genie": TraceWorkload(_genie),
}
WORKLOADS: Mapping[str, Workload | TraceWorkload] = {**GENERATED, **TRACES}
