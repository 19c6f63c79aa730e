"""Clients of the metrics' port that mean no good: the engine answers Slurm as before."""

import contextlib
import socket
import time
import urllib.request
from collections.abc import Iterator

import pytest
from engine_process import EngineProcess, connected, engine

from slurm_cluster.hosts import until
from slurm_plugin.base.port import MAX_OPEN, REQUEST_S
from tests.processes import free_port

pytest.importorskip("prometheus_client", reason="the extra `metrics` is not installed")

DESCRIPTORS = 256
#: Seconds within which a place is free again, or an answer there, on a machine that is busy, too.
LOST_S = 8 * REQUEST_S


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EngineProcess, int]]:
    port = free_port()
    more = f"metrics_listen: 127.0.0.1:{port}\n"
    with engine(tmp_path_factory.mktemp("engine"), more, DESCRIPTORS) as running:
        yield running, port


def scraped(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        result = reply.read()
        assert isinstance(result, bytes)
        return result


def until_scraped(port: int) -> None:
    """Those who hold its places are sent away in time."""

    def is_scraped() -> bool:
        with contextlib.suppress(OSError):
            return b"gputopo_uptime_seconds" in scraped(port)
        return False

    until(is_scraped, "the metrics are answered", LOST_S)


def test_as_many_idle_connections_as_the_engine_has_descriptors_take_none(served):
    running, port = served
    before = running.descriptors()
    with connected(port, DESCRIPTORS + 50):
        assert running.descriptors() <= before + MAX_OPEN + 2
        verb, took = running.submitted()
        assert verb == "ok"
        assert took < LOST_S
    until_scraped(port)
    assert "Too many open files" not in running.log()


def test_silent_and_slow_clients_lose_their_connection(served):
    running, port = served
    until_scraped(port)
    time.sleep(REQUEST_S)
    for begins in (b"", b"GET /metrics HTTP/1.1\r\n"):
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            client.sendall(begins)
            end, heard = time.monotonic() + LOST_S, b"?"
            while heard:
                assert time.monotonic() < end, "it still has its connection"
                client.settimeout(0.2)
                try:
                    client.sendall(b"X" if begins else b"")
                    heard = client.recv(100)
                except TimeoutError:
                    continue
                except OSError:
                    break
    assert running.submitted()[0] == "ok"


def test_who_never_reads_its_replies_costs_a_place_for_seconds_only(served):
    running, port = served
    with connected(port, 40, b"GET /metrics HTTP/1.1\r\n\r\n"):
        assert running.submitted()[0] == "ok"
        until_scraped(port)
