"""Reads the sources for all who look, and sends every kind of viewer what changed.

One reading per period serves any number of viewers, and nothing is read while nobody looks. The
text for a kind of viewer is made once, however many of that kind there are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec

from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.snapshot import Detail, Snapshot
from slurm_plugin.tell.web.colours import Colours
from slurm_plugin.tell.web.reasons import Reasons
from slurm_plugin.tell.web.sources import EngineState, Sources
from slurm_plugin.tell.web.view import (
    ClusterFigures,
    View,
    changes,
    cluster_of,
    common_view,
    own_view,
)
from slurm_plugin.tell.why.reading import Reading

logger = logging.getLogger(__name__)

#: Seconds from one reading to the next, and for how long a single question keeps it going.
PERIOD_S, LINGER_S = 1.0, 10.0
#: Readings further apart than this are old before the next one comes.
MAX_APART_S = 5.0
#: Reading Slurm may take this share of the time: a slow controller is asked less often.
BUSY_SHARE = 0.25
#: Fragmentation over time: a point every so many seconds, and so many points (a day).
POINT_S, MAX_POINTS = 60.0, 1440
#: An empty event says of when the view is, where nothing else is to be said.
SILENCE_S = 2.0
#: Seconds of each reading in which waiting jobs' reasons are worked out, for all viewers together.
REASONS_S = 0.5

_ENCODER = msgspec.json.Encoder()
HIDDEN_JOBS = "Slurm hides jobs from the page's own user (PrivateData): make it an operator."
FAULT = "What Slurm says now cannot be shown; the log of gputopo web says why."


class Busy(Exception):
    """There is no view yet; Slurm has not answered."""


@dataclass(slots=True)
class ViewerKind:
    """Viewers who see the same."""

    uid: int | None
    reasons: Reasons
    view: View = field(default_factory=dict)
    #: Viewers who are connected now.
    viewers: int = 0
    #: When somebody of this kind last asked (seconds of the feed's clock).
    asked_at: float = 0.0
    #: The number of the last event, its text, and the whole view as a text, made when asked for.
    number: int = 0
    event: bytes = b""
    whole: bytes = b""


def _is_newer(kind: ViewerKind, number: int) -> bool:
    return kind.number > number


class Feed:
    """The views; only the event loop may call it."""

    def __init__(
        self,
        sources: Sources,
        period_s: float = PERIOD_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sources = sources
        self.reading: Reading | None = None
        self.colours = Colours()
        self._period_s, self._clock = period_s, clock
        self._kinds: dict[int | None, ViewerKind] = {}
        self._common: View = {}
        self._history: dict[str, list[float]] = {}
        self._wanted, self._news = asyncio.Event(), asyncio.Condition()
        self._slurm_problem = ""
        #: What the views show.
        self._shown: Snapshot | None = None
        self._read_at = float("-inf")
        #: Seconds from one reading to the next, and those that Slurm took for it, as it was last.
        self._cycle_s = self._slurm_s = 0.0
        #: Which kind of viewer's reasons come first.
        self._turn = 0
        #: The nodes of the last reading: reasons that become known change nothing about them.
        self._cluster: tuple[Reading, ClusterFigures] | None = None
        #: Readings so far.
        self.reads = 0

    # -- who looks -----------------------------------------------------------

    async def whole(self, kind_of: int | None, wait_s: float = 10.0) -> bytes:
        """The newest view of a kind of viewer as JSON. Raises Busy where there is none."""
        kind = self._asked(kind_of)
        if (
            not kind.view
            and self.reading is not None
            and self._is_fresh
            and "nodes" in self._common
        ):
            self._renew(kind, self.reading, {})
        await self._read_lately(bool(kind.view), wait_s)
        if not kind.view:
            raise self._busy()
        return self._whole_of(kind)

    async def now(self, kind_of: int | None, wait_s: float = 10.0) -> Reading:
        """What was read last, which may be shown in part alone. Raises Busy where there is none."""
        self._asked(kind_of)
        await self._read_lately(self.reading is not None, wait_s)
        if self.reading is None:
            raise self._busy()
        return self.reading

    async def after(self, moment: float, reading: Reading, wait_s: float = 5.0) -> Reading:
        """One that began after the moment (of the watcher's clock), else the `reading` there is."""
        with suppress(TimeoutError):
            await asyncio.wait_for(
                self._next(lambda: self.reading is None or self.reading.snapshot.began >= moment),
                wait_s,
            )
        return self.reading or reading

    @property
    def as_of(self) -> str:
        """When Slurm was read for what the views show: an epoch, and how many seconds ago."""
        if self._shown is None:
            return ""
        ago_s = self.sources.watcher.clock() - self._shown.began
        return f"{self._shown.at:.1f} {ago_s:.1f}"

    def _busy(self) -> Busy:
        return Busy(self._slurm_problem or "Slurm has not answered yet")

    @property
    def _is_fresh(self) -> bool:
        """Is what was read last not worth a wait for the next reading?

        Where readings take long they are further apart, and the next is under way.
        """
        apart_s = max(self._period_s, min(self._cycle_s, MAX_APART_S))
        return self._clock() - self._read_at <= 2 * apart_s + 1.0

    async def _read_lately(self, is_there: bool, wait_s: float) -> None:
        """Wait for the next reading where nothing is there, or what is there is old."""
        if not is_there or not self._is_fresh:
            before = self.reads
            try:
                await asyncio.wait_for(self._next(lambda: self.reads > before), wait_s)
            except TimeoutError:
                logger.debug("no reading within %g s", wait_s)

    async def events(self, kind_of: int | None) -> AsyncIterator[tuple[str, bytes]]:
        """(`whole` or `changes`, JSON) as long as somebody takes them; ("alive", b"") in between.

        Who takes them too slowly gets the whole view again in place of what was missed.
        """
        kind = self._asked(kind_of)
        kind.viewers += 1
        try:
            text = await self.whole(kind_of)
            number = kind.number
            yield "whole", text
            while True:
                self._wanted.set()
                try:
                    is_newer = partial(_is_newer, kind, number)
                    await asyncio.wait_for(self._next(is_newer), SILENCE_S)
                except TimeoutError:
                    yield "alive", b""
                    continue
                is_next, number = kind.number == number + 1, kind.number
                yield ("changes", kind.event) if is_next else ("whole", self._whole_of(kind))
        finally:
            kind.viewers -= 1
            kind.asked_at = self._clock()

    def _asked(self, uid: int | None) -> ViewerKind:
        kind = self._kinds.get(uid)
        if kind is None:
            kind = self._kinds[uid] = ViewerKind(uid, Reasons(uid))
        kind.asked_at = self._clock()
        self._wanted.set()
        return kind

    async def _next(self, is_so: Callable[[], bool]) -> None:
        async with self._news:
            await self._news.wait_for(is_so)

    def _whole_of(self, kind: ViewerKind) -> bytes:
        if not kind.whole:
            kind.whole = _ENCODER.encode({"number": kind.number, **self._common, **kind.view})
        return kind.whole

    # -- reading -------------------------------------------------------------

    async def run(self) -> None:
        """Read as long as somebody looks, until cancelled."""
        while True:
            await self._wanted.wait()
            began = self._clock()
            try:
                await self.read()
            except Exception:
                logger.exception("what was read could not be shown")
                await self._tell(FAULT)
            took = self._clock() - began
            self._cycle_s = max(self._period_s, self._slurm_s / BUSY_SHARE)
            await asyncio.sleep(max(0.0, self._cycle_s - took))
            self._forget()

    async def read(self) -> None:
        """One reading, and an event for each kind of viewer to whom it says something new."""
        sources, began = self.sources, self._clock()
        try:
            snapshot = await sources.watcher.snapshot(sources.watcher.clock(), Detail.SETTINGS)
            extras = await asyncio.to_thread(sources.extras, snapshot)
            self.reading, self._slurm_problem = Reading(snapshot, extras), ""
        except SlurmError as error:
            self._slurm_problem = f"Slurm does not answer: {error}"
        engine, _ = await asyncio.gather(
            asyncio.to_thread(sources.engine), asyncio.to_thread(sources.decisions.read)
        )
        self._read_at = began
        self._slurm_s = self._clock() - began
        await self._publish(engine)
        if self.reading is not None:
            await self._go_on_with_reasons(self.reading, engine)

    async def _publish(self, engine: EngineState) -> None:
        """Make the views anew and send what changed."""
        if self.reading is not None:
            common = await asyncio.to_thread(self._common_view, self.reading, engine)
            difference = changes(self._common, common)
            self._common = common
            self._shown = self.reading.snapshot
            for kind in self._kinds.values():
                self._renew(kind, self.reading, difference)
        await self._notify()

    async def _tell(self, problem: str) -> None:
        """What was known stays, with a word about it."""
        slurm = {"problem": problem}
        self._common = {**self._common, "slurm": slurm}
        for kind in self._kinds.values():
            if kind.view:
                kind.number, kind.whole = kind.number + 1, b""
                kind.event = _ENCODER.encode({"number": kind.number, "slurm": slurm})
        await self._notify()

    async def _notify(self) -> None:
        """Wake all who wait for news."""
        self.reads += 1
        async with self._news:
            self._news.notify_all()

    def _common_view(self, reading: Reading, engine: EngineState) -> View:
        sources = self.sources
        if self._cluster is None or self._cluster[0] is not reading:
            self._cluster = reading, cluster_of(reading)
            self.colours.renew(reading.snapshot.active)
        view = common_view(reading, self._cluster[1], engine, sources.network)
        figures, at = view["figures"], reading.snapshot.at
        last = next(reversed(self._history.values()), None)
        if last is None or at - last[0] >= POINT_S:
            point = [at, figures["fragmentation"], figures["stranded"], figures["free"]]
            self._history = dict([*self._history.items(), (str(int(at)), point)][-MAX_POINTS:])
        hides = reading.snapshot.settings.hides_jobs and os.getuid() not in sources.operators
        notices = [*sources.notices, *([HIDDEN_JOBS] if hides else [])]
        slurm = {"problem": self._slurm_problem}
        return {**view, "history": dict(self._history), "notices": notices, "slurm": slurm}

    def _renew(self, kind: ViewerKind, reading: Reading, difference: View) -> None:
        decisions, colours = self.sources.decisions, self.colours.of_job
        view = own_view(reading, kind.reasons.said, decisions, kind.uid, colours)
        changed = difference | changes(kind.view, view)
        if changed or not kind.view:
            kind.view, kind.whole = view, b""
            kind.number += 1
            kind.event = _ENCODER.encode({"number": kind.number, **changed})

    async def _go_on_with_reasons(self, reading: Reading, engine: EngineState) -> None:
        """For half a second, whatever number of viewers' jobs wait, each kind of viewer in turn."""
        kinds = list(self._kinds.values())
        at = self._turn % max(1, len(kinds))
        looks: list[bool] = []
        until = self._clock() + REASONS_S
        for kind in (*kinds[at:], *kinds[:at]):
            if looks and self._clock() >= until:
                break
            looks.append(await asyncio.to_thread(kind.reasons.look, reading))
        self._turn = at + len(looks)
        if any(looks):
            await self._publish(engine)

    def _forget(self) -> None:
        """Kinds of whom nobody looks any more; without any, nothing more is read."""
        now = self._clock()
        for uid, kind in list(self._kinds.items()):
            if not kind.viewers and now - kind.asked_at > LINGER_S:
                del self._kinds[uid]
        if not self._kinds:
            self._wanted.clear()
