"""The workloads of the proof: a trace's jobs, its machines, its execution times, its policies.

A resampling is another stretch of a log, or another draw of a mix; its number is its seed. Limits,
where a trace has none, are drawn (`limited`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from random import Random

from gres_topology import NodeTopology
from gres_topology.catalog import declared, load
from policies import Policy, Site
from policies.contract.scheduling import Platform
from policies.genie.tasks import TaskMaker
from policies.registry import registry
from simulation.core.jobs import SimJob, at_load, offered_load
from simulation.core.occupancy import FreeCounts
from simulation.core.slurm_site import ENDLESS_S, Room, Scheduling, SlurmSite
from simulation.experiments import openb, sc17
from simulation.experiments.genie.workload import Models, Spec, TrueTimes, make, models
from simulation.experiments.mapa.jobs import ByEffBw, job_file
from simulation.experiments.sc17.profile import Profiled, interference_of
from simulation.models.speed import ByBandwidth, Speed
from simulation.stock import STOCK, policy_named
from simulation.traces import philly

#: Jobs of one resampling: of the logs, and of the mixes.
LOG_JOBS, MIX_JOBS = 250, 200
#: What a stretch of a log must be able to offer; the highest load judged is 0.95.
MOST_LOAD = 0.97
#: The part of a log's job that grows as its bandwidth shrinks: a guess, as in docs/simulator.md.
COMMUNICATION = 0.2
#: How limits are made -> factors of the duration between which they lie, uniform; None: a job says
#: nothing and counts as one of a day. `drawn` is the f-model of Mu'alem and Feitelson (IEEE TPDS
#: 12(6), 2001) with f = 3.
LIMITS: Mapping[str, tuple[float, float] | None] = {
    "drawn": (1.0, 4.0), "exact": (1.0, 1.0), "none": None,
}  # fmt: skip
A_DAY_S = 86_400.0
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
class Workload:
    """One resampling at one load, ready to run."""

    nodes: Mapping[str, NodeTopology]
    jobs: Sequence[SimJob]
    speed: Speed = field(default_factory=lambda: ByBandwidth(COMMUNICATION))
    #: CPUs and memory of the nodes, where the trace has them.
    rooms: Mapping[str, Room] = field(default_factory=dict)
    policy: Callable[[str], Policy] = policy_named

    @property
    def site(self) -> SlurmSite:
        """Slurm's defaults on these nodes; OverTimeLimit lets every job come to its end."""
        return SlurmSite(Scheduling(over_time_limit_s=ENDLESS_S), self.rooms)


def workload(trace: str, load: int, seed: int, limits: str = "drawn") -> Workload:
    """One resampling of a trace, arriving so that it offers `load` per cent."""
    made = TRACES[trace](seed)
    jobs = at_load(made.jobs, _gpus(made.nodes), load / 100, made.speed.ideal_s)
    return replace(made, jobs=_limited(jobs, made.speed, LIMITS[limits], Random(seed)))


def _limited(
    jobs: Sequence[SimJob], speed: Speed, factors: tuple[float, float] | None, draw: Random
) -> list[SimJob]:
    """The jobs with limits: so many times what they take on the best GPUs, a minute at least."""

    def limit_s(job: SimJob) -> float:
        return A_DAY_S if factors is None else speed.ideal_s(job) * draw.uniform(*factors)

    return [replace(job, walltime_s=max(60.0, limit_s(job))) for job in jobs]


def _stretch(jobs: Sequence[SimJob], gpus: int, seed: int) -> list[SimJob]:
    """So many jobs in a row, from anywhere in the log where they can bring every load.

    Where most of them come in one burst they cannot, however near the submits are.
    """
    draw = Random(seed)
    while True:
        first = draw.randrange(len(jobs) - LOG_JOBS)
        rows = jobs[first : first + LOG_JOBS]
        if offered_load(rows, gpus, stretch=1e-6) > MOST_LOAD:
            return [replace(job, job_id=at, submit_s=job.submit_s - rows[0].submit_s)
                    for at, job in enumerate(rows, 1)]  # fmt: skip


def _philly(seed: int) -> Workload:
    """A 46th of the cluster: five nodes of eight GPUs, seven of two."""
    every = philly.cluster()
    names = [*sorted(every)[:5], *sorted(every)[-7:]]
    nodes = {name: every[name] for name in names}
    return Workload(nodes, _stretch(_that_fit(philly.trace().jobs, nodes), _gpus(nodes), seed))


def _gpus(nodes: Mapping[str, NodeTopology]) -> int:
    return sum(topology.gpus for topology in nodes.values())


def _that_fit(jobs: Sequence[SimJob], nodes: Mapping[str, NodeTopology]) -> list[SimJob]:
    counts = FreeCounts(topology.gpus for topology in nodes.values())
    return [job for job in jobs if counts.fits(job.gpus_per_node)]


@cache
def _of_openb(gpus: int, model: str) -> NodeTopology:
    """The wiring is assumed: the log names models alone."""
    if gpus == 8 and model.startswith("V100"):
        return load("dgx1v")
    text = {8: _PCIE_8, 2: philly.PAIR, 1: _SINGLE}.get(gpus)
    return load("l40s-pcie") if text is None else declared.read(text, name="pcie", source="assumed")


def _openb(seed: int) -> Workload:
    """Sixteen of its nodes, with CPUs and memory; a task of a part of a GPU takes a whole one."""
    kept = openb.nodes(OPENB_NODES)
    kinds = openb.models(OPENB_NODES)
    nodes = {name: _of_openb(kept[name].free.bit_count(), kinds[name]) for name in kept}
    rooms = {name: Room(node.cpus, node.memory_mb) for name, node in kept.items()}
    jobs = [
        SimJob(at, (task.gpus,), task.duration_s, task.submit_s, cpus=task.cpus,
               memory_mb=task.memory_mb)
        for at, task in enumerate(openb.tasks(kept), 1) if task.gpus
    ]  # fmt: skip
    return Workload(nodes, _stretch(jobs, _gpus(nodes), seed), rooms=rooms)


def _arriving(jobs: Sequence[SimJob], draw: Random) -> list[SimJob]:
    """The jobs one by one, at random; `at_load` sets the pace."""
    at_s, coming = 0.0, []
    for number, job in enumerate(jobs, 1):
        coming.append(replace(job, job_id=number, submit_s=at_s))
        at_s += draw.expovariate(1 / 60)
    return coming


def _mapa(seed: int, machine: str, count: int) -> Workload:
    """MAPA's job file (SC'21, section 4), its times by bandwidth as in `mapa-dgx1v`."""
    topology = load(machine)
    nodes = {f"n{number}": topology for number in range(1, count + 1)}
    return Workload(nodes, _arriving(job_file(seed, MIX_JOBS), Random(seed)), ByEffBw(topology))


def _sc17(seed: int) -> Workload:
    """The authors' 10,000 jobs, so many drawn with replacement, on five of their machines.

    Execution times are their profile's, and every policy is told that profile.
    """
    data = sc17.loaded("prof_from_experiments_full")
    draw = Random(seed)
    jobs = _arriving(draw.choices(sc17.workload("workloads-10000"), k=MIX_JOBS), draw)
    return Workload(sc17.cluster(5), jobs, Profiled(data), policy=partial(_told, _profile()))


@cache
def _profile() -> Site:
    return Site(interference=interference_of(sc17.loaded("prof_from_experiments_full")))


def _told(site: Site, name: str) -> Policy:
    return policy_named(name) if name in STOCK else registry.build(name, site=site)


def _genie(seed: int) -> Workload:
    """GENIE's tasks with the shapes that users ask for, as long as they take in truth."""
    platform = Platform(4, 4)
    maker = TaskMaker(platform, _models(True))
    made = make(Spec(per_hour=10, hours=MIX_JOBS / 10), seed, maker)
    truth = TrueTimes(platform, made.works, _models(False))
    machine = load("l40s-pcie")
    jobs = []
    for task in made.tasks:
        shape = task.requested
        each = shape.gpus // shape.nodes
        jobs.append(SimJob(task.job_id, (each,) * shape.nodes, truth(task, shape), task.arrival_s))
    return Workload({f"n{number}": machine for number in range(1, 5)}, jobs, Speed())


@cache
def _models(light: bool) -> Models:
    return models(light=light)


#: Trace -> its workload of a seed, without load and limits.
TRACES: Mapping[str, Callable[[int], Workload]] = {
    "philly": _philly,
    "openb": _openb,
    "mapa-dgx1v": partial(_mapa, machine="dgx1v", count=4),
    "mapa-torus-16": partial(_mapa, machine="torus-16", count=2),
    "mapa-cubemesh-16": partial(_mapa, machine="cubemesh-16", count=2),
    "mapa-a100-bridged": partial(_mapa, machine="a100-pcie-bridged", count=4),
    "mapa-mi250x": partial(_mapa, machine="mi250x", count=4),
    "sc17": _sc17,
    "genie": _genie,
}
