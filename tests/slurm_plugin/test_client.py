"""The command line's side of the engine's socket."""

import contextlib
import socket
import threading

import pytest

from slurm_plugin import client
from slurm_plugin.errors import EngineDown
from slurm_plugin.protocol import Admin


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
            assert client.ask(path, Admin("status", 1), 10) == ("ok", {"id": "1", "json": "{}"})
        thread.join(10)
