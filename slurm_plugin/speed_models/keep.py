"""Fitting runs and storing the model: the same for runs from a file and from the profiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.performance import Run, fit
from policies.performance.similarity import Traits
from slurm_plugin.speed_models.database import Database, Profile


@dataclass(frozen=True, slots=True)
class Fitting:
    """What to fit, and what is known of the model besides its runs.

    `startup_s` is the seconds before the first iteration; `add` fits the stored runs too.
    """

    name: str
    task: str
    kind: str
    family: str = ""
    parameters_m: float | None = None
    startup_s: float = 0.0
    add: bool = False


def keep(database: Database, wanted: Fitting, runs: Sequence[Run]) -> Profile:
    """Fit and store; what was not said is taken from the stored profile where `add`."""
    family, parameters_m = wanted.family, wanted.parameters_m
    startup_s, runs = wanted.startup_s, list(runs)
    has_more = wanted.add and database.path.exists()
    before = database.get(wanted.name, wanted.task) if has_more else None
    if before is not None:
        runs = [*before.runs, *runs]
        family = family or before.traits.family
        parameters_m = parameters_m or before.traits.parameters_m
        startup_s = startup_s or before.model.startup_s
    model = fit(wanted.kind, runs, startup_s)
    profile = Profile(Traits(wanted.name, family, parameters_m), wanted.task, model, tuple(runs))
    database.put(profile)
    return profile
