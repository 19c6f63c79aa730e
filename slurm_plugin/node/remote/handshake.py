"""Both ends of a connection prove that they run as the same user, for the same job.

The proof is a munge credential that only this user can open. munged vouches for who made it,
refuses it after its time, and a second time; and both ends' random words are in it, so that one
made for another connection proves nothing here. Nothing secret is kept or handed on: no file, no
variable, no field of a Slurm job holds a key.

    server  gputopo-relay/2 WORD
    client  WORD CREDENTIAL("client SUBJECT server's-word client's-word")
    server  ok CREDENTIAL("server SUBJECT server's-word client's-word")    or    refused

A connection that is closed before a word came was one too many at that moment: try again.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets

from slurm_plugin.base import munge
from slurm_plugin.errors import HungUp, Refused
from slurm_plugin.node.remote.strangers import Strangers, being_checked

HELLO = "gputopo-relay/2"
#: A client of ours seals its credential within milliseconds; one that needs longer is refused.
HANDSHAKE_S = 2.0
#: The server gets longer for its credential: its node may be busy.
ANSWER_S = 10.0
MAX_LINE_BYTES = 8192
_WORD = re.compile(r"[0-9a-f]{32}\Z")


class Munge:
    """Says who made a text, by munge's own commands."""

    def seal(self, text: str) -> str:
        """A credential of this process's user, as one word; only that user and root can open it."""
        try:
            return munge.seal(text.encode(), only_uid=os.getuid()).decode()
        except munge.MungeError as error:
            raise Refused(f"munge: {error}") from error

    def opened(self, sealed: str) -> tuple[int, str]:
        """The uid that made a credential, and the text. Raises Refused for any other word."""
        try:
            credential = munge.open_sealed(sealed.encode())
        except munge.MungeError as error:
            raise Refused(f"munge: {error}") from error
        return credential.uid, credential.payload.decode(errors="replace")


async def let_in(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    subject: str,
    vouching: Munge,
    strangers: Strangers,
) -> None:
    """The server's part. Raises Refused for a stranger, who learns nothing else."""
    ours = secrets.token_hex(16)
    with strangers.place(writer) as source:
        writer.write(f"{HELLO} {ours}\n".encode())
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                words = (await _line(reader)).split()
            if len(words) != 2 or not _WORD.match(words[0]):
                raise Refused("not the words of a client")
            theirs, sealed = words
            async with being_checked(source, writer):
                await _check(vouching, sealed, f"client {subject} {ours} {theirs}")
                answer = await asyncio.to_thread(vouching.seal, f"server {subject} {ours} {theirs}")
        except (Refused, TimeoutError) as error:
            writer.write(b"refused\n")
            raise Refused(str(error) or f"no word within {HANDSHAKE_S:g} s") from error
    writer.write(f"ok {answer}\n".encode())
    await writer.drain()


async def prove(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    subject: str,
    vouching: Munge,
) -> None:
    """The client's part: its own proof, then the server's.

    Raises Refused, and HungUp where another try may succeed.
    """
    now = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(ANSWER_S):
            hello = (await _line(reader)).split()
            if len(hello) != 2 or hello[0] != HELLO or not _WORD.match(hello[1]):
                raise Refused("what listens there is no donor of ours")
            theirs, ours = hello[1], secrets.token_hex(16)
            in_time = now() + HANDSHAKE_S / 2
            sealed = await asyncio.to_thread(vouching.seal, f"client {subject} {theirs} {ours}")
            is_late = now() > in_time
            writer.write(f"{ours} {sealed}\n".encode())
            await writer.drain()
            answer = (await _line(reader)).split()
            if len(answer) != 2 or answer[0] != "ok":
                raise HungUp("our munge is slow") if is_late else Refused("the donor refused us")
            await _check(vouching, answer[1], f"server {subject} {theirs} {ours}")
    except TimeoutError:
        raise Refused(f"the donor did not answer within {ANSWER_S:g} s") from None


async def _line(reader: asyncio.StreamReader) -> str:
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise Refused(f"a line of more than {MAX_LINE_BYTES} bytes") from error
    except (asyncio.IncompleteReadError, OSError) as error:
        raise HungUp("the connection ended before the handshake was over") from error
    return line.decode("ascii", "replace").strip()


async def _check(vouching: Munge, sealed: str, expected: str) -> None:
    uid, text = await asyncio.to_thread(vouching.opened, sealed)
    if uid != os.getuid():
        raise Refused(f"made by uid {uid}, and this is a job of uid {os.getuid()}")
    if text != expected:
        raise Refused("made for another job or another connection")
