"""What exporters of GPU metrics say, and of which of Slurm's GPUs they say it.

The series are those of NVIDIA's dcgm-exporter, of AMD's device-metrics-exporter, and of the
exporter that jobstats uses (nvidia_gpu_prometheus_exporter). Nothing of them is believed: a label
is compared with what Slurm and the topology say, a number counts inside its bounds alone, and
where two series contradict each other neither counts.
"""

from __future__ import annotations

import ipaddress
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from gres_topology import NodeTopology, pci
from slurm_plugin.decide.machines import Machine, usable

#: The most that a GPU's memory may be, in MiB: a larger number is a word for "not known".
MOST_MIB = 1 << 24
_BYTES = 1 / (1 << 20)

#: What a metric tells of a GPU.
BUSY, USED, FREE, TOTAL, JOB = "busy", "used", "free", "total", "job"


class SeriesLabels(msgspec.Struct, frozen=True):
    """The labels of a series that say what it is about; all others are passed over."""

    metric: str = msgspec.field(name="__name__")
    #: The node: as its exporter calls it, or where Prometheus scrapes it.
    own_host: str = msgspec.field(default="", name="Hostname")
    hostname: str = ""
    instance: str = ""
    #: The GPU in the order of NVML or ROCm SMI, which is that of PCI addresses.
    gpu: str = ""
    ordinal: str = ""
    gpu_id: str = ""
    pci_bus_id: str = ""
    #: N of /dev/nvidiaN.
    minor_number: str = ""
    #: A part of a GPU: a MIG slice, a partition of AMD's.
    slice_id: str = msgspec.field(default="", name="GPU_I_ID")
    slice_profile: str = msgspec.field(default="", name="GPU_I_PROFILE")
    gpu_partition_id: str = ""
    gpu_compute_partition_type: str = ""
    #: Slurm's job on the GPU, where the exporter is told of it by a prolog.
    jobid: str = ""
    hpc_job: str = ""
    job_id: str = ""

    @property
    def index(self) -> str:
        """The GPU's number in the exporter's order; '' where it has none."""
        return self.gpu or self.ordinal or self.gpu_id

    @property
    def is_part(self) -> bool:
        """Is it about a part of a GPU?"""
        partition = self.gpu_compute_partition_type.lower()
        return (
            bool(self.slice_id or self.slice_profile)
            or self.gpu_partition_id not in ("", "0")
            or partition not in ("", "spx")
        )


class Series(msgspec.Struct, frozen=True):
    """One series and its value now: Prometheus writes numbers as texts, NaN and Inf among them."""

    metric: SeriesLabels
    value: tuple[float, str]


@dataclass(frozen=True, slots=True)
class Metric:
    """What one metric tells, and its factor to percent, or to MiB."""

    exporter: int
    tells: str
    factor: float = 1.0


#: The metrics by name; of two exporters on a node the one with the lower number counts.
METRICS: Mapping[str, Metric] = {
    "DCGM_FI_DEV_GPU_UTIL": Metric(0, BUSY),
    "DCGM_FI_DEV_FB_USED": Metric(0, USED),
    "DCGM_FI_DEV_FB_FREE": Metric(0, FREE),
    # AMD's names may get a prefix by its configuration, of which this one is usual.
    **{
        f"{prefix}{name}": Metric(1, tells)
        for prefix in ("", "amd_")
        for name, tells in (
            ("gpu_gfx_activity", BUSY),
            ("gpu_used_vram", USED),
            ("gpu_total_vram", TOTAL),
        )
    },
    "nvidia_gpu_duty_cycle": Metric(2, BUSY),
    "nvidia_gpu_memory_used_bytes": Metric(2, USED, _BYTES),
    "nvidia_gpu_memory_total_bytes": Metric(2, TOTAL, _BYTES),
    "nvidia_gpu_jobId": Metric(2, JOB),
}
_BOUNDS = {BUSY: 100.0, USED: MOST_MIB, FREE: MOST_MIB, TOTAL: MOST_MIB, JOB: 2**32}


@dataclass(slots=True)
class ExportedGpu:
    """What one exporter says of one GPU of a node, and how it names that GPU."""

    exporter: int
    pci_bus_id: str
    minor: str
    index: str
    #: What is told -> the different values of it.
    values: defaultdict[str, set[float]] = field(default_factory=lambda: defaultdict(set))
    jobs: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class GpuUse:
    """How much of a GPU is in use; None: not known."""

    busy_percent: float | None
    used_mib: float | None
    total_mib: float | None
    #: The jobs that the exporter says it is of; none where it does not say.
    jobs: frozenset[int] = frozenset()


def by_node(
    series: Iterable[Series], nodes: Collection[str]
) -> Mapping[str, Sequence[ExportedGpu]]:
    """What is said of whole GPUs of these nodes; series of anything else are left out."""
    found: dict[tuple[str, int, str, str, str], ExportedGpu] = {}
    # A node's series, some dozens, name it alike.
    named: dict[tuple[str, str, str], str] = {}
    for one in series:
        labels = one.metric
        metric = METRICS.get(labels.metric)
        if metric is None or labels.is_part:
            continue
        hosts = (labels.own_host, labels.hostname, labels.instance)
        node = named.get(hosts)
        if node is None:
            node = named[hosts] = _node_of(labels, nodes)
        if not node:
            continue
        where = (metric.exporter, labels.pci_bus_id, labels.minor_number, labels.index)
        gpu = found.get((node, *where))
        if gpu is None:
            gpu = found[node, *where] = ExportedGpu(*where)
        value = _number(one.value[1], metric)
        if metric.tells == JOB:
            gpu.jobs |= {int(value)} if value else set()
        else:
            # What is no number is remembered, too: it contradicts a number.
            gpu.values[metric.tells].add(math.nan if value is None else value)
        gpu.jobs |= {
            int(job)
            for job in (labels.jobid, labels.hpc_job, labels.job_id)
            if job.isascii() and job.isdecimal() and len(job) < 11 and int(job)
        }
    nodes_found: defaultdict[str, list[ExportedGpu]] = defaultdict(list)
    for (node, *_), gpu in found.items():
        nodes_found[node].append(gpu)
    return nodes_found


def _node_of(labels: SeriesLabels, nodes: Collection[str]) -> str:
    """Slurm's name of the node; '' where it is none of Slurm's, or two labels name two."""
    # In a container its own name is the container's, and says nothing.
    hosts = (labels.own_host, labels.hostname, labels.instance.rpartition(":")[0])
    named = {name for host in hosts if (name := _named(host, nodes))}
    return named.pop() if len(named) == 1 else ""


def _named(host: str, nodes: Collection[str]) -> str:
    """The node of this name, with or without a domain; '' where there is none."""
    if host in nodes:
        return host
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        short = host.partition(".")[0]
        return short if short in nodes else ""
    return ""


def _number(text: str, metric: Metric) -> float | None:
    """The value in percent or MiB; None where it is none that a GPU can have."""
    try:
        value = float(text) * metric.factor
    except ValueError:
        return None
    return value if 0 <= value <= _BOUNDS[metric.tells] else None


def by_slurms_gpu(
    exported: Sequence[ExportedGpu], machine: Machine, count: int
) -> Mapping[int, GpuUse]:
    """Slurm's index -> what is said of that GPU, for those of which that is certain.

    `count` is how many GPUs Slurm counts on the node. A GPU is known by its PCI address, else by
    its minor number, where the topology has them. Its number in the exporter's order says which
    one it is where all the node's GPUs are there: without one of them others would have its number.
    GPUs in slices are told of by nobody here.
    """
    topology = machine.topology
    if topology is None or usable(machine, count):
        return {}
    for exporter in sorted({one.exporter for one in exported}):
        of_topology = _located([one for one in exported if one.exporter == exporter], topology)
        if of_topology:
            order = machine.order or range(topology.gpus)
            return {
                gpu: of_topology[own]
                for gpu, own in enumerate(order)
                if own in of_topology and machine.whole >> gpu & 1
            }
    return {}


def _located(exported: Sequence[ExportedGpu], topology: NodeTopology) -> dict[int, GpuUse]:
    """The topology's index -> what one exporter says of that GPU."""
    places = [pci.place(address or "") for address in topology.pci]
    by_place = {place: gpu for gpu, place in enumerate(places) if place is not None}
    by_minor = {str(minor): gpu for gpu, minor in enumerate(topology.minors) if minor is not None}
    known = sorted(by_place)
    # A topology without addresses has its GPUs in that order, too.
    in_order = [by_place[place] for place in known] if known else [*range(topology.gpus)]
    numbers = {str(number): gpu for number, gpu in enumerate(in_order)}
    has_all = len(numbers) == topology.gpus and {one.index for one in exported} == set(numbers)
    same: defaultdict[int, list[ExportedGpu]] = defaultdict(list)
    for one in exported:
        place = pci.place(one.pci_bus_id)
        gpu: int | None
        if place is not None and by_place:
            gpu = by_place.get(place)
        elif one.minor and by_minor:
            gpu = by_minor.get(one.minor)
        else:
            gpu = numbers.get(one.index) if has_all else None
        if gpu is not None:
            same[gpu].append(one)
    return {gpu: _use(some) for gpu, some in same.items()}


def _use(same: Sequence[ExportedGpu]) -> GpuUse:
    """What one exporter's series about one GPU say together."""

    def told(what: str) -> float | None:
        values = {value for one in same for value in one.values.get(what, ())}
        value = values.pop() if len(values) == 1 else math.nan
        return None if math.isnan(value) else value

    used, free, total = told(USED), told(FREE), told(TOTAL)
    if total is None and used is not None and free is not None:
        total = used + free
    if used is None or total is None or not used <= total:
        used = total = None
    return GpuUse(told(BUSY), used, total, frozenset(job for one in same for job in one.jobs))
