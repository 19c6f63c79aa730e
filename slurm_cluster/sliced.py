"""Nodes whose fake GPUs are cut into MIG slices, or shared, for as long as a block lasts.

Each slice has the device files that a real one has: its GPU's, and two of its own. Slurm is told by
hand (MultipleFiles= in gres.conf), and the engine by `slices` in gputopo.yaml.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gres_topology import catalog
from gres_topology.slices import SlicedTopology, declared
from slurm_cluster.cluster import Cluster
from slurm_cluster.redeclared import Lines, redeclared

#: The type of the GPUs that are left whole, whatever machine they are of.
WHOLE = "whole"
#: What the nodes are said to be: GPUs that can be cut, with pairs on one bridge.
MACHINE = "a100-pcie-bridged"
#: Cores of each socket: a slice needs one as a GPU does.
CORES = 32


@contextmanager
def sliced(
    cluster: Cluster, nodes: Sequence[str], words: Sequence[str], machine: str = MACHINE
) -> Iterator[None]:
    """A block in which these nodes of the usual cluster have the devices that `words` declare.

    All of them are said to be this machine of the catalog, of as many GPUs as they have.
    """
    found = {node: declared(catalog.load(machine), words) for node in nodes}
    keys = f"topology: {machine}, slices: [{', '.join(words)}]"
    lines = {
        node: Lines(_node_line(node, topology), _gres_lines(node, topology), keys)
        for node, topology in found.items()
    }
    for node, topology in found.items():
        cluster.run(node, _make_devices(topology))
    with redeclared(cluster, lines):
        yield


@contextmanager
def shared(
    cluster: Cluster, nodes: Sequence[str], kind: str, each: int, machine: str = MACHINE
) -> Iterator[None]:
    """A block in which each GPU of these nodes has so many shares (`shard`, `mps`)."""
    topology = declared(catalog.load(machine), [f"0-{catalog.load(machine).gpus - 1}"])
    total = each * topology.gpus
    lines = {
        node: Lines(
            _node_line(node, topology).replace(" State=", f",{kind}:{total} State="),
            f"{_gres_lines(node, topology)}NodeName={node} Name={kind} Count={total}\n",
            f"topology: {machine}",
        )
        for node in nodes
    }
    with redeclared(cluster, lines, f"gpu,{kind}"):
        yield


def _types(topology: SlicedTopology) -> Counter[str]:
    return Counter(profile or WHOLE for profile in topology.profiles)


def _node_line(node: str, topology: SlicedTopology) -> str:
    gres = ",".join(f"gpu:{kind}:{count}" for kind, count in _types(topology).items())
    size = f"Sockets=2 CoresPerSocket={CORES} ThreadsPerCore=1 RealMemory=4000"
    return f"NodeName={node} {size} Gres={gres} State=UNKNOWN\n"


def _gres_lines(node: str, topology: SlicedTopology) -> str:
    lines = []
    half = topology.whole.gpus // 2
    for device, (gpu, profile) in enumerate(zip(topology.parents, topology.profiles, strict=True)):
        files = f"File=/dev/fakegpu{gpu}"
        if profile:
            files = f"MultipleFiles=/dev/fakegpu{gpu},{_caps(device)}"
        cores = f"0-{CORES - 1}" if gpu < half else f"{CORES}-{2 * CORES - 1}"
        lines.append(f"NodeName={node} Name=gpu Type={profile or WHOLE} {files} Cores={cores}\n")
    return "".join(lines)


def _caps(device: int, sep: str = ",") -> str:
    """A slice's own device files."""
    return sep.join(f"/dev/fakecap{2 * device + i}" for i in range(2))


def _make_devices(topology: SlicedTopology) -> str:
    caps = " ".join(_caps(device, " ") for device, of in enumerate(topology.profiles) if of)
    return f"for file in {caps}; do [ -e $file ] || mknod -m 666 $file c 1 3; done"
