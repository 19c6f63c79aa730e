"""Performance models: how long one iteration takes on a shape, by measured runs.

`fit` and `from_dict` know the kinds by name: `calibrated` (the default) and `genie`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from policies.errors import ProfileError
from policies.performance import calibrated, paper
from policies.performance.calibrated import CalibratedModel
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
from policies.performance.paper import PaperModel
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
    "to_dict",
]

_FIT: Mapping[str, Callable[[Sequence[Run], float], PerformanceModel]] = {
    "calibrated": calibrated.fit,
    "genie": paper.fit,
}
_MODELS: Mapping[str, type[PerformanceModel]] = {
    "calibrated": CalibratedModel,
    "genie": PaperModel,
}
#: The types of a model's fields -> what makes a value of plain data; ValueError where it is none.
_CONVERT: Mapping[Any, Callable[[Any], Any]] = {
    "Floats": lambda rows: np.array(rows, dtype=np.float64), "float": float, "int": int
}  # fmt: skip
#: The kinds of model, the default first.
KINDS = tuple(_FIT)


def fit(kind: str, runs: Sequence[Run], startup_s: float = 0.0) -> PerformanceModel:
    """A model of these runs; ProfileError for a kind there is not, or too few runs."""
    if kind not in _FIT:
        raise ProfileError(f"model {kind!r}; expected one of {', '.join(KINDS)}")
    return _FIT[kind](runs, startup_s)


def to_dict(model: PerformanceModel) -> dict[str, Any]:
    """The model as plain data for JSON; arrays become lists."""
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    return {"kind": model.kind} | {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


def from_dict(data: Mapping[str, Any]) -> PerformanceModel:
    """The model that `to_dict` gave; ProfileError where it is none of ours."""
    try:
        model = _MODELS[data["kind"]]
        return model(
            **{field.name: _CONVERT[field.type](data[field.name]) for field in fields(model)}
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProfileError(
            f"stored model: {error!r}; expected one written by `gputopo profile fit`: fit it again"
        ) from error
