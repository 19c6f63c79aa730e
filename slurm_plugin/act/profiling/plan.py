"""The plan of a profile: made from the cluster once, and then kept until it is worked off."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from policies.performance import Run as Measurement
from slurm_plugin.act.profiling import machine, measure, sweep
from slurm_plugin.act.profiling.machine import NodeConstraints
from slurm_plugin.act.profiling.progress import ProfileSettings, Progress
from slurm_plugin.act.profiling.submission import Submission
from slurm_plugin.act.profiling.sweep import DONE, FAILED, SKIPPED, WAITING
from slurm_plugin.errors import PluginError
from slurm_plugin.slurm.clients.command_line import SlurmClient

#: Iterations of one run (GENIE, section 5.1.5).
ITERATIONS = 100


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """What the user said; None and '' where nothing was."""

    name: str
    task: str
    batches: tuple[int, ...] | None = None
    nodes: tuple[int, ...] | None = None
    gpus_per_node: tuple[int, ...] | None = None
    iterations: int | None = None
    per_gpu: bool | None = None
    gpu_type: str = ""
    on: str = ""


def begin(
    client: SlurmClient, submission: Submission, asked: ProfileRequest, cwd: Path, now: float
) -> Progress:
    """A new plan; PluginError where the cluster has not what was asked."""
    constraints = NodeConstraints(
        submission.value("partition"),
        submission.value("constraint"),
        asked.gpu_type or submission.gpu_type,
        asked.on,
    )
    kind = machine.choose(client.nodes(), client.partitions(), constraints)
    batches = asked.batches or sweep.BATCHES
    settings = ProfileSettings(
        asked.name,
        asked.task,
        _words(submission),
        str(cwd),
        batches,
        sweep.within(asked.nodes, len(kind.names), sweep.NODES, "--nodes"),
        sweep.within(
            asked.gpus_per_node, kind.gpus_per_node, kind.gpus_per_node, "--gpus-per-node"
        ),
        asked.iterations or ITERATIONS,
        asked.per_gpu is not False,
        constraints.gpu_type,
        asked.on,
        kind.kind,
        kind.names,
        kind.others,
    )
    return Progress(settings, [sweep.ProfilingRun(1, 1, batch) for batch in batches], int(now))


def check_same(
    progress: Progress, submission: Submission, asked: ProfileRequest, cwd: Path
) -> None:
    """PluginError where a plan was begun otherwise than is asked now."""
    kept = progress.settings
    names = ("name", "task", "batches", "nodes", "gpus_per_node", "iterations", "gpu_type", "on")
    pairs: dict[str, tuple[object, object]] = {
        f"--{name.replace('_', '-')}": (getattr(asked, name), getattr(kept, name)) for name in names
    }
    pairs |= {
        "--tasks": (_tasks(asked.per_gpu), _tasks(kept.per_gpu)),
        "the command": (shlex.join(_words(submission)), shlex.join(kept.words)),
        "the working directory": (str(cwd), kept.cwd),
    }
    for what, (now, before) in pairs.items():
        if now not in (None, "") and now != before:
            raise PluginError(
                f"{what} is {_shown(now)}, but this profile was begun with {_shown(before)}: give"
                " the same again, or another --folder"
            )


def again(progress: Progress) -> int:
    """Let runs that failed or were skipped be made again. Returns how many there are."""
    unfinished = [run for run in progress.runs if run.state in (FAILED, SKIPPED)]
    for run in unfinished:
        run.state, run.failures, run.job, run.note = WAITING, 0, 0, ""
    if all(run.is_single for run in progress.runs):
        progress.is_shaped = False
    return len(unfinished)


def expected(progress: Progress) -> list[sweep.ProfilingRun]:
    """All runs of the plan; those over shapes as they will be if every batch works."""
    if progress.is_shaped:
        return progress.runs
    settings = progress.settings
    hoped = [sweep.ProfilingRun(1, 1, batch, DONE) for batch in settings.batches]
    more = sweep.shaped(hoped, settings.nodes, settings.gpus_per_node, settings.task)
    return [*progress.runs, *more]


def share_done(progress: Progress) -> float:
    """From 0 to 1: runs that are over, among all of the plan."""
    runs = expected(progress)
    return sum(run.state in sweep.OVER for run in progress.runs) / max(1, len(runs))


def measurements(progress: Progress) -> list[Measurement]:
    """What was measured, as the models are fitted from it."""
    return [
        Measurement(run.nodes, run.shape.gpus, run.local_batch, run.step_s)
        for run in progress.runs
        if run.state == DONE
    ]


def startup_s(progress: Progress) -> float:
    """Median seconds before the first iteration on one GPU; 0 where no run can tell."""
    known = [
        run.startup_s
        for run in progress.runs
        if run.state == DONE and run.is_single and run.by == measure.PRINTED and run.startup_s
    ]
    return median(known) if known else 0.0


def _words(submission: Submission) -> tuple[str, ...]:
    return (submission.command, *submission.words)


def _tasks(per_gpu: bool | None) -> str | None:
    return None if per_gpu is None else "gpu" if per_gpu else "node"


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
