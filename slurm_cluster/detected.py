"""Nodes whose GPUs slurmd finds by itself (AutoDetect=), for as long as a block lasts.

Slurm's own gpu/nvml and gpu/rsmi ask the vendors' libraries. Those of `gpu_libraries` answer for a
machine of the catalog from a data file, which a test may change while the node lives: a GPU fell
off the bus, a bridge is gone. The fake tools say the same.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np

from gres_topology import NodeTopology, pci
from gres_topology.slices import SlicedTopology
from gres_topology.topology import SELF
from slurm_cluster.cluster import Cluster, image
from slurm_cluster.description import numa_cores
from slurm_cluster.fake_tools import addresses, fake_tools, is_amd, uuid_of
from slurm_cluster.hosts import ClusterError
from slurm_cluster.redeclared import Lines, redeclared

SOURCES = Path(__file__).parent / "gpu_libraries"
#: Where slurmd finds the libraries, and what the file of machine.h is called.
_LIB, _MACHINE, _MINORS = "/usr/local/lib", "machine", "mig-minors"
_DRIVER = "535.161.08"
#: NVLinks of a GPU, as in machine.h.
_MOST_LINKS = 18
#: An NVSwitch's address: no GPU's.
_SWITCH = "00000000:FF:00.0"
#: Label of a path -> nvmlGpuTopologyLevel_t.
_LEVELS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40}
_OTHER_LEVEL = 50
_FIRST_RENDER_NODE = 128


class Detected:
    """A node that asks the libraries: what they say can be changed."""

    def __init__(self, cluster: Cluster, node: str, topology: NodeTopology) -> None:
        self._cluster, self.node = cluster, node
        self._size = numa_cores(topology)

    def becomes(self, topology: NodeTopology, lost: Sequence[int] = ()) -> None:
        """The node's hardware from now on; slurmd sees it when it starts.

        `topology` in the order of PCI addresses; GPUs `lost` are counted and do not answer.
        """
        whole = topology.whole if isinstance(topology, SlicedTopology) else topology
        files = {
            **fake_tools(whole),
            "minors": ",".join(map(str, minors(whole))),
            _MACHINE: machine_file(topology, self._size, lost),
            _MINORS: mig_minors(topology),
        }
        folders = {f"/etc/fakegpu/{path.rpartition('/')[0]}" for path in files}
        self._cluster.run(self.node, ["mkdir", "-p", *folders])
        for path, text in files.items():
            self._cluster.put(self.node, f"/etc/fakegpu/{path}", text)
        fail = "/etc/fakegpu/fail"
        if lost:
            address = addresses(whole)[lost[0]]
            says = f"Unable to determine the device handle for GPU{address}: GPU is lost."
            self._cluster.put(self.node, fail, says + " Reboot the system to recover this GPU\n")
        else:
            self._cluster.run(self.node, ["rm", "-f", fail])
        self._cluster.run(self.node, _make_devices(topology))

    def restart(self) -> None:
        """slurmd starts anew and looks again."""
        stop = "kill $(pidof slurmd); while pidof slurmd; do sleep 0.1; done"
        self._cluster.run(self.node, f"{stop}; {self.slurmd}")

    @property
    def slurmd(self) -> str:
        """Starts slurmd with the machine's CPUs in place of the container's."""
        cores = list(self._size.values())
        cpus = f"HWLOC_SYNTHETIC='pack:{len(cores)} core:{len(cores[0])} pu:1'"
        return f"{cpus} LD_PRELOAD={_LIB}/libfakehost.so slurmd"

    def gres(self) -> list[dict[str, str]]:
        """What slurmd makes of its GPUs (`slurmd -G`), in its order: Type, File, Links, Cores."""
        # It tells on stderr, whatever the log's level.
        done = self._cluster.run(self.node, f"{self.slurmd} -G 2>&1")
        rows = [line.partition("Gres Name=gpu ")[2] for line in done.out.splitlines()]
        return [dict(word.split("=", 1) for word in row.split()) for row in rows if row]


@contextmanager
def detected(
    cluster: Cluster, node: str, topology: NodeTopology, gres: str, keys: str
) -> Iterator[Detected]:
    """A block in which this node of the usual cluster has AutoDetect=nvml or, for AMD's, rsmi.

    `gres` is the node's Gres= in slurm.conf, `keys` what gputopo.yaml says of it. ClusterError
    where Slurm's plugin is not in the image.
    """
    whole = topology.whole if isinstance(topology, SlicedTopology) else topology
    kind = "rsmi" if is_amd(whole) else "nvml"
    if not has_plugin(cluster, node, kind):
        raise ClusterError(f"{node}: no gpu_{kind}.so of this Slurm")
    cores = list(numa_cores(whole).values())
    size = f"Sockets={len(cores)} CoresPerSocket={len(cores[0])} ThreadsPerCore=1 RealMemory=4000"
    here = Detected(cluster, node, whole)
    lines = Lines(
        f"NodeName={node} {size} Gres={gres} State=UNKNOWN\n",
        f"NodeName={node} AutoDetect={kind}\n",
        keys,
        here.slurmd,
    )
    cluster.put_folder(node, _LIB, _built(image("builder", cluster.suite)))
    cluster.run(node, "ldconfig")
    with cluster.fake_tools_of(node):
        here.becomes(topology)
        try:
            with redeclared(cluster, {node: lines}):
                yield here
        finally:
            libraries = "libnvidia-ml.so* librocm_smi64.so libfakehost.so"
            cluster.run(node, f"cd {_LIB} && rm -f {libraries} && ldconfig")


def has_plugin(cluster: Cluster, node: str, kind: str) -> bool:
    """Whether the image has Slurm's gpu/nvml or gpu/rsmi: forky has none for NVML."""
    path = f"/usr/local/lib/slurm/gpu_{kind}.so"
    return not cluster.run(node, ["test", "-e", path], check=False).code


@cache
def _built(builder: str) -> Path:
    """A folder with the libraries, compiled in the image that has a compiler."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(SOURCES, ".")
    script = "cd /tmp && tar -x && mkdir out && make -s OUT=out >&2 && tar -C out -c ."
    command = ["docker", "run", "--rm", "-i", builder, "sh", "-c", script]
    done = subprocess.run(command, input=packed.getvalue(), capture_output=True, check=False)
    if done.returncode:
        raise ClusterError(f"{SOURCES}: {done.stderr.decode(errors='replace')}")
    folder = Path(tempfile.mkdtemp(prefix="gputopo-libraries-"))
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def minors(topology: NodeTopology) -> list[int]:
    """The device minors of its GPUs; where they are not known, as PCI addresses go."""
    return [gpu if minor is None else minor for gpu, minor in enumerate(topology.minors)]


def machine_file(
    topology: NodeTopology, cores: Mapping[int, range], lost: Sequence[int] = ()
) -> str:
    """The lines of gpu_libraries/machine.h for a machine whose NUMA nodes have these CPUs."""
    whole = topology.whole if isinstance(topology, SlicedTopology) else topology
    lines = [f"driver {_DRIVER}"]
    for node, cpus in cores.items():
        mask = sum(1 << cpu for cpu in cpus)
        words = (mask >> at & 2**64 - 1 for at in range(0, max(mask.bit_length(), 1), 64))
        lines.append(f"node {node} {' '.join(f'{word:x}' for word in words)}")
    known = [f"{_long(address)}" for address in addresses(whole)]
    for gpu, (minor, bus) in enumerate(zip(minors(whole), known, strict=True)):
        state = "lost" if gpu in lost else "ok"
        node = whole.numa[gpu] or 0
        lines.append(f"gpu {minor} {node} {bus} {_uuid(whole, gpu)} {state} {whole.model}")
    lines += (f"link {gpu} {end}" for gpu in range(whole.gpus) for end in _links(whole, gpu, known))
    for a, b in combinations(range(whole.gpus), 2):
        lines.append(f"path {a} {b} {_LEVELS.get(whole.kinds[a][b], _OTHER_LEVEL)}")
    return "".join(f"{line}\n" for line in [*lines, *_slices(topology)])


def _long(address: str) -> str:
    """As NVML writes it, the domain in eight digits."""
    return (pci.normalise(address) or address).upper().rjust(len(_SWITCH), "0")


def _uuid(topology: NodeTopology, gpu: int) -> str:
    made = uuid_of(topology.name, gpu)
    return made.hex[:16] if is_amd(topology) else f"GPU-{made}"


def _links(topology: NodeTopology, gpu: int, known: Sequence[str]) -> list[str]:
    """The other end of each NVLink: a GPU, or a switch where there are more than a GPU has."""
    counts = [int(label[2:]) if label.startswith("NV") else 0 for label in topology.kinds[gpu]]
    if sum(counts) > _MOST_LINKS:
        return [_SWITCH] * max(counts)
    return [known[other] for other, count in enumerate(counts) for _ in range(count)]


def _instances(topology: NodeTopology) -> Iterator[tuple[int, int, str]]:
    """The GPU, the number of the GPU instance there, and the profile of each MIG slice."""
    if not isinstance(topology, SlicedTopology):
        return
    next_of = dict.fromkeys(range(topology.whole.gpus), 1)
    for gpu, profile in zip(topology.parents, topology.profiles, strict=True):
        if profile:
            yield gpu, next_of[gpu], profile
            next_of[gpu] += 1


def slice_uuid(topology: NodeTopology, gpu: int, instance: int) -> str:
    """The name by which a job gets a slice in CUDA_VISIBLE_DEVICES; instances count from 1."""
    return f"MIG-{uuid_of(topology.name, gpu, '/', instance)}"


def _slices(topology: NodeTopology) -> Iterator[str]:
    for gpu, instance, profile in _instances(topology):
        compute, memory_gb = profile.removesuffix("gb").split("g.")
        name = slice_uuid(topology, gpu, instance)
        told = f"{int(memory_gb) * 1024} {name} {topology.model} MIG {profile}"
        yield f"slice {gpu} {instance} 0 {compute} {told}"


def mig_minors(topology: NodeTopology) -> str:
    """/proc/driver/nvidia-caps/mig-minors, by which slurmd finds the slices' device files."""
    lines = ["config 1", "monitor 2"]
    known = minors(topology.whole) if isinstance(topology, SlicedTopology) else []
    for gpu, instance, _ in _instances(topology):
        path, next_minor = f"gpu{known[gpu]}/gi{instance}", len(lines) + 1
        lines += [f"{path}/access {next_minor}", f"{path}/ci0/access {next_minor + 1}"]
    return "".join(f"{line}\n" for line in lines)


def _make_devices(topology: NodeTopology) -> str:
    whole = topology.whole if isinstance(topology, SlicedTopology) else topology
    if is_amd(whole):
        files = [f"/dev/dri/renderD{_FIRST_RENDER_NODE + minor}" for minor in minors(whole)]
    else:
        files = [f"/dev/nvidia{minor}" for minor in minors(whole)]
    caps = len(mig_minors(topology).splitlines())
    files += (f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in range(3, caps + 1))
    make = "[ -e $file ] || mknod -m 666 $file c 1 3"
    return f"mkdir -p /dev/dri /dev/nvidia-caps; for file in {' '.join(files)}; do {make}; done"


def remaining(
    topology: NodeTopology, gpus: Sequence[int], *, cut: Sequence[tuple[int, int]] = ()
) -> NodeTopology:
    """The machine with these of its GPUs left, and without the NVLinks between the pairs `cut`."""
    kinds = [list(row) for row in topology.kinds]
    gbps = np.array(topology.bandwidth_gbps)
    for a, b in [*cut, *((b, a) for a, b in cut)]:
        kinds[a][b] = "SYS"
        gbps[a, b] = gbps[gbps > 0].min()
    known, of = addresses(topology), minors(topology)
    return replace(
        topology,
        kinds=tuple(tuple(kinds[a][b] for b in gpus) for a in gpus),
        bandwidth_gbps=gbps[np.ix_(gpus, gpus)],
        numa=tuple(topology.numa[gpu] for gpu in gpus),
        cpus=tuple(topology.cpus[gpu] for gpu in gpus),
        pci=tuple(known[gpu] for gpu in gpus),
        minors=tuple(of[gpu] for gpu in gpus),
        nics=(),
    )


def partitioned(topology: NodeTopology, parts: int) -> NodeTopology:
    """What AMD's tools count where each GPU is in so many partitions: one function for each."""
    of = [gpu for gpu in range(topology.gpus) for _ in range(parts)]
    kinds = tuple(
        tuple(
            SELF if a == b else "XGMI" if of[a] == of[b] else topology.kinds[of[a]][of[b]]
            for b in range(len(of))
        )
        for a in range(len(of))
    )
    known, first = addresses(topology), minors(topology)
    gbps = np.array(topology.bandwidth_gbps)[np.ix_(of, of)]
    return replace(
        topology,
        kinds=kinds,
        bandwidth_gbps=np.where(np.eye(len(of), dtype=bool), 0.0, np.maximum(gbps, 1.0)),
        numa=tuple(topology.numa[gpu] for gpu in of),
        cpus=tuple(topology.cpus[gpu] for gpu in of),
        pci=tuple(f"{known[gpu][:-1]}{i % parts}" for i, gpu in enumerate(of)),
        minors=tuple(first[gpu] * parts + i % parts for i, gpu in enumerate(of)),
        nics=(),
    )
