"""The command line's side of the engine's socket."""

import contextlib
import socket
import threading
import time
from typing import Any

import pytest

from slurm_plugin.base import client
from slurm_plugin.errors import EngineDown
from slurm_plugin.slurm.interface import QueuedJob


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([b"ok id", b"=1 json={}\n"], ""),
        ([], "hung up in the middle"),
        ([b"ok id=1 json={}"], "hung up in the middle"),
        ([b"x" * 4096] * 300, "hung up in the middle"),
    ],
    ids=["a reply in two pieces", "none", "without its end", "of more than a megabyte"],
)
def test_half_a_reply_is_no_reply(tmp_path, parts, says):
    path = tmp_path / "s"

    def serve() -> None:
        with listening.accept()[0] as peer, contextlib.suppress(OSError):
            peer.recv(4096)
            for part in parts:
                peer.sendall(part)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(EngineDown, match=says) if says else contextlib.nullcontext():
            assert client.ask(path, b"status id=1\n", 10) == ("ok", {"id": "1", "json": "{}"})
        thread.join(10)


class NoSlurm:
    """Nobody answers, and a question is a fault."""

    def queue(self) -> list[QueuedJob]:
        pytest.fail("Slurm was asked")


def engine_status(**parts: Any) -> dict[str, Any]:
    """An engine that is in charge and was asked, by a slurmctld that told its nodes 60 s ago."""
    told = {"nodes": 4, "told_at": time.time() - 60}
    return {
        "enforcement": "select",
        "killed": False,
        "uptime_s": 600.0,
        "charge": {"is_ours": True, "since_s": 600.0},
        "messages": {"place": 4},
        "slurm_nodes": told,
    } | parts


@pytest.mark.parametrize("booted_ago_s", [90, None], ids=["known", "unknown"])
def test_status_is_quick_while_slurmctld_is_down(booted_ago_s):
    """Its commands wait long then; where the engine was asked there is nothing to ask Slurm for."""
    booted = int(time.time() - booted_ago_s) if booted_ago_s else 0
    assert client.unasked(engine_status(), NoSlurm(), booted) == 0


def test_a_slurmctld_that_started_since_the_nodes_were_told_is_looked_at():
    with pytest.raises(pytest.fail.Exception, match="was asked"):
        client.unasked(engine_status(), NoSlurm(), int(time.time() - 30))
