"""sc17-scenario1 and sc17-scenario2: the paper's simulated clusters (section 5.5).

The authors' generated workloads on 5 and 1,000 Minskys, as printed or with arrivals scaled so that
the cluster is 80 or 95 % full.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gres_topology.catalog import load as machine
from papers.experiments import Figures, Result
from papers.experiments.sc17 import MACHINE, cluster, loaded, policies, workload
from papers.experiments.sc17.curves import figures, series
from papers.experiments.sc17.profile import Profiled
from papers.experiments.sc17.utilities import below_minimum
from simulation.core.jobs import SimJob, at_load, offered_load
from simulation.core.record import SimulatedRun
from simulation.core.steps import each
from simulation.models.placing import Simulator
from simulation.report.metrics import SLO_SLOWDOWN, summary

#: Figure 10: TOPO-AWARE-P violates no SLO; the others' bars are not printed as numbers.
PAPER_1 = {"topo-aware-p": {"slo_violations": 0.0}}
#: Section 5.5.3.
PAPER_2 = {
    "fcfs": {"decision_mean_s": 0.45},
    "best-fit": {"decision_mean_s": 0.44},
    "topo-aware": {"decision_mean_s": 3.0},
    "topo-aware-p": {"decision_mean_s": 3.0},
}
METRICS = (
    "makespan_s", "wait_mean_s", "wait_p95_s", "slowdown_mean", "slowdown_p95", "slowdown_max",
    "slo_violations", "slo_violations_forced", "forced", "utilisation",
    "busy_while_arriving", "decision_median_s",
    "decision_max_s",
)  # fmt: skip

#: Called with a policy's name and the number of jobs; the result with the jobs ended so far.


def jobs_of(name: str, machines: int, load: str) -> list[SimJob]:
    """The authors' jobs, arriving as they say or so fast that they offer `load` per cent."""
    jobs = workload(name)
    if load == "printed":
        return jobs
    ideal_s = Profiled(loaded("prof_from_experiments_full")).ideal_s
    return at_load(jobs, machines * machine(MACHINE).gpus, int(load) / 100, ideal_s)


def runs_of(jobs: Sequence[SimJob], machines: int) -> dict[str, SimulatedRun]:
    """One run per policy, first in, first out."""
    speed = Profiled(loaded("prof_from_experiments_full"))
    runs = {}
    for name, policy in each(policies().items()):
        runs[name] = Simulator(cluster(machines), policy, speed).run(jobs)
    return runs


def _result(name: str, workload_name: str, machines: int, load: str, paper: Figures) -> Result:
    jobs = jobs_of(workload_name, machines, load)
    runs = runs_of(jobs, machines)
    measured: dict[str, dict[str, float | None]] = {}
    nodes, speed = cluster(machines), Profiled(loaded("prof_from_experiments_full"))
    for policy, run in runs.items():
        numbers = summary(run, nodes)
        measured[policy] = {key: numbers[key] for key in METRICS}
        measured[policy]["below_min_utility"] = below_minimum(run, nodes, speed.interference)
        measured[policy]["decision_mean_s"] = fmean(run.decision_s)
        measured[policy] |= figures(run)
    offered = offered_load(jobs, machines * machine(MACHINE).gpus, speed.ideal_s)
    notes = (
        f"{len(jobs)} jobs on {machines} machines; from the first submit to the last they ask for"
        f" {100 * offered:.1f} % of the GPU time there is.",
        f"An SLO is violated by a slowdown over {SLO_SLOWDOWN} against the job's best"
        " configuration, waiting not counted; jobs placed because the bound on postponing was"
        " reached are in slo_violations_forced.",
        "Execution times as in sc17-table1; jobs of three GPUs never fit one socket and were"
        " measured in one placement only, which is their best.",
        "topo-aware, topo-aware-p, their `pessimistic` and `as printed` rows, and below_min_utility"
        " as in sc17-table1.",
        "The authors' generated workload, first in, first out. The paper's plots have no numbers"
        " but those shown. Their curves, jobs from the worst to the best, are `series` here: the"
        " time lost over the best configuration's by the placement, and with the time waited;"
        " lost_with_wait is the latter.",
        "mapa is not the paper's: it goes by the machine's links and knows nothing of neighbours. A"
        " job waits for its minimum utility there, too, which is a share of the ideal bandwidth.",
    )
    return Result(f"{name} ({load})", (), measured, paper, notes, series=series(runs))


def scenario1(seeds: Sequence[int], load: str = "printed") -> Result:
    """100 jobs, 5 machines. The workload is given: seeds change nothing."""
    return _result("sc17-scenario1", "workloads-100", 5, load, PAPER_1)


def scenario2(seeds: Sequence[int], load: str = "printed") -> Result:
    """10,000 jobs, 1,000 machines. The workload is given: seeds change nothing."""
    return _result("sc17-scenario2", "workloads-10000", 1000, load, PAPER_2)
