"""`gputopo profile run`: measure a script on few shapes as Slurm jobs, and fit a model."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_plugin.cli.options import (
    checked_profile,
    database_option,
    fitting_options,
    number_option,
    task_option,
)

if TYPE_CHECKING:
    from slurm_plugin.act.profiling.loop import SlurmAccess
    from slurm_plugin.act.profiling.plan import ProfileRequest
    from slurm_plugin.act.profiling.progress import Folder, Progress
    from slurm_plugin.act.profiling.submission import RunOptions, Submission


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- sbatch [OPTIONS] SCRIPT")
@click.option("--name", help="The profile's name (default: the script's).")
@task_option
@click.option(
    "--batches", metavar="N,N", help="Samples per GPU, on one GPU.  [default: 8,16,...,256]"
)
@click.option(
    "--nodes", metavar="N,N", help="Nodes, of one GPU each.  [default: 1,2,4,... as there are]"
)
@click.option(
    "--gpus-per-node", metavar="N,N", help="GPUs, on one node.  [default: 1,2,4,... as there are]"
)
@click.option(
    "--iterations",
    type=click.IntRange(1, 10**9),
    help="Iterations of a run, told to the script.  [default: 100]",
)
@number_option("--limit", 1, 1440, 10, "Minutes a run may take.")
@click.option("--on", default="", metavar="NODES", help="Only these nodes (a host list).")
@click.option(
    "--gpu-type", default="", help="Only GPUs of this type.  [default: as the script asks]"
)
@click.option(
    "--tasks",
    type=click.Choice(("gpu", "node")),
    help="One task per GPU, or one per node.  [default: gpu]",
)
@number_option("--at-once", 1, 64, 1, "Runs at the same time.")
@number_option("--tries", 1, 10, 2, "Submissions of a run that fails.")
@number_option("--nice", 0, 2**31 - 3, 10000, "How much lower than usual the runs' priority is.")
@number_option("--poll", 0.2, 3600, 10, "Seconds between two readings of Slurm's queue.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="What was done, and the jobs' output.  [default: gputopo-profile-NAME]",
)
@click.option("--again", is_flag=True, help="Run again what failed or was skipped before.")
@click.option("--dry-run", is_flag=True, help="Print the plan, and do nothing.")
@fitting_options
@database_option
def run(words: tuple[str, ...], **given: Any) -> None:
    """Measure SCRIPT on a few shapes as ordinary jobs, on idle GPUs only; fit and store.

    The script finds GPUTOPO_BATCH (all GPUs), GPUTOPO_LOCAL_BATCH (one), GPUTOPO_ITERATIONS,
    and prints `gputopo: step_s=SECONDS`. Stopped, it goes on where it was: same command again.
    """
    from slurm_plugin.act.profiling import plan, submission
    from slurm_plugin.act.profiling.loop import SlurmAccess
    from slurm_plugin.act.profiling.progress import Folder
    from slurm_plugin.slurm.clients.command_line import SlurmClient
    from slurm_plugin.slurm.runner import ProcessRunner

    asked_words = submission.read_submission(words)
    command = Path(asked_words.command)
    place = command.parent if command.is_absolute() else None
    runner = ProcessRunner(place)
    client = SlurmClient(runner)
    asked = _asked(asked_words, given)
    folder = Folder(given["folder"] or Path(f"gputopo-profile-{asked.name}"))
    cwd = Path.cwd()
    progress = folder.read()
    if progress is not None:
        plan.check_same(progress, asked_words, asked, cwd)
    else:
        progress = plan.begin(client, asked_words, asked, cwd, time.time())
    how = submission.RunOptions(progress.settings, given["limit"], given["nice"])
    _print_plan(progress, asked_words, how, folder, full=given["dry_run"])
    if given["dry_run"]:
        return
    _check_writable(given["database"])
    with folder.locked():
        # Another profile run may have worked here until a moment ago.
        progress = folder.read() or progress
        slurm = SlurmAccess(client, runner, lambda argv, env: _submit(place, argv, env))
        _work(slurm, folder, progress, (asked_words, how), given)
    _store(folder, progress, given)


def _submit(place: Path | None, argv: list[str], variables: Mapping[str, str]) -> str:
    from slurm_plugin.slurm.runner import ProcessRunner

    return ProcessRunner(place, environment={**os.environ, **variables})(argv, timeout_s=60)


def _asked(submission: Submission, given: dict[str, Any]) -> ProfileRequest:
    from slurm_plugin.act.profiling.plan import ProfileRequest
    from slurm_plugin.act.profiling.sweep import values

    name = given["name"]
    if name is None and submission.script is None:
        raise click.UsageError("--wrap has no name; expected --name too")
    if name is None:
        assert submission.script is not None
        name = submission.script.name.split(".")[0]
    said: dict[str, Any] = {
        key: values(given[key], f"--{key.replace('_', '-')}") if given[key] is not None else None
        for key in ("batches", "nodes", "gpus_per_node")
    }
    per_gpu = None if given["tasks"] is None else given["tasks"] == "gpu"
    said |= {key: given[key] for key in ("task", "iterations", "gpu_type", "on")}
    return ProfileRequest(checked_profile(name), per_gpu=per_gpu, **said)


def _print_plan(
    progress: Progress, submission: Submission, how: RunOptions, folder: Folder, *, full: bool
) -> None:
    from slurm_plugin.act.profiling import plan, sweep
    from slurm_plugin.act.profiling.submission import command, variables

    settings, runs = progress.settings, plan.expected(progress)
    nodes = f"{len(settings.names)} node{'s' if len(settings.names) > 1 else ''}"
    over = sum(run.state in sweep.OVER for run in runs)
    done = f", {over} of them over" if over else ""
    click.echo(
        f"{settings.name}: {len(runs)} runs of {settings.iterations} iterations on {nodes} of"
        f" {settings.kind}{done}; {folder.path}"
    )
    if not full:
        return
    for place, run in enumerate(runs, start=1):
        note = f": {run.note}" if run.note else ""
        click.echo(f"run {place} ({run}): {run.state}{note}")
    first = next((run for run in progress.runs if run.state == sweep.WAITING), None)
    if first is not None:
        argv = command(
            submission,
            how,
            first.shape,
            first.local_batch,
            progress.job_name(first),
            folder.output(progress, first),
        )
        exported = variables(how, first.shape, first.local_batch)
        click.echo(
            " ".join([*(f"{key}={text}" for key, text in exported.items()), shlex.join(argv)])
        )


def _work(
    slurm: SlurmAccess,
    folder: Folder,
    progress: Progress,
    asked: tuple[Submission, RunOptions],
    given: dict[str, Any],
) -> None:
    from slurm_plugin.act.profiling import plan
    from slurm_plugin.act.profiling.loop import ProfilingLoop, RunLimits
    from slurm_plugin.act.profiling.sweep import SUBMITTED
    from slurm_plugin.cli.progress import bar

    if given["again"]:
        click.echo(f"{plan.again(progress)} runs are run again")
    folder.write(progress)
    terms = RunLimits(given["at_once"], given["tries"], given["poll"], given["startup"])
    try:
        with bar("measuring", plan.share_done(progress)) as done:

            def say(line: str) -> None:
                done(plan.share_done(progress))
                click.echo(line)

            ProfilingLoop(slurm, folder, progress, asked, terms, say).work()
    except KeyboardInterrupt:
        jobs = [str(run.job) for run in progress.runs if run.state == SUBMITTED]
        left = f"job {', '.join(jobs)} stays in Slurm; " if jobs else ""
        click.echo(f"stopped; {left}the same command goes on from here", err=True)
        raise SystemExit(130) from None


def _store(folder: Folder, progress: Progress, given: dict[str, Any]) -> None:
    """Fit and store what was measured; exit status 1 where a run over shapes failed."""
    from policies.performance.similarity import Traits
    from slurm_plugin.act.profiling import plan, sweep
    from slurm_plugin.cli import Fault
    from slurm_plugin.learn.speed_models.database import Database
    from slurm_plugin.learn.speed_models.predictions import in_words

    settings = progress.settings
    runs = plan.measurements(progress)
    if not runs:
        raise Fault(
            f"no run worked ({progress.runs[0].note}): mend it, then give the same command with"
            " --again"
        )
    rows = [f"{run.nodes},{run.gpus},{run.local_batch},{run.step_s!r}" for run in runs]
    path = folder.write_runs(rows)
    traits = Traits(settings.name, given["family"], given["parameters"])
    startup_s = given["startup"] or plan.startup_s(progress)
    profile = Database(given["database"]).fit(
        traits, settings.task, given["kind"], runs, startup_s, add=given["add"]
    )
    click.echo(in_words(settings.name, settings.task, profile.model, profile.runs))
    click.echo(f"stored in {given['database']}; the runs are in {path}")
    failed = [run for run in progress.runs if run.state in (sweep.FAILED, sweep.SKIPPED)]
    for run in failed:
        click.echo(f"without {run}: {run.state}, {run.note}", err=True)
    raise SystemExit(any(not run.is_single for run in failed))


def _check_writable(database: Path) -> None:
    """End with an error where the database could not be written after the measurements."""
    from slurm_plugin.cli import Fault

    place = database if database.exists() else database.parent
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        raise Fault(
            f"{database}: you may not write there; expected --database FILE (or"
            " GPUTOPO_PERFORMANCE) of your own"
        )
