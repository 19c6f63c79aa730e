"""`[gpu-shape: 2x4 key=value ...]`: the shape of a job that GENIE chose or may still change."""

from __future__ import annotations

import re
from dataclasses import dataclass

from policies.performance import Shape
from slurm_plugin.base.job_notes.brackets import SHAPE, bracket, inside, with_inside

#: The shape of a job that the engine has not seen yet; the job is held until then.
_NONE = "none"
_SHAPE = re.compile(r"(\d{1,5})x(\d{1,3})")
_NUMBER = re.compile(r"\d{1,9}")
_KEYS = ("nodes", "max_nodes", "tasks", "tasks_per_node", "cpus_per_task")


@dataclass(frozen=True, slots=True)
class ShapeNote:
    """A job's shape, and what the user asked for beside it (0: nothing)."""

    #: None where none was chosen yet.
    shape: Shape | None
    #: It is the user's own and never changed.
    is_fixed: bool = False
    #: The user wants the job held.
    is_held: bool = False
    #: Finds the record of the submit.
    token: str = ""
    nodes: int = 0
    max_nodes: int = 0
    tasks: int = 0
    tasks_per_node: int = 0
    cpus_per_task: int = 0

    def text(self) -> str:
        """The whole bracket, as it stands in the comment."""
        return bracket(SHAPE, self.inside())

    def written_into(self, comment: str) -> str:
        """The comment with this entry in place of the one it has."""
        return with_inside(comment, SHAPE, self.inside())

    def inside(self) -> str:
        """What stands in the bracket."""
        words = [str(self.shape) if self.shape else _NONE]
        words += [f"{key}={getattr(self, key)}" for key in _KEYS if getattr(self, key)]
        words += [f"t={self.token}"] if self.token else []
        words += ["fixed"] if self.is_fixed else []
        words += ["held"] if self.is_held else []
        return " ".join(words)


def shape_note_in(comment: str) -> ShapeNote | None:
    """The entry in a comment; None without one, or with one that is not ours."""
    words = (inside(comment, SHAPE) or "").split()
    if not words:
        return None
    shape = None
    if words[0] != _NONE:
        match = _SHAPE.fullmatch(words[0])
        if match is None or not int(match[1]) or not int(match[2]):
            return None
        shape = Shape(int(match[1]), int(match[2]))
    values = dict(word.partition("=")[::2] for word in words[1:])
    numbers = {key: int(values[key]) for key in _KEYS if _NUMBER.fullmatch(values.get(key, ""))}
    return ShapeNote(
        shape,
        is_fixed="fixed" in values,
        is_held="held" in values,
        token=values.get("t", "")[:32],
        **numbers,
    )
