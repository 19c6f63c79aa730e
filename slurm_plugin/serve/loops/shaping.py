"""The loop that plans the jobs whose shapes GENIE chooses.

Plans are made, and Slurm is changed, in a thread. What answers submits and starts is changed in the
event loop alone. All state is Slurm's: the first poll is like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.contract.scheduling import Planned, Task
from policies.errors import HintError
from slurm_plugin.act.gates.released import of_job
from slurm_plugin.act.genie.changes import Changes, changes, released
from slurm_plugin.act.genie.domain_snapshot import DomainSnapshot, domain_snapshot
from slurm_plugin.act.genie.record import ShapeRecord
from slurm_plugin.act.genie.shaping import Shaping
from slurm_plugin.act.genie.site import ShapedPartition
from slurm_plugin.act.order.learned_durations import MAX_BYTES
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.hints import postponed_until
from slurm_plugin.base.job_notes.records import GATED, GateRecord
from slurm_plugin.base.job_notes.shape import ShapeNote, shape_note_in
from slurm_plugin.base.rows_file import RowsFile
from slurm_plugin.decide.preferences import HintRefused, read_preferences
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.backoff import Backoff
from slurm_plugin.queue.snapshot import Detail, Snapshot
from slurm_plugin.serve.loops.queue_loop import QueueLoop
from slurm_plugin.serve.service import ANEW, Engine
from slurm_plugin.serve.setup import Setup
from slurm_plugin.slurm import releases
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

logger = logging.getLogger(__name__)

#: The event by which the gates loop learns that jobs may start now which could not before.
PLANNED = "planned"
#: Seconds between polls where no jobs are shaped.
IDLE_S = 5.0
#: A job that may start is soon seen to run.
SETTLING_S = 0.15
#: Jobs that get another place, and nothing else, in one poll: some milliseconds each.
MOST_MOVED = 100

#: In the state directory: the places that jobs were given.
PLACES = "genie-places.json"

Update = tuple[QueuedJob, JobUpdate]


@dataclass(frozen=True, slots=True)
class ToldFactor:
    """A waiting job's site factor, as Slurm was told; with its submit (epoch) it is this job's."""

    job_id: int
    submit: int
    factor: int


class ShapingLoop(QueueLoop):
    """Polls for as long as the engine's configuration has a `genie` section."""

    name = "genie"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._tasks: dict[int, tuple[object, Task | None]] = {}
        self._shaping: Shaping | None = None
        # Site factors by job, as far as they are known.
        self._factors: dict[int, int] = {}
        # Others may have given factors to jobs submitted before this (epoch); 0: to any. Slurm is
        # asked once for those, and has been for the jobs in `_asked`.
        self._since = 0.0
        self._asked: set[int] = set()
        self._file: RowsFile[ToldFactor] | None = None
        self._changed = 0
        # Why Slurm refused a change of the last poll; empty where it refused none.
        self._refused = ""
        self._backoff = Backoff()

    def heard(self, verb: str, is_awaited: bool = True) -> None:
        """Something happened in Slurm, or to the configuration."""
        if verb == PLANNED:
            return
        shaping = self.engine.setup.shaping
        if shaping is not None:
            # A job ended or was submitted: the plan does not know of it yet.
            shaping.events += 1
            if verb == ANEW:
                shaping.forget_all()
                self._factors, self._since, self._asked = {}, 0.0, set()
        super().heard(verb)

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows; nothing where no jobs are shaped."""
        shaping = self.engine.setup.shaping
        if shaping is None:
            return {}
        status: dict[str, Any] = {"changed": self._changed, "domains": shaping.status()}
        return {"genie": status | ({"refused": self._refused} if self._refused else {})}

    def poll_s(self, setup: Setup) -> float:
        """Seconds between two polls if no event comes."""
        shaping = setup.shaping
        return shaping.site.config.poll_s if shaping and shaping.site.domains else IDLE_S

    async def next_s(self, setup: Setup, since: float) -> float:
        """One poll, unless no jobs are shaped or the kill switch is set."""
        shaping, poll_s = setup.shaping, self.poll_s(setup)
        if shaping is None or not shaping.site.domains:
            return poll_s
        if setup.config.kill_switch.exists():
            shaping.snapshots.clear()
            return poll_s
        # Behind a gate of the slots mode another loop changes the same jobs.
        async with self.engine.turn:
            began, events = shaping.clock(), shaping.events
            await asyncio.to_thread(self._prepare, setup, shaping)
            seen = await setup.watcher.snapshot(since, Detail.NODES)
            settling = await self._plan(setup, shaping, seen, events)
            shaping.poll_took_s = shaping.clock() - began
        return min(poll_s, SETTLING_S) if settling else poll_s

    def _prepare(self, setup: Setup, shaping: Shaping) -> None:
        """Read the site's files again and, for a new configuration, what it needs of Slurm."""
        shaping.site.refresh()
        if self._shaping is not shaping:
            release = releases.parse_version(setup.client.version())
            shaping.separator = releases.commands(release).gres_separator
            self._shaping, self._tasks = shaping, {}

    async def _plan(self, setup: Setup, shaping: Shaping, seen: Snapshot, events: int) -> bool:
        """Plan every domain and change what is to be changed; whether to poll again soon.

        `events` had happened when the snapshot was asked for.
        """
        self._meet(shaping, seen)
        ids = {job.job_id for job in seen.jobs}
        self._factors = {job: one for job, one in self._factors.items() if job in ids}
        self._asked &= ids
        await asyncio.to_thread(self._ask_factors, setup, seen)
        made = await asyncio.to_thread(self._planned, shaping, seen)
        updates = self._own_places(seen, {job for _, plans, _ in made.values() for job in plans})
        starts: list[int] = []
        for name, (snapshot, plans, to_change) in made.items():
            shaping.snapshots[name], shaping.plans[name] = snapshot, plans
            starts += shaping.admit(plans, seen.at)
            updates += to_change.updates + self._first_shapes(shaping, snapshot)
            for job, task, plan in to_change.reshaped:
                if self._may_change(job, seen):
                    self._write(snapshot.domain, job, task, plan, seen.at)
        shaping.events_seen = events
        waits = {job.job_id for job in seen.jobs if job.state == "PENDING"}
        shaping.starting = {job: one for job, one in shaping.starting.items() if job in waits}
        now, later = in_turn([one for one in updates if self._may_change(one[0], seen)])
        if now:
            await asyncio.to_thread(self._change, setup.client, now, seen)
            setup.watcher.outdate()
        shaping.slurm_knows(starts, shaping.clock())
        if starts:
            self.engine.say(PLANNED)
        return later or any(snapshot.is_settling for snapshot, _, _ in made.values())

    def _ask_factors(self, setup: Setup, seen: Snapshot) -> None:
        """Learn which factors an earlier engine, or another one, gave to jobs.

        Their own priorities come out too high or too low where a factor is not known. Slurm tells
        of no job whose begin time is to come: of these, what was written down counts until then.
        """
        waits = [job for job in seen.jobs if job.state == "PENDING"]
        if not self._since:
            self._since = seen.at
            path = Path(setup.config.state_dir) / PLACES
            self._file = RowsFile(path, list[ToldFactor], MAX_BYTES, 0o640)
            rows = {(row.job_id, row.submit): row.factor for row in self._file.read()}
            told = {job.job_id: rows.get((job.job_id, job.submit), 0) for job in waits}
            self._factors = {job: factor for job, factor in told.items() if factor}
        old = {
            job.job_id
            for job in waits
            if job.job_id not in self._asked
            and job.submit <= self._since
            and not job.held
            and not job.depends
            and job.eligible <= seen.at
            and shape_note_in(job.admin_comment) is not None
        }
        if not old:
            return
        self._asked |= old
        try:
            found = setup.client.site_factors()
        except SlurmError as error:
            logger.warning("genie: priorities are taken as they are found: %s", error)
        else:
            self._factors |= {job: found[job] for job in old if job in found}

    def _own_places(self, seen: Snapshot, planned: Container[int]) -> list[Update]:
        """Jobs with a factor of ours that are planned no more get their own place again.

        A user may move a job to another partition, where it would stand in front of everybody's.
        What is held has no priority to give back; its turn comes once it is released.
        """
        return [
            (job, JobUpdate(site_factor=0))
            for job in seen.jobs
            if job.state == "PENDING"
            and not job.held
            and self._factors.get(job.job_id)
            and job.job_id not in planned
        ]

    def _change(self, client: SlurmClient, updates: Sequence[Update], seen: Snapshot) -> None:
        """Make these changes, one after the other; one that Slurm refuses is tried again later."""
        self._refused = ""
        now, before = seen.at, dict(self._factors)
        for job, update in updates:
            try:
                client.update([job.name], update)
            except SlurmError as error:
                self._refused = f"job {job.name}: {error}"
                self._backoff.refused(job.name, now)
                logger.warning("genie: job %s could not be changed: %s", job.name, error)
                continue
            self._changed += 1
            if update.site_factor is not None:
                self._factors[job.job_id] = update.site_factor
            self._backoff.accepted(job.name)
        self._backoff.forget(now)
        if self._factors != before and self._file is not None:
            factors = ((job, self._factors.get(job.job_id, 0)) for job in seen.jobs)
            self._file.write(
                [ToldFactor(job.job_id, job.submit, one) for job, one in factors if one]
            )

    def _may_change(self, job: QueuedJob, seen: Snapshot) -> bool:
        return not self._backoff.is_paused(job.name, seen.at)

    def _meet(self, shaping: Shaping, seen: Snapshot) -> None:
        """Promises to jobs that Slurm shows are the jobs' own now; their records are written."""
        for job in seen.jobs if shaping.promises or shaping.records else ():
            said = shape_note_in(job.admin_comment)
            if said is None or not said.token:
                continue
            shaping.promises.pop(said.token, None)
            build = shaping.records.pop(said.token, None)
            if build is not None:
                self.engine.write(of_job(build, job))
        shaping.forget_old(seen.at)

    def _planned(
        self, shaping: Shaping, seen: Snapshot
    ) -> dict[str, tuple[DomainSnapshot, dict[int, tuple[int, Planned]], Changes]]:
        kept: dict[int, tuple[object, Task | None]] = {}

        def task_of(job: QueuedJob, said: ShapeNote, domain: ShapedPartition) -> Task | None:
            key = (job.admin_comment, job.submit, job.account, id(domain.maker))
            entry = self._tasks.get(job.job_id)
            if entry is None or entry[0] != key:
                entry = (key, self._task(shaping, job, said, domain))
            kept[job.job_id] = entry
            return entry[1]

        made = {}
        for name, domain in shaping.site.domains.items():
            snapshot = domain_snapshot(domain, seen.jobs, seen.nodes, seen.at, task_of, _is_ours)
            plans = shaping.plan_all(snapshot, list(shaping.promises.values()), seen.at)
            separator = shaping.separator
            to_change = changes(snapshot, plans, self._factors, separator=separator, now=seen.at)
            made[name] = (snapshot, plans, to_change)
        self._tasks = kept
        return made

    @staticmethod
    def _task(
        shaping: Shaping, job: QueuedJob, said: ShapeNote, domain: ShapedPartition
    ) -> Task | None:
        """A job's task by its hint, as of its submit; None where that says nothing of use."""
        rule = shaping.rule(job.partition, job.account, job.uid)
        try:
            preferences = read_preferences(hints.hint_in(job.admin_comment), rule)
            _, task = shaping.site.task(
                job.job_id, preferences.values, domain, job.account, said, job.submit
            )
            return task
        except (HintRefused, HintError) as error:
            logger.info("genie: job %d is left as it is: %s", job.job_id, error)
            return None

    def _first_shapes(self, shaping: Shaping, snapshot: DomainSnapshot) -> list[Update]:
        """Jobs submitted while no engine answered: they get their shape and are let go."""
        updates = []
        for job, said in snapshot.unshaped:
            task = self._task(shaping, job, said, snapshot.domain)
            if task is None or self._backoff.is_paused(job.name, snapshot.at):
                continue
            plan = shaping.plan(snapshot.domain, task, snapshot.at)
            updates.append((job, released(job, said, plan.shape, shaping.separator)))
            self._write(snapshot.domain, job, task, plan, snapshot.at)
        return updates

    def _write(
        self, domain: ShapedPartition, job: QueuedJob, task: Task, plan: Planned, now: float
    ) -> None:
        hint = hints.hint_in(job.admin_comment)
        line = ShapeRecord(job, hint, task, plan, domain.platform, now, note="while it waits")
        self.engine.write(of_job(line.build, job))


def in_turn(updates: Sequence[Update]) -> tuple[list[Update], bool]:
    """What to do in one poll, the front of a long queue first; and whether something is left."""
    only_order = 0
    now = []
    for job, update in updates:
        is_order = update == JobUpdate(site_factor=update.site_factor)
        only_order += is_order
        if not is_order or only_order <= MOST_MOVED:
            now.append((job, update))
    return now, only_order > MOST_MOVED


def _is_ours(job: QueuedJob) -> bool:
    """Does the job wait by our own word alone?"""
    gate = GateRecord.read_from(job.admin_comment)
    is_gated = gate is not None and gate.state == GATED
    return is_gated or postponed_until(job.admin_comment) is not None
