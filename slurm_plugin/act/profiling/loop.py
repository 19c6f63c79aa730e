"""The runs one after the other: only on idle GPUs, giving way, each submitted once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurm_plugin.act.profiling import idle, measure, sweep
from slurm_plugin.act.profiling.measure import NoStepTime, StepTime
from slurm_plugin.act.profiling.progress import Folder, Progress
from slurm_plugin.act.profiling.submission import RunOptions, Submission, command, variables
from slurm_plugin.act.profiling.sweep import (
    DONE,
    FAILED,
    OVER,
    SKIPPED,
    SUBMITTED,
    SUBMITTING,
    WAITING,
)
from slurm_plugin.base.job_states import ENDED
from slurm_plugin.errors import PluginError, SlurmError
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import QueuedJob, SlurmJob, SlurmNode
from slurm_plugin.slurm.runner import Runner

_JOB = re.compile(r"^(\d+)(?:;.*)?$", re.MULTILINE)
#: What sbatch says when slurmctld did not answer; anything else is a refusal.
_NO_ANSWER = re.compile(
    r"no answer within|unable to contact|socket timed out|connection (refused|reset|timed out)"
    r"|communication|controller.*(not responding|down)|temporarily unable",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """How the runs go on."""

    at_once: int = 1  # runs at one time
    tries: int = 2  # submissions of a run that fails
    poll_s: float = 10.0  # seconds between two questions to Slurm
    startup_s: float = 0.0  # seconds before the first iteration, as the user states them


@dataclass(frozen=True, slots=True)
class SlurmAccess:
    """How profiling asks Slurm, and submits to it."""

    client: SlurmClient
    run: Runner
    #: sbatch's command line, and variables for its environment -> what it printed.
    submit: Callable[[list[str], Mapping[str, str]], str]


class ProfilingLoop:
    """Works off one folder's plan; it holds nothing that is not in the folder or in Slurm."""

    def __init__(
        self,
        slurm: SlurmAccess,
        folder: Folder,
        progress: Progress,
        asked: tuple[Submission, RunOptions],
        limits: RunLimits,
        report: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._slurm = slurm
        self._folder = folder
        self._progress = progress
        self._submission, self._launch = asked
        self._limits = limits
        self._report = report
        self._sleep = sleep
        self._clock = clock
        self._reported: set[str] = set()

    def work(self) -> None:
        """Until every run is over; PluginError where nothing can be measured."""
        while not self._is_over():
            try:
                self._poll()
            except SlurmError as error:
                self._once(f"Slurm does not answer, trying again: {error}")
            if not self._is_over():
                self._sleep(self._limits.poll_s)

    def _is_over(self) -> bool:
        return self._progress.is_shaped and all(run.state in OVER for run in self._progress.runs)

    def _poll(self) -> None:
        """Follow what was submitted, and submit what may run now."""
        client = self._slurm.client
        self._recover()
        queue = client.queue()
        nodes = [node for node in client.nodes() if node.name in self._progress.settings.names]
        for run in self._in(SUBMITTED):
            self._follow(run, queue, nodes)
        self._shape()
        for run in self._in(WAITING):
            if len(self._in(SUBMITTED)) >= self._limits.at_once or not self._may(run, queue, nodes):
                return
            self._submit(run)
            # What it takes is not in the nodes that were read.
            nodes = [node for node in client.nodes() if node.name in self._progress.settings.names]
            queue = client.queue()

    # -- runs that were submitted ---------------------------------------------

    def _recover(self) -> None:
        """Runs of which it is not known whether Slurm took them: found by their names."""
        lost = self._in(SUBMITTING)
        if not lost:
            return
        by_name = {job.name: job.job_id for job in self._slurm.client.jobs()}
        for run in lost:
            job = by_name.get(self._progress.job_name(run), 0)
            if not job:
                past = self._past(run)
                job = past.job_id if past else self._job_by_output(run)
            run.job, run.state = job, SUBMITTED if job else WAITING
            self._save()
            if job:
                self._say(run, f"job {job} is taken up again")

    def _job_by_output(self, run: sweep.ProfilingRun) -> int:
        output = self._folder.written(self._progress, run)
        number = output.name.split(".")[-2] if output else ""
        return int(number) if number.isdecimal() else 0

    def _follow(
        self, run: sweep.ProfilingRun, queue: Sequence[QueuedJob], nodes: list[SlurmNode]
    ) -> None:
        job = next((job for job in queue if job.job_id == run.job), None)
        if job is None:
            self._collect(run)
            return
        if job.state == "COMPLETING":
            return
        wrong = _wrong_shape(job, run)
        if wrong:
            self._cancel(run)
            self._fail(run, f"{wrong}: does the script or a rule of the site change it?", last=True)
            return
        # Only who could use what it holds, or would hold, is in its way.
        held = [node for node in nodes if node.name in job.nodes] or nodes
        other = idle.first_waiting(queue, held, self._ours(), self._clock(), idle.GRACE_S)
        if other is not None:
            self._cancel(run)
            self._say(run, f"job {run.job} is cancelled: job {other.job_id} of {other.user} waits")
            run.state, run.job = WAITING, 0
            self._save()
        elif job.state == "PENDING":
            self._once(f"waiting: job {run.job} is pending ({job.reason or 'None'})")

    def _collect(self, run: sweep.ProfilingRun) -> None:
        """A run whose job no longer waits or runs."""
        jobs = self._slurm.client.jobs()
        over = next((job for job in jobs if job.job_id == run.job), None)
        if over is not None and over.state not in ENDED:
            return
        over = over or self._past(run)
        output = self._folder.written(self._progress, run)
        measured = measure.of_run(
            over, output, self._progress.settings.iterations, self._limits.startup_s, self._clock()
        )
        if isinstance(measured, StepTime):
            run.step_s, run.by, run.startup_s = measured.step_s, measured.by, measured.startup_s
            run.state = DONE
            self._save()
            how = "" if run.by == measure.PRINTED else ", by its run time with all start-up"
            self._say(run, f"{1000 * run.step_s:,.1f} ms per iteration{how}")
        elif isinstance(measured, NoStepTime) and measured.again:
            self._say(run, f"job {run.job}: {measured.why}; it is run again")
            run.state, run.job = WAITING, 0
            self._save()
        elif isinstance(measured, NoStepTime):
            self._fail(run, measured.why)

    def _past(self, run: sweep.ProfilingRun) -> SlurmJob | None:
        """The run's job as the accounting knows it."""
        name = self._progress.job_name(run)
        return measure.from_accounting(self._slurm.run, name, self._progress.created)

    def _fail(self, run: sweep.ProfilingRun, why: str, *, last: bool = False) -> None:
        run.failures += 1
        output = self._folder.written(self._progress, run)
        run.note = f"job {run.job}: {why}" if run.job else why
        where = f" (see {output})" if output else ""
        if not last and run.failures < self._limits.tries:
            run.state, run.job = WAITING, 0
            self._save()
            self._say(run, f"{run.note}{where}; it is run again")
            return
        run.state = FAILED
        self._save()
        self._say(run, f"failed: {run.note}{where}")
        if run.is_single:
            self._end_sweep(run, where)

    def _end_sweep(self, failed: sweep.ProfilingRun, where: str) -> None:
        """A GPU that cannot hold a batch cannot hold a larger one either."""
        singles = [run for run in self._progress.runs if run.is_single]
        for run in singles:
            if run.local_batch > failed.local_batch and run.state == WAITING:
                run.state, run.note = SKIPPED, f"batch {failed.local_batch} failed"
        self._save()
        if all(run.state in (FAILED, SKIPPED) for run in singles):
            raise PluginError(
                f"no run on one GPU worked, so there is nothing to fit: {failed.note}{where}; mend"
                " it, then give the same command with --again"
            )
        skipped = [str(run.local_batch) for run in singles if run.state == SKIPPED]
        if skipped:
            self._report(f"skipped, being larger: {', '.join(skipped)} per GPU")

    # -- runs to come -----------------------------------------------------------

    def _shape(self) -> None:
        """Once the batch sizes are measured: the runs over nodes and GPUs per node."""
        progress, settings = self._progress, self._progress.settings
        singles = [run for run in progress.runs if run.is_single]
        if progress.is_shaped or not all(run.state in OVER for run in singles):
            return
        progress.runs += sweep.shaped(
            singles, settings.nodes, settings.gpus_per_node, settings.task
        )
        progress.is_shaped = True
        self._save()

    def _may(
        self, run: sweep.ProfilingRun, queue: Sequence[QueuedJob], nodes: list[SlurmNode]
    ) -> bool:
        other = idle.first_waiting(queue, nodes, self._ours(), self._clock())
        if other is not None:
            self._once(f"waiting: job {other.job_id} of {other.user} waits for GPUs")
        elif not idle.has_idle_gpus(nodes, run.shape):
            some = [node.name for node in nodes[:4]] + ["..."] * (len(nodes) > 4)
            self._once(f"waiting: {run.shape} idle GPUs are needed on {', '.join(some)}")
        else:
            return True
        return False

    def _submit(self, run: sweep.ProfilingRun) -> None:
        progress = self._progress
        run.tries += 1
        run.state, run.job, run.note = SUBMITTING, 0, ""
        self._save()
        argv = command(
            self._submission,
            self._launch,
            run.shape,
            run.local_batch,
            progress.job_name(run),
            self._folder.output(progress, run),
        )
        given = variables(self._launch, run.shape, run.local_batch)
        try:
            answer = self._slurm.submit(argv, given)
        except SlurmError as error:
            self._refused(run, error)
            return
        ids = _JOB.findall(answer)
        if not ids:
            raise PluginError(f"sbatch said {answer[:200]!r}; expected a job id")
        run.job, run.state = int(ids[-1]), SUBMITTED
        self._save()
        self._say(run, f"job {run.job}")

    def _refused(self, run: sweep.ProfilingRun, error: SlurmError) -> None:
        if _NO_ANSWER.search(str(error)):
            # Slurm may have taken it all the same: the next poll finds out.
            raise error
        run.state = WAITING
        self._save()
        if run.is_single and not any(one.state == DONE for one in self._progress.runs):
            raise PluginError(f"the first run was refused: {error}")
        self._fail(run, str(error), last=True)

    def _cancel(self, run: sweep.ProfilingRun) -> None:
        self._slurm.run(["scancel", str(run.job)])

    # -- what was done, and said --------------------------------------------------

    def _in(self, state: str) -> list[sweep.ProfilingRun]:
        return [run for run in self._progress.runs if run.state == state]

    def _ours(self) -> set[int]:
        return {run.job for run in self._progress.runs if run.job}

    def _save(self) -> None:
        self._folder.write(self._progress)

    def _say(self, run: sweep.ProfilingRun, text: str) -> None:
        place = next(at for at, one in enumerate(self._progress.runs, start=1) if one is run)
        self._reported.clear()
        self._report(f"run {place} ({run}): {text}")

    def _once(self, text: str) -> None:
        """Say it, but not again before something else has happened."""
        if text not in self._reported:
            self._reported.add(text)
            self._report(text)


def _wrong_shape(job: QueuedJob, run: sweep.ProfilingRun) -> str:
    """What a running job got instead of its shape; '' where that is right."""
    counts = {len(gpus) for gpus in job.gpus.values()}
    if job.state != "RUNNING" or not counts:
        return ""
    if len(job.nodes) == run.nodes and counts == {run.gpus_per_node}:
        return ""
    got = ", ".join(f"{len(gpus)} on {node}" for node, gpus in sorted(job.gpus.items()))
    return f"Slurm gave {got} GPUs where {run.shape} was asked"
