"""Reads what an answer needs, with the rights of the user who asks."""

from __future__ import annotations

import math
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from slurm_plugin.config.settings import Config
from slurm_plugin.errors import PluginError, SlurmError
from slurm_plugin.queue.snapshot import Snapshot, read_snapshot
from slurm_plugin.slurm import array_tasks
from slurm_plugin.slurm.clients import scontrol_tables
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import Limit, QueuedJob
from slurm_plugin.slurm.runner import Runner, run_bounded
from slurm_plugin.slurm.sbatch_options import read_options
from slurm_plugin.tell.explain import slurm_says
from slurm_plugin.tell.explain.answer import NotShown
from slurm_plugin.tell.explain.find import explained
from slurm_plugin.tell.why.reading import ExtrasReader, Reading
from slurm_plugin.tell.why.state import Extras, WaitingState

#: Seconds that `sbatch --test-only` may take, and the most that it may print.
TEST_S, MAX_TEST_BYTES = 10.0, 64 << 10
#: A start within so many seconds is one now: Slurm tells of it by its own clock.
SOON_S = 30.0
_STARTS = re.compile(r" to start at (\S+)")
#: Errors of a question that slurmctld did not answer (slurm_errno.c).
#: A comment by which a job is left to Slurm.
OFF = "gpu-topo: off"
_NO_ANSWER = re.compile(r"contact|timed out|transmitted|[Cc]ommunication|temporarily unavailable")


class NotWaiting(PluginError):
    """The job does not wait; the text says what it does."""


def read_state(
    text: str, config: Config | None, address: tuple[str, int] | None, run: Runner
) -> WaitingState:
    """The state of job `text` (an id, or ARRAY_TASK).

    Raises NotShown for no job of this user's, NotWaiting for one that does not wait, SlurmError
    where Slurm does not answer.
    """
    snapshot = read_snapshot(SlurmClient(run))
    uid, operators = os.getuid(), slurm_says.operators(run)
    job = own_job(text, snapshot.jobs, uid, uid in operators)
    story = _story(job, config, address, run)
    entries = {job.job_id: str(story["entries"])} if story.get("entries") else {}
    extras = ExtrasReader(run, lambda: entries)(replace(snapshot, jobs=(job,)))
    hides_jobs = snapshot.settings.hides_jobs and uid not in operators
    state = Reading(snapshot, extras).state_of(job)
    return replace(state, story=story, hides_jobs=hides_jobs)


def read_site(run: Runner, user: str, options: Mapping[str, str]) -> WaitingState:
    """The same for a job of this user and these options that is not submitted.

    It has an account and a QOS alone. Raises SlurmError.
    """
    snapshot = read_snapshot(SlurmClient(run))
    settings, config = snapshot.settings, snapshot.settings.config
    enforced = config.get("AccountingStorageEnforce", "").split(",")
    limits, parents = scontrol_tables.limits(run) if "associations" in enforced else ([], {})
    has_accounts = config.get("AccountingStorageType", "").endswith("slurmdbd")
    account, qos = options.get("account", ""), options.get("qos", "")
    if has_accounts:
        account = account or scontrol_tables.default_account(run, user)
        usual = next((one.name for one in settings.partitions if one.is_default), "")
        of_partition = options.get("partition", usual)
        qos, unused = _of_qos(run, user, account, of_partition, qos)
        limits += unused
        for name in of_partition.split(","):
            one = settings.by_name.get(name)
            if one is not None and one.qos not in ("", qos):
                limits += _of_qos(run, user, account, name, one.qos)[1]
    return WaitingState(
        QueuedJob(0, user=user, uid=os.getuid(), account=account, qos=qos),
        snapshot,
        Extras(
            reservations=tuple(scontrol_tables.reservations(run)),
            licenses=tuple(scontrol_tables.licenses(run)) if options.get("licenses") else (),
            limits=tuple(limits) if "limits" in enforced else (),
            parents=parents,
        ),
    )


def _of_qos(
    run: Runner, user: str, account: str, partition: str, qos: str
) -> tuple[str, list[Limit]]:
    """The job's QOS, its user's own where it names none, and what that allows each user.

    No more than it names where Slurm's database does not answer.
    """
    limits: list[Limit] = []
    with suppress(SlurmError):
        qos = qos or scontrol_tables.default_qos(run, user, account, partition)
        limits = scontrol_tables.unused_limits(run, qos, user, account) if qos else []
    return qos, limits


class SbatchSays(NamedTuple):
    """What `sbatch --test-only` answers."""

    words: str = ""
    #: Whether Slurm would start such a job, now or later; None where it did not say.
    would_start: bool | None = None
    #: In how many seconds; None where it does not say.
    in_s: float | None = None

    @property
    def is_later(self) -> bool | None:
        """Would it start, but not now? None where that is not known."""
        return None if self.in_s is None else self.in_s > SOON_S

    def beside(self, snapshot: Snapshot, partitions: str) -> SbatchSays:
        """The same without what Slurm adds to the start that it finds.

        That is the time of all jobs that wait in the partition, whatever they wait for
        (job_scheduler.c, _delayed_job_start_time). When it would start is not known any more where
        it is that alone which keeps it from starting now.
        """
        if not self.is_later or self.in_s is None:
            return self
        names = {*(partitions or snapshot.settings.default_partition).split(",")}
        added_s = max(_added_s(snapshot, name) for name in names)
        is_sure = not snapshot.settings.hides_jobs and self.in_s - added_s > SOON_S
        return self if is_sure else self._replace(in_s=None)


def _added_s(snapshot: Snapshot, partition: str) -> float:
    """At most so much is added for the jobs that wait in the partition, in seconds."""
    cpus = [node.cpus for node in snapshot.nodes if partition in node.partitions]
    each = sum(cpus) // max(1, len(cpus))
    work_s = 0.0
    for job in snapshot.jobs:
        if job.state == "PENDING" and not job.held and partition in job.partition.split(","):
            size = max(1, job.cpus, job.min_nodes * each)
            work_s += size * (job.time_limit_s or math.inf)
    return work_s / max(1, sum(cpus))


def sbatch_says(
    options: Sequence[str], has_script: bool, bin_dir: Path | None, *, past_engine: bool = False
) -> SbatchSays:
    """What `sbatch --test-only` says of these options.

    Nothing is submitted. It knows more access rights than are looked at here. To the engine such a
    test is a submit, for which it keeps GPUs with slots: `past_engine` has it leave the job alone,
    by the hint `off` in place of the job's own comment; where that is refused nothing is known.
    """
    wrap = [] if has_script else ["--wrap", "true"]
    sbatch = str(bin_dir / "sbatch") if bin_dir else "sbatch"
    at = read_options(options)[1]
    at -= at > 0 and options[at - 1] == "--"
    last = [f"--comment={OFF}"] if past_engine else []
    try:
        done = run_bounded(
            [sbatch, "--test-only", *options[:at], *last, *options[at:], *wrap],
            TEST_S,
            MAX_TEST_BYTES,
            env={name: text for name, text in os.environ.items() if name != "SLURM_TIME_FORMAT"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return SbatchSays()
    if done is None:
        return SbatchSays()
    lines = done.err.strip().removeprefix("sbatch: ").splitlines()
    told = next((line for line in lines if _STARTS.search(line)), lines[-1] if lines else "")
    words = told.removeprefix("sbatch: ")
    if past_engine and done.code and "gpu-topo:" in words:
        return SbatchSays()
    if done.code and _NO_ANSWER.search(words):
        return SbatchSays(words)
    # A job that preempts others starts once these have ended.
    is_told = not any("Preempts:" in line for line in lines)
    return SbatchSays(words, done.code == 0, _starts_in_s(words, time.time()) if is_told else None)


def _starts_in_s(words: str, now: float) -> float | None:
    """In how many seconds the start is that `sbatch --test-only` tells of, in local time."""
    found = _STARTS.search(words)
    try:
        return datetime.fromisoformat(found[1]).timestamp() - now if found else None
    except ValueError:
        return None


def own_job(text: str, jobs: Sequence[QueuedJob], uid: int, sees_all: bool) -> QueuedJob:
    """The job of this name, if this user may know of it."""
    named = [job for job in jobs if (sees_all or job.uid == uid) and _is_called(text, job)]
    waiting = [job for job in named if job.state == "PENDING"]
    if waiting:
        return waiting[0]
    if not named:
        raise NotShown(f"job {text}: no job of yours with this number is in the queue")
    state, where = named[0].state, ", ".join(named[0].nodes[:4])
    raise NotWaiting(
        f"job {text} does not wait: it is {state} on {where or 'no node'};"
        f" gputopo explain {text} says why there"
    )


def _is_called(text: str, job: QueuedJob) -> bool:
    array, _, task = text.partition("_")
    if not task:
        return int(array) in (job.job_id, job.array_id)
    try:
        tasks = array_tasks.task_runs(job.task)
    except ValueError:
        return False
    return job.array_id == int(array) and any(int(task) in some for some in tasks)


def _story(
    job: QueuedJob, config: Config | None, address: tuple[str, int] | None, run: Runner
) -> dict[str, object]:
    """What was decided for the job; empty where nothing is told of it."""
    try:
        return explained(str(job.job_id), config, address, run).story
    except (NotShown, SlurmError):
        return {}
