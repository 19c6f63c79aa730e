"""What runs beside a job that asks: a cache of Slurm's jobs, rebuilt from Slurm.

The select plugin's notices keep it current from one moment to the next; a reading of the queue
every few seconds mends whatever a notice missed and rebuilds it after a restart. It is never
asked which GPUs are free: that comes with the question. A cache not read for long is not used.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from policies import RunningJob
from policies.errors import HintError
from policies.hints import parse
from slurm_plugin.decide.learning import Teacher
from slurm_plugin.decide.machines import UNDECLARED, Machines, mask_of
from slurm_plugin.errors import SlurmError
from slurm_plugin.job_notes import hints
from slurm_plugin.protocol import Notice
from slurm_plugin.question import PlacementQuestion
from slurm_plugin.slurm.interface import QueuedJob, SlurmClient

logger = logging.getLogger(__name__)

#: Hints of jobs that were asked about and have not started yet.
MOST_HINTS = 20_000
#: States in which a job holds its GPUs.
HOLDING = ("RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING")


def hint_of(job: QueuedJob) -> str:
    """The job's hint: from our bracket in AdminComment, else from the user's Comment."""
    if hints.has_hint(job.admin_comment):
        return hints.hint_in(job.admin_comment)
    return hints.hint_in_user_comment(job.comment)


def running_job(
    job_id: int, masks: Mapping[str, int], hint: str, user: int | None = None
) -> RunningJob:
    """The job as its neighbours' policies see it; a hint that is wrong says nothing."""
    try:
        # Whoever decides: what the job is does not depend on it.
        values = parse(hint, default_policy="topo-aware").values
    except HintError:
        values = {}
    return RunningJob(
        job_id,
        masks,
        profile=values.get("profile"),
        batch=int(values["batch"]) if "batch" in values else None,
        memory_gbps=float(values.get("memory-bandwidth", "0")),
        user=user,
    )


@dataclass(slots=True)
class Neighbours:
    """The cache. `jobs` is cheap and never blocks; `refresh` asks Slurm and may take seconds.

    `refresh_s` is the time between readings, `max_age_s` the age of the last one from which on
    nothing of it is used. Notices and readings may come from different threads.
    """

    client: SlurmClient
    machines: Machines
    refresh_s: float = 5.0
    max_age_s: float = 30.0
    teacher: Teacher | None = None
    clock: Callable[[], float] = time.monotonic

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _jobs: dict[int, RunningJob] = field(default_factory=dict)
    _shown: tuple[RunningJob, ...] | None = None
    # Hint and owner.
    _hints: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    _changed_at: dict[int, float] = field(default_factory=dict)
    _read_at: float | None = None
    _is_failing: bool = False
    _wanted: threading.Event = field(default_factory=threading.Event)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def jobs(self) -> tuple[RunningJob, ...]:
        """The jobs that run, in the topologies' GPU indices; none while that is not known."""
        self._wanted.set()
        age = self.age_s()
        if age is None or age > self.max_age_s:
            return ()
        with self._lock:
            if self._shown is None:
                self._shown = tuple(self._jobs.values())
            return self._shown

    def age_s(self) -> float | None:
        """Seconds since the queue was last read; None before the first time."""
        return None if self._read_at is None else self.clock() - self._read_at

    def told(self) -> dict[str, float | int | None]:
        """Jobs known and seconds since the last reading, for `gputopo status`."""
        age = self.age_s()
        return {"jobs": len(self._jobs), "age_s": None if age is None else round(age, 1)}

    def asked(self, question: PlacementQuestion) -> None:
        """Keep the hint of a job that may start soon."""
        if not self._wanted.is_set():
            return
        if len(self._hints) >= MOST_HINTS:
            self._hints.clear()
        self._hints[question.job] = (question.hint, question.uid)

    def notice(self, notice: Notice) -> None:
        """A job started or ended. Not followed while nobody asks: nothing mends it then."""
        if not self._wanted.is_set():
            return
        with self._lock:
            self._changed_at[notice.job] = self.clock()
            if notice.kind == "ended":
                if self.teacher is not None:
                    self.teacher.ended(notice.job)
                self._remove(notice.job)
            else:
                masks = self._to_topology(notice.gpus)
                job = running_job(notice.job, masks, *self._hints.pop(notice.job, ("", None)))
                self._put(job)
                if self.teacher is not None:
                    self.teacher.started(job, self._jobs.values())

    def refresh(self, client: SlurmClient | None = None) -> None:
        """Read the queue; SlurmError when Slurm does not answer, then the cache stays as it is."""
        began = self.clock()
        self.saw((client or self.client).queue(), began)
        if self.teacher is not None:
            self.teacher.learn(self.client)

    def saw(self, queue: Iterable[QueuedJob], began: float, *, starts: bool = False) -> None:
        """Take a queue that was read from `began` on (by `clock`).

        `starts`: nobody tells when a job starts, so one that was not there before does now.
        """
        jobs = list(queue)
        with self._lock:
            is_first = self._read_at is None
            # What was told while Slurm was being asked is newer than its answer.
            later = {job for job, at in self._changed_at.items() if at >= began}
            found = {job.job_id for job in jobs if job.state in HOLDING and job.gpus}
            for job_id in self._jobs.keys() - found - later:
                # When it ended is not known, so it teaches nothing.
                self._remove(job_id)
            for job in jobs:
                if job.job_id in found and job.job_id not in later:
                    masks = self._to_topology({n: mask_of(g) for n, g in job.gpus.items()})
                    is_new = job.job_id not in self._jobs
                    seen = running_job(job.job_id, masks, hint_of(job), job.uid)
                    self._put(seen)
                    if starts and is_new and not is_first and self.teacher is not None:
                        self.teacher.started(seen, self._jobs.values())
            self._changed_at = {job: at for job, at in self._changed_at.items() if at >= began}
            self._read_at = began

    def start(self, *, at_once: bool) -> None:
        """Read again and again in a thread; `at_once`, or from the first time `jobs` is asked."""
        if at_once:
            self._wanted.set()
        self._thread = threading.Thread(target=self._run, name="neighbours", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a reading that is under way is not waited for."""
        self._stopped.set()
        self._wanted.set()

    def _run(self) -> None:
        self._wanted.wait()
        while not self._stopped.is_set():
            try:
                self.refresh()
            except SlurmError as error:
                if not self._is_failing:
                    logger.warning("who runs beside whom is not known: %s", error)
                self._is_failing = True
            except Exception:
                logger.exception("the queue could not be read; trying again")
            else:
                if self._is_failing:
                    logger.info("who runs beside whom is known again")
                self._is_failing = False
            self._stopped.wait(self.refresh_s)

    def _to_topology(self, masks: Mapping[str, int]) -> dict[str, int]:
        get = self.machines.get
        known = {name: get(name, UNDECLARED) for name in masks}
        return {
            name: machine.to_topology(masks[name])
            for name, machine in known.items()
            if machine.topology is not None and not machine.problem
        }

    def _put(self, job: RunningJob) -> None:
        # An equal job stays the same object: policies compare by identity.
        if self._jobs.get(job.job_id) != job:
            self._jobs[job.job_id] = job
            self._shown = None

    def _remove(self, job_id: int) -> None:
        self._jobs.pop(job_id, None)
        self._shown = None
        if self.teacher is not None:
            self.teacher.forget(job_id)
