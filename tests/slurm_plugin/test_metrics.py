"""What Prometheus scrapes, over real HTTP."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines_in_tests import BASIC, mask, node, place

from slurm_plugin.engine import setup
from slurm_plugin.engine.decision_log import DecisionLog
from slurm_plugin.engine.metrics import MAX_LABELS, Metrics, Tally
from slurm_plugin.engine.service import Engine
from slurm_plugin.errors import PluginError
from slurm_plugin.protocol import Notice, encode_request

pytest.importorskip("prometheus_client", reason="the extra `metrics` is not installed")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    path = tmp_path / "gputopo.yaml"
    path.write_text(BASIC.format(folder=tmp_path))
    first = setup.load(path)
    log = DecisionLog(first.config.decision_log)
    yield Engine(first, log, setup.load)
    log.close()


def scraped(metrics: Metrics) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_decisions_and_gains_are_exported(engine: Engine) -> None:
    metrics = Metrics(("127.0.0.1", 0), engine)
    metrics.start()
    try:
        for line in (
            encode_request(place(node("dgx1", 0xFF, mask(0, 1)), partition="gpu")),
            encode_request(place(node("dgx1", 0xFF, 1), hint="off", partition="gpu")),
            encode_request(Notice("started", 7, 0, {"dgx1": mask(0, 3)})),
        ):
            after = engine.answer(line).after
            assert after is not None
            after()
        engine.log.close()
        found = scraped(metrics)
    finally:
        metrics.stop()
    labels = 'applied="yes",decision="use",partition="gpu",policy="mapa"'
    assert found[f"gputopo_decisions_total{{{labels}}}"] == 1
    assert found['gputopo_passes_total{reason="opted out by hint"}'] == 1
    assert found["gputopo_started_total"] == 1
    chosen = found['gputopo_bandwidth_total{choice="chosen",partition="gpu",policy="mapa"}']
    stock = found['gputopo_bandwidth_total{choice="slurm",partition="gpu",policy="mapa"}']
    assert chosen > stock > 0
    assert found["gputopo_log_lines_total"] == 3


def test_an_address_that_is_taken_is_said(engine: Engine) -> None:
    first = Metrics(("127.0.0.1", 0), engine)
    first.start()
    try:
        with pytest.raises(PluginError, match="choose a free port"):
            Metrics(("127.0.0.1", first.port), engine).start()
    finally:
        first.stop()


def test_very_many_partitions_are_counted_together() -> None:
    tally = Tally()
    for i in range(MAX_LABELS + 50):
        tally.add({"decision": "pass", "partition": f"p{i}"})
    counts = tally.copy()["decisions"]
    assert len(counts) == MAX_LABELS + 1
    assert counts["other", "other", "other", "other"] == 50
