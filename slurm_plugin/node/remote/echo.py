"""gputopo-echo: a server that lists the devices it may use, and a client that asks.

It stands in for a middleware wherever none is installed: `gputopo-echo` inside a job prints one
line per donor, with its host and its devices. With a subject both ends authenticate by
themselves; else the relay does it for them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Sequence

from slurm_plugin.errors import Refused, RemoteError
from slurm_plugin.node.remote import handshake, streams
from slurm_plugin.node.remote.handshake import Munge
from slurm_plugin.node.remote.strangers import Strangers

SERVERS = "GPUTOPO_ECHO_SERVERS"
SUBJECTS = "GPUTOPO_ECHO_SUBJECTS"
ANSWER_S = 10.0
#: Where a vendor's library looks for the devices it may use.
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_JOB_GPUS")


def devices() -> list[str]:
    """The devices of this process's allocation, as Slurm numbers them."""
    text = next((os.environ[name] for name in _VISIBLE if os.environ.get(name)), "")
    return [part for part in text.split(",") if part]


async def serve(bind: str, port: int, subject: str, vouching: Munge) -> asyncio.Server:
    """Tell everybody who connects what this host lends; with a subject, only the job's user."""
    info = {"host": socket.gethostname(), "devices": devices()}
    strangers = Strangers()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, Refused, TimeoutError):
            if subject:
                await handshake.let_in(reader, writer, subject, vouching, strangers)
            await asyncio.wait_for(reader.readline(), ANSWER_S)
            writer.write(json.dumps(info).encode() + b"\n")
            await writer.drain()
        streams.close(writer)

    return await asyncio.start_server(one, bind, port, limit=handshake.MAX_LINE_BYTES)


async def ask(address: str, subject: str, vouching: Munge) -> tuple[str, list[str]]:
    """Host and devices behind `host:port`. Raises RemoteError."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            if subject:
                await handshake.prove(reader, writer, subject, vouching)
            writer.write(b"list\n")
            answer = json.loads(await reader.readline())
            streams.close(writer)
            return str(answer["host"]), [str(device) for device in answer["devices"]]
    except Refused as error:
        raise RemoteError(f"{address}: {error}") from error
    except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
        raise RemoteError(f"{address}: no answer ({str(error) or type(error).__name__})") from error


async def _list(addresses: Sequence[str], subjects: Sequence[str]) -> None:
    for i, address in enumerate(addresses):
        subject = subjects[i] if i < len(subjects) else ""
        host, names = await ask(address, subject, Munge())
        print(f"{host} {','.join(names)}")


def client(argv: Sequence[str] | None = None) -> int:
    """`gputopo-echo [HOST:PORT...]`: one line per server; the job's own donors by default."""
    parser = argparse.ArgumentParser("gputopo-echo", description=client.__doc__)
    parser.add_argument("servers", nargs="*", metavar="HOST:PORT")
    given = parser.parse_args(argv).servers
    addresses = given or [part for part in os.environ.get(SERVERS, "").split(",") if part]
    subjects = [] if given else [p for p in os.environ.get(SUBJECTS, "").split(",") if p]
    if not addresses:
        print(f"gputopo-echo: no donors: {SERVERS} is not set; name HOST:PORT", file=sys.stderr)
        return 2
    try:
        asyncio.run(_list(addresses, subjects))
    except RemoteError as error:
        print(f"gputopo-echo: {error}", file=sys.stderr)
        return 1
    return 0


def server(argv: Sequence[str]) -> int:
    """`echo-server --bind HOST --port N [--subject TEXT]`: until it is killed."""
    parser = argparse.ArgumentParser("echo-server")
    parser.add_argument("--bind", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--subject", default="")
    options = parser.parse_args(argv)

    async def forever() -> None:
        listening = await serve(options.bind, options.port, options.subject, Munge())
        await listening.serve_forever()

    try:
        asyncio.run(forever())
    except OSError as error:
        print(f"echo-server: port {options.port}: {error}", file=sys.stderr)
        return 1
    return 0
