"""DRMaestro and the rest of Amaral's thesis: its rows."""

from __future__ import annotations

from papers.reproduction.checks import Check, alike, at_least, at_most, less, more, near, ratio
from papers.reproduction.claims import Claim, ExperimentRun, Paper, Row, Sweep
from papers.reproduction.plots import Plot
from policies.remote.drmaestro import RODINIA

WITHOUT, WITH = "without remote GPUs", "with remote GPUs"
AWARE = "with remote GPUs, network-aware"
BOUND = "bound: every GPU busy from the first submit on"
TESTBED, SCALE = ExperimentRun("drmaestro-testbed"), ExperimentRun("drmaestro-scale")
NETWORK, GANGS = ExperimentRun("drmaestro-network"), ExperimentRun("drmaestro-gangs")
OPENB, APPLICATIONS = ExperimentRun("drmaestro-openb"), ExperimentRun("thesis-rodinia")
_SHARES = ("no remote GPUs", "remote GPUs for half of the jobs", "remote GPUs for all")
_MINSKY = "it measures Caffe on two P100 and NVLink, which needs the machine"
_CONTAINERS = (
    "out of scope: it compares Docker 1.0.1 and KVM on one host; here Slurm starts processes on the"
    " host and containers are the site's (docs/neighbours.md), and no later chapter uses it"
)
_REACH = (
    "the time without remote GPUs is what the jobs are scaled to; the thesis prints how many GPUs"
    " are in reach then for its testbed alone, and with its 6 of 16 section 3.3.3's slowdowns leave"
    " more to gain than it has; with 10 to 12 the speedups come near its own (--sweep in-reach)"
)


def _faster(who: str, speedup: str) -> tuple[Check, ...]:
    """With remote GPUs; the makespan without them is what the jobs are scaled to."""
    return (ratio(who, "speedup", speedup), more(who, "speedup", 1))


ROWS = (
    Row("Figures 1 to 6", "machines, contributions and architectures: drawings", is_result=False),
    Row("Tables 1, 5, 6", "the machines of the measurements", is_result=False),
    Row("Figure 7", "slowdown of Sysbench in containers and virtual machines", because=_CONTAINERS),
    Row("Figure 8", "seconds to start 1 to 256 containers and virtual machines",
        because=_CONTAINERS + "; what our launch adds to a task is in docs/benchmarks.md"),
    Row("Tables 2, 3, 4", "network latency and throughput of containers", because=_CONTAINERS),
    Row("Figures 9, 15, 16", "pack and spread, the graphs of chapter 4: drawings", is_result=False),
    Row("Figures 11, 12", "SC17's Figures 3 and 5: Caffe's communication and NVLink traffic",
        because=_MINSKY),
    Row("Figures 10, 13, 17 to 20, Table 7", "SC17's Figures 4, 6, 8 to 11 and Table 1 again:"
        " judged there", is_result=False),
    Row("Figure 14", "shares of their time that seven of Rodinia's applications with a remote GPU"
        " spend on an idle and on a full network", because="it measures HFCUDA on four K80"
        " machines; here the printed shares are put in as profiles, and come out of simulated runs"
        f" again (`{APPLICATIONS.command}`)"),
    Row("Figures 21, 22", "DRMaestro's architecture and phases: drawings", is_result=False),
    Row("Table 8", "complexities of min-cost flow algorithms", is_result=False),
    Row("Figures 23, 25", "512 jobs on 4 machines, prototype and simulator: 2486 s without and"
        " 2191 s with remote GPUs, 1.13 times as fast", TESTBED, _faster(WITH, "1.13"),
        because=_REACH),
    Row("Figure 24", "deciding with remote GPUs takes about twice as long, under a second", TESTBED,
        (ratio(WITH, "plan_mean_ms", "2", WITHOUT), more(WITH, "plan_mean_ms", WITHOUT),
         *(less(who, "plan_longest_ms", 1000) for who in (WITH, WITHOUT))),
        because="here both phases are solved in either case, and jobs are bound to no node"),
    Row("Figure 26", "4,096 jobs on 128 machines: 1087 s without and 972 s with remote GPUs, 1.12"
        " times as fast", SCALE, _faster(WITH, "1.12"), because=_REACH),
    Row("Figure 27", "there deciding with remote GPUs is faster, but the difference is very small",
        SCALE, (less(WITH, "plan_mean_ms", WITHOUT), alike(WITH, "plan_mean_ms", WITHOUT)),
        because="here it takes about half as long"),
    Row("Figure 28, Table 9", "64 jobs on 4 machines: 413.08 s, with remote GPUs 261.77 (1.58"
        " times); network-aware 418.83 and 300.07 (1.40 times)", NETWORK,
        (*_faster(WITH, "1.58"), *_faster(AWARE, "1.40"), more(AWARE, "makespan_s", WITH)),
        because=_REACH),
    Row("Figure 29", "network-awareness lowers the jobs' slowdowns, 64 jobs", NETWORK,
        (less(AWARE, "slowdown_mean", WITH),), because="three seeds differ by more"),
    Row("Figure 30, Table 10", "4,096 jobs on 128 machines: 1087.73 s, with remote GPUs 972.20;"
        " network-aware 959.21 and 862.15 s (1.11 times, and 1.13 times as fast as without"
        " network-awareness)", SCALE,
        (*_faster(AWARE, "1.11"), ratio(WITH, "makespan_s", "1.13", AWARE),
         less(AWARE, "makespan_s", WITH)), because=_REACH),
    Row("Figure 31", "network-awareness lowers the jobs' slowdowns, 4,096 jobs", SCALE,
        (less(AWARE, "slowdown_mean", WITH),)),
    Row("section 5.3.2", "a job's utility, eq. 11, falls with the load of the network; costs by it"
        " (eqs. 12 and 13) keep it up", NETWORK, (more(AWARE, "utility_mean", WITH),),
        because="three seeds differ by more"),
    Row("section 5.3.3, gangs", "a job of which any part finds no place is not scheduled: an"
        " algorithm, of which nothing is printed", is_result=False),
    Row("Tables 9 and 10, without remote GPUs", "network-aware 418.83 instead of 413.08 s, and"
        " 959.21 instead of 1087.73 s", because="what jobs on local GPUs sent over the network is"
        " not printed; here they send nothing, and network-aware costs change nothing"),
    Row("beyond the thesis", "Alibaba's OpenB log on eight of its nodes, with tasks of CPUs alone:"
        " waits fall", OPENB, tuple(less(who, "wait_mean_s", WITHOUT) for who in (WITH, AWARE)),
        because="another workload than the thesis's"),
    Row("section 5.3.3, storage", "a third phase places storage as the second does GPUs",
        because="none of the thesis's experiments has storage to place, and Slurm has none that"
        " one node could lend another; it would be phase 2 once more"),
    Row("section 5.3.3, racks", "rack-nodes have GPUs to lend and host no task",
        because="no experiment of the thesis has them; to the planner they are machines without"
        " CPUs, which is what half of the testbed's machines are for the first 800 s"),
)  # fmt: skip

CLAIMS = (
    Claim(GANGS, "jobs of several GPUs and tasks gain from remote GPUs as jobs of one do, and are"
          " no more than 2 % worse off than with Algorithm 5 as printed.",
          (at_least("ours, no remote GPUs", "makespan_s", "ours, remote GPUs for all", 1.13),
           *(at_most(f"ours, {share}", "makespan_s", f"Algorithm 5 as printed, {share}", 1.02)
             for share in _SHARES))),
    Claim(APPLICATIONS, "by the printed shares a full network slows NW 1.63 times, the"
          " other six applications at most 1.11 times.",
          (near("nw", "slowdown", 1.63, 0.01),
           *(at_most(name, "slowdown", 1.11) for name in RODINIA if name != "nw"))),
    Claim(TESTBED, "remote GPUs shorten the makespan by at least a tenth, to within 6 % of what any"
          " plan could.",
          (at_least(WITH, "speedup", 1.1), at_least(WITH, "speedup", BOUND, 0.94))),
    Claim(SCALE, "remote GPUs shorten the makespan, and network-aware costs shorten it further and"
          " lower the slowdowns.",
          (at_least(WITH, "speedup", 1.1), at_least(AWARE, "speedup", WITH),
           at_most(AWARE, "slowdown_mean", WITH))),
    Claim(NETWORK, "remote GPUs shorten the makespan, and network-aware costs lower the slowdowns.",
          (at_least(WITH, "speedup", 1.1), at_most(AWARE, "slowdown_mean", WITH))),
)  # fmt: skip


def _makespan(figure: str) -> Plot:
    return Plot("makespan", f"{figure}: makespan", "bars", "s", metrics={"makespan_s": "makespan"})


def _overhead(figure: str) -> Plot:
    metrics = {
        "plan_median_ms": "median",
        "plan_mean_ms": "mean",
        "plan_p95_ms": "95th percentile",
        "plan_longest_ms": "longest",
    }
    title = f"{figure}: processor time of a plan"
    return Plot("overhead", title, "bars", "ms", metrics=metrics, is_log=True)


PLOTS = {
    "drmaestro-testbed": (_makespan("Figure 25"), _overhead("Figure 24")),
    "drmaestro-scale": (_makespan("Figures 26 and 30"), _overhead("Figure 27")),
    "drmaestro-gangs": (_makespan("Jobs of several GPUs and tasks"),),
    "drmaestro-network": (_makespan("Figure 28 and Table 9"),),
}
SWEEPS = (
    *(Sweep("drmaestro-openb", option,
            tuple((line, "wait_mean_s") for line in (WITHOUT, WITH, AWARE)))
      for option in ("nodes", "fractions")),
    Sweep("drmaestro-testbed", "in-reach", ((WITH, "speedup"), (BOUND, "speedup"))),
    *(Sweep(name, "in-reach", tuple((line, "speedup") for line in (WITH, AWARE, BOUND)))
      for name in ("drmaestro-scale", "drmaestro-network")),
    *(Sweep("drmaestro-network", option, ((WITH, "makespan_s"), (AWARE, "makespan_s"),
                                          (AWARE, "slowdown_mean")))
      for option in ("goal", "round-s", "preference")),
)  # fmt: skip

DRMAESTRO = Paper(
    "drmaestro", "DRMaestro (Amaral, doctoral thesis)", 31, 10, ROWS, CLAIMS, PLOTS, SWEEPS
)
