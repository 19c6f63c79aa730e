"""The loop that moves running jobs where the site allows it; one at a time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from slurm_plugin.act.defrag import record
from slurm_plugin.act.defrag.mover import Mover
from slurm_plugin.act.defrag.sight import Sight
from slurm_plugin.act.lending.at_start.reservations import LoanReservations
from slurm_plugin.errors import PluginError
from slurm_plugin.queue.snapshot import Detail
from slurm_plugin.serve.loops.queue_loop import RegularLoop, logger
from slurm_plugin.serve.service import Engine
from slurm_plugin.serve.setup import Setup
from slurm_plugin.slurm import requeue
from slurm_plugin.slurm.runner import ProcessRunner

#: Seconds between two looks while no job is moved, and while one is.
POLL_S, MOVING_S = 10.0, 0.5


class DefragLoop(RegularLoop):
    """Reads Slurm only where jobs may be moved, or a move is still open."""

    name = "defrag"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._mover: Mover | None = None

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows: nothing where no job is moved."""
        moves = self._mover.moves if self._mover is not None else None
        if moves is None or not (moves.open or moves.past):
            return {}
        under_way = None if moves.open is None else moves.open.job
        return {"defrag": {"moving": under_way, "moved": len(moves.past)}}

    def poll_s(self, setup: Setup) -> float:
        """Seconds between two looks."""
        return POLL_S

    async def next_s(self, setup: Setup, since: float) -> float:
        """One look, and one step."""
        mover = self._mover_of(setup)
        may_begin = setup.config.defrag.move and not setup.config.kill_switch.exists()
        is_open = mover.moves is None or mover.moves.open is not None
        if not may_begin and not is_open:
            return POLL_S
        if not may_begin and not await asyncio.to_thread(mover.path.exists):
            return POLL_S
        snapshot = await setup.watcher.snapshot(since, Detail.SETTINGS)
        try:
            is_moving = await asyncio.to_thread(mover.step, snapshot, may_begin)
        except PluginError as error:
            # What cannot be written down is not done.
            logger.error("defrag: %s", error)
            return POLL_S
        if is_moving:
            setup.watcher.outdate()
        return MOVING_S if is_moving else POLL_S

    def _mover_of(self, setup: Setup) -> Mover:
        if self._mover is None or self._setup is not setup:
            slurm, check = setup.config.slurm, setup.keeper.check
            run = ProcessRunner(slurm.bin_dir, slurm.timeout_s)

            def requeue_held(name: str) -> None:
                check()
                requeue.requeue_held(run, name)

            self._setup = setup
            self._mover = Mover(
                record.path_in(setup.config.state_dir),
                setup.client,
                setup.decider,
                setup.reserved or LoanReservations(),
                setup.config.defrag,
                partial(requeue.requeueable, run),
                requeue_held,
                Sight(None if setup.cache is None else setup.decider.machines),
            )
        return self._mover
