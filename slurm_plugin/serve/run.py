"""`gputopo serve`: one process, its signals and systemd's watchdog."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from policies.horizon.usual import UsualCommunication
from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.act.lending.at_start.reservations import LoanReservations
from slurm_plugin.act.order.learned_durations import LearnedDurations
from slurm_plugin.base import client
from slurm_plugin.base.notify import Notifier
from slurm_plugin.base.telemetry import Telemetry
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide.decision_log import DecisionLog
from slurm_plugin.decide.machines import Machines
from slurm_plugin.errors import PluginError
from slurm_plugin.learn.part_marks import marks as part_marks
from slurm_plugin.learn.part_marks.marks import MarksInForce
from slurm_plugin.serve import amiss, setup
from slurm_plugin.serve.charge import Charge
from slurm_plugin.serve.loops.defrag import DefragLoop
from slurm_plugin.serve.loops.gates import GatesLoop
from slurm_plugin.serve.loops.lending import LendingLoop
from slurm_plugin.serve.loops.neighbours import NeighboursLoop
from slurm_plugin.serve.loops.network import NetworkLoop
from slurm_plugin.serve.loops.nodes import NodesLoop
from slurm_plugin.serve.loops.order import OrderLoop
from slurm_plugin.serve.loops.shaping import ShapingLoop
from slurm_plugin.serve.loops.site import SiteLoop
from slurm_plugin.serve.metrics import Metrics
from slurm_plugin.serve.server import LineServer
from slurm_plugin.serve.service import ANEW, Engine
from slurm_plugin.slurm.job_entries.client import EntryKeeper
from slurm_plugin.tell.explain.answer import Noted
from slurm_plugin.tell.explain.listener import ExplainListener
from slurm_plugin.tell.explain.slurm_says import story_of_engine

logger = logging.getLogger(__name__)

#: Seconds between two lines about connections that could not be accepted.
SILENT_S = 10.0
#: Python's own 5 ms would be a tenth of the callers' deadline.
SWITCH_S = 0.0005
#: Seconds between two checks of the clock.
CHECK_S = 1.0
#: Seconds between two looks at the file of marks.
MARKS_S = 2.0
#: The least step between two checks. A clock that is only corrected drifts by far less.
STEP_S = 2.0


#: The loops that poll Slurm, each for its own purpose.
LOOPS = (
    *(GatesLoop, ShapingLoop, OrderLoop, LendingLoop),
    *(DefragLoop, NeighboursLoop, NetworkLoop, NodesLoop, SiteLoop),
)


class DescriptorsGone:
    """Says at most every ten seconds that no descriptor is left for a connection.

    asyncio would write a traceback for each socket a hundred times a second, and fill the disk.
    """

    def __init__(self) -> None:
        self._silent_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What asyncio calls with an error that nobody awaits."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() >= self._silent_until:
            self._silent_until = loop.time() + SILENT_S
            logger.error("connections wait: %s; raise LimitNOFILE of the engine's unit", error)


def _ahead_s() -> float:
    """How far the wall clock is ahead of one that nobody sets."""
    return time.time() - time.monotonic()


class ClockWatch:
    """Calls `say` at every step of the wall clock.

    The engine remembers times of the wall clock, as Slurm tells them: after a step a short promise
    could last for an hour. So listeners forget them, as at a restart.
    """

    def __init__(self, say: Callable[[str], None], ahead_s: Callable[[], float] = _ahead_s) -> None:
        self._say = say
        self._ahead_s = ahead_s
        self._was = ahead_s()

    def check(self) -> None:
        """Say whether the clock was set since the last check."""
        now = self._ahead_s()
        step_s, self._was = now - self._was, now
        if abs(step_s) > STEP_S:
            way = "forward" if step_s > 0 else "back"
            logger.warning("the clock was set %s by %.0f s; Slurm is read anew", way, abs(step_s))
            self._say(ANEW)

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.check()


async def serve(path: Path, notifier: Notifier | None = None) -> None:
    """Answer until SIGTERM or SIGINT; SIGHUP reloads.

    Raises PluginError when the configuration is wrong or the socket cannot be made.
    """
    notifier = notifier or Notifier()
    keeper = EntryKeeper()
    load = partial(
        setup.load,
        cache=CapacityCache(),
        reserved=LoanReservations(),
        keeper=keeper,
        telemetry=Telemetry(),
        marks=MarksInForce(),
        durations=LearnedDurations(),
        usual=UsualCommunication(),
    )
    first = load(path, in_haste=True)
    # Threads that read the queue or compute ahead give way to a question this soon (seconds).
    sys.setswitchinterval(SWITCH_S)
    # Fewer, later collections: a question makes thousands of short-lived objects, no cycles.
    gc.set_threshold(50_000, 20, 50)
    log = DecisionLog(first.config.decision_log)
    engine = Engine(first, log, load)
    loops = [kind(engine) for kind in LOOPS]
    charge = _charge(engine)
    keeper.is_in_charge = charge.is_ours
    server = LineServer(first.config.socket, engine.answer)
    engine.ask_for_pass = server.ask_for_pass
    beside = _listeners(engine)
    ended = asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(DescriptorsGone())
    try:
        await server.start()
        await _start_listeners(engine, beside)
        _handle_signals(engine, notifier, ended)
        _announce(engine, notifier)
        engine.warm()
        keeping = (one.schedule.keep(one.poll) for one in loops)
        running = (
            _feed(notifier),
            ClockWatch(engine.say).run(),
            charge.run(),
            *keeping,
            _watch_files(engine),
            _write_status(engine, server.path),
        )
        tasks = [asyncio.create_task(one) for one in running]
        await ended.wait()
        for task in tasks:
            task.cancel()
    finally:
        notifier.stopping()
        for listener in beside:
            await listener.stop()
        await server.stop()
        await asyncio.to_thread(keeper.close)
        await asyncio.to_thread(log.close)
    logger.info("stopped")


async def _watch_files(engine: Engine) -> None:
    """Read the marks anew when their file changes, and look whether our folders can be written.

    gputopo.yaml stays as it was read last.
    """
    while True:
        await asyncio.to_thread(_look_at_folders, engine)
        await asyncio.sleep(MARKS_S)
        site = engine.setup
        path = part_marks.path_in(site.config.state_dir)
        if await asyncio.to_thread(site.marks.is_outdated, path):
            logger.info("%s changed; reading it", path)
            await engine.reload(site.config)


async def _write_status(engine: Engine, socket: Path) -> None:
    """Write how the engine is beside its socket, for SlurmUser's group, who may not ask."""
    was = ""
    try:
        while True:
            said = ""
            try:
                await asyncio.to_thread(client.write_status, socket, engine.status())
            except Exception as error:
                said = str(error) or repr(error)
            if said and said != was:
                logger.error("%s; SlurmUser's group is told no status", said)
            was = said
            await asyncio.sleep(client.WRITE_S)
    finally:
        client.status_file(socket).unlink(missing_ok=True)


def _look_at_folders(engine: Engine) -> None:
    """Whether the engine, as this user and in its unit's bounds, may write what it is to keep."""
    config = engine.setup.config
    log = config.decision_log.path
    found = amiss.not_writable((config.state_dir, log.parent), log)
    if found and found != engine.not_writable:
        logger.error("cannot be written: %s; going on without", ", ".join(found))
    engine.not_writable = found


def _charge(engine: Engine) -> Charge:
    """Whether slurmctld of this host is in charge; what the engine does when it becomes so."""

    def gained() -> None:
        site = engine.setup
        site.keeper.reopen()
        site.neighbours.teacher.start_anew()
        site.durations.reopen()
        if site.reserved is not None:
            site.reserved.by_borrower = {}

    def say() -> None:
        engine.setup.watcher.outdate()
        engine.say(ANEW)

    charge = Charge(lambda: engine.setup.client.config(), gained, say)
    engine.listen(charge.heard, charge.status)
    return charge


def _listeners(engine: Engine) -> list[ExplainListener | Metrics]:
    """What listens beside the socket where the site wants it; the engine starts without, too."""
    config = engine.setup.config
    listeners: list[ExplainListener | Metrics] = []
    if config.explain_listen is not None:
        listeners.append(ExplainListener(config.explain_listen, lambda: _known_to(engine.setup)))
    if config.metrics_listen is not None:
        listeners.append(Metrics(config.metrics_listen, engine))
    return listeners


async def _start_listeners(engine: Engine, listeners: Iterable[ExplainListener | Metrics]) -> None:
    for listener in listeners:
        try:
            await listener.start()
        except PluginError as error:
            logger.error("%s; going on without", error)
            engine.not_listening.append(str(error))


def _known_to(site: setup.Setup) -> tuple[DecisionLogConfig, Machines, Noted]:
    """What users are told from: the decision log, the nodes, and notes that Slurm does not have."""

    def noted(job: int) -> dict[str, Any] | None:
        entries = site.keeper.store.hidden(job)
        return story_of_engine(job, entries) if entries else None

    return site.config.decision_log, site.machines, noted


def _handle_signals(engine: Engine, notifier: Notifier, ended: asyncio.Event) -> None:
    """SIGTERM and SIGINT end the engine, SIGHUP reloads its configuration."""
    loop = asyncio.get_running_loop()
    reloads: set[asyncio.Task[None]] = set()

    def reload_soon() -> None:
        task = loop.create_task(_reload(engine, notifier))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGHUP, reload_soon)


async def _reload(engine: Engine, notifier: Notifier) -> None:
    notifier.reloading()
    await engine.reload()
    _announce(engine, notifier)


def _announce(engine: Engine, notifier: Notifier) -> None:
    machines = engine.setup.machines
    left = sorted(name for name, machine in machines.items() if machine.problem)
    status = f"{len(machines)} nodes declared, {len(left)} left to Slurm"
    logger.info("%s: %s", engine.setup.config.socket, status)
    for name in left:
        logger.warning("%s is left to Slurm's own choice: %s", name, machines[name].problem)
    notifier.ready(status)


async def _feed(notifier: Notifier) -> None:
    """Tell systemd that the loop which answers is alive, twice as often as systemd asks for."""
    if notifier.watchdog_s is None:
        return
    while True:
        notifier.alive()
        await asyncio.sleep(notifier.watchdog_s / 2)
