"""The tasks of an array in Slurm's words, as ranges: an array may have millions of them."""

from __future__ import annotations

import re
from typing import Any


def task_runs(text: str) -> tuple[range, ...]:
    """The task numbers of `1-3,7%2` or `0-8:4`; ValueError for one cut short (`1-3,...`)."""
    runs = []
    for part in filter(None, text.partition("%")[0].strip("[]").split(",")):
        match = re.fullmatch(r"(\d{1,8})(?:-(\d{1,8})(?::(\d{1,8}))?)?", part)
        if match is None or match[3] == "0":
            raise ValueError(f"{text[:60]!r} are no array tasks; expected forms like 1-3,7")
        first = int(match[1])
        runs.append(range(first, int(match[2] or first) + 1, int(match[3] or 1)))
    return tuple(runs)


def ranges(runs: tuple[range, ...]) -> str:
    """(1, 2, 3, 7) as `1-3,7`; tasks with steps between them one by one."""
    merged: list[list[int]] = []
    for run in runs:
        pairs = [(run[0], run[-1])] if run.step == 1 and run else zip(run, run, strict=True)
        for first, last in pairs:
            if merged and first == merged[-1][1] + 1:
                merged[-1][1] = last
            else:
                merged.append([first, last])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in merged)


def fields(job_id: int, array_id: int, task_id: int, waiting: str) -> dict[str, Any]:
    """QueuedJob's `name`, `task` and `tasks`; `waiting` is the text of tasks that wait together.

    Raises ValueError for a text cut short.
    """
    together = task_runs(waiting)
    # A task by itself has a number, and 0 is one.
    task = task_id if array_id and not together else None
    return {
        "name": _update_name(job_id, array_id, task, together),
        "task": ranges(together) if task is None else str(task),
        "tasks": sum(map(len, together)) or 1,
    }


def _update_name(job_id: int, array_id: int, task: int | None, together: tuple[range, ...]) -> str:
    """What `scontrol update` and the others call the job (never the whole array by mistake)."""
    if together:
        text = ranges(together)
        return f"{array_id}_{text}" if text.isdecimal() else f"{array_id}_[{text}]"
    return str(job_id) if task is None else f"{array_id}_{task}"


def is_part(name: str, whole: str) -> bool:
    """Are the tasks that an update calls `name` all among those that it calls `whole`?

    Both as `fields` makes such names: `4_2`, `4_[2-9]`, `7` for a job of no array.
    """
    array, _, tasks = name.partition("_")
    other, _, more = whole.partition("_")
    if array != other or not tasks or not more:
        return False
    wide = task_runs(more)
    return all(any(one[0] in run and one[-1] in run for run in wide) for one in task_runs(tasks))
