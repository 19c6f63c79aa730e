"""Nodes whose fake GPUs are cut into MIG slices, for as long as a block lasts.

Each slice has the device files that a real one has: its GPU's, and two of its own. Slurm is told by
hand (MultipleFiles= in gres.conf), and the engine by `slices` in gputopo.yaml.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gres_topology import catalog, hostlist
from gres_topology.slices import SlicedTopology, declared
from slurm_cluster.cluster import Cluster
from slurm_cluster.description import DEFAULT, read
from slurm_cluster.hosts import until

#: The type of the GPUs that are left whole, whatever machine they are of.
WHOLE = "whole"
#: What the nodes are said to be: GPUs that can be cut, with pairs on one bridge.
MACHINE = "a100-pcie-bridged"
#: Cores of each socket: a slice needs one as a GPU does.
CORES = 32
_SLURM, _GRES, _ENGINE = "/cluster/slurm.conf", "/cluster/gres.conf", "/etc/slurm/gputopo.yaml"
_RESTART = "kill $(pidof slurmd); while pidof slurmd; do sleep 0.1; done; slurmd"


@contextmanager
def sliced(
    cluster: Cluster, nodes: Sequence[str], words: Sequence[str], machine: str = MACHINE
) -> Iterator[None]:
    """A block in which these nodes of the usual cluster have the devices that `words` declare.

    All of them are said to be this machine of the catalog, of as many GPUs as they have.
    """
    usual = read(DEFAULT)
    found = {node: declared(catalog.load(machine), words) for node in nodes}
    engine = cluster.read("ctl", _ENGINE)
    lines = [_rest(cluster.read("ctl", path), usual.machines, nodes) for path in (_SLURM, _GRES)]
    declares = f"topology: {machine}, slices: [{', '.join(words)}]"
    try:
        cluster.put("ctl", _SLURM, lines[0] + "".join(map(_node_line, nodes, found.values())))
        cluster.put("ctl", _GRES, lines[1] + "".join(map(_gres_lines, nodes, found.values())))
        cluster.put("ctl", _ENGINE, _with_slices(engine, usual.machines, nodes, declares))
        for node, topology in found.items():
            cluster.run(node, _make_devices(topology))
        _restart(cluster, nodes)
        cluster.engine("restart")
        yield
        cluster.run("ctl", "squeue -h -o %A | sort -u | xargs -r scancel")
        cluster.wait_idle()
    finally:
        cluster.put("ctl", _ENGINE, engine)
        cluster.switch(cluster.variant())
        _restart(cluster, nodes)
        cluster.engine("restart")


def _rest(text: str, machines: dict[str, str], nodes: Sequence[str]) -> str:
    """A file without the lines of these nodes; of `dgx[1-2]` those of the other nodes stay."""

    def without(line: str) -> str:
        match = re.match(r"NodeName=(\S+) (.*)", line)
        if match is None:
            return line
        listed = [name for name in machines if _is_in(name, match[1])]
        left = [name for name in listed if name not in nodes]
        return "\n".join(f"NodeName={name} {match[2]}" for name in left)

    return "".join(f"{kept}\n" for line in text.splitlines() if (kept := without(line)))


def _is_in(name: str, names: str) -> bool:
    return name in hostlist.expand(names)


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


def _with_slices(text: str, machines: dict[str, str], nodes: Sequence[str], declares: str) -> str:
    """gputopo.yaml with a line of its own for each of the nodes, and the others as before."""
    own = [f"  - {{nodes: {name}, {declares}}}" for name in nodes]

    def without(line: str) -> list[str]:
        match = re.match(r'  - \{nodes: "([^"]+)", (.*)', line)
        if match is None:
            return [line, *(own if line == "nodes:" else [])]
        left = [n for n in machines if _is_in(n, match[1]) and n not in nodes]
        return [f'  - {{nodes: "{name}", {match[2]}' for name in left]

    return "".join(f"{one}\n" for line in text.splitlines() for one in without(line))


def _restart(cluster: Cluster, nodes: Sequence[str]) -> None:
    """Slurm reads its files again; a drain for changed GRES is lifted."""
    cluster.restart_slurmctld()
    for node in nodes:
        cluster.run(node, _RESTART)
    named = ",".join(nodes)

    def idle() -> bool:
        resume = f"scontrol update nodename={named} state=resume"
        cluster.run("ctl", resume, check=False)
        states = cluster.run("ctl", f"sinfo -h -N -n {named} -p gpu -o %T").out.split()
        return set(states) == {"idle"}

    until(idle, f"{named} are idle", 60)
