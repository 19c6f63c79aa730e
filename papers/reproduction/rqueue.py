"""The R queue (Markthub et al., PDCAT 2014): its rows."""

from __future__ import annotations

from dataclasses import replace

from papers.experiments.rqueue.tsubame import TABLE_3, TIMES
from papers.reproduction.checks import at_least, at_most, less, more, number, printed
from papers.reproduction.claims import Claim, ExperimentRun, Paper, Row, Sweep
from papers.reproduction.plots import Plot
from papers.reproduction.rule import PARTLY

G_QUEUE, SHARED = "g-queue", "nodes shared, nothing remote"
LETTER = "r-queue, Figure 6 to the letter"
R_QUEUE, LOCAL = "r-queue, the paper's donors", "r-queue, local first"
BOUND = "bound: one pool of all GPUs"
TSUBAME, SHRINK = ExperimentRun("rqueue-tsubame"), ExperimentRun("rqueue-shrink")
BUSY, PHILLY = (
    ExperimentRun("rqueue-occupancy", {"submits": "at-once"}),
    ExperimentRun("rqueue-philly", {"nodes": "half"}),
)
HISTOGRAMS = ExperimentRun("rqueue-histograms")
OPENB = ExperimentRun("rqueue-openb")
_SAME = "-1 to 1 s"
_YEAR = (
    "no log of TSUBAME2.5 is public; what a synthetic year leaves to gain decides the size (rows"
    " `bound`, `Figure 6 to the letter`)"
)


def _table3(time: str, says: str) -> Row:
    """One of Table III's times: how much it falls in the mean, with its sign."""
    at = TIMES.index(time)
    means = {f"{time}_decrease_{n}_nodes_s": times[at][0] for n, times in TABLE_3.items()}
    words = ", ".join(map(number, means.values()))
    return Row(
        "Table 3",
        f"{says} by {words} s on 450, 460, 470 and 480 nodes",
        SHRINK,
        (
            *(printed(R_QUEUE, metric, f"{mean:.2f}") for metric, mean in means.items()),
            *((less if mean < 0 else more)(R_QUEUE, metric, 0) for metric, mean in means.items()),
        ),
        because=_YEAR,
    )


_ROWS = (
    Row("Figures 1, 3", "the queues, and a job with remote GPUs: drawings", is_result=False),
    Row("Figures 5, 6", "the algorithms of the two queues", is_result=False),
    Row("Tables 1, 2", "a job's attributes, and a node's", is_result=False),
    Row("Figure 2", "how many nodes had 1, 2 and 3 GPUs in use in a year",
        because="a log that is not public; the synthetic year takes its shape and 78.02 idle GPUs"),
    Row("Figure 4", "time of cudaMemcpy with rCUDA under contention",
        because="it measures rCUDA on two K20, which needs the machines; eq. 2 is what the"
        " simulator goes by"),
    Row("Figures 7, 8", "50 jobs on five nodes: the R queue runs more jobs in most of the time, and"
        " some jobs run longer", BUSY,
        (more(R_QUEUE, "more_jobs_percent", 50), more(R_QUEUE, "longer_percent", 0)),
        because="of the 50 drawn jobs eight in ten ask for all three GPUs of a node, so there is"
        " little to share"),
    Row("Figure 9", "waits fall by 25.24 % on average; 0.81 % of the jobs wait longer, by 3.51"
        " minutes (210.6 s) in the mean", TSUBAME,
        (printed(R_QUEUE, "wait_decrease_percent", "25.24"),
         printed(R_QUEUE, "waiting_longer_percent", "0.81"),
         printed(R_QUEUE, "waiting_longer_s", "210.6"),
         more(R_QUEUE, "wait_decrease_percent", 0), more(R_QUEUE, "waiting_longer_percent", 0)),
        because=_YEAR),
    Row("Figure 9, as printed", "the same by Figure 6 to the letter, whose loop ends at the first"
        " donor", TSUBAME,
        (printed(LETTER, "wait_decrease_percent", "25.24"),
         printed(LETTER, "waiting_longer_percent", "0.81"),
         printed(LETTER, "waiting_longer_s", "210.6"),
         more(LETTER, "wait_decrease_percent", 0), more(LETTER, "waiting_longer_percent", 0)),
        because="the paper's 25.24 % lie between the two readings of its Figure 6"),
    Row("Figure 10", "execution takes 0.03 % longer on average", TSUBAME,
        (printed(R_QUEUE, "execution_increase_percent", "0.03"),
         more(R_QUEUE, "execution_increase_percent", 0)), because=_YEAR),
    Row("Figure 11", "lifetimes fall by 5.06 % on average", TSUBAME,
        (printed(R_QUEUE, "life_decrease_percent", "5.06"),
         more(R_QUEUE, "life_decrease_percent", 0)), because=_YEAR),
    Row("section IV.C", "idle GPUs fall from 78.02 to 66.56", TSUBAME,
        (printed(R_QUEUE, "idle_gpus", "66.56"), less(R_QUEUE, "idle_gpus", G_QUEUE)),
        because="the first is what the year is scaled to; on nodes that only lend GPUs idle ones"
        " come into the count, and the paper does not say whether it counts them"),
    _table3("life", "mean lifetimes fall"),
    _table3("wait", "mean waits fall"),
    _table3("execution", "mean execution times fall"),
    Row("Table 3, standard deviations", "over the jobs, of waits, execution times and lifetimes,"
        " on 450, 460, 470 and 480 nodes: on 480 of 6,678, 32.25 and 6,675 s", SHRINK,
        tuple(printed(R_QUEUE, f"{time}_decrease_{count}_nodes_spread_s", f"{spread:.2f}")
              for count, times in TABLE_3.items()
              for time, (_, spread) in zip(TIMES, times, strict=True)),
        because=_YEAR),
    Row("Figures 9 to 11, their shapes", "most jobs' lifetimes fall", HISTOGRAMS,
        (less(R_QUEUE, f"life_percent.{_SAME}", 50),),
        because="on most days of the synthetic year nobody waits, under either queue"),
    Row("beyond the paper", "Microsoft's Philly log on half of its nodes: waits fall", PHILLY,
        tuple(less(queue, "wait_mean_s", SHARED) for queue in (R_QUEUE, LOCAL)),
        because="another log than the paper's"),
    Row("beyond the paper, OpenB", "Alibaba's OpenB log on eight of its nodes, whose CPUs and"
        " memory bind: waits fall", OPENB,
        tuple(less(queue, "wait_mean_s", SHARED) for queue in (R_QUEUE, LOCAL)),
        because="another log than the paper's"),
)  # fmt: skip
#: The year is synthetic, and the logs are others: nowhere are the jobs the paper's.
ROWS = tuple(replace(row, best=PARTLY) for row in _ROWS)

CLAIMS = (
    Claim(TSUBAME, "remote GPUs cut the mean wait by at least a third on this synthetic year, to"
          " within 5 points of what any queue could, and lengthen execution by under 0.2 %.",
          (at_least(R_QUEUE, "wait_decrease_percent", 33),
           at_least(R_QUEUE, "wait_decrease_percent", BOUND, off=5),
           at_most(R_QUEUE, "execution_increase_percent", 0.2))),
    Claim(SHRINK, "20 nodes fewer keep the G queue's mean lifetime.",
          (at_least(R_QUEUE, "life_decrease_460_nodes_s", 0),)),
    Claim(BUSY, "where a queue forms more jobs run at once for longer than fewer do, and some run"
          " longer.",
          (at_least(R_QUEUE, "more_jobs_percent", (R_QUEUE, "fewer_jobs_percent")),
           at_least(R_QUEUE, "longer_percent", 0.1))),
    Claim(PHILLY, "on half of Philly's nodes remote GPUs cut the mean wait by more than half.",
          (at_most(R_QUEUE, "wait_mean_s", SHARED, 0.5),)),
    Claim(OPENB, "on eight of OpenB's nodes remote GPUs cut the mean wait, with local GPUs first by"
          " more than half, and so no job waits longer.",
          (at_most(R_QUEUE, "wait_mean_s", SHARED), at_most(LOCAL, "wait_mean_s", SHARED, 0.5),
           at_most(LOCAL, "waiting_longer_percent", 0))),
)  # fmt: skip

_LATER = {"under -3600 s": "< -1 h", "-3600 to -1 s": "< 0", _SAME: "same"}
_SOONER = {
    "1 to 60 s": "< 1 min",
    "60 to 3600 s": "< 1 h",
    "3600 to 21600 s": "< 6 h",
    "21600 to 86400 s": "< 1 d",
    "over 86400 s": "> 1 d",
}
_LONGER = {
    "under -100 s": "< -100 s",
    "-100 to -10 s": "< -10 s",
    "-10 to -1 s": "< -1 s",
    _SAME: "same",
    "over 1 s": "> 1 s",
}
_QUEUES = (SHARED, LETTER, R_QUEUE, LOCAL, BOUND)
PLOTS = {
    "rqueue-tsubame": (
        Plot("decreases", "Figures 9 and 11: against the G queue", "bars", "% less",
             metrics={"wait_decrease_percent": "wait", "life_decrease_percent": "lifetime"},
             policies=_QUEUES),
        Plot("idle", "Idle GPUs", "bars", "GPUs", metrics={
            "idle_gpus": "in use or lending", "idle_gpus_hosting": "hosting a task"},
             policies=(G_QUEUE, LETTER, R_QUEUE, LOCAL)),
    ),
    "rqueue-histograms": tuple(
        Plot(time, f"{figure}: decrease of {what}", "bars", "% of the jobs", is_log=True,
             metrics={f"{time}_percent.{bin}": label for bin, label in bins.items()})
        for time, figure, what, bins in (
            ("wait", "Figure 9", "the wait", _LATER | _SOONER),
            ("execution", "Figure 10", "the execution time", _LONGER),
            ("life", "Figure 11", "the lifetime", _LATER | _SOONER))
    ),
    "rqueue-shrink": (
        Plot("nodes", "Table 3: lifetime against the G queue on 480 nodes", "lines", "s less",
             "nodes", metrics={f"life_decrease_{n}_nodes_s": n for n in range(430, 490, 10)}),
    ),
    "rqueue-occupancy": (
        Plot("occupancy", "Figures 7 and 8: which job has which GPU", "timeline", "", "s",
             source="occupancy"),
    ),
    "rqueue-openb": (
        Plot("waits", "OpenB: mean wait", "bars", "s", metrics={"wait_mean_s": "mean wait"},
             policies=(SHARED, R_QUEUE, LOCAL)),
    ),
    "rqueue-philly": (
        Plot("waits", "Philly: mean wait", "bars", "s", metrics={"wait_mean_s": "mean wait"}),
    ),
}  # fmt: skip

_SHOWN = tuple(
    (queue, "wait_decrease_percent") for queue in (SHARED, LETTER, R_QUEUE, BOUND)
) + tuple((R_QUEUE, metric) for metric in (
    "execution_increase_percent", "life_decrease_percent", "idle_gpus", "idle_gpus_hosting"
))  # fmt: skip
SWEEPS = (
    Sweep("rqueue-tsubame", "year", _SHOWN),
    Sweep(
        "rqueue-shrink",
        "year",
        tuple((R_QUEUE, f"life_decrease_{n}_nodes_s") for n in TABLE_3),
        ("printed", "implied"),
    ),
    *(
        Sweep("rqueue-openb", option, tuple((q, "wait_mean_s") for q in (SHARED, R_QUEUE, LOCAL)))
        for option in ("nodes", "fractions")
    ),
    Sweep("rqueue-philly", "nodes", tuple((q, "wait_mean_s") for q in (SHARED, R_QUEUE, LOCAL))),
)

RQUEUE = Paper(
    "rqueue", "The R queue (Markthub et al., PDCAT 2014)", 11, 3, ROWS, CLAIMS, PLOTS, SWEEPS
)
