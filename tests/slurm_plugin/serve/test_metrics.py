"""What Prometheus scrapes, over real HTTP."""

import socket
import urllib.request

import pytest
from engine_in_tests import served
from machines_in_tests import mask, node, place

from slurm_plugin.errors import PluginError
from slurm_plugin.protocol import Notice, encode_request
from slurm_plugin.serve.metrics import MAX_LABELS, Metrics, Tally

pytest.importorskip("prometheus_client", reason="the extra `metrics` is not installed")


def scraped(metrics: Metrics) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_decisions_and_gains_are_exported(engine):
    metrics = Metrics(("127.0.0.1", 0), engine)
    with served(metrics):
        for line in (
            encode_request(place(node("dgx1", 0xFF, mask(0, 1)), partition="gpu")),
            encode_request(place(node("dgx1", 0xFF, 1), hint="off", partition="gpu")),
            encode_request(Notice("started", 7, 0, {"dgx1": mask(0, 3)})),
        ):
            after = engine.answer(line).after
            after()
        engine.log.close()
        found = scraped(metrics)
    labels = 'applied="yes",decision="use",partition="gpu",policy="mapa"'
    assert found[f"gputopo_decisions_total{{{labels}}}"] == 1
    assert found['gputopo_passes_total{reason="opted out by hint"}'] == 1
    assert found["gputopo_started_total"] == 1
    chosen = found['gputopo_bandwidth_total{choice="chosen",partition="gpu",policy="mapa"}']
    stock = found['gputopo_bandwidth_total{choice="slurm",partition="gpu",policy="mapa"}']
    assert chosen > stock > 0
    assert found["gputopo_log_lines_total"] == 3


def test_an_address_that_is_taken_is_said(engine):
    first = Metrics(("127.0.0.1", 0), engine)
    with served(first):
        second = Metrics(("127.0.0.1", first.port), engine)
        with pytest.raises(PluginError, match="choose a free port"), served(second):
            pass


@pytest.mark.parametrize(
    ("request_line", "status"),
    [("GET /other HTTP/1.1", 404), ("POST /metrics HTTP/1.1", 405), ("GET /metrics HTTP/1.0", 200),
     ("HEAD /metrics?x=1 HTTP/1.1", 200), ("\x00\xff", 405)],
)  # fmt: skip
def test_one_request_gets_one_reply_and_the_end_of_the_connection(engine, request_line, status):
    metrics = Metrics(("127.0.0.1", 0), engine)
    with served(metrics), socket.create_connection(("127.0.0.1", metrics.port), 10) as client:
        client.sendall(request_line.encode("latin-1") + b"\r\nHost: x\r\n\r\n")
        with client.makefile("rb") as reply:
            told = reply.read()
    head, _, body = told.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"\r\nConnection: close" in head
    assert (b"gputopo_uptime_seconds" in body) == (request_line.startswith("GET /metrics"))


def test_very_many_partitions_are_counted_together():
    tally = Tally()
    for i in range(MAX_LABELS + 50):
        tally.add({"decision": "pass", "partition": f"p{i}"})
    counts = tally.copy()["decisions"]
    assert len(counts) == MAX_LABELS + 1
    assert counts["other", "other", "other", "other"] == 50
