"""The batch script of a donor: the middleware's server on this node's GPUs, for one job.

It says how it stands in its own job's comment, which the engine reads:
    gpu-donor ready of=4711 port=50001
    gpu-donor failed of=4711 no free port in 50000-50010
and ends as soon as the job it lends to is no more, whatever became of the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from slurm_plugin.base import preset
from slurm_plugin.base.job_notes.donor import NAME, Passed, failed, ready
from slurm_plugin.base.job_notes.records import GateRecord, LoanRecord
from slurm_plugin.base.preset import UNKNOWN, Preset
from slurm_plugin.errors import RemoteError
from slurm_plugin.node.remote import echo, inside, slurm, sockets
from slurm_plugin.node.remote.door import Door, Tools
from slurm_plugin.node.remote.handshake import Munge
from slurm_plugin.node.remote.meter import Meter
from slurm_plugin.node.remote.relay import DonorEnd
from slurm_plugin.node.remote.sockets import LOOPBACK

ANY = "0.0.0.0"
#: Seconds until a server must listen, and how many ports are tried.
LISTENS_S = 20.0
#: Seconds between two looks whether it listens.
LOOK_S = 0.02
TRIES = 3
#: Seconds between two looks at the borrowing job, and how long that job may wait for its start.
POLL_S = 30.0
#: Open connections over which nothing passed for so long are told of; kernels of seconds are not.
IDLE_S = 20.0
PATIENCE_S = 180.0
#: A record that does not name this donor may be somebody else's text: it counts only if it is
#: still so after this many seconds.
AGAIN_S = 15.0
#: A failure stands in the comment for so many seconds; then the donor's job ends by itself.
SHOWN_S = 30.0


@dataclass(frozen=True)
class DonorTask:
    """What a donor is for: `gpus` devices for the job `parent`; ports from `low` to `high`."""

    parent: int
    job_id: int
    gpus: int
    low: int
    high: int
    trust_network: bool
    preset: Preset
    program: str

    @property
    def subject(self) -> str:
        """What both ends of a connection name in their proofs."""
        return f"{self.parent}/{self.job_id}"

    @property
    def relays(self) -> bool:
        """Does the relay stand in front of the server?"""
        return not (self.preset.authenticates or self.trust_network)

    @property
    def isolates(self) -> bool:
        """Must the server get a network of its own, since it listens on every address?"""
        return self.relays and not self.preset.loopback


def read(text: str, environment: Mapping[str, str], program: str) -> DonorTask:
    """The task that the engine wrote. Raises RemoteError for anything else."""
    try:
        values = json.loads(text)
        return DonorTask(
            int(values["parent"]),
            int(environment["SLURM_JOB_ID"]),
            int(values["gpus"]),
            int(values["low"]),
            int(values["high"]),
            bool(values["trust_network"]),
            preset.from_json(values["preset"]),
            program,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise RemoteError(f"not a donor's task: {error!r}") from error


class Donor:
    """One donor: its server, its socket on the network, and its end."""

    def __init__(self, task: DonorTask, vouching: Munge) -> None:
        self._task = task
        self._vouching = vouching
        self._process: asyncio.subprocess.Process | None = None
        self._server_port = 0
        self._tools = Tools.beside(task.program)
        self._door: Door | None = None
        self._inside: inside.Outside | None = None
        self._listening: contextlib.ExitStack | None = None

    async def open(self) -> int:
        """Start the server and listen for the job; the port. Raises RemoteError in one line."""
        task, host = self._task, socket.gethostname()
        devices = echo.devices()
        if len(devices) != task.gpus:
            raise RemoteError(f"{host}: {len(devices)} GPUs; expected {task.gpus}")
        command = task.preset.program.format_map(self._values(0))
        if shutil.which(command) is None:
            raise RemoteError(f"{host}: {command}: no such program")
        listener = sockets.take(ANY, task.low, task.high, task.job_id)
        try:
            sockets.check(listener)
            if task.relays:
                self._tools.check()
            await self._start_server()
        except RemoteError as error:
            listener.close()
            raise RemoteError(f"{host}: {error}") from error
        info = {
            "host": host,
            "gpus": len(devices),
            "port": 0 if task.relays else self._server_port or UNKNOWN,
            "preset": asdict(task.preset),
        }
        admit = self._admit if task.relays else None
        end = DonorEnd(task.subject, info, admit, self._vouching)
        self._listening = await end.start(listener)
        return int(listener.getsockname()[1])

    def _values(self, port: int) -> dict[str, str]:
        task = self._task
        return {
            "port": str(port),
            "bind": LOOPBACK if task.relays else ANY,
            "host": socket.gethostname(),
            "gpus": str(task.gpus),
            "id": str(task.job_id),
            "subject": task.subject,
            "program": task.program,
        }

    async def _start_server(self) -> None:
        task = self._task
        if task.isolates:
            await self._start_inside()
            return
        if not task.preset.takes_port:
            await self._spawn(0)
            return
        bind = self._values(0)["bind"]
        why = f"no free port in {task.low}-{task.high}"
        candidates = sockets.free(bind, task.low, task.high, task.job_id, task.preset.ports)
        for port in itertools.islice(candidates, TRIES):
            await self._spawn(port)
            if await self._listens(port):
                self._server_port = port
                return
            status = self._process.returncode if self._process else None
            await self.stop_server()
            why = f"{task.preset.program} did not listen within {LISTENS_S:g} s"
            if status is not None:
                why = f"{task.preset.program} ended (exit {status}) before it listened"
        raise RemoteError(why)

    async def _start_inside(self) -> None:
        """The server in a network namespace, where every port is free."""
        task, name = self._task, self._task.preset.program
        try:
            await asyncio.to_thread(inside.check)
        except RemoteError as error:
            why = "listens on every address, and this node gives it no network of its own"
            raise RemoteError(f"{name} {why} ({error}); it needs trust_network") from error
        self._inside = inside.Outside()
        self._server_port = task.low
        await self._spawn(task.low)
        for _ in range(int(LISTENS_S / 0.1)):
            try:
                if await asyncio.to_thread(self._inside.listens):
                    return
            except RemoteError as error:
                raise RemoteError(f"{name} ended before it listened: {error}") from error
            await asyncio.sleep(0.1)
        raise RemoteError(f"{name} did not listen within {LISTENS_S:g} s")

    async def _spawn(self, port: int) -> None:
        words = self._task.preset.command(self._values(port))
        ports = range(port, port + self._task.preset.ports)
        passed: tuple[int, ...] = ()
        environment = None
        if self._task.relays and self._inside is None:
            self._door = Door(self._tools, *ports)
            environment = self._door.environment()
        if self._inside is not None:
            words = self._inside.command(self._task.program, ports, words)
            passed = (self._inside.fd,)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                preexec_fn=inside.end_with_parent,
                pass_fds=passed,
                env=environment,
                process_group=0,
            )
            if self._inside is not None:
                self._inside.handed_over()
        except OSError as error:
            raise RemoteError(f"{words[0]}: {error.strerror or error}") from error

    async def _listens(self, port: int) -> bool:
        """Does a server of our own user listen, within its time, at each of its ports?"""
        assert self._process is not None
        ports = range(port, port + self._task.preset.ports)
        for _ in range(int(LISTENS_S / LOOK_S)):
            if self._process.returncode is not None:
                return False
            owners = {sockets.listener(one) for one in ports}
            if None not in owners or owners - {None, os.getuid()}:
                return owners == {os.getuid()}
            await asyncio.sleep(LOOK_S)
        return False

    async def _admit(self, proven: socket.socket, nth: int) -> None:
        keeper = self._inside or self._door
        assert keeper is not None
        await keeper.admit(proven, nth)

    @property
    def own_port(self) -> int:
        """The port at which the job reaches the server without a relay; 0 where it does not."""
        return 0 if self._task.relays else self._server_port

    async def server_ended(self) -> int:
        """Wait for the server's end; its exit status."""
        assert self._process is not None
        return await self._process.wait()

    async def stop_server(self) -> None:
        """End the server and all that it started: it is asked to first, then killed."""
        if self._door is not None:
            self._door.close()
            self._door = None
        process = self._process
        if process is None:
            return
        if self._inside is not None:
            # unshare passes no signal on; the program inside asks the server when we hang up.
            self._inside.close()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), inside.ENDS_S + 0.5)
        # And all that it started: Slurm finds no process whose parents are gone, but by cgroups.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def close(self) -> None:
        """Close all connections and sockets, and end the servers."""
        if self._listening is not None:
            self._listening.close()
        await self.stop_server()
        if self._inside is not None:
            self._inside.close()


async def until_over(
    parent: int,
    job_id: int,
    ask: Callable[[int], tuple[str, str] | None] = slurm.job_state,
    poll_s: float = POLL_S,
    patience_s: float = PATIENCE_S,
    again_s: float = AGAIN_S,
) -> None:
    """Return once the borrowing job has ended, names other donors or none, or waited too long.

    While Slurm does not answer, or AdminComment has no record (somebody overwrote it, or the
    engine keeps it), the job counts as alive. The engine itself ends donors; this is for the case
    that there is no engine any more.
    """
    loop = asyncio.get_running_loop()
    waits_since = loop.time()
    has_run = is_doubted = False
    while True:
        answer = await asyncio.to_thread(ask, parent)
        if answer is not None:
            state, comment = answer
            # In node/GPUs/job/port neither the GPUs nor the port are a job.
            is_named = re.search(rf"[=,][^/,\s]+/[0-9a-f]+/{job_id}(?!\d)", comment)
            has_record = any(kind.read_from(comment) for kind in (GateRecord, LoanRecord))
            was_doubted, is_doubted = is_doubted, has_record and not is_named
            is_over = state in ("", "COMPLETING") or (was_doubted and is_doubted)
            # A job that was put back into the queue gets other donors for its next start.
            if is_over or (state == "PENDING" and has_run):
                return
            has_run = has_run or state != "PENDING"
        if not has_run and loop.time() - waits_since > patience_s:
            return
        await asyncio.sleep(min(again_s, poll_s) if is_doubted else poll_s)


async def run(task: DonorTask, vouching: Munge) -> int:
    """Serve until the end; the exit status."""
    donor = Donor(task, vouching)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    try:
        port = await donor.open()
    except RemoteError as error:
        await donor.close()
        print(f"{NAME}: {error}", file=sys.stderr)
        report = failed(task.parent, str(error))
        await asyncio.to_thread(slurm.say, task.job_id, report)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), SHOWN_S)
        return 1
    meter = Meter(port, donor.own_port)
    meter.start()
    report = ready(task.parent, port)
    if not await asyncio.to_thread(slurm.say, task.job_id, report):
        await asyncio.sleep(2)
        await asyncio.to_thread(slurm.say, task.job_id, report)
    waits: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(ended.wait()),
        asyncio.ensure_future(donor.server_ended()),
        asyncio.ensure_future(until_over(task.parent, task.job_id)),
    ]
    telling = asyncio.ensure_future(tell(task, port, meter))
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    died = waits[1].done()
    for wait in (*waits, telling):
        wait.cancel()
    await donor.close()
    # The last word: with it Slurm's accounting has what passed, where it keeps comments.
    await asyncio.to_thread(slurm.say, task.job_id, ready(task.parent, port, meter.passed()))
    meter.close()
    return 1 if died else 0


async def tell(task: DonorTask, port: int, meter: Meter) -> None:
    """Say every now and then what passed, and since when nothing has, if new."""
    told, since = Passed(), 0
    while True:
        await asyncio.sleep(POLL_S)
        passed, idle_s = meter.passed(), meter.idle_s()
        began = int(time.time() - idle_s) if idle_s >= IDLE_S else 0
        # The same moment, by two clocks.
        began = since if abs(began - since) <= 2 else began
        if (passed, began) != (told, since):
            said = ready(task.parent, port, passed, began)
            await asyncio.to_thread(slurm.say, task.job_id, said)
            told, since = passed, began


def main(argv: list[str], program: str) -> int:
    """`donor JSON`: what the batch script of a donor runs."""
    try:
        task = read(argv[0] if argv else "", os.environ, program)
    except RemoteError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 2
    return asyncio.run(run(task, Munge()))
