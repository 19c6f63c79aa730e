"""sc17-table1: six jobs on one Minsky (Table 1, section 5.2), with the exhaustive bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gres_topology.catalog import load
from papers.experiments import Result
from papers.experiments.sc17 import MACHINE, loaded, policies, workload
from papers.experiments.sc17.curves import figures, lost, series, timeline
from papers.experiments.sc17.exhaustive import best_makespan_s
from papers.experiments.sc17.profile import Profiled
from papers.experiments.sc17.utilities import below_minimum
from simulation.core.jobs import SimJob
from simulation.core.record import SimulatedRun
from simulation.core.steps import each
from simulation.models.placing import Simulator
from simulation.report.metrics import summary

#: The jobs whose slowdown section 5.2.2 names.
NAMED_JOBS = (1, 3, 4)
_LOST = tuple(f"job_{at}_lost" for at in NAMED_JOBS)
#: Section 5.2.2, read from the text. TOPO-AWARE-P violates no SLO (section 1).
#: There jobs 1, 3 and 4 lose nothing under it and "about 50 %" under the others, and job 3 takes
#: about 120 and 240 s.
PAPER: dict[str, dict[str, float | None]] = {
    name: {"makespan_s": makespan_s, **dict.fromkeys(_LOST, share), "job_3_run_s": run_s}
    for name, makespan_s, share, run_s in (
        ("best-fit", 461.7, 0.5, 240.0),
        ("fcfs", 456.2, 0.5, 240.0),
        ("topo-aware", 454.2, 0.5, 240.0),
        ("topo-aware-p", 356.9, 0.0, 120.0),
    )
}
#: Table 1 as printed: job -> network, batch size. CaffeRef is taken as AlexNet.
PRINTED = {1: ("bvlc_googlenet", 4), 2: ("bvlc_alexnet", 1), 5: ("bvlc_alexnet", 1)}

NOTES = (
    "makespan_s is the second of the last end, as the paper's cumulative execution time.",
    "A job is slowed only by jobs with GPUs on the same socket, at most 1.30 times (section 3.3);"
    " jobs of one GPU by none. The authors' simulator slows more: it gives 440.0 s for FCFS and BF,"
    " 433.4 s for TOPO-AWARE and 396.0 s for TOPO-AWARE-P on this workload and profile.",
    "topo-aware and topo-aware-p expect of neighbours what these execution times are made of."
    " `pessimistic` rows expect the paper's 21 to 24 % for small batches of single GPUs, too, which"
    " nothing here suffers. `as printed` rows go by eqs. 2 to 5 as they stand: there the utility is"
    " never below 2/3, so nothing is postponed, and more interference raises it.",
    "below_min_utility counts jobs that were placed where their utility (topo-aware's, truthful)"
    " was below their minimum of Table 1, whichever policy placed them; slo_violations counts"
    " slowdowns over 1 %.",
    "lost is the time over that of the best configuration, job by job (section 5.2.2: none for jobs"
    " 1, 3 and 4 under TOPO-AWARE-P, about half under the others) or in the mean, with_wait counted"
    " from the submit. Job 1 asks for one GPU, which nothing slows in the profile.",
    "mapa is not the paper's: it goes by the machine's links and knows nothing of neighbours. A job"
    " waits for its minimum utility there, too, which is a share of the ideal bandwidth.",
    "A job is postponed 60 s at a time, woken when a job ends, for 600 s at most, as the select"
    " plugin does; the paper has no bound.",
    "`exhaustive` is the best schedule under the same execution times in which jobs are looked at"
    " in arrival order and one is held back only while any placement would slow it or a running"
    " job; `exhaustive-clairvoyant` may hold back and reorder at will, also for a job that has not"
    " arrived yet, which nobody can without seeing the future. Both by branch and bound.",
)


def jobs_of(variant: str) -> list[SimJob]:
    """The six jobs: the authors' workloads-5, or Table 1 as printed."""
    jobs = workload("workloads-5")
    if variant == "authors":
        return jobs
    as_printed = []
    for job in jobs:
        if job.job_id in PRINTED:
            network, batch = PRINTED[job.job_id]
            utility = job.hint.rsplit(",", 1)[1]
            job = replace(job, hint=f"profile={network},batch={batch},{utility}")
        as_printed.append(job)
    return as_printed


def runs_of(variant: str) -> dict[str, SimulatedRun]:
    """One run per policy, first in, first out."""
    speed = Profiled(loaded("prof_from_experiments_full"))
    cluster = {"minsky1": load(MACHINE)}
    return {
        name: Simulator(cluster, policy, speed).run(jobs_of(variant))
        for name, policy in policies().items()
    }


def run(seeds: Sequence[int], variant: str = "authors") -> Result:
    """The experiment; it draws nothing, so seeds change nothing."""
    speed = Profiled(loaded("prof_from_experiments_full"))
    topology = load(MACHINE)
    measured: dict[str, dict[str, float | None]] = {}
    runs = runs_of(variant)
    for name, run in runs.items():
        numbers = summary(run, {"minsky1": topology})
        last = max(record.end_s for record in run.records)
        measured[name] = {
            "makespan_s": last,
            **{key: numbers[key] for key in (
                "wait_mean_s", "slowdown_mean", "slowdown_max", "slo_violations", "forced"
            )},
            "below_min_utility": below_minimum(run, {"minsky1": topology}, speed.interference),
            **figures(run),
            **_jobs(run),
        }  # fmt: skip
    for name, sees_all in each((("exhaustive", False), ("exhaustive-clairvoyant", True))):
        bound = best_makespan_s(jobs_of(variant), topology, speed, clairvoyant=sees_all)
        measured[name] = {"makespan_s": bound}
    bound = measured["exhaustive"]["makespan_s"] or 0.0
    for row in measured.values():
        row["over_bound"] = (row["makespan_s"] or 0.0) / bound
    said = {
        "authors": "Jobs: the authors' workloads-5; its jobs 1, 2 and 5 differ from Table 1.",
        "printed": "Jobs: Table 1 as printed, CaffeRef taken as AlexNet: the profile has none.",
    }[variant]
    drawn = {**series(runs), **timeline(runs)}
    return Result(f"sc17-table1 ({variant})", (), measured, PAPER, (said, *NOTES), series=drawn)


def _jobs(run: SimulatedRun) -> dict[str, float]:
    """What section 5.2.2 says of single jobs: time lost by the placement, and job 3's run time."""
    records = {record.job.job_id: record for record in run.records}
    each = (lost(records[at], with_wait=False) for at in NAMED_JOBS)
    return dict(zip(_LOST, each, strict=True)) | {
        "job_3_run_s": records[3].end_s - records[3].start_s
    }
