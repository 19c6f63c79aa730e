"""Prometheus metrics (`metrics_listen`, extra `metrics`), as `metric_families` names them.

A page is made in a thread, from copies, so that decisions never wait. Counts start with the engine.
What is told of the site is taken from the newest snapshot of Slurm, whoever wanted that one.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from slurm_plugin import version
from slurm_plugin.base.port import Port
from slurm_plugin.base.telemetry import Histogram
from slurm_plugin.errors import PluginError
from slurm_plugin.serve import amiss
from slurm_plugin.serve.metric_families import FAMILIES
from slurm_plugin.serve.service import Engine
from slurm_plugin.serve.site_figures import SiteFigures, figures_of
from slurm_plugin.serve.tally import Tally

if TYPE_CHECKING:
    from prometheus_client.core import Metric

logger = logging.getLogger(__name__)

#: Seconds for which a page is given out again.
PAGE_S = 1.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: What the loops count that has happened; they also say what is so at the moment.
GATE_EVENTS = ("released", "regated", "refused", "mismatched")
LOAN_EVENTS = ("lent", "refused", "given_up", "lost", "cancelled", "taken_back")

#: By metric, values by label values.
_Values = dict[str, Mapping[tuple[str, ...], float]]


def _said(status: int, body: bytes = b"", *, with_body: bool = True) -> bytes:
    """An HTTP reply that ends its connection."""
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        f"Content-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")


class Metrics:
    """Serves /metrics; `start` raises PluginError when it cannot."""

    def __init__(self, address: tuple[str, int], engine: Engine) -> None:
        self._address = address
        self._engine = engine
        self._tally = Tally()
        self._server = Port("metrics_listen", address, b"\r\n\r\n", self._reply, _said(503))
        self._lock = asyncio.Lock()
        self._page: tuple[float, bytes] = (float("-inf"), b"")
        self._made: Callable[[], bytes] = bytes
        self._from_loop: _Values = {}
        self._figures: SiteFigures | None = None
        self._since = time.time()

    async def start(self) -> None:
        """Serve; the log's thread counts from now on."""
        try:
            from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
        except ImportError as error:
            raise PluginError(
                "metrics_listen needs prometheus_client: apt-get install python3-prometheus-client,"
                " or, where pip installed gputopo, pip install 'slurm-gputopo[metrics]'"
            ) from error
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        self._made = partial(generate_latest, registry)
        await self._server.start()
        self._engine.log.watch(self._tally.add)
        logger.info("metrics at http://%s:%d/metrics", self._address[0], self.port)

    @property
    def port(self) -> int:
        """The port listened on."""
        return self._server.number

    async def stop(self) -> None:
        """Serve no more."""
        await self._server.stop()

    async def _reply(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _said(405)
        if path not in (b"/metrics", b"/"):
            return _said(404)
        loop = asyncio.get_running_loop()
        # One at a time, and made once for all who ask within a second.
        async with self._lock:
            if loop.time() - self._page[0] > PAGE_S:
                self._from_loop = self._gathered()
                self._page = (loop.time(), await asyncio.to_thread(self._made))
        return _said(200, self._page[1], with_body=method == b"GET")

    def _gathered(self) -> _Values:
        """What only the event loop may look at; the rest is done in a thread."""
        engine = self._engine
        said = engine.said_by_loops()
        slots = said.get("slots", {})
        loans = slots.get("loans", {}) | said.get("remote", {}).get("loans", {})
        lends = bool(loans) or engine.setup.config.remote.allow
        return {
            "gate_events": {(word,): slots.get(word, 0) for word in GATE_EVENTS} if slots else {},
            "loan_events": {(word,): loans.get(word, 0) for word in LOAN_EVENTS} if lends else {},
            "lent_gpu_seconds": {(): loans.get("gpu_s", 0)} if lends else {},
            "lent_bytes": {
                ("to",): loans.get("bytes_in", 0),
                ("from",): loans.get("bytes_out", 0),
            }
            if lends
            else {},
            "lent_packets": {(): loans.get("packets_in", 0)} if lends else {},
            "poll_failures": by_label(engine.setup.telemetry.failed_polls),
        }

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment, as Prometheus' client library wants them."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        counts, times = self._counts(), self._times()
        for family in FAMILIES:
            name, labels = f"gputopo_{family.name}", family.labels
            if family.kind == "histogram":
                histograms = HistogramMetricFamily(name, family.about, labels=labels)
                for values, histogram in times.get(family.name, {}).items():
                    buckets, total = histogram.cumulative()
                    histograms.add_metric(values, buckets, total)
                yield histograms
                continue
            kind = GaugeMetricFamily if family.kind == "gauge" else CounterMetricFamily
            made = kind(name, family.about, labels=labels)
            for values, amount in counts.get(family.name, {}).items():
                made.add_metric(values, amount)
            yield made

    def _counts(self) -> _Values:
        """Gauges and counters by name."""
        engine = self._engine
        counted, log, config = engine.counters.snapshot(), engine.log, engine.setup.config
        left = engine.left_to_slurm().values()
        undeclared = sum(why == amiss.NOT_DECLARED for why in left)
        simple = {
            "uptime_seconds": counted["uptime_s"],
            "switched_off": config.kill_switch.exists(),
            "in_charge": engine.setup.keeper.is_in_charge(),
            "config_reloaded": not engine.reload_error,
            "folders_not_writable": len(engine.not_writable),
            "nodes_declared": len(engine.setup.machines),
            "late": counted["late"],
            "budget_out": counted["budget_out"],
            "log_lines": log.written,
            "log_lost": log.dropped,
        }
        # So that their growth is seen from the first one on.
        tallied = self._tally.counts()
        tallied["bandwidth_bytes_per_second"] = tallied.pop("bandwidth", {})
        known: _Values = {
            name: {(): 0.0} for name in ("started", "started_undecided", "started_otherwise")
        }
        return {
            "build_info": {(version(), platform.python_version(), config.enforcement): 1},
            **{name: {(): float(value)} for name, value in simple.items()},
            **{name: by_label(counted[name]) for name in ("messages", "replies", "passes")},
            "nodes_left_to_slurm": by_label(
                {"undeclared": undeclared, "problem": len(left) - undeclared}
            ),
            **known,
            **tallied,
            **self._site(),
            **self._from_loop,
        }

    def _times(self) -> dict[str, Mapping[tuple[str, ...], Histogram]]:
        """Histograms by name."""
        telemetry = self._engine.setup.telemetry
        by_result, measured = telemetry.slurm_reads.items(), self._tally.times()
        return {
            "placement_seconds": measured.get("placement", {}),
            "postponed_seconds": measured.get("postponed", {}),
            "answer_seconds": {(v,): h for v, h in self._engine.counters.answers.copy().items()},
            "slurm_read_seconds": {(result,): histogram for result, histogram in by_result},
            "gate_release_seconds": {(): telemetry.gate_releases},
            "gate_wait_seconds": {(): telemetry.gate_waits},
            "loan_setup_seconds": {(): telemetry.loan_setups},
        }

    def _site(self) -> _Values:
        """What the newest snapshot says; nothing before the first one, or while standing by."""
        snapshot = self._engine.setup.watcher.newest_of_nodes
        if snapshot is None or not self._engine.setup.keeper.is_in_charge():
            return {}
        if self._figures is None or self._figures.at != snapshot.at:
            is_select = self._engine.setup.config.enforcement == "select"
            heard_of = (self._tally.has_heard_of, self._since) if is_select else ()
            self._figures = figures_of(snapshot, *heard_of)
        figures = self._figures
        scattered = figures.fragmentation
        sizes = scattered.by_largest_set
        simple = {
            "snapshot_timestamp_seconds": figures.at,
            "gpus_free_largest_set": scattered.largest,
            "gpus_stranded": scattered.stranded,
            "fragmentation_ratio": scattered.share,
            "gpus_lent": figures.lent,
            "donors_orphaned": figures.orphans,
            "jobs_unheard": figures.unheard,
        }
        return {
            **{name: {(): float(value)} for name, value in simple.items()},
            "gpus": by_label(figures.gpus),
            "gpus_free": {(str(size),): count for size, count in sizes.items()},
            "jobs": by_label(figures.jobs),
            "jobs_waiting": by_label(figures.waits),
            "gates": by_label(figures.gates),
            "loans": by_label(figures.loans),
        }


def by_label(counts: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    """Counts of a metric with one label."""
    return {(label,): count for label, count in counts.items()}
