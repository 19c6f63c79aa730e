"""Settings of a policy: a frozen dataclass whose fields are keys of gputopo.yaml."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from policies.errors import RegistryError

Value = TypeVar("Value", bool, int, float, str)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a key of gputopo.yaml says beside its name and default."""

    #: One line for the reference of the configuration.
    doc: str
    #: Bounds of a number, both allowed.
    low: float = 0
    high: float = 2**31
    #: The words allowed, for a text; empty: any.
    choices: tuple[str, ...] = ()


def setting(
    default: Value,
    doc: str,
    *,
    low: float = 0,
    high: float = 2**31,
    choices: tuple[str, ...] = (),
) -> Value:
    """A field that a site may set; its type is the default's (yes or no, number or text)."""
    limits = Limits(doc, low, high, choices)
    made: Value = field(default=default, metadata={"limits": limits})
    return made


def settings_of(kind: type | None) -> dict[str, tuple[bool | int | float | str, Limits]]:
    """Default and limits by key, of a settings class; empty for None.

    Raises RegistryError where the class is no frozen dataclass, or a default is not allowed.
    """
    if kind is None:
        return {}
    if not is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise RegistryError(f"settings {kind!r}: expected a frozen dataclass")
    found = {one.name: (one.default, one.metadata["limits"]) for one in fields(kind)
             if "limits" in one.metadata}  # fmt: skip
    for name, (default, limits) in found.items():
        _check(f"settings {kind.__name__}.{name}", default, limits)
    return found


def _check(name: str, default: Any, limits: Limits) -> None:
    if not isinstance(default, (bool, int, float, str)):
        raise RegistryError(f"{name}: default {default!r}; expected yes or no, a number or a text")
    if isinstance(default, str):
        if limits.choices and default not in limits.choices:
            raise RegistryError(f"{name}: {default!r}; expected one of {limits.choices}")
    elif not limits.low <= default <= limits.high:
        raise RegistryError(f"{name}: {default}; expected {limits.low:g} to {limits.high:g}")
