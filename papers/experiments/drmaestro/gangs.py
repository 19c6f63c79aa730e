"""drmaestro-gangs: jobs of several GPUs and tasks, which start whole or not at all (section 5.3.3).

The thesis leaves a job unscheduled when any part of it finds no place (Algorithm 5); what its other
parts were given is idle until the next round. Its own experiments have jobs of one GPU, which have
no parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from papers.experiments import Result
from papers.experiments.drmaestro.runs import Choices, bound_s, replayed
from papers.experiments.drmaestro.workload import MEANS_S, jobs
from papers.experiments.experiment import averaged
from papers.simulators.planned_loans import PlannedJob
from policies import Wait
from policies.remote import NodeCapacity, RemoteJob
from policies.remote.capacity import copies
from policies.remote.drmaestro import DRMaestro
from policies.remote.drmaestro.admission import admitted
from policies.remote.drmaestro.assigning import assign_gpus
from policies.remote.drmaestro.hosting import host_tasks
from policies.remote.jobs import Answer
from simulation.core.steps import each

JOBS, MACHINES, IN_REACH = 1024, 16, 6
#: Share of the jobs that may use remote GPUs, in hundredths, by the row's name.
SHARES = {"no remote GPUs": 0, "remote GPUs for half of the jobs": 50, "remote GPUs for all": 100}
PRINTED, OURS = "Algorithm 5 as printed", "ours"
BOUND = "bound: every GPU busy from the first submit on"
NOTES = (
    f"{JOBS:,} jobs on {MACHINES} machines, otherwise the testbed's. The thesis has no such"
    " experiment: its jobs have one GPU.",
    "gangs: jobs of 1, 2 or 4 GPUs in one task, or as many in each of two; several: in one task. A"
    " task asks for 8 threads and 16 GB for each GPU. The work is that of --sizes one.",
    "As printed, each phase is solved once in a round, and every job of which a part found no place"
    " waits. Ours solves again without the younger half of those jobs, and adds what still fits.",
)
_PART = Wait("a part of it found no place")


@dataclass(frozen=True, slots=True)
class PrintedGangs(DRMaestro):
    """Algorithm 5 as printed: both phases once, and what came out whole starts."""

    def decide(self, jobs: Sequence[RemoteJob], left: dict[str, NodeCapacity]) -> list[Answer]:
        """An answer for every job, in the order given."""
        seniors = sorted(range(len(jobs)), key=lambda index: (-jobs[index].rounds_waited, index))
        active = admitted({index: jobs[index] for index in seniors}, left)
        trial = copies(left.values())
        hosted = host_tasks(active, trial, self.costs, self.solve)
        given = assign_gpus(active, hosted, trial, self.costs, self.solve)
        answers: list[Answer] = [_PART] * len(jobs)
        for index, job in active.items():
            wanted = job.request.gpus_per_node
            whole = [
                (hosted[index, task], given[index, task])
                for task, gpus in enumerate(wanted)
                if (index, task) in hosted and sum(given[index, task].values()) == gpus
            ]
            if len(whole) == len(wanted):
                answers[index] = self.placement(whole, trial)
        return answers


def run(seeds: Sequence[int], sizes: str = "gangs", round_s: str = "10") -> Result:
    """Both ways of treating gangs, by how many jobs may use remote GPUs."""
    rows: dict[str, list[Mapping[str, float]]] = {}
    choices = Choices(IN_REACH, round_s=float(round_s))
    for seed in each(seeds):
        for share, hundredths in each(SHARES.items()):
            log = asked(seed, sizes, hundredths)
            for name, planner in ((PRINTED, PrintedGangs()), (OURS, DRMaestro())):
                figures = replayed(log, MACHINES, choices, planner)
                rows.setdefault(f"{name}, {share}", []).append(figures)
        rows.setdefault(BOUND, []).append({"makespan_s": bound_s(MACHINES, log)})
    return Result("drmaestro-gangs", tuple(seeds), averaged(rows), {}, NOTES)


def asked(seed: int, sizes: str, hundredths: int) -> list[PlannedJob]:
    """The jobs; of every hundred in a row so many may use remote GPUs, spread evenly."""
    log = jobs(seed, JOBS, MEANS_S["drmaestro-testbed"][IN_REACH], remote=True, sizes=sizes)
    return [
        one
        if (37 * number) % 100 < hundredths
        else replace(one, job=replace(one.job, remote_allowed=False))
        for number, one in enumerate(log)
    ]
