"""Is the slurmctld of this host in charge? Only then may the engine beside it change Slurm.

Where a backup controller stands by, an engine stands by with it. Slurm says which slurmctld is in
charge in the file `heartbeat` of StateSaveLocation, which all of them share: a time, and who wrote
it, as an index into SlurmctldHost (src/slurmctld/heartbeat.c of 22.05 to 26.05). It is written at a
takeover and every few seconds from then on. In doubt nobody is in charge.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.runner import boot_time, controllers, short

logger = logging.getLogger(__name__)

#: When it was written (epoch), and the writer's index.
_HEARTBEAT = struct.Struct("!QQ")
_UNKNOWN = "Slurm has not said yet which controllers there are"
#: Seconds between two looks: at the file, and where there is none to look at.
LOOK_S, CALM_S = 0.25, 1.0
#: A file that is missing is looked for so often, with so many seconds between, as Slurm does.
TRIES, AGAIN_S = 3, 0.1
#: A file system that hangs for so many seconds says nothing.
PATIENCE_S = 2.0
#: The controllers are read anew so often, in seconds: slurm.conf may name others. And in doubt.
CONTROLLERS_S, DOUBTS_S = 60.0, 5.0


@dataclass(frozen=True, slots=True)
class ChargeVerdict:
    """Who is in charge, as far as this host can tell."""

    is_ours: bool
    #: A sentence that stays the same as long as nothing changes.
    why: str
    #: May another one be in charge, for all that is known?
    is_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Controllers:
    """The hosts that may run slurmctld, in Slurm's order, and where they share its state."""

    hosts: tuple[str, ...]
    state: Path
    #: The heartbeat of before the hosts were asked for: who is alone writes none.
    heartbeat: bytes = b""
    #: When the slurmctld that said so started, as an epoch; 0 where it does not say.
    booted: int = 0

    @classmethod
    def named_in(cls, values: Mapping[str, str]) -> Controllers:
        """Those of `scontrol show config`; raises SlurmError where it names none."""
        found = controllers(values)
        if sorted(found) != list(range(len(found))) or not found:
            raise SlurmError("scontrol show config: no SlurmctldHost[0] in the reply")
        hosts = tuple(found[index] for index in range(len(found)))
        return cls(hosts, Path(values.get("StateSaveLocation", "")), booted=boot_time(values))

    def verdict(self, host: str) -> ChargeVerdict:
        """Whether it is `host` that is in charge; looks at the file system."""
        if len(self.hosts) == 1:
            if self.last_heartbeat() != self.heartbeat:
                return _doubt("slurmctld writes heartbeats: it has got another controller")
            return ChargeVerdict(True, "there is no other controller")
        own = {short(name): index for index, name in enumerate(self.hosts)}.get(short(host))
        if own is None:
            listed = ", ".join(self.hosts)
            return _doubt(f"this host, {host}, is none of the controllers {listed}")
        file = self.state / "heartbeat"
        try:
            written = _read_patiently(file)
        except OSError as error:
            return _doubt(f"{file}: {error.strerror}")
        if len(written) != _HEARTBEAT.size:
            return _doubt(f"{file}: other than the {_HEARTBEAT.size} bytes that slurmctld writes")
        _, index = _HEARTBEAT.unpack(written)
        if index >= len(self.hosts):
            return _doubt(f"{file}: written by controller {index} of {len(self.hosts)}")
        return ChargeVerdict(index == own, f"slurmctld on {self.hosts[index]} is in charge")

    def last_heartbeat(self) -> bytes:
        """What the file says now; nothing where it cannot be read."""
        try:
            return _read(self.state / "heartbeat")
        except OSError:
            return b""


def _read(file: Path) -> bytes:
    """What slurmctld writes there, or one byte more; OSError where it cannot be read."""
    with file.open("rb") as opened:
        return opened.read(_HEARTBEAT.size + 1)


def _read_patiently(file: Path) -> bytes:
    """The same; up to 24.11 Slurm takes the old file away before it puts the new one there."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(FileNotFoundError):
            return _read(file)
        time.sleep(AGAIN_S)
    return _read(file)


def _doubt(why: str) -> ChargeVerdict:
    return ChargeVerdict(False, why, is_doubtful=True)


class Charge:
    """Keeps the verdict up to date. Only the event loop may call it."""

    def __init__(
        self,
        config: Callable[[], Mapping[str, str]],
        gained: Callable[[], None],
        say: Callable[[], None],
        host: str | None = None,
    ) -> None:
        """`config` asks Slurm, and may block.

        When this host takes charge, `gained` is called first, in a thread: what was remembered
        before may be wrong by now. Then `say`.
        """
        self._config, self._gained, self._say = config, gained, say
        self._host = host or socket.gethostname()
        self._controllers: Controllers | None = None
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self.verdict = _doubt(_UNKNOWN)
        self.since = time.monotonic()

    def is_ours(self) -> bool:
        """May Slurm be changed from here?"""
        return self.verdict.is_ours

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows."""
        known = self._controllers
        return {
            "charge": {
                "is_ours": self.verdict.is_ours,
                "is_doubtful": self.verdict.is_doubtful,
                "why": self.verdict.why,
                "since_s": round(time.monotonic() - self.since, 1),
                "controllers": list(known.hosts) if known else [],
                "slurmctld_booted": known.booted if known else 0,
            }
        }

    def heard(self, verb: str) -> None:
        """An event of the engine: with a new configuration Slurm may have one, too."""
        if verb == "reload":
            self._read_at = float("-inf")

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:
                logger.exception("who is in charge could not be told")
                self.verdict = _doubt("a look at the controllers failed; see the engine's log")
            known = self._controllers
            await asyncio.sleep(LOOK_S if known and len(known.hosts) > 1 else CALM_S)

    async def look(self) -> None:
        """One look; where nothing is known of the controllers yet, Slurm is asked first."""
        often_s = DOUBTS_S if self.verdict.is_doubtful else CONTROLLERS_S
        is_due = time.monotonic() - self._read_at >= often_s
        if self._reading is None and (is_due or self._controllers is None):
            self._reading = asyncio.create_task(self._read())
        if self._controllers is None and self._reading is not None:
            # Later ones are not waited for: with slurmctld down Slurm's commands take their time.
            await self._reading
        if self._controllers is None:
            return
        looking = asyncio.create_task(asyncio.to_thread(self._controllers.verdict, self._host))
        await asyncio.wait({looking}, timeout=PATIENCE_S)
        if not looking.done():
            await self._judge(_doubt(f"{self._controllers.state} does not answer"))
        await self._judge(await looking)

    async def _read(self) -> None:
        """Ask Slurm for its controllers; the former ones stay where it does not say."""
        self._read_at = time.monotonic()
        try:
            self._controllers = await asyncio.to_thread(self._named)
        except SlurmError as error:
            if self._controllers is None:
                said = " ".join(str(error).split())[:300]
                await self._judge(_doubt(f"{_UNKNOWN}: {said}"))
        except Exception:
            logger.exception("which controllers there are could not be read")
        finally:
            self._reading = None

    def _named(self) -> Controllers:
        """What Slurm says, in a thread."""
        before = self._controllers.last_heartbeat() if self._controllers else None
        named = Controllers.named_in(self._config())
        return replace(named, heartbeat=named.last_heartbeat() if before is None else before)

    async def _judge(self, verdict: ChargeVerdict) -> None:
        """Take a verdict; who takes charge remembers nothing of before."""
        if verdict == self.verdict:
            return
        is_gained = verdict.is_ours and not self.verdict.is_ours
        known = self._controllers
        if is_gained and known is not None and len(known.hosts) > 1:
            await asyncio.to_thread(self._gained)
        if verdict.is_ours != self.verdict.is_ours:
            self.since = time.monotonic()
        self.verdict = verdict
        if verdict.is_ours:
            logger.info("in charge: %s", verdict.why)
        else:
            logger.warning("standing by, nothing is changed in Slurm: %s", verdict.why)
        if is_gained:
            self._say()
