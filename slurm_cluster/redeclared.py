"""Nodes that are something else while a block lasts: their lines in Slurm's and our files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gres_topology import hostlist
from slurm_cluster.cluster import Cluster
from slurm_cluster.description import DEFAULT, read
from slurm_cluster.hosts import until

_SLURM, _GRES, _ENGINE = "/cluster/slurm.conf", "/cluster/gres.conf", "/etc/slurm/gputopo.yaml"
_STOP = "kill $(pidof slurmd); while pidof slurmd; do sleep 0.1; done"


@dataclass(frozen=True)
class Lines:
    """What one node is: a line of slurm.conf, lines of gres.conf, keys in gputopo.yaml's nodes."""

    slurm: str
    gres: str
    engine: str
    #: How its slurmd is started.
    slurmd: str = "slurmd"


@contextmanager
def redeclared(
    cluster: Cluster, nodes: Mapping[str, Lines], gres_types: str = "gpu"
) -> Iterator[None]:
    """A block in which these nodes of the usual cluster are what their lines say.

    `gres_types` are what Slurm counts. Jobs are ended and the former files are back at its end.
    """
    machines = read(DEFAULT).machines
    engine = cluster.read("ctl", _ENGINE)
    slurm, gres = (rest(cluster.read("ctl", path), machines, nodes) for path in (_SLURM, _GRES))
    told = {name: lines.engine for name, lines in nodes.items()}
    try:
        slurm = re.sub("(?m)^GresTypes=.*", f"GresTypes={gres_types}", slurm)
        cluster.put("ctl", _SLURM, slurm + "".join(lines.slurm for lines in nodes.values()))
        cluster.put("ctl", _GRES, gres + "".join(lines.gres for lines in nodes.values()))
        cluster.put("ctl", _ENGINE, with_nodes(engine, machines, told))
        _restart(cluster, {name: lines.slurmd for name, lines in nodes.items()})
        cluster.engine("restart")
        yield
    finally:
        cluster.run("ctl", "squeue -h -o %A | sort -u | xargs -r scancel")
        cluster.wait_idle()
        cluster.put("ctl", _ENGINE, engine)
        cluster.switch(cluster.variant())
        _restart(cluster, dict.fromkeys(nodes, "slurmd"))
        cluster.engine("restart")


def rest(text: str, machines: Mapping[str, str], nodes: Collection[str]) -> str:
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


def with_nodes(text: str, machines: Mapping[str, str], nodes: Mapping[str, str]) -> str:
    """gputopo.yaml with a line of its own for each of the nodes, and the others as before."""
    own = [f"  - {{nodes: {name}, {keys}}}" for name, keys in nodes.items()]

    def without(line: str) -> list[str]:
        match = re.match(r'  - \{nodes: "([^"]+)", (.*)', line)
        if match is None:
            return [line, *(own if line == "nodes:" else [])]
        left = [n for n in machines if _is_in(n, match[1]) and n not in nodes]
        return [f'  - {{nodes: "{name}", {match[2]}' for name in left]

    return "".join(f"{one}\n" for line in text.splitlines() for one in without(line))


def _restart(cluster: Cluster, nodes: Mapping[str, str]) -> None:
    """Slurm reads its files again; a drain for changed GRES is lifted."""
    cluster.restart_slurmctld()
    for node, start in nodes.items():
        cluster.run(node, f"{_STOP}; {start}")
    named = ",".join(nodes)

    def idle() -> bool:
        resume = f"scontrol update nodename={named} state=resume"
        cluster.run("ctl", resume, check=False)
        states = cluster.run("ctl", f"sinfo -h -N -n {named} -p gpu -o %T").out.split()
        return set(states) == {"idle"}

    until(idle, f"{named} are idle", 60)
