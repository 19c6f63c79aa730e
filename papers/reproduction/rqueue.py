"""The R queue (Markthub et al., PDCAT 2014): its rows."""

from __future__ import annotations

from papers.reproduction.checks import at_least, at_most, near
from papers.reproduction.claims import PARTLY, Claim, ExperimentRun, Paper, Row, Sweep
from papers.reproduction.plots import Plot

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
    "no log of TSUBAME2.5 is public; on a synthetic year the sign is the paper's and the size is"
    " not: what the year leaves to gain decides it (rows `bound`, `Figure 6 to the letter`)"
)
#: Table III: nodes -> seconds by which lifetimes fall.
TABLE_3 = {450: -907.29, 460: -37.42, 470: 444.83, 480: 959.65}

ROWS = (
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
        (at_least(R_QUEUE, "more_jobs_percent", 50),
         at_least(R_QUEUE, "more_jobs_percent", (R_QUEUE, "fewer_jobs_percent")),
         at_least(R_QUEUE, "longer_percent", 0.1),
         at_most(R_QUEUE, "wait_mean_s", G_QUEUE)),
        because="of the 50 drawn jobs eight in ten ask for all three GPUs of a node, so there is"
        " little to share"),
    Row("Figure 9", "waits fall by 25.24 % on average; 0.81 % of the jobs wait longer", TSUBAME,
        (near(R_QUEUE, "wait_decrease_percent", 25.24, 0, off=5),
         at_least(R_QUEUE, "wait_decrease_percent", 0),
         at_most(R_QUEUE, "waiting_longer_percent", 0.81)), because=_YEAR),
    Row("Figure 9, as printed", "the same by Figure 6 to the letter, whose loop ends at the first"
        " donor", TSUBAME,
        (near(LETTER, "wait_decrease_percent", 25.24, 0, off=5),
         at_least(LETTER, "wait_decrease_percent", 0)),
        because="the paper's figure lies between the two readings of its Figure 6"),
    Row("Figure 10", "execution takes 0.03 % longer on average", TSUBAME,
        (near(R_QUEUE, "execution_increase_percent", 0.03, 0, off=0.05),)),
    Row("Figure 11", "lifetimes fall by 5.06 % on average", TSUBAME,
        (near(R_QUEUE, "life_decrease_percent", 5.06, 0, off=2.5),
         at_least(R_QUEUE, "life_decrease_percent", 0)), because=_YEAR),
    Row("section IV.C", "idle GPUs fall from 78.02 to 66.56", TSUBAME,
        (near(R_QUEUE, "idle_gpus", 66.56, 0.05),
         at_most(R_QUEUE, "idle_gpus_hosting", (G_QUEUE, "idle_gpus_hosting")),
         at_most(R_QUEUE, "idle_gpus_wanted", (G_QUEUE, "idle_gpus_wanted"))),
        because="the first is what the year is scaled to; on nodes that only lend GPUs idle ones"
        " come into the count, and the paper does not say whether it counts them"),
    Row("Table 3", "mean lifetimes fall by -907 s (450 nodes), -37 (460), 445 (470), 960 (480)",
        SHRINK,
        (*(near(R_QUEUE, f"life_decrease_{count}_nodes_s", seconds, 0, off=250)
           for count, seconds in TABLE_3.items()),
         at_least(R_QUEUE, "life_decrease_460_nodes_s", -37.42)), because=_YEAR),
    Row("Table 3, standard deviations", "over the jobs, on 480 nodes: of waits 6,678 s, of"
        " execution times 32.25 s, of lifetimes 6,675 s", TSUBAME,
        (near(R_QUEUE, "wait_decrease_spread_s", 6678.48, 0.25),
         near(R_QUEUE, "execution_decrease_spread_s", 32.25, 0.5),
         near(R_QUEUE, "life_decrease_spread_s", 6674.77, 0.25),
         at_least(R_QUEUE, "wait_decrease_spread_s", (R_QUEUE, "wait_decrease_s"), 2)),
        because=_YEAR),
    Row("section IV.C, who waits longer", "by 3.51 minutes (210.6 s) in the mean", TSUBAME,
        (at_most(R_QUEUE, "waiting_longer_s", 210.6),)),
    Row("Figures 9 to 11, their shapes", "most jobs' lifetimes fall; many jobs run longer, few wait"
        " longer", HISTOGRAMS,
        (at_most(R_QUEUE, f"life_percent.{_SAME}", 50),
         at_most(R_QUEUE, "wait_percent.-3600 to -1 s", 0.81),
         at_most(R_QUEUE, f"execution_percent.{_SAME}", 95)),
        because="on most days of the synthetic year nobody waits, under either queue"),
    Row("beyond the paper", "Microsoft's Philly log on half of its nodes: waits fall, execution"
        " hardly grows", PHILLY,
        (at_most(R_QUEUE, "wait_mean_s", SHARED, 0.5), at_most(LOCAL, "wait_mean_s", SHARED, 0.5)),
        best=PARTLY, because="another log than the paper's"),
    Row("beyond the paper, OpenB", "Alibaba's OpenB log on eight of its nodes, whose CPUs and"
        " memory bind: waits fall, execution hardly grows", OPENB,
        (at_most(R_QUEUE, "wait_mean_s", SHARED), at_most(LOCAL, "wait_mean_s", SHARED, 0.5),
         at_most(R_QUEUE, "execution_increase_percent", 1)),
        best=PARTLY, because="another log than the paper's"),
)  # fmt: skip

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
