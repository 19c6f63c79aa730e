"""What a run took: the line that the script printed, else the job's run time.

    gputopo: step_s=0.0521

Seconds per iteration. Each rank may print it, and as often as it likes: the median counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.interface import SlurmJob
from slurm_plugin.slurm.runner import Runner

PRINTED, RUN_TIME = "printed", "run time"
#: A shared file system may show a file's last lines so much later.
SETTLE_S = 5.0
#: Bytes of a job's output that are looked at.
MOST = 1 << 26
#: Characters of a line that are looked at and shown.
LINE, SHOWN = 1000, 100

# `srun --label` puts the task's number before each line.
_LINE = re.compile(r"(?:\d+: )?gputopo: step_s=(\S*)\s*\Z")


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds per iteration, and how that is known; `startup_s` is 0 where it cannot be told."""

    step_s: float
    by: str
    startup_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NoStepTime:
    """Why a run that is over tells nothing; `again` where the run itself did not fail."""

    why: str
    again: bool = False


def from_accounting(run: Runner, name: str, since: int) -> SlurmJob | None:
    """A job by its name, from sacct; None where sacct knows none, or nothing."""
    try:
        text = run(
            [
                "sacct",
                "-X",
                "-n",
                "-P",
                f"--name={name}",
                f"--starttime=uts{since}",
                "--format=JobID,State,Start,End",
            ]
        )
    except SlurmError:
        return None
    for line in text.splitlines():
        job, state, start, end = [*line.split("|"), "", "", ""][:4]
        if job.isdecimal():
            return SlurmJob(int(job), name, state.partition(" ")[0], _epoch(start), _epoch(end))
    return None


def of_run(
    over: SlurmJob | None, output: Path | None, iterations: int, startup_s: float, now: float
) -> StepTime | NoStepTime | None:
    """What came of a run; None where its output may not all be there yet.

    `over` is None for a job that neither Slurm nor its accounting knows any more.
    """
    steps, bad, last = _read(output)
    if bad:
        return NoStepTime(f"printed step_s={bad!r}, expected seconds: a number greater than 0")
    state = over.state if over else ""
    if state == "PREEMPTED":
        return NoStepTime("preempted", again=True)
    if state not in ("", "COMPLETED", "TIMEOUT"):
        return NoStepTime(f"{state}{f', last line: {last}' if last else ''}")
    if steps:
        step_s = median(steps)
        spent = over.end - over.start if over and over.start and state == "COMPLETED" else 0
        return StepTime(step_s, PRINTED, max(0.0, spent - iterations * step_s) if spent else 0.0)
    if over is None:
        return NoStepTime("gone from Slurm, and its output has no line `gputopo: step_s=SECONDS`")
    if now < over.end + SETTLE_S:
        return None
    if state == "TIMEOUT":
        return NoStepTime("reached its time limit before it printed `gputopo: step_s=SECONDS`")
    step_s = (over.end - over.start - startup_s) / iterations
    if step_s <= 0:
        return NoStepTime(
            f"ran {over.end - over.start} s, too short to tell: print `gputopo: step_s=SECONDS`"
            " or give more --iterations"
        )
    return StepTime(step_s, RUN_TIME)


def _read(output: Path | None) -> tuple[list[float], str, str]:
    """The steps printed, a text that is no number of seconds, and the last line."""
    steps: list[float] = []
    last = ""
    for line in _lines(output):
        match = _LINE.match(line)
        last = line.strip()[:SHOWN] or last
        if match is None:
            continue
        try:
            value = float(match[1])
        except ValueError:
            return steps, match[1][:SHOWN], last
        if not (math.isfinite(value) and value > 0):
            return steps, match[1][:SHOWN], last
        steps.append(value)
    return steps, "", last


def _lines(output: Path | None) -> Iterator[str]:
    if output is None:
        return
    try:
        with output.open(encoding="utf-8", errors="replace") as file:
            left = MOST
            while left > 0 and (text := file.readline(LINE)):
                left -= len(text)
                # A progress bar ends its lines by carriage returns.
                yield from text.splitlines()
    except OSError:
        return


def _epoch(text: str) -> int:
    return int(text) if text.isdecimal() else 0
