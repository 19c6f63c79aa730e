"""Clients of explain's port who cannot prove who they are, or ask too much, cost others nothing."""

import base64
import json
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from engine_process import EngineProcess, connected, engine

from slurm_plugin.base.port import MAX_OF_ONE, REQUEST_S
from tests.processes import free_port

DESCRIPTORS = 256
ALICE, MALLORY = 1000, 1002
TOOLS = {
    "munge": """printf 'MUNGE:%s:\\n' "$(printf '0\\n%s' "$(cat)" | base64 -w0)" """,
    "unmunge": """
text="$(sed 's/^MUNGE://; s/:$//' | base64 -d 2>/dev/null)" || exit 15
printf 'STATUS:          0\\nUID:             %s\\n\\n' "$(printf %s "$text" | head -1)"
printf %s "$text" | tail -n +2""",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EngineProcess, int]]:
    folder, port = tmp_path_factory.mktemp("engine"), free_port()
    tools = tmp_path_factory.mktemp("tools")
    for name, script in TOOLS.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{tools}:{before}"
    try:
        with engine(folder, f"explain_listen: 127.0.0.1:{port}\n", DESCRIPTORS) as running:
            yield running, port
    finally:
        os.environ["PATH"] = before


def credential(uid: int) -> bytes:
    question = json.dumps({"job": 7, "nonce": "n"})
    return b"MUNGE:" + base64.b64encode(f"{uid}\n{question}".encode()) + b":\n"


def answered(port: int, line: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(line)
        with client.makefile("rb") as reply:
            return reply.read()


def alice_is_answered(port: int) -> None:
    assert answered(port, credential(ALICE)).startswith(b"MUNGE:")


def test_idle_connections_take_no_descriptors_and_end_in_time(served):
    running, port = served
    before = running.descriptors()
    with connected(port, DESCRIPTORS):
        assert running.descriptors() <= before + MAX_OF_ONE + 2
        assert running.submitted()[0] == "ok"
        time.sleep(REQUEST_S + 0.5)
    alice_is_answered(port)


def test_who_proves_nothing_and_who_asks_too_much_take_nobody_elses_answers(served):
    running, port = served
    time.sleep(5)  # Alice's own allowance is full again
    assert answered(port, b"MUNGE:!:\n").startswith(b"error ")
    over = threading.Event()

    def flood(line: bytes) -> None:
        while not over.is_set():
            try:
                answered(port, line)
            except OSError:
                continue

    mallory = [
        threading.Thread(target=flood, args=(line,))
        for line in (b"garbage\n", b"MUNGE:QQ==:\n", credential(MALLORY), credential(MALLORY))
    ]
    for thread in mallory:
        thread.start()
    try:
        for _ in range(4):
            alice_is_answered(port)
            verb, took = running.submitted()
            assert verb == "ok"
            assert took < 20
    finally:
        over.set()
        for thread in mallory:
            thread.join()
    assert answered(port, credential(MALLORY)).startswith((b"MUNGE:", b"error the engine is busy"))
    assert "Traceback" not in running.log()
