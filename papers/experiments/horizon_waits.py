"""What waiting for better GPUs is worth where jobs say how much they communicate: horizon-waits.

And what each part of `horizon` is worth, by switching it off: horizon-parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean

import numpy as np

from gres_topology.catalog import load as machine_of
from papers.experiments.experiment import Result, averaged
from policies import Policy, Site
from policies.horizon.policy import Horizon
from policies.horizon.settings import HorizonSettings
from policies.order.passing import Passing
from policies.registry import registry
from simulation.core.jobs import SimJob, at_load
from simulation.core.link_quality import judge
from simulation.core.queue_order import PassingQueue
from simulation.core.steps import each
from simulation.models.placing import Simulator
from simulation.models.speed import ByBandwidth, Nodes, PlacedJob, Speed

NODES, JOBS = 4, 300
#: GPUs of a job, each as likely, by machine.
SIZES = {
    "dgx1v": (1, 1, 2, 2, 3, 4, 4, 5, 8),
    "mi250x": (1, 1, 2, 2, 4, 8),
    "a100-pcie-bridged": (1, 1, 2, 2, 4),
}
#: Seconds that jobs take on the best GPUs, evenly drawn.
DURATIONS = {"minutes": (60, 600), "hours": (1200, 12000)}
#: Shares of their run time that jobs communicate, each as likely.
COMMUNICATION = (0.05, 0.1, 0.2, 0.4, 0.6)
#: A job's limit is what it takes times a number drawn evenly between these.
LIMITS = (2.0, 4.0)

NOTES = (
    f"{JOBS} jobs that arrive one by one on {NODES} nodes, EASY backfill; each job of several GPUs"
    " communicates for 0.05 to 0.6 of its run time on the best GPUs, and runs longer on others by"
    " Amdahl's law with the share of the ideal bandwidth.",
    "Limits are 2 to 4 times what a job takes on the best GPUs.",
    "horizon is told what each job communicates; horizon-untold is not; horizon-at-once is, on a"
    " site where no policy may postpone a job.",
    "slower: run time over that on the best GPUs. postponed: jobs that waited their time out.",
)


class Told(Speed):
    """As ByBandwidth, by what these jobs hint, whatever the policies are told."""

    def __init__(self, jobs: Sequence[SimJob]) -> None:
        self._told = {job.job_id: job for job in jobs}
        self._model = ByBandwidth(0.0)

    def full_s(self, placed: PlacedJob, nodes: Nodes, beside: Sequence[PlacedJob]) -> float:
        """The stated duration, stretched."""
        told = PlacedJob(self._told[placed.job.job_id], placed.gpus)
        return self._model.full_s(told, nodes, beside)


class AtOnce(Horizon):
    """horizon where no policy may postpone a job."""

    name = "horizon-at-once"


POLICIES: dict[str, Callable[[], Policy]] = {
    "best-fit": lambda: registry.build("best-fit"),
    "mapa": lambda: registry.build("mapa"),
    "mapa, min-utility=0.7": lambda: registry.build("mapa"),
    "mapa, min-utility=0.9": lambda: registry.build("mapa"),
    "horizon-untold": lambda: registry.build("horizon"),
    "horizon-at-once": lambda: AtOnce(Site(longest_wait_s=0.0)),
    "horizon": lambda: registry.build("horizon"),
}
#: What the jobs say instead of how much they communicate.
HINTS = {
    "mapa, min-utility=0.7": "min-utility=0.7",
    "mapa, min-utility=0.9": "min-utility=0.9",
    "horizon-untold": "",
}


def run(
    seeds: Sequence[int], machine: str = "dgx1v", load: str = "85", durations: str = "minutes"
) -> Result:
    """Each policy on the same jobs."""
    rows: dict[str, list[dict[str, float]]] = {}
    for seed in each(seeds):
        jobs = drawn(seed, machine, durations, int(load) / 100)
        for name, build in POLICIES.items():
            given = [replace(job, hint=HINTS.get(name, job.hint)) for job in jobs]
            figures = _figures(build(), machine, given, Told(jobs))
            rows.setdefault(name, []).append(figures)
    return Result("horizon-waits", tuple(seeds), averaged(rows), {}, NOTES)


def _parts() -> dict[str, tuple[Policy, str, PassingQueue | None]]:
    """Row -> the policy, what all jobs hint beside, and who passes whom."""

    def without(**part: bool | float) -> Policy:
        return Horizon(settings=HorizonSettings(**part))  # type: ignore[arg-type]

    return {
        "horizon": (without(), "", None),
        "one future": (without(guesses=False), "", None),
        "no queue": (without(queue=False), "", None),
        "no releases": (without(releases=False), "", None),
        "no hop weight": (without(hop_weight=0.0), "", None),
        "no waiting": (without(wait=False), "", None),
        "spread, not packed": (without(), "spread=yes", None),
        "and order: predicted": (without(), "", PassingQueue(Passing(by="limits"))),
        "mapa": (registry.build("mapa"), "", None),
        "best-fit": (registry.build("best-fit"), "", None),
    }


def parts(
    seeds: Sequence[int], machine: str = "dgx1v", load: str = "95", durations: str = "minutes"
) -> Result:
    """`horizon` with each of its parts switched off, on the same jobs."""
    rows: dict[str, list[dict[str, float]]] = {}
    for seed in each(seeds):
        jobs = drawn(seed, machine, durations, int(load) / 100)
        for name, (policy, beside, passing) in _parts().items():
            given = [replace(job, hint=",".join(filter(None, (job.hint, beside)))) for job in jobs]
            figures = _figures(policy, machine, given, Told(jobs), passing)
            whole = rows["horizon"][-1] if name != "horizon" else figures
            figures["longer_wait_s"] = figures["mean_wait_s"] - whole["mean_wait_s"]
            rows.setdefault(name, []).append(figures)
    notes = (*NOTES[:2], *NOTES[3:], "longer_wait_s: mean_wait_s less horizon's on the same jobs.")
    return Result("horizon-parts", tuple(seeds), averaged(rows), {}, notes)


def drawn(seed: int, machine: str, durations: str, load: float) -> list[SimJob]:
    """Jobs that keep this share of the GPUs busy if all ran on the best ones."""
    draw, at_s, jobs = Random(seed), 0.0, []
    for number in range(1, JOBS + 1):
        at_s += draw.expovariate(1.0)
        lasts_s = float(draw.randint(*DURATIONS[durations]))
        gpus = draw.choice(SIZES[machine])
        hint = f"communication={draw.choice(COMMUNICATION)}" if gpus > 1 else ""
        limit_s = lasts_s * draw.uniform(*LIMITS)
        jobs.append(SimJob(number, (gpus,), lasts_s, at_s, hint, walltime_s=limit_s))
    return at_load(jobs, NODES * machine_of(machine).gpus, load)


def _figures(
    policy: Policy,
    machine: str,
    jobs: Sequence[SimJob],
    speed: Speed,
    passing: PassingQueue | None = None,
) -> dict[str, float]:
    topology = machine_of(machine)
    nodes = {f"n{number}": topology for number in range(NODES)}
    simulator = Simulator(nodes, policy, speed=speed, easy=True, passing=passing)
    records = simulator.run(jobs).records
    rings = [
        judge(topology, gpus)
        for record in records
        for gpus in record.placement.gpus.values()
        if len(gpus) > 1
    ]
    waits = [record.waited_s for record in records]
    return {
        "mean_wait_s": fmean(waits),
        "p99_wait_s": float(np.quantile(waits, 0.99)),
        "slower": fmean(record.slowdown for record in records),
        "submit_to_end_s": fmean(record.end_s - record.job.submit_s for record in records),
        "share": fmean(ring.share for ring in rings),
        "pcie_hops": fmean(ring.pcie_hop for ring in rings),
        "postponed": sum(record.postponed > 0 for record in records) / len(records),
    }
