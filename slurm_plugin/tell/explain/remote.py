"""The user's side: asks the engine from any host of the cluster, with a munge credential."""

from __future__ import annotations

import json
import secrets
import socket
from typing import Any

from slurm_plugin.base import munge
from slurm_plugin.errors import EngineDown
from slurm_plugin.tell.explain.answer import VERSION, NotShown

TIMEOUT_S = 15.0


def ask(address: tuple[str, int], job: int, trusted_uids: frozenset[int]) -> dict[str, Any]:
    """The engine's answer: `told` and `machines`.

    Raises NotShown where this user may know nothing, EngineDown where no engine of `trusted_uids`
    answers.
    """
    nonce = secrets.token_hex(8)
    question = json.dumps({"gputopo": VERSION, "job": job, "nonce": nonce}).encode()
    where = f"{address[0]}:{address[1]}"
    line = _exchange(address, munge.seal(question), where)
    if line.startswith(b"error "):
        raise EngineDown(f"{where}: {line[6:].decode(errors='replace')}")
    opened = munge.open_sealed(line)
    if opened.uid not in trusted_uids:
        raise EngineDown(f"{where}: answered by uid {opened.uid}, which is not SlurmUser")
    try:
        reply = json.loads(opened.payload)
        ours = isinstance(reply, dict) and reply.get("nonce") == nonce
    except ValueError:
        ours = False
    if not ours:
        raise EngineDown(f"{where}: an answer to another question")
    if "told" not in reply:
        raise NotShown(str(reply.get("message", "no answer")))
    return dict(reply)


def _exchange(address: tuple[str, int], credential: bytes, where: str) -> bytes:
    try:
        with socket.create_connection(address, TIMEOUT_S) as sock, sock.makefile("rb") as stream:
            sock.sendall(credential + b"\n")
            data = stream.readline(munge.MAX_CREDENTIAL_BYTES)
    except OSError as error:
        raise EngineDown(f"{where}: {error}") from error
    if not data.endswith(b"\n"):
        is_long = len(data) == munge.MAX_CREDENTIAL_BYTES
        why = "the answer does not end" if is_long else "hung up in the middle of its answer"
        raise EngineDown(f"{where}: {why}")
    return data.strip()
