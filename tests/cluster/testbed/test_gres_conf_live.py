"""What is read of a gres.conf, beside what slurmd makes of the same file.

Drawn files in all of its grammar. GPUTOPO_CONF_FILES draws more of them; the seed is a file's
number.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

import pytest

from gres_topology.slurm_files import gres_file
from slurm_cluster.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.long("a slurmd for each node of each file")]

FILES = int(os.environ.get("GPUTOPO_CONF_FILES", "100"))
NODES = ("h0", "h1", "h2", "h3")
DEVICES = 12
FOLDER = "/tmp/drawn-gres"
HEAD = f"""\
ClusterName=Drawn
SlurmctldHost=ctl
AuthType=auth/munge
SlurmUser=root
StateSaveLocation={FOLDER}
SlurmdSpoolDir={FOLDER}
ProctrackType=proctrack/pgid
SelectType=select/cons_tres
GresTypes=gpu,nic
PartitionName=p Nodes=ALL
"""
#: Has slurmd print what it reads for each node, a line of JSON each.
ASKS = r"""
import json, pathlib, subprocess, sys
folder = pathlib.Path(sys.argv[1])
for at in range(int(sys.argv[2])):
    (folder / f"x{at}").touch()
for name, files in json.loads((folder / "cases.json").read_text()).items():
    case = folder / name
    case.mkdir()
    for file, text in files.items():
        (case / file).write_text(text)
    for node in sys.argv[3:]:
        argv = ["slurmd", "-G", "-f", f"{case}/slurm.conf", "-N", node]
        done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        said = done.stdout + done.stderr
        print(json.dumps([name, node, done.returncode, said]), flush=True)
"""


class Draw:
    """One drawn gres.conf, what slurm.conf says of the same nodes, and a file that is included."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"gres.conf {seed}")
        self.types = rng.sample(("a100", "H100", "l40s"), rng.randint(1, 3))
        self.is_typed = rng.random() < 0.6
        # slurmd refuses lines with other flags than the one before.
        self.flags = rng.choice(([], [], ["Flags=nvidia_gpu_env"]))
        free = list(range(DEVICES))
        rng.shuffle(free)
        body = [self.gpu_line(free) for _ in range(rng.randint(1, 5))]
        body += rng.sample(
            ("Name=nic Count=2", "AutoDetect=off", "# Name=gpu File=/dev/x"),
            rng.randint(0, 2),
        )
        rng.shuffle(body)
        self.more = ""
        if rng.random() < 0.3:
            self.more = body[-1] + "\n"
            body[-1] = rng.choice(("include more.conf", "Include  more.conf # what is the same"))
        self.gres = "\n".join(body) + "\n"
        self.counts = {node: self.in_slurm_conf() for node in NODES}
        self.slurm = HEAD + "".join(
            f"NodeName={node} NodeAddr=127.0.0.1 CPUs=8 Gres={gres}\n"
            for node, counts in self.counts.items()
            if (gres := ",".join(f"gpu:{kind}:{n}".replace("::", ":") for kind, n in counts))
        )

    def in_slurm_conf(self) -> list[tuple[str, int]]:
        """Types and counts, which may be fewer than gres.conf lists."""
        rng = self.rng
        if not self.is_typed or rng.random() < 0.1:
            return [("", rng.choice((DEVICES, DEVICES, 1, 2)))]
        kinds = rng.sample(self.types, rng.randint(1, len(self.types)))
        return [
            (rng.choice((kind, kind.lower())), rng.choice((DEVICES, DEVICES, 1, 2)))
            for kind in kinds
        ]

    def gpu_line(self, free: list[int]) -> str:
        """A line of one to four GPUs, of some nodes or of all."""
        rng = self.rng
        some = [free.pop() for _ in range(min(len(free), rng.randint(1, 4)))] or [0]
        keys = [rng.choice(("Name=gpu", "name=gpu", "Name=GPU", 'Name="gpu"'))]
        if rng.random() < 0.6:
            of = rng.choice(("h0", "h[0-1]", "h[1-3]", "h[0,2]", "h3", "h1,h2"))
            keys.insert(0, f"{rng.choice(('NodeName', 'nodename'))}={of}")
        behind = [f"{rng.choice(('File', 'file', 'Files'))}={self.files(some)}"]
        if self.is_typed:
            behind.append(f"Type={rng.choice(self.types)}")
        behind += self.flags
        behind += rng.sample(("Cores=0-3", "CPUs=0,1", f"Count={len(some)}"), rng.randint(0, 1))
        rng.shuffle(behind)
        text = rng.choice((" ", "  ", "\t")).join([*keys, *behind])
        if rng.random() < 0.2:
            text = text.replace(behind[-1], f"\\\n  {behind[-1]}")
        return text + rng.choice(("", "", "  # as it is"))

    def files(self, some: list[int]) -> str:
        """These devices as one writes them."""
        rng = self.rng
        if rng.random() < 0.4:
            return ",".join(f"{FOLDER}/x{at}" for at in some)
        text = (
            f"{FOLDER}/x[{','.join(map(str, some))}]" if len(some) > 1 else f"{FOLDER}/x{some[0]}"
        )
        return f'"{text}"' if rng.random() < 0.2 else text

    def ours(self, node: str) -> list[str]:
        """The node's devices in Slurm's order, by what we read of gres.conf."""

        def text_of(path: Path) -> str:
            return self.more if path.name == "more.conf" else self.gres

        devices = gres_file.load_devices(Path("/c/gres.conf"), text_of)
        lines = list(devices.lines.get(node, devices.lines[""]))
        found = []
        for kind, count in self.counts[node]:
            mine = [line for line in lines if not kind or (line.type or "").lower() == kind.lower()]
            lines = [line for line in lines if line not in mine[:count]]
            found += [line.file for line in mine[:count]]
        return found


def of_slurmd(said: str) -> list[str]:
    """The devices of the GPUs that slurmd prints, in its order."""
    found: list[str] = []
    for line in said.splitlines():
        if "Gres Name=gpu" in line.replace("GPU", "gpu") and (
            file := re.search(r"File=(\S+)", line)
        ):
            found += expanded(file[1])
    return found


def expanded(text: str) -> Iterable[str]:
    """Each device of a list as slurmd prints it, with or without brackets."""
    for prefix, ranges, one in re.findall(r"([^,\[]+)\[([^\]]*)\]|([^,\[\]]+)", text):
        if one:
            yield one
        for part in filter(None, ranges.split(",")):
            first, _, last = part.partition("-")
            yield from (f"{prefix}{at}" for at in range(int(first), int(last or first) + 1))


@pytest.mark.timeout(1800)
def test_a_drawn_gres_conf_is_read_as_slurmd_reads_it(cluster: Cluster) -> None:
    host = "dgx1"
    draws = {f"case-{at:04}": Draw(at) for at in range(FILES)}
    cases = {
        name: {"slurm.conf": draw.slurm, "gres.conf": draw.gres, "more.conf": draw.more}
        for name, draw in draws.items()
    }
    cluster.run(host, f"rm -rf {FOLDER} && mkdir -p {FOLDER}")
    cluster.put(host, f"{FOLDER}/cases.json", json.dumps(cases))
    cluster.put(host, f"{FOLDER}/asks.py", ASKS)
    argv = ["python3", f"{FOLDER}/asks.py", FOLDER, str(DEVICES), *NODES]
    told = [json.loads(line) for line in cluster.run(host, shlex.join(argv)).out.splitlines()]
    assert len(told) == len(draws) * len(NODES)
    several = 0
    for name, node, code, said in told:
        draw = draws[name]
        why = f"{name}, {node}:\n{draw.slurm}\n{draw.gres}\n{draw.more}\n{said}"
        assert not code, why
        assert draw.ours(node) == of_slurmd(said), why
        several += len(of_slurmd(said)) > 1
    assert several > len(told) / 4, "what is compared is mostly nothing"
