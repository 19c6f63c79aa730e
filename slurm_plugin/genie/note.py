"""What Slurm keeps of a shaped job: `[gpu-shape: 2x4 key=value ...]` in its AdminComment.

Slurm alone keeps it, so that an engine that starts knows which shapes are its own to change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from policies.performance import Shape
from slurm_plugin import admin_comment
from slurm_plugin.admin_comment import SHAPE

#: The shape of a job that the engine has not seen yet: it is held until it has.
NONE = "none"

_SHAPE = re.compile(r"(\d{1,5})x(\d{1,3})")
_NUMBER = re.compile(r"\d{1,9}")
_KEYS = ("nodes", "max_nodes", "tasks", "tasks_per_node", "cpus_per_task")


@dataclass(frozen=True, slots=True)
class Shaped:
    """`shape` is None where none was chosen yet; `is_fixed`: the user's own, never changed.

    The numbers are what the user gave beside it (0: nothing); `is_held`: by the user's preferences;
    `token` finds the record of the submit.
    """

    shape: Shape | None
    is_fixed: bool = False
    is_held: bool = False
    token: str = ""
    nodes: int = 0
    max_nodes: int = 0
    tasks: int = 0
    tasks_per_node: int = 0
    cpus_per_task: int = 0

    def text(self) -> str:
        """The whole bracket, as it stands in the comment."""
        return admin_comment.with_inside("", SHAPE, self.inside())

    def inside(self) -> str:
        """What stands in the bracket."""
        words = [str(self.shape) if self.shape else NONE]
        words += [f"{key}={getattr(self, key)}" for key in _KEYS if getattr(self, key)]
        words += [f"t={self.token}"] if self.token else []
        words += ["fixed"] if self.is_fixed else []
        words += ["held"] if self.is_held else []
        return " ".join(words)


def read(comment: str) -> Shaped | None:
    """The bracket in a comment; None without one, or with one that is not ours."""
    words = (admin_comment.inside(comment, SHAPE) or "").split()
    if not words:
        return None
    shape = None
    if words[0] != NONE:
        found = _SHAPE.fullmatch(words[0])
        if found is None or not int(found[1]) or not int(found[2]):
            return None
        shape = Shape(int(found[1]), int(found[2]))
    values = dict(word.partition("=")[::2] for word in words[1:])
    numbers = {key: int(values[key]) for key in _KEYS if _NUMBER.fullmatch(values.get(key, ""))}
    return Shaped(
        shape,
        is_fixed="fixed" in values,
        is_held="held" in values,
        token=values.get("t", "")[:32],
        **numbers,
    )


def replaced(comment: str, shaped: Shaped) -> str:
    """The comment with this bracket in place of the one it has."""
    return admin_comment.with_inside(comment, SHAPE, shaped.inside())
