"""The loop that lets shorter work pass, in partitions with `order: predicted`.

All it changes is the site factor of jobs that are to start now, so an engine that dies leaves
Slurm's own order with a few short jobs in front.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from policies.order.durations import Durations
from slurm_plugin.config.sections import Rule
from slurm_plugin.errors import SlurmError
from slurm_plugin.gates.released import of_job
from slurm_plugin.queue.passing import PassingInPartition, Update
from slurm_plugin.queue.snapshot import Detail, Snapshot
from slurm_plugin.rows_file import RowsFile
from slurm_plugin.serve.loops.queue_loop import QueueLoop
from slurm_plugin.serve.loops.shaping import PLANNED
from slurm_plugin.serve.service import ANEW, Engine
from slurm_plugin.serve.setup import Setup
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import QueuedJob

logger = logging.getLogger(__name__)

#: What is kept of run times, in the state directory; a larger file was not written by us.
NAME, MAX_BYTES = "learned-durations.json", 32 << 20
#: Seconds between two looks; where no partition is ordered; and between two writings of the file.
POLL_S, IDLE_S, SAVE_S = 5.0, 60.0, 60.0


class _Row(msgspec.Struct, array_like=True):
    key: bytes
    steps: bytes


class OrderLoop(QueueLoop):
    """Polls for as long as a partition that is enforced has `order: predicted`."""

    name = "order"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._of: dict[str, PassingInPartition] = {}
        self._setup: Setup | None = None
        self._durations = Durations()
        self._file: RowsFile[_Row] | None = None
        self._saved = 0.0
        self._refused = ""

    def heard(self, verb: str, is_awaited: bool = True) -> None:
        """Something happened in Slurm, or to the configuration."""
        if verb == ANEW:
            self._setup = None
        super().heard(verb, is_awaited)

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows; nothing where no partition is ordered."""
        if not self._of:
            return {}
        errors = self._durations.errors
        ratio = errors.median_ratio()
        predicted: dict[str, float] = {"jobs": errors.jobs, "kept": len(self._durations)}
        if ratio is not None:
            within = {f"within_{100 * q:.0f}": round(p, 3) for q, p in errors.coverage().items()}
            predicted |= {"median_off_by": round(ratio, 2), **within}
        passed = {name: one.passed for name, one in self._of.items()}
        told = {"passed": passed, "predicted": predicted}
        return {"order": told | ({"refused": self._refused} if self._refused else {})}

    def poll_s(self, setup: Setup) -> float:
        """Seconds between two polls if no event comes."""
        is_ordered = any(map(_is_ordered, setup.config.partitions.values()))
        return POLL_S if is_ordered else IDLE_S

    async def next_s(self, setup: Setup, since: float) -> float:
        """One look, unless no partition is ordered or the kill switch is set."""
        if self._setup is not setup:
            await asyncio.to_thread(self._begin, setup)
        poll_s = self.poll_s(setup)
        if poll_s == IDLE_S or setup.config.kill_switch.exists():
            return poll_s
        # Behind a gate of the slots mode another loop changes the same jobs.
        async with self.engine.turn:
            seen = await setup.watcher.snapshot(since, Detail.NODES)
            updates: list[Update] = []
            for one in self._ordered_in(setup, seen):
                updates += await asyncio.to_thread(one.look, seen.jobs, seen.nodes, seen.at)
                for job, said in one.told:
                    logger.info("order: job %s %s", job.name, said)
                    self.engine.write(of_job(partial(_line, job, said), job))
                one.told.clear()
            if updates:
                await asyncio.to_thread(self._change, setup.client, updates)
                setup.watcher.outdate()
                # A job in front may leave its gate.
                self.engine.say(PLANNED)
        if seen.began - self._saved > SAVE_S:
            self._saved = seen.began
            await asyncio.to_thread(self._save)
        return poll_s

    def _begin(self, setup: Setup) -> None:
        """A new configuration, or another engine acted: what was learned is in the file."""
        path = Path(setup.config.state_dir) / NAME
        if self._file is None or self._file.path != path:
            self._file = RowsFile(path, list[_Row], MAX_BYTES, 0o640)
            self._durations.load({row.key: row.steps for row in self._file.read()})
        self._of, self._setup = {}, setup

    def _ordered_in(self, setup: Setup, seen: Snapshot) -> list[PassingInPartition]:
        """The partitions that are ordered; those that GENIE orders are left to it."""
        config = setup.config
        shaped = config.genie.partitions if config.genie is not None else {}
        for name in sorted({name for node in seen.nodes for name in node.partitions}):
            rule = config.rule(name)
            if name not in self._of and name not in shaped and _is_ordered(rule):
                self._of[name] = PassingInPartition(name, rule, self._durations)
        return list(self._of.values())

    def _save(self) -> None:
        if self._file is not None:
            self._file.write([_Row(key, steps) for key, steps in self._durations.items()])

    def _change(self, client: SlurmClient, updates: list[Update]) -> None:
        """One that Slurm refuses is tried again later, as one that does not begin."""
        self._refused = ""
        for job, update in updates:
            try:
                client.update([job.name], update)
            except SlurmError as error:
                self._refused = f"job {job.name}: {error}"
                logger.warning("order: job %s could not be changed: %s", job.name, error)


def _line(job: QueuedJob, said: str) -> dict[str, Any]:
    """The decision log's keys of a job that passed, or was passed."""
    who = {"uid": job.uid, "account": job.account, "partition": job.partition}
    return {"decision": "order", "why": said, **who}


def _is_ordered(rule: Rule) -> bool:
    return rule.order == "predicted" and rule.mode == "enforce"
