"""The papers' experiments by name: one command each, the paper's figures beside ours."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from papers.experiments.experiment import FILE, Experiment, Figures, Result

__all__ = ["Experiment", "Figures", "Result", "experiments"]

_LOADS = {"load": ("printed", "80", "95")}
_TWENTY = tuple(range(20))
_TEN = tuple(range(1, 11))
_GENIE = {"shapes": ("users", "smallest", "largest"), "model": ("calibrated", "genie"),
          "task-hours": ("0.5-3", "0.25-1.5", "0.5-1.5", "1-6")}  # fmt: skip
_YEARS = {"year": ("printed", "implied", "single-days", "busier", "more-cpus", "fewer-idle",
                   "saturated", "small-jobs")}  # fmt: skip
_LENT = {"middleware": ("paper", "measured", FILE)}
_OPENB = {**_LENT, "nodes": ("8", "6", "12"), "fractions": ("whole", "left-out")}
_ORDER = {
    "load": ("90", "80", "95"),
    "limits": ("5", "1", "2", "10", "alike"),
    "bound": ("10", "30", "60"),
}
_PREDICTED = {**_ORDER, "multiple": ("2", "1.5", "5", "10", "inf")}
_IN_REACH = {**_LENT, "in-reach": ("6", "8", "10", "12")}


def _family(
    prefix: str,
    module: str,
    seeds: Sequence[int],
    options: Mapping[str, tuple[str, ...]],
    **summaries: str,
) -> tuple[Experiment, ...]:
    """Experiments of one module with the same seeds and options: function -> what it is.

    Each is named by the prefix and its function.
    """
    return tuple(
        Experiment(
            prefix + function,
            summary,
            f"papers.experiments.{module}:{function}",
            tuple(seeds),
            options,
        )
        for function, summary in summaries.items()
    )


#: A new experiment is one row: name, what it is, where, seeds, options.
ROWS = (
    Experiment("sc17-table1",
        "TOPO-AWARE's Table 1: six jobs on one Minsky, with the exhaustive bound.",
        "papers.experiments.sc17.table1:run", (), {"variant": ("authors", "printed")}),
    *_family("sc17-", "sc17.scenarios", (), _LOADS,
        scenario1="TOPO-AWARE's scenario 1: 100 jobs on 5 machines.",
        scenario2="TOPO-AWARE's scenario 2: 10,000 jobs on 1,000 machines."),
    Experiment("sc17-profile",
        "TOPO-AWARE's figures 4 and 6: pack, spread and neighbours in the authors' own profile.",
        "papers.experiments.sc17.measured:run", ()),
    Experiment("sc17-graphs",
        "TOPO-AWARE's section 4.1.1: jobs of any weighted graph, placed by it or not.",
        "papers.experiments.sc17.graphs:run", (1, 2, 3)),
    Experiment("mapa-dgx1v",
        "MAPA's section 4.1 and Table 3: 300 jobs on a DGX-1V, with an oracle's bound.",
        "papers.experiments.mapa.dgx1v:run", _TWENTY,
        {"saturated-gbps": ("50", "40", "60")}),
    *_family("mapa-", "mapa.novel", _TWENTY, {},
        torus16="MAPA's section 5.3: the same jobs on a 16-GPU torus.",
        cubemesh16="MAPA's section 5.3: the same jobs on a 16-GPU cube-mesh."),
    Experiment("mapa-figure4",
        "MAPA's Figure 4: what fragmentation leaves of the best links, 100 jobs on a DGX-1V.",
        "papers.experiments.mapa.fragments:run", _TWENTY),
    Experiment("mapa-fit",
        "MAPA's section 3.4.3: what can be checked of the fit of eq. 2.",
        "papers.experiments.mapa.fit:run", ()),
    Experiment("mapa-overhead",
        "MAPA's section 5.4: what a decision costs by job and machine size.",
        "papers.experiments.mapa.overhead:run", ()),
    Experiment("genie-accuracy",
        "GENIE's performance model and the calibrated one against measured step times.",
        "papers.experiments.genie.accuracy:run", (1, 2, 3)),
    *_family("genie-", "genie.cluster", (1, 2, 3), _GENIE,
        cluster="GENIE's comparison of schedulers: 5, 10 and 20 tasks per hour on 16 GPUs.",
        sensitivity="GENIE's comparison by density, shares of the service classes and duration.",
        scale="GENIE's comparison of schedulers on 16 to 128 GPUs."),
    Experiment("rqueue-occupancy",
        "The R queue's section IV.B: which of 50 jobs has which GPU when, on five nodes.",
        "papers.experiments.rqueue.occupancy:run", tuple(range(1, 11)),
        {"submits": ("as-drawn", "at-once"), "picture": ("no", "text")}),
    *_family("rqueue-", "rqueue.tsubame", (1,), {**_LENT, **_YEARS},
        tsubame="The R queue's section IV.C: a synthetic year of TSUBAME2.5, 63,484 jobs on 480"
                " nodes.",
        shrink="The R queue's section IV.D and Table III: the same year on 450 to 480 nodes."),
    Experiment("rqueue-histograms",
        "The R queue's figures 9 to 11: by how much each job waits, runs and lives less.",
        "papers.experiments.rqueue.tsubame:decrease_histograms", (1,), _YEARS, 1),
    Experiment("rqueue-philly",
        "The R queue on Microsoft's Philly trace, on all, half or a third of its nodes.",
        "papers.experiments.rqueue.philly:run", (1,),
        {**_LENT, "nodes": ("all", "half", "third")}),
    Experiment("thesis-rodinia",
        "The thesis's section 3.3.3: applications with a remote GPU on an idle and a full network.",
        "papers.experiments.thesis.rodinia:run", ()),
    Experiment("rqueue-openb",
        "The R queue on Alibaba's OpenB trace, whose CPUs and memory bound the nodes.",
        "papers.experiments.rqueue.openb:run", (1,), _OPENB),
    Experiment("drmaestro-testbed",
        "DRMaestro's section 5.6.2: 512 jobs on 4 machines with and without remote GPUs.",
        "papers.experiments.drmaestro.runs:run_testbed", (1, 2, 3), _IN_REACH),
    Experiment("drmaestro-scale",
        "DRMaestro's section 5.6.4: 4,096 jobs on 128 machines.",
        "papers.experiments.drmaestro.runs:run_scale", (1, 2, 3), _IN_REACH),
    Experiment("drmaestro-network",
        "DRMaestro's section 5.6.5: 64 jobs on 4 machines, with and without network-aware costs.",
        "papers.experiments.drmaestro.runs:run_network", (1, 2, 3),
        {**_IN_REACH, "goal": ("1.01", "1.00"), "round-s": ("1", "5", "10"),
         "preference": ("2", "5", "10")}),
    Experiment("drmaestro-gangs",
        "DRMaestro with jobs of several GPUs and tasks: Algorithm 5 as printed, and ours.",
        "papers.experiments.drmaestro.gangs:run", (1, 2, 3),
        {"sizes": ("gangs", "several", "one"), "round-s": ("10", "1")}),
    Experiment("drmaestro-openb",
        "DRMaestro on Alibaba's OpenB trace: tasks of CPUs alone, parts of GPUs.",
        "papers.experiments.drmaestro.openb:run", (1,), _OPENB),
    Experiment("order-philly",
        "Shorter predicted work passes within a bound: Microsoft's Philly trace.",
        "papers.experiments.order.runs:on_philly", _TEN, _PREDICTED),
    Experiment("order-openb",
        "The same on Alibaba's OpenB trace.",
        "papers.experiments.order.runs:on_openb", _TEN, _PREDICTED),
    Experiment("order-mix",
        "The same on MAPA's mix, arriving one by one.",
        "papers.experiments.order.runs:on_mix", _TEN, _PREDICTED),
    Experiment("order-nodes",
        "The same where the GPUs are those of eight nodes.",
        "papers.experiments.order.runs:on_nodes", _TEN, {**_ORDER, "load": ("60", "50", "70")}),
    Experiment("horizon-waits",
        "What waiting for better GPUs is worth where jobs say how much they communicate.",
        "papers.experiments.horizon_waits:run", tuple(range(1000, 1010)),
        {"machine": ("dgx1v", "mi250x", "a100-pcie-bridged"), "load": ("85", "70", "95"),
         "durations": ("minutes", "hours")}, 0.5),
    Experiment("horizon-parts",
        "What each part of horizon is worth, by switching it off.",
        "papers.experiments.horizon_waits:parts", tuple(range(2000, 2010)),
        {"machine": ("dgx1v", "mi250x", "a100-pcie-bridged"), "load": ("95", "85"),
         "durations": ("minutes", "hours")}, 0.5),
    Experiment("horizon-exhaustive",
        "How near placements come to the best there are: six jobs on one node, all plans tried.",
        "papers.experiments.horizon_exhaustive:run", tuple(range(5000, 5200)),
        {"machine": ("dgx1v", "mi250x", "a100-pcie-bridged")}, 2),
)  # fmt: skip

#: About how many minutes of a processor the default takes, where it is not seconds.
_MINUTES = {
    "mapa-figure4": 0.4, "rqueue-histograms": 0.5, "genie-scale": 0.5, "mapa-cubemesh16": 1,
    "mapa-torus16": 1, "genie-sensitivity": 2, "drmaestro-scale": 2, "mapa-dgx1v": 2,
    "sc17-scenario2": 3, "order-philly": 4, "rqueue-tsubame": 4, "rqueue-shrink": 5,
    "order-nodes": 0.7,
}  # fmt: skip

experiments = {row.name: replace(row, minutes=_MINUTES.get(row.name, row.minutes)) for row in ROWS}
