"""A hostile submit beside ordinary ones, by the real engine over its real socket."""

import socket
import threading
from collections.abc import Iterator

import pytest
from engine_process import EngineProcess, engine, submit

from bench.request_lines import encode_request
from slurm_cluster.hosts import until

#: Seconds after which an ordinary answer counts as held up by hostile ones (half a millisecond is
#: usual, three seconds on a machine with forty processes at work), and MiB these may cost.
WAIT_S, MEMORY_MB = 25.0, 64
HOSTILE = {
    "ranges of ranges": {"req_nodes": "n[" + ",".join(["1-65536"] * 500) + "]"},
    "the same names again and again": {"exc_nodes": ",".join(["n[1-4000]"] * 400)},
    "long names": {"req_nodes": "n" * 3900 + "[1-65536]"},
    "alternatives": {"features": "|".join(["a"] * 2048)},
    "nested parentheses": {"features": "(" * 2000 + "a" + ")" * 2000},
    "open parentheses": {"features": "(" * 4095},
    "a long count": {"tpn": "gres/gpu:" + "9" * 4000},
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    with engine(tmp_path_factory.mktemp("engine")) as running:
        yield running


@pytest.mark.parametrize("keys", HOSTILE.values(), ids=HOSTILE)
def test_beside_a_hostile_submit_an_ordinary_one_is_answered_in_time(running, keys):
    before, seen = running.memory_mb(), len(running.log())
    output: list[str] = []
    mallory = threading.Thread(
        target=lambda: output.extend(running.submitted(**keys)[0] for _ in range(3))
    )
    mallory.start()
    slowest = 0.0
    while mallory.is_alive():
        verb, took = running.submitted()
        assert verb == "ok"
        slowest = max(slowest, took)
    mallory.join()
    assert len(output) == 3
    assert slowest < WAIT_S
    assert running.memory_mb() - before < MEMORY_MB
    assert "Traceback" not in running.log()[seen:]


def test_lines_that_never_end_and_replies_that_nobody_reads_cost_nobody_else_anything(running):
    """Each of the engine's own user's programs may go wrong, too."""
    before, descriptors = running.memory_mb(), running.descriptors()
    clients = []
    for i in range(60):
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(running.path))
        client.settimeout(WAIT_S)
        clients.append(client)
        if i % 3 == 0:
            client.sendall(b"submit id=1 " + b"x=" * 1000)
        elif i % 3 == 1:
            client.sendall(b"status id=1\n" * 50)
        else:
            client.sendall(encode_request(submit()) * 20 + b"garbage\n")
    for _ in range(20):
        verb, took = running.submitted()
        assert verb == "ok"
        assert took < WAIT_S
    assert running.memory_mb() - before < MEMORY_MB
    for client in clients:
        client.close()
    assert running.submitted()[0] == "ok"
    until(lambda: running.descriptors() <= descriptors + 1, "the connections are closed", 60)
