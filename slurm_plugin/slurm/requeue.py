"""Putting a running job back into the queue, and whether Slurm would."""

from __future__ import annotations

import re
from collections.abc import Iterable

from slurm_plugin.slurm.runner import Runner

_FIELD = re.compile(r"(?:^| )(JobId|Requeue|BatchFlag)=(\d+)")


def requeueable(run: Runner, jobs: Iterable[int]) -> set[int]:
    """Those of the jobs that are batch jobs and may be requeued; SlurmError without an answer."""
    found = set()
    for job in jobs:
        line = run(["scontrol", "--oneliner", "show", "job", str(job)])
        fields = {name: int(value) for name, value in reversed(_FIELD.findall(line))}
        if fields.get("Requeue") == fields.get("BatchFlag") == 1:
            found.add(job)
    return found


def requeue_held(run: Runner, name: str) -> None:
    """The job ends and waits, held, under its number; SlurmError with Slurm's words."""
    run(["scontrol", "requeuehold", name])
