"""The papers' experiments by name: one command each, the paper's figures beside ours.

An experiment is a function `(seeds, **options) -> Result` in a module of its own, named
here as "module:function" and imported only when it is run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from policies.registry import registry as policies
from simulation.errors import SimulationError

#: {policy: {metric: value}}; times in seconds and named `..._s`. None: not given, not defined.
Figures = Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True, slots=True)
class Result:
    """What an experiment found, in the shape of its JSON.

    `paper` holds what the paper prints, by the same policies and metrics; whatever was
    done otherwise than in the paper stands in `notes`, one sentence each.
    """

    experiment: str
    seeds: tuple[int, ...]
    measured: Figures
    paper: Figures
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment: where it is, the seeds it uses by default, what can be chosen.

    `options` maps a name (`variant`) to the words allowed, the default first; the run gets
    them as keyword arguments with `-` written `_`. `needs` are the policies it compares: where
    one is not installed the experiment is not offered.
    """

    name: str
    summary: str
    where: str
    seeds: tuple[int, ...] = (1,)
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def run(self, seeds: Sequence[int] | None = None, **options: str) -> Result:
        """Run it; SimulationError for an option or word it does not have."""
        chosen = {name: words[0] for name, words in self.options.items()}
        for key, word in options.items():
            name = key.replace("_", "-")
            if word not in self.options.get(name, ()):
                allowed = ", ".join(self.options.get(name, ())) or "no such option"
                raise SimulationError(f"{self.name}: {name}={word!r}: expected {allowed}")
            chosen[name] = word
        module, _, function = self.where.partition(":")
        run: Callable[..., Result] = getattr(importlib.import_module(module), function)
        words = {name.replace("-", "_"): word for name, word in chosen.items()}
        return run(tuple(self.seeds if seeds is None else seeds), **words)


class Registry:
    """Names -> experiments; a name is taken once."""

    def __init__(self) -> None:
        self._found: dict[str, Experiment] = {}

    def register(self, experiment: Experiment) -> None:
        """Add one; SimulationError if its name is taken."""
        if experiment.name in self._found:
            raise SimulationError(
                f"an experiment named {experiment.name!r} is registered already"
                f" ({self._found[experiment.name].where}); choose another name"
            )
        self._found[experiment.name] = experiment

    def get(self, name: str) -> Experiment:
        """The experiment of that name; SimulationError lists those there are."""
        try:
            return self._found[name]
        except KeyError:
            raise SimulationError(
                f"no experiment named {name!r}: expected one of {', '.join(self.names())}"
            ) from None

    def names(self) -> tuple[str, ...]:
        """The experiments offered here, in the order of registration."""
        installed = set(policies.names())
        return tuple(
            name for name, found in self._found.items() if installed.issuperset(found.needs)
        )


#: Ours. A new experiment is one `register` below.
experiments = Registry()

_SC17 = ("fcfs", "best-fit", "topo-aware", "topo-aware-p")
_LOADS = {"load": ("printed", "80", "95")}
experiments.register(
    Experiment(
        "sc17-table1",
        "TOPO-AWARE's Table 1: six jobs on one Minsky, with the exhaustive bound.",
        "simulation.experiments.sc17.table1:run",
        seeds=(),
        options={"variant": ("authors", "printed")},
        needs=_SC17,
    )
)
experiments.register(
    Experiment(
        "sc17-scenario1",
        "TOPO-AWARE's scenario 1: 100 jobs on 5 machines.",
        "simulation.experiments.sc17.scenarios:scenario1",
        seeds=(),
        options=_LOADS,
        needs=_SC17,
    )
)
experiments.register(
    Experiment(
        "sc17-scenario2",
        "TOPO-AWARE's scenario 2: 10,000 jobs on 1,000 machines.",
        "simulation.experiments.sc17.scenarios:scenario2",
        seeds=(),
        options=_LOADS,
        needs=_SC17,
    )
)

_MAPA = ("first-fit", "best-fit", "mapa-greedy", "mapa-preserve", "mapa")
_SEEDS = tuple(range(20))
experiments.register(
    Experiment(
        "mapa-dgx1v",
        "MAPA's section 4.1 and Table 3: 300 jobs on a DGX-1V, with an oracle's bound.",
        "simulation.experiments.mapa.dgx1v:run",
        seeds=_SEEDS,
        needs=_MAPA,
    )
)
experiments.register(
    Experiment(
        "mapa-torus16",
        "MAPA's section 5.3: the same jobs on a 16-GPU torus.",
        "simulation.experiments.mapa.novel:torus16",
        seeds=_SEEDS,
        needs=_MAPA,
    )
)
experiments.register(
    Experiment(
        "mapa-cubemesh16",
        "MAPA's section 5.3: the same jobs on a 16-GPU cube-mesh.",
        "simulation.experiments.mapa.novel:cubemesh16",
        seeds=_SEEDS,
        needs=_MAPA,
    )
)
experiments.register(
    Experiment(
        "mapa-overhead",
        "MAPA's section 5.4: what a decision costs by job and machine size.",
        "simulation.experiments.mapa.overhead:run",
        seeds=(),
        needs=_MAPA,
    )
)

experiments.register(
    Experiment(
        "genie-accuracy",
        "GENIE's performance model and the calibrated one against measured step times.",
        "simulation.experiments.genie.accuracy:run",
        seeds=(1, 2, 3),
    )
)
_GENIE = {"shapes": ("users", "smallest", "largest"), "model": ("calibrated", "genie")}
experiments.register(
    Experiment(
        "genie-cluster",
        "GENIE's comparison of schedulers: 5, 10 and 20 tasks per hour on 16 GPUs.",
        "simulation.experiments.genie.cluster:cluster",
        seeds=(1, 2, 3),
        options=_GENIE,
    )
)
experiments.register(
    Experiment(
        "genie-sensitivity",
        "The same over densities, shares of the service classes and durations.",
        "simulation.experiments.genie.cluster:sensitivity",
        seeds=(1, 2, 3),
        options=_GENIE,
    )
)
experiments.register(
    Experiment(
        "genie-scale",
        "The same on 16 to 128 GPUs.",
        "simulation.experiments.genie.cluster:scale",
        seeds=(1, 2, 3),
        options=_GENIE,
    )
)

_YEARS = {
    "year": (
        "printed",
        "implied",
        "single-days",
        "busier",
        "more-cpus",
        "fewer-idle",
        "saturated",
        "small-jobs",
    )
}
experiments.register(
    Experiment(
        "rqueue-occupancy",
        "The R queue's section IV.B: which of 50 jobs has which GPU when, on five nodes.",
        "simulation.experiments.rqueue.occupancy:run",
        seeds=tuple(range(1, 11)),
        options={"submits": ("as-drawn", "at-once"), "picture": ("no", "text")},
    )
)
experiments.register(
    Experiment(
        "rqueue-tsubame",
        "The R queue's section IV.C: a synthetic year of TSUBAME2.5, 63,484 jobs on 480 nodes.",
        "simulation.experiments.rqueue.tsubame:tsubame",
        seeds=(1,),
        options=_YEARS,
    )
)
experiments.register(
    Experiment(
        "rqueue-shrink",
        "The R queue's section IV.D: the same year on 450 to 480 nodes.",
        "simulation.experiments.rqueue.tsubame:shrink",
        seeds=(1,),
        options=_YEARS,
    )
)
experiments.register(
    Experiment(
        "rqueue-philly",
        "The R queue on Microsoft's Philly trace, on all, half or a third of its nodes.",
        "simulation.experiments.rqueue.philly:run",
        seeds=(1,),
        options={"nodes": ("all", "half", "third")},
    )
)

_IN_REACH = {"in-reach": ("6", "8", "10", "12")}
experiments.register(
    Experiment(
        "drmaestro-testbed",
        "DRMaestro's section 5.6.2: 512 jobs on 4 machines with and without remote GPUs.",
        "simulation.experiments.drmaestro.runs:run_testbed",
        seeds=(1, 2, 3),
        options=_IN_REACH,
    )
)
experiments.register(
    Experiment(
        "drmaestro-scale",
        "DRMaestro's section 5.6.4: 4,096 jobs on 128 machines.",
        "simulation.experiments.drmaestro.runs:run_scale",
        seeds=(1, 2, 3),
        options=_IN_REACH,
    )
)
experiments.register(
    Experiment(
        "drmaestro-network",
        "DRMaestro's section 5.6.5: 64 jobs on 4 machines, with and without network-aware costs.",
        "simulation.experiments.drmaestro.runs:run_network",
        seeds=(1, 2, 3),
        options={**_IN_REACH, "goal": ("1.01", "1.00"), "round-s": ("1", "5", "10")},
    )
)
