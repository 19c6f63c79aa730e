"""The loop that lets shorter work pass, in partitions with `order: predicted`.

All it changes is the site factor of jobs that are to start now, so an engine that dies leaves
Slurm's own order with a few short jobs in front. Who they are is written down before Slurm is told:
the next engine gives those that wait their own place again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from slurm_plugin.act.gates.released import of_job
from slurm_plugin.act.order.learned_durations import MAX_BYTES
from slurm_plugin.act.order.passing import (
    PassingInPartition,
    Raised,
    Update,
    begun,
    endless,
    own_place,
    why_not,
)
from slurm_plugin.base.log_lines import OrderLine
from slurm_plugin.base.rows_file import RowsFile
from slurm_plugin.config.sections import Rule
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.snapshot import Detail, Snapshot
from slurm_plugin.serve.loops.queue_loop import QueueLoop
from slurm_plugin.serve.loops.shaping import PLANNED
from slurm_plugin.serve.service import Engine
from slurm_plugin.serve.setup import Setup
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import QueuedJob

logger = logging.getLogger(__name__)

#: In the state directory: jobs in the queue that were let pass.
RAISED = "jobs-let-pass.json"
#: Seconds between two looks, and where no partition is ordered.
POLL_S, IDLE_S = 5.0, 60.0


class OrderLoop(QueueLoop):
    """Polls for as long as a partition that is enforced has `order: predicted`."""

    name = "order"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._of: dict[str, PassingInPartition] = {}
        self._raised_file: RowsFile[Raised] | None = None
        #: What that file says.
        self._raised: dict[int, Raised] = {}
        self._refused = self._stopped = ""

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows; nothing where no partition is ordered."""
        if not self._of:
            return {"order": {"stopped": self._stopped}} if self._stopped else {}
        durations = self.engine.setup.durations.learning.durations
        errors = durations.errors
        ratio = errors.median_ratio()
        predicted: dict[str, float] = {"jobs": errors.jobs, "kept": len(durations)}
        if ratio is not None:
            within = {f"within_{100 * q:.0f}": round(p, 3) for q, p in errors.coverage().items()}
            predicted |= {"median_off_by": round(ratio, 2), **within}
        passed = {name: one.passed for name, one in self._of.items()}
        told = {"passed": passed, "predicted": predicted}
        amiss = {"refused": self._refused, "stopped": self._stopped}
        return {"order": told | {key: text for key, text in amiss.items() if text}}

    def poll_s(self, setup: Setup) -> float:
        """Seconds between two polls if no event comes."""
        is_ordered = any(map(_is_ordered, setup.config.partitions.values()))
        return POLL_S if is_ordered else IDLE_S

    async def next_s(self, setup: Setup, since: float) -> float:
        """One look, unless no partition is ordered or the kill switch is set."""
        if self._setup is not setup:
            await asyncio.to_thread(self._begin, setup)
        poll_s = self.poll_s(setup)
        if poll_s == IDLE_S:
            self._of = {}
        is_idle = poll_s == IDLE_S and not self._raised
        if is_idle or setup.config.kill_switch.exists():
            return poll_s
        # Behind a gate of the slots mode another loop changes the same jobs.
        async with self.engine.turn:
            seen = await setup.watcher.snapshot(since, Detail.SETTINGS)
            why = why_not(seen.settings.config)
            ordered = [] if why else self._ordered_in(setup, seen)
            over_s = {one.name: seen.settings.over_limit_s(one.name) for one in ordered}
            self._say_stopped(why or endless(over_s))
            if why:
                return poll_s
            updates: list[Update] = []
            told = seen.jobs, seen.nodes, seen.at, seen.settings.hides_jobs
            for one in ordered:
                updates += await asyncio.to_thread(one.look, *told, over_s[one.name])
                for job, said in one.told:
                    logger.info("order: job %s %s", job.name, said)
                    self.engine.write(of_job(partial(_line, job, said), job))
                one.told.clear()
            if await asyncio.to_thread(self._change, setup.client, updates, seen):
                setup.watcher.outdate()
                # A job in front may leave its gate.
                self.engine.say(PLANNED)
        return poll_s

    def _begin(self, setup: Setup) -> None:
        """A new configuration, or another engine acted: what is known is in the files."""
        folder = Path(setup.config.state_dir)
        file = self._raised_file
        if self._setup is None or file is None or file.path.parent != folder:
            self._raised_file = RowsFile(folder / RAISED, list[Raised], MAX_BYTES, 0o640)
            self._raised = {row.job_id: row for row in self._raised_file.read()}
            self._of = {}
        self._setup = setup

    def _say_stopped(self, why: tuple[str, str] | None) -> None:
        """Slurm's settings keep the order as it is, or do not: said once."""
        said = "; ".join(why or ())
        if said and said != self._stopped:
            logger.warning("order: nobody may pass: %s", said)
        self._stopped = said

    def _ordered_in(self, setup: Setup, seen: Snapshot) -> list[PassingInPartition]:
        """The partitions that are ordered; those that GENIE orders are left to it."""
        config, before = setup.config, self._of
        shaped = config.genie.partitions if config.genie is not None else {}
        self._of = {}
        for name in sorted({name for node in seen.nodes for name in node.partitions}):
            rule, one = config.rule(name), before.get(name)
            if name not in shaped and _is_ordered(rule):
                if one is None or one.rule != rule:
                    one = PassingInPartition(name, rule, setup.durations.learning)
                    # Whether one that waits began, and was requeued, nobody knows any more.
                    one.raised = {key: replace(row, at=0.0) for key, row in self._raised.items()}
                self._of[name] = one
        return list(self._of.values())

    def _change(self, client: SlurmClient, updates: list[Update], seen: Snapshot) -> bool:
        """Whether Slurm was told anything. What it refuses is tried again later.

        Who was let pass is written down before, so that an engine that dies in between leaves
        nobody in front for good.
        """
        raised = {key: row for one in self._of.values() for key, row in one.raised.items()}
        told = {job.job_id for job, _ in updates}
        waiting = (job for job in seen.jobs if job.state == "PENDING")
        # Raised in a partition that is ordered no more, or not their own any more.
        others = self._raised.keys() - raised.keys()
        left = [job for job in waiting if job.job_id in others - told]
        updates = updates + [(job, own_place(job)) for job in left]
        for job in seen.jobs:
            if job.job_id in others and job.state == "RUNNING":
                # Its GPUs may be those of both partitions.
                raised[job.job_id], update = begun(job, self._raised[job.job_id])
                updates += [(job, update)] if update is not None else []
        self._keep(self._raised | raised)
        refused = self._tell(client, updates)
        back = {job.job_id for job, update in updates if update.site_factor == 0} - refused
        there = {job.job_id for job in seen.jobs} - back
        self._keep({key: row for key, row in (self._raised | raised).items() if key in there})
        return bool(updates)

    def _keep(self, raised: dict[int, Raised]) -> None:
        if raised != self._raised and self._raised_file is not None:
            self._raised_file.write(list(raised.values()))
        self._raised = raised

    def _tell(self, client: SlurmClient, updates: list[Update]) -> set[int]:
        """The jobs that Slurm would not change."""
        refused: set[int] = set()
        self._refused = ""
        for job, update in updates:
            try:
                client.update([job.name], update)
            except SlurmError as error:
                refused.add(job.job_id)
                self._refused = f"job {job.name}: {error}"
                logger.warning("order: job %s could not be changed: %s", job.name, error)
        return refused


def _line(job: QueuedJob, said: str) -> OrderLine:
    """The decision log's line of a job that passed, or was passed."""
    return OrderLine(why=said, uid=job.uid, account=job.account, partition=job.partition)


def _is_ordered(rule: Rule) -> bool:
    return rule.order == "predicted" and rule.mode == "enforce"
