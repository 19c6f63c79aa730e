"""What Slurm keeps of a shaped job: `[gpu-shape: 2x4 key=value ...]` in its AdminComment.

Slurm alone keeps it, so that an engine that starts knows which shapes are its own to change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from policies.performance import Shape

MARK = "[gpu-shape:"
#: The shape of a job that the engine has not seen yet: it is held until it has.
NONE = "none"

_BRACKET = re.compile(r"\s*\[gpu-shape: ([^\]]*)\]")
_SHAPE = re.compile(r"(\d{1,5})x(\d{1,3})")
_NUMBER = re.compile(r"\d{1,9}")
_KEYS = ("nodes", "max_nodes", "tasks", "tasks_per_node", "cpus_per_task")


@dataclass(frozen=True, slots=True)
class Shaped:
    """`shape` is None where none was chosen yet; `is_fixed`: the user's own, never changed.

    The numbers are what the user gave beside it (0: nothing); `is_held`: by the user's wish;
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
        """The bracket as it stands in the comment."""
        words = [str(self.shape) if self.shape else NONE]
        words += [f"{key}={getattr(self, key)}" for key in _KEYS if getattr(self, key)]
        words += [f"t={self.token}"] if self.token else []
        words += ["fixed"] if self.is_fixed else []
        words += ["held"] if self.is_held else []
        return f"{MARK} {' '.join(words)}]"


def read(admin_comment: str) -> Shaped | None:
    """The bracket in a comment; None without one, or with one that is not ours."""
    match = _BRACKET.search(admin_comment)
    words = match[1].split() if match else []
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


def replaced(admin_comment: str, shaped: Shaped) -> str:
    """The comment with this bracket in place of the one it has, or at its end."""
    text = shaped.text()
    if _BRACKET.search(admin_comment):
        return _BRACKET.sub(lambda _: f" {text}", admin_comment, count=1).strip()
    return f"{admin_comment} {text}".strip()
