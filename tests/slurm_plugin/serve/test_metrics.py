"""What Prometheus scrapes, over real HTTP."""

import re
import socket
import urllib.request
from pathlib import Path

import pytest
from engine_in_tests import served
from machines_in_tests import mask, node, place

from bench.request_lines import encode_request
from slurm_plugin.base.log_lines import of_plain
from slurm_plugin.base.protocol import Notice
from slurm_plugin.errors import PluginError
from slurm_plugin.queue.snapshot import Detail, Snapshot
from slurm_plugin.serve.metric_families import FAMILIES
from slurm_plugin.serve.metrics import Metrics
from slurm_plugin.serve.tally import MAX_LABELS, Tally

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
        engine.answer(b"submit id=1 uid=1 gpus=1 nodes=1 per_node=1 tasks=1 budget_out=5\n")
        engine.log.close()
        found = scraped(metrics)
    assert found["gputopo_budget_out_total"] == 5
    labels = 'applied="yes",decision="use",partition="gpu",policy="mapa"'
    assert found[f"gputopo_decisions_total{{{labels}}}"] == 1
    assert found['gputopo_passes_total{reason="opted out by hint"}'] == 1
    assert found["gputopo_started_total"] == 1
    summed = "gputopo_bandwidth_bytes_per_second_total"
    placed = 'gpus="2",partition="gpu",policy="mapa"'
    chosen = found[f'{summed}{{choice="chosen",{placed}}}']
    stock = found[f'{summed}{{choice="slurm",{placed}}}']
    assert chosen > stock > 1e9
    assert found['gputopo_placement_seconds_count{policy="mapa"}'] == 1
    assert found['gputopo_answer_seconds_bucket{le="+Inf",verb="place"}'] == 2
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
        tally.add(of_plain({"decision": "pass", "partition": f"p{i}"}))
    counts = tally.counts()["decisions"]
    assert len(counts) == MAX_LABELS + 1
    assert counts["other", "other", "other", "other"] == 50


USE = {"decision": "use", "partition": "gpu", "policy": "mapa", "waited_s": 7,
       "chosen": {"gpus": {"dgx1": [3, 0]}, "effbw_gbps": 50.0}}  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "decisions", "gpus", "counted"),
    [
        ("as chosen", [USE], {"dgx1": [0, 3]}, None),
        ("elsewhere", [USE], {"dgx1": [0, 1]}, "started_otherwise"),
        ("only observed", [USE | {"applied": False}], {"dgx1": [0, 1]}, None),
        ("left to Slurm", [{"decision": "pass"}], {"dgx1": [0, 1]}, None),
        ("never asked about", [], {"dgx1": [0, 1]}, "started_undecided"),
        ("a loan is no decision on its GPUs", [{"decision": "not lent"}], {"dgx1": [0]},
         "started_undecided"),
        ("never asked about, without GPUs", [], {}, None),
    ],
)  # fmt: skip
def test_how_a_job_started(sentence, decisions, gpus, counted):
    tally = Tally()
    for line in decisions:
        tally.add(of_plain(line | {"job": 5}))
    tally.add(of_plain({"decision": "started", "job": 5, "gpus": gpus}))
    found = {name for name in tally.counts() if name.startswith("started_")}
    assert found == ({counted} if counted else set())


def test_how_long_jobs_were_postponed():
    tally = Tally()
    tally.add(of_plain(USE | {"job": 5}))
    buckets, total = tally.times()["postponed"]["gpu",].cumulative()
    assert (total, buckets[-1]) == (7, ("+Inf", 1))


def test_the_page_has_every_metric_of_the_table_and_no_other(engine):
    metrics = Metrics(("127.0.0.1", 0), engine)
    engine.setup.watcher.newest_of_nodes = Snapshot(0.0, 1.0, (), Detail.NODES)
    with (
        served(metrics),
        urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as reply,
    ):
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", reply.read().decode(), re.M))
    ours = {name: kind for name, kind in kinds.items() if not name.startswith("process_")}
    assert ours == {family.exposed: family.kind for family in FAMILIES}


def test_the_table_in_the_documentation_is_this_one():
    rows = ["| metric | kind | what it tells |", "|---|---|---|"]
    for family in FAMILIES:
        labels = f"{{{','.join(family.labels)}}}" if family.labels else ""
        rows.append(f"| `{family.exposed}{labels}` | {family.kind} | {family.about} |")
    page = Path(__file__).parents[3] / "docs" / "metrics.md"
    assert "\n".join(rows) in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_metrics_keep_prometheus_conventions(family):
    """No unit but base units, at the end; no counter that says total, no label that is a name."""
    assert re.fullmatch(r"[a-z][a-z_]*[a-z]", family.name)
    assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))
    if family.kind == "histogram":
        assert family.name.endswith("_seconds")
    assert not {"user", "job", "uid", "account", "le", "quantile"} & set(family.labels)
    assert family.about.endswith((".", ";"))
