"""Prometheus metrics (`metrics_listen`, extra `metrics`): the engine's counts and the gains.

A page is made in a thread, from copies, so that decisions never wait. Sums start with the engine.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from slurm_plugin.errors import PluginError
from slurm_plugin.explain.gains import job_gain
from slurm_plugin.port import Port
from slurm_plugin.serve.service import Engine

if TYPE_CHECKING:
    from prometheus_client.core import Metric

logger = logging.getLogger(__name__)

#: Label sets per metric; more (a site with very many partitions) are counted together.
MAX_LABELS = 256
#: Seconds for which a page is given out again.
PAGE_S = 1.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Tally:
    """Counts records as they are written to the log; safe to read from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[tuple[str, ...]]] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one record."""
        decision = str(record.get("decision", "?"))
        place = (str(record.get("partition") or "-"), str(record.get("policy") or "-"))
        applied = "yes" if record.get("applied", True) else "no"
        gain = job_gain(record)
        with self._lock:
            if decision == "started":
                self._count("started", ())
                return
            self._count("decisions", (decision, *place, applied))
            if gain is None or not gain.applied:
                return
            if gain.chosen_gbps is not None and gain.slurm_gbps is not None:
                self._count("compared", place)
                self._count("bandwidth", (*place, "chosen"), gain.chosen_gbps)
                self._count("bandwidth", (*place, "slurm"), gain.slurm_gbps)
            for choice, hops in (("chosen", gain.chosen_hops), ("slurm", gain.slurm_hops)):
                if hops is not None:
                    self._count("rings", (*place, choice, "no" if hops == 0 else "yes"))

    def _count(self, name: str, labels: tuple[str, ...], amount: float = 1) -> None:
        counts = self._counts.setdefault(name, Counter())
        if labels not in counts and len(counts) >= MAX_LABELS:
            labels = ("other",) * len(labels)
        counts[labels] += amount  # type: ignore[assignment]  # GB/s are summed, too

    def copy(self) -> dict[str, dict[tuple[str, ...], float]]:
        """All counts so far."""
        with self._lock:
            return {name: dict(counts) for name, counts in self._counts.items()}


#: Counter -> (help, labels): what the engine counts, then what the tally does.
_FAMILIES = {
    "messages": ("Messages by verb.", ("verb",)),
    "replies": ("Replies by kind.", ("reply",)),
    "passes": ("Questions left to Slurm's own choice.", ("reason",)),
    "decisions": ("Decisions by kind.", ("decision", "partition", "policy", "applied")),
    "started": ("Jobs that started with GPUs.", ()),
    "compared": ("Multi-GPU placements compared with stock Slurm.", ("partition", "policy")),
    "bandwidth": (
        "Sum of effective bandwidths (GB/s) of compared placements.",
        ("partition", "policy", "choice"),
    ),
    "rings": ("Rings of several GPUs.", ("partition", "policy", "choice", "pcie_hops")),
}


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

    async def start(self) -> None:
        """Serve; the log's thread counts from now on."""
        try:
            from prometheus_client import CollectorRegistry, generate_latest
        except ImportError as error:
            raise PluginError(
                "metrics_listen needs the extra: pip install 'slurm-gputopo[metrics]'"
            ) from error
        registry = CollectorRegistry()
        registry.register(self)
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
                self._page = (loop.time(), await asyncio.to_thread(self._made))
        return _said(200, self._page[1], with_body=method == b"GET")

    def collect(self) -> Iterator[Metric]:
        """What one scrape gets."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counted = self._engine.counters.snapshot()
        counts = self._tally.copy()
        for name in ("messages", "replies", "passes"):
            counts[name] = {(label,): count for label, count in counted[name].items()}
        for name, (doc, labels) in _FAMILIES.items():
            family = CounterMetricFamily(f"gputopo_{name}", doc, labels=labels)
            for values, amount in counts.get(name, {}).items():
                family.add_metric(values, amount)
            yield family
        times = GaugeMetricFamily(
            "gputopo_answer_seconds", "Latest answer times.", labels=["verb", "quantile"]
        )
        for verb, found in counted["answer_ms"].items():
            for key, quantile in (("p50", "0.5"), ("p99", "0.99"), ("max", "1")):
                times.add_metric([verb, quantile], found[key] / 1e3)
        yield times
        log = self._engine.log
        yield CounterMetricFamily("gputopo_late", "Answers after the deadline.", counted["late"])
        yield CounterMetricFamily("gputopo_log_lines", "Log lines written.", log.written)
        yield CounterMetricFamily("gputopo_log_lost", "Log lines lost.", log.dropped)
        yield GaugeMetricFamily("gputopo_uptime_seconds", "Since the start.", counted["uptime_s"])
        nodes = self._engine.setup.machines.values()
        left = sum(1 for machine in nodes if machine.problem)
        yield GaugeMetricFamily("gputopo_nodes_left_to_slurm", "Nodes not placed on.", left)
