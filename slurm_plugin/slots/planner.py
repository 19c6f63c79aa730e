"""The loop around the plan: read Slurm, decide, act; woken by submits, ended jobs and a poll.

Slurm's calls run in a thread, everything else in the event loop. All state is Slurm's: the
first step after a start is like any other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from slurm_plugin.engine.decide import Decider
from slurm_plugin.errors import SlurmError
from slurm_plugin.protocol import Place, Submit, Use, WaitFor
from slurm_plugin.slots import bracket, question
from slurm_plugin.slots.board import Board
from slurm_plugin.slots.candidates import Group, Need
from slurm_plugin.slots.plan import WAIT, Clock, Plan, plan
from slurm_plugin.slots.room import held_by, room_of, with_hold
from slurm_plugin.slurm.interface import (
    JobUpdate,
    QueuedJob,
    SlurmClient,
    SlurmNode,
    SlurmPartition,
)

logger = logging.getLogger(__name__)

Seen = tuple[list[QueuedJob], list[SlurmNode], list[SlurmPartition]]


class Planner:
    """Keeps the board true and the gates moving; times in seconds."""

    def __init__(
        self,
        client: SlurmClient,
        decider: Decider,
        board: Board,
        *,
        lease_s: int,
        poll_s: float,
        grace_s: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._decider = decider
        self._board = board
        self._lease_s = lease_s
        self._poll_s = poll_s
        self._grace_s = grace_s
        self._clock = clock
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Something happened: look at once."""
        self._woken.set()

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            self._woken.clear()
            try:
                await self.step()
            except SlurmError as error:
                logger.warning("slots: Slurm could not be read: %s", error)
            except Exception:
                # A gate that is not renewed opens: the next look may work again.
                logger.exception("slots: a look at the queue failed")
            try:
                await asyncio.wait_for(self._woken.wait(), self._poll_s)
            except TimeoutError:
                continue

    async def step(self) -> Plan:
        """One look and everything that follows from it."""
        queue, nodes, partitions = await asyncio.to_thread(self._read)
        now = self._clock()
        running = [job for job in queue if job.state != "PENDING"]
        room = room_of(nodes, running)
        self._forget(queue)
        self._board.now(now)  # drops promises that ran out
        promised = [promise.hold for promise in self._board.promises.values()]
        tiers = {partition.name: partition.priority_tier for partition in partitions}
        clock = Clock(int(now), self._lease_s, self._grace_s)
        made = plan(queue, room, tiers, clock, self._choose, promised)
        for hold in made.added:
            room = with_hold(room, hold)
        holds = [held_by(job, now) for job in running] + made.added
        self._board.default_partition = next((p.name for p in partitions if p.is_default), "")
        self._board.look(room, tuple(holds), made.first, set(), now)
        await asyncio.to_thread(self._act, made, int(now))
        return made

    def _read(self) -> Seen:
        # The queue first: a job that starts in between is then counted twice, never missed.
        queue = self._client.queue()
        return queue, self._client.nodes(), self._client.partitions()

    def _forget(self, queue: Sequence[QueuedJob]) -> None:
        """Promises to jobs that Slurm shows are the jobs' own now."""
        for job in queue:
            kept = bracket.read(job.admin_comment)
            if kept is not None:
                self._board.promises.pop(kept.get("token"), None)

    def _choose(
        self, job: QueuedJob, asked: Submit, need: Need, found: Sequence[Group]
    ) -> tuple[Group, int] | str | None:
        waited = max(0, int(self._clock()) - job.submit) if job.submit else 0
        base = Place(
            0,
            job.job_id,
            job.array_id,
            job.uid,
            0,
            waited,
            (),
            job.account,
            job.partition,
            hint=asked.hint,
        )
        reply = self._decider.decide(question.ask(base, need, found)).reply
        if isinstance(reply, Use):
            return question.answer(reply, found)
        return WAIT if isinstance(reply, WaitFor) else None

    def _act(self, made: Plan, now: int) -> None:
        """Releases first: they are what people wait for."""
        for name, change in (*made.releases, *made.restores):
            self._update([name], change)
        if made.renew:
            self._update(made.renew, JobUpdate(begin_time=now + self._lease_s))

    def _update(self, names: Sequence[str], change: JobUpdate) -> None:
        """One update; what Slurm refused shows at the next look."""
        try:
            self._client.update(names, change)
        except SlurmError as error:
            logger.warning("slots: %s: %s", ", ".join(names), error)
