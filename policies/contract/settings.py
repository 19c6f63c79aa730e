"""Settings of a policy: a frozen dataclass whose fields are keys of gputopo.yaml.

The class may have `conflict()`: key and sentence where values cannot go together, else None.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeVar

Value = TypeVar("Value", bool, int, float, str)


def setting(default: Value, about: str, *, low: float = 0, high: float = 2**31) -> Value:
    """A field that a site may set; its type is the default's.

    `about` is its line in the reference of the configuration; a number lies within `low` and
    `high`, both allowed. Words to choose from stand in the annotation: `Literal["near", "far"]`.
    """
    made: Value = field(default=default, metadata={"about": about, "low": low, "high": high})
    return made
