"""Performance models: how long one iteration takes on a shape, by measured runs.

`fit` and `from_dict` know the kinds by name: `calibrated` (the default) and `genie`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from policies.errors import ProfileError
from policies.performance import calibrated, paper
from policies.performance.nouns import (
    INFERENCE,
    TASKS,
    TRAINING,
    Estimate,
    PerformanceModel,
    Shape,
    Work,
    fitting,
    shapes_of,
)
from policies.performance.runs import Run, lightweight, read_runs

__all__ = [
    "INFERENCE",
    "KINDS",
    "TASKS",
    "TRAINING",
    "Estimate",
    "PerformanceModel",
    "Run",
    "Shape",
    "Work",
    "fit",
    "fitting",
    "from_dict",
    "lightweight",
    "read_runs",
    "shapes_of",
]

_FIT: Mapping[str, Callable[[Sequence[Run], float], PerformanceModel]] = {
    "calibrated": calibrated.fit,
    "genie": paper.fit,
}
_READ: Mapping[str, Callable[[Mapping[str, Any]], PerformanceModel]] = {
    "calibrated": calibrated.from_dict,
    "genie": paper.from_dict,
}
#: The kinds of model, the default first.
KINDS = tuple(_FIT)


def fit(kind: str, runs: Sequence[Run], startup_s: float = 0.0) -> PerformanceModel:
    """A model of these runs; ProfileError for a kind there is not, or too few runs."""
    if kind not in _FIT:
        raise ProfileError(f"model {kind!r}; expected one of {', '.join(KINDS)}")
    return _FIT[kind](runs, startup_s)


def from_dict(data: Mapping[str, Any]) -> PerformanceModel:
    """A stored model; ProfileError where it is none of ours."""
    try:
        return _READ[data["kind"]](data)
    except (KeyError, TypeError, ValueError) as error:
        raise ProfileError(
            f"stored model: {error!r}; expected one written by `gputopo profile fit`: fit it again"
        ) from error
