"""Shows the screen on a terminal, anew as something changes, and obeys keys until q."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from slurm_plugin.errors import SlurmError
from slurm_plugin.tell.top.screen import Reader, screen
from slurm_plugin.tell.web.feed import Busy, Feed
from slurm_plugin.tell.web.sources import Sources
from slurm_plugin.tell.web.view import View

#: Seconds between two readings of Slurm: every user may look, so each asks seldom.
PERIOD_S = 5.0
#: What is printed once waits so long for the jobs' sentences: tries, and seconds between them.
TRIES, TRY_S = 40, 0.25
#: Keys, and by how many lines they move the nodes and the waiting jobs.
MOVES = {
    "j": (0, 1), "k": (0, -1), "\x1b[B": (0, 1), "\x1b[A": (0, -1), " ": (0, 10),
    "\x1b[6~": (0, 10), "\x1b[5~": (0, -10), "n": (1, 0), "p": (-1, 0),
}  # fmt: skip
QUIT = ("q", "Q", "\x1b", "\x03", "\x04")
#: A key as a terminal sends it: a control sequence (ECMA-48), what goes with Alt, or a character.
_KEY = re.compile(r"\x1b+(?:\[[0-?]*[ -/]*[@-~]|O?.)|.", re.DOTALL)
#: As much as a terminal keeps (N_TTY_BUF_SIZE): a sequence cut in two would begin with Escape.
_ALL_BYTES = 4096


class Top:
    """What one viewer sees; `uid` is None for those who see all jobs."""

    def __init__(self, sources: Sources, uid: int | None, console: Console) -> None:
        self._feed, self._uid, self._console = Feed(sources, PERIOD_S), uid, console
        self._reader, self._view = Reader(), View()
        self._problem = "Slurm is asked ..."
        self._ended = asyncio.Event()

    async def once(self) -> None:
        """Print all of it once. Raises SlurmError where Slurm does not answer."""
        async with self._read():
            for _ in range(TRIES):
                try:
                    await self._look()
                except Busy as error:
                    raise SlurmError(str(error)) from error
                waiting = [job for job in self._view["jobs"].values() if "reason" in job]
                if all("sentence" in job for job in waiting):
                    break
                await asyncio.sleep(TRY_S)
            for line in self._lines(height=0):
                self._console.print(line, soft_wrap=True)

    async def run(self) -> None:
        """Show it until the viewer has enough."""
        async with self._read():
            with (
                keys() as descriptor,
                Live(console=self._console, screen=True, auto_refresh=False) as live,
            ):
                loop = asyncio.get_running_loop()
                loop.add_signal_handler(signal.SIGINT, self._ended.set)
                loop.add_reader(descriptor, self._on_key, descriptor, live)
                try:
                    await self._show(live)
                finally:
                    loop.remove_reader(descriptor)

    @asynccontextmanager
    async def _read(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._feed.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _show(self, live: Live) -> None:
        while not self._ended.is_set():
            self._draw(live)
            try:
                await self._look()
            except Busy as error:
                self._problem = str(error)
            self._draw(live)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), 1.0)

    async def _look(self) -> None:
        self._view = msgspec.json.decode(await self._feed.whole(self._uid))
        self._view["is_own"] = self._uid is not None
        if self._uid is not None:
            # Who may not use the engine's socket is told nothing wrong about the engine.
            self._view["engine"] = {}

    def _lines(self, height: int) -> list[Text]:
        if not self._view:
            return [Text(self._problem)]
        clock = time.strftime("%H:%M:%S")
        return screen(self._view, self._reader, self._console.width, height, clock)

    def _draw(self, live: Live) -> None:
        live.update(Text("\n").join(self._lines(self._console.height)), refresh=True)

    def _on_key(self, descriptor: int, live: Live) -> None:
        pressed = os.read(descriptor, _ALL_BYTES).decode(errors="replace")
        # Keys that are held down come together; nothing comes of a terminal that is gone.
        for key in _KEY.findall(pressed) or QUIT[:1]:
            if key in QUIT:
                self._ended.set()
                return
            nodes, jobs = MOVES.get(key, (0, 0))
            self._reader.nodes = max(0, self._reader.nodes + nodes)
            self._reader.jobs = max(0, self._reader.jobs + jobs)
        self._draw(live)


@contextmanager
def keys() -> Iterator[int]:
    """Standard input gives keys as they are pressed, and is as it was afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
