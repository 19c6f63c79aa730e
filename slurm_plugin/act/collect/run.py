"""Runs the snippet on nodes through Slurm, and brings the store up to date."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gres_topology import NodeTopology, TopologyError, difference, partitions
from gres_topology.readers.nvidia_smi import nvlink_domain
from gres_topology.slices import profile_of
from slurm_plugin.act.collect.read_node import read_node
from slurm_plugin.act.collect.snippet import script, sections
from slurm_plugin.errors import PluginError, SlurmError, in_one_line
from slurm_plugin.learn.collected import NodeRecord, Store, key_of
from slurm_plugin.slurm.interface import SlurmNode
from slurm_plugin.slurm.runner import Runner

logger = logging.getLogger(__name__)

#: srun commands at a time: each holds one small job, the controller has other things to do.
PARALLEL = 8
#: The most that the tools of one node may print; a large node's print half a MiB.
MAX_BYTES = 16 << 20
#: The most that is told of one node, in characters.
MOST_TEXT = 2000
#: Node states in which no job can start there.
UNREACHABLE = {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "NOT_RESPONDING", "POWERED_DOWN"}

NEW, SAME, CHANGED, ACCEPTED, FAILED = "new", "same", "changed", "accepted", "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened to one node: a word of the above, and details for people."""

    node: str
    what: str
    text: str = ""


class Collector:
    """Collects nodes into a store; `wait_s` bounds the wait for a node's turn in Slurm."""

    def __init__(
        self, run: Runner, store: Store, wait_s: int = 30, partition: str | None = None
    ) -> None:
        self._run = run
        self._store = store
        self._wait_s = wait_s
        self._partition = partition
        #: The NVLink domain of each node that answered.
        self._domains: dict[str, str] = {}

    def collect(self, nodes: Sequence[SlurmNode], accept: bool = False) -> Iterator[Outcome]:
        """Collect `nodes`; their outcomes in order. `accept`: also hardware that changed."""
        records = self._store.nodes()
        domains: dict[str, str] = {}
        try:
            domains = self._store.domains()
        except PluginError as error:
            logger.warning("%s; it is made anew", error)
        with ThreadPoolExecutor(PARALLEL) as pool:
            for node, answer in zip(nodes, pool.map(self._read, nodes), strict=True):
                if isinstance(answer, str):
                    yield Outcome(node.name, FAILED, _plain(answer))
                    continue
                outcome, record = self._compare(node.name, answer, records.get(node.name), accept)
                if record != records.get(node.name):
                    records[node.name] = record
                    self._store.save(records)
                if domains != (now := domains | self._domains):
                    domains = now
                    self._store.save_domains(domains)
                yield replace(outcome, text=_plain(outcome.text))

    def _read(self, node: SlurmNode) -> NodeTopology | str:
        """The node's hardware, or why it could not be read; a node may answer anything."""
        try:
            found = self._hardware(node)
            if not isinstance(found, str):
                key_of(found)
            return found
        except Exception as error:
            return f"its answer cannot be read: {type(error).__name__}: {error}"

    def _hardware(self, node: SlurmNode) -> NodeTopology | str:
        bad = UNREACHABLE.intersection(node.state)
        if bad:
            return f"the node is {'+'.join(sorted(bad))}"
        try:
            topology = self._ask(node, with_gpus=False)
            if isinstance(topology, str) or _too_few(topology, node):
                # Devices may be confined to jobs that hold them: ask for all of them.
                topology = self._ask(node, with_gpus=True)
        except SlurmError as error:
            return str(error)
        if isinstance(topology, str):
            return topology
        whole, slices = _counted(node)
        if _too_few(topology, node) or (not slices and topology.gpus > whole):
            more = f" and {slices} slices" if slices else ""
            return f"its tools show {topology.gpus} GPUs, Slurm has {whole}{more}"
        return topology

    def _ask(self, node: SlurmNode, with_gpus: bool) -> NodeTopology | str:
        argv = [
            "srun",
            f"--nodelist={node.name}",
            "--nodes=1",
            "--ntasks=1",
            "--cpus-per-task=1",
            "--mem=16M",
            "--time=2",
            f"--immediate={self._wait_s}",
            "--job-name=gputopo-collect",
            "--chdir=/",
            "--export=NONE",
            "--quiet",
        ]
        partition = self._partition or next(iter(node.partitions), None)
        if partition:
            argv.append(f"--partition={partition}")
        if with_gpus:
            # A hint on a job without GPUs would be refused, and such a job needs none.
            argv += [f"--gres=gpu:{node.gpu_count}", "--comment=gpu-topo: off"]
        output = self._run([*argv, "/bin/sh", "-s"], script(), self._wait_s + 150.0)
        try:
            found = sections(output)
            topology = read_node(node.name, found)
            query = found["nvidia-smi-query"]
            # Of a tool that failed, or was cut off, what was known stays.
            if query.status == 0:
                self._domains[node.name] = nvlink_domain(query.text)
            elif query.status == 127:
                self._domains[node.name] = ""
            return topology
        except (PluginError, TopologyError) as error:
            return str(error)

    def _compare(
        self, name: str, topology: NodeTopology, known: NodeRecord | None, accept: bool
    ) -> tuple[Outcome, NodeRecord]:
        key = self._store.keep(topology)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        shown = f"{topology.gpus} GPUs, {topology.model or 'model unknown'}, {key}"
        if known is None:
            return Outcome(name, NEW, shown), NodeRecord(key, key, now)
        if key == known.accepted:
            return Outcome(name, SAME, shown), NodeRecord(known.accepted, key, known.collected)
        before = self._store.topology(known.accepted)
        differences = difference(before, topology)
        if not differences and (before.model is None) != (topology.model is None):
            # The same hardware, whose tools tell the model now or did not this time.
            keep = key if topology.model else known.accepted
            return Outcome(name, SAME, shown), NodeRecord(keep, keep, now)
        text = "; ".join(differences) or shown
        if accept:
            return Outcome(name, ACCEPTED, text), NodeRecord(key, key, now)
        return Outcome(name, CHANGED, text), NodeRecord(known.accepted, key, now)


def _plain(text: str) -> str:
    return in_one_line(" ".join(text[:MOST_TEXT].split()))


def _counted(node: SlurmNode) -> tuple[int, int]:
    """How many whole GPUs, and how many slices, Slurm counts on the node."""
    slices = sum(count for kind, count in node.gpus.items() if profile_of(kind))
    return node.gpu_count - slices, slices


def _too_few(topology: NodeTopology, node: SlurmNode) -> bool:
    """Whether GPUs that Slurm counts are missing; slices are of one GPU more at least."""
    whole, slices = _counted(node)
    if whole in (topology.gpus * parts for parts in partitions.counts(topology.model)):
        return False  # Every GPU is partitioned, and gpu/rsmi gives its parts the GPU's type.
    return topology.gpus < whole + (slices > 0)
