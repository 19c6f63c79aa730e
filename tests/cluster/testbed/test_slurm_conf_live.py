"""What `simulate --slurm-conf` reads of a slurm.conf, beside what slurmctld makes of the same file.

Drawn files in all of Slurm's grammar. GPUTOPO_CONF_FILES draws more of them; the seed is a file's
number.
"""

from __future__ import annotations

import json
import os
import random
import shlex
from pathlib import Path

import pytest

from gres_topology import hostlist
from simulation.core import slurm_site
from slurm_cluster.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.long("some minutes of slurmctlds")]

FILES = int(os.environ.get("GPUTOPO_CONF_FILES", "100"))
PARTS = 5
MOST_NODES = 12
FOLDER = "/tmp/drawn-conf"
HEAD = f"""\
ClusterName=Drawn
SlurmctldHost=ctl
SlurmctldPort=7817
AuthType=auth/munge
SlurmUser=root
StateSaveLocation={FOLDER}/state
SlurmctldPidFile={FOLDER}/pid
ProctrackType=proctrack/pgid
SelectType=select/cons_tres
"""
#: Starts a slurmctld on each file, and prints what scontrol then tells, a line of JSON each.
ASKS = r"""
import json, os, pathlib, shutil, subprocess, sys, time
folder, hosts = pathlib.Path(sys.argv[1]), pathlib.Path("/etc/hosts")
former = hosts.read_text()
hosts.write_text(former + "".join(f"127.0.1.{i} h{i}\n" for i in range(int(sys.argv[2]))))
try:
    for name, files in json.loads((folder / "cases.json").read_text()).items():
        case = folder / name
        case.mkdir()
        for file, text in files.items():
            (case / file).write_text(text)
        shutil.rmtree(folder / "state", ignore_errors=True)
        (folder / "state").mkdir()
        conf = str(case / "slurm.conf")
        env = {**os.environ, "SLURM_CONF": conf}
        with open(case / "log", "w") as log:
            ctld = subprocess.Popen(["slurmctld", "-D", "-i", "-f", conf], stdout=log, stderr=log)
        told, end = {}, time.monotonic() + 60
        while time.monotonic() < end and ctld.poll() is None:
            for what in ("nodes", "partitions"):
                argv = ["scontrol", "-a", "-o", "show", what]
                done = subprocess.run(argv, env=env, capture_output=True, text=True)
                told[what] = done.stdout if done.returncode == 0 else ""
            if "NodeName=" in told["nodes"] and "PartitionName=" in told["partitions"]:
                break
            time.sleep(0.1)
        ctld.terminate()
        ctld.wait()
        told["log"] = (case / "log").read_text()[-600:]
        print(json.dumps({"case": case.name, **told}), flush=True)
finally:
    hosts.write_text(former)
"""


class Draw:
    """One drawn file; `text` is its own, `more` that of a file which it includes."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"slurm.conf {seed}")
        self.free = [f"h{at}" for at in range(MOST_NODES)]
        nodes = [self.node_line() for _ in range(rng.randint(1, 4))]
        known = [name for names in nodes for name in names[0]]
        sets = [self.set_line(at, known) for at in range(rng.randint(0, 2))]
        parts = [
            self.partition_line(at, known, [name for name, _ in sets])
            for at in range(rng.randint(1, 4))
        ]
        body = [line for _, line in nodes] + [line for _, line in sets] + parts
        for kind, keys in (("NodeName", self.node_keys), ("PartitionName", self.partition_keys)):
            for _ in range(rng.choice((0, 0, 1, 2))):
                at = rng.randrange(len(body) + 1)
                body.insert(at, self.line(kind, rng.choice(("DEFAULT", "default")), keys()))
        for _ in range(rng.choice((0, 1))):
            body.insert(rng.randrange(len(body) + 1), self.scheduling())
        self.more = ""
        if rng.random() < 0.3:
            at = rng.randrange(len(body))
            self.more = body[at] + "\n"
            body[at] = rng.choice(("Include more_%c.conf", "include   more_drawn.conf"))
        self.text = HEAD + "\n".join(body) + "\n"

    def maybe(self, *choices: str) -> str:
        """One of these, or nothing."""
        return self.rng.choice(("", *choices)) if self.rng.random() < 0.5 else ""

    def node_keys(self) -> list[str]:
        """What is said of nodes."""
        maybe = self.maybe
        size = str(self.rng.choice((1, 2, 4, 6, 8, 16)))
        return [
            maybe(f"CPUs={size}", f"Procs={size}", f"cpus={size}"),
            maybe("Boards=1", "Boards=2"),
            maybe("Sockets=2", "SocketsPerBoard=2", "Sockets=4", "SocketsPerBoard=1"),
            maybe("CoresPerSocket=4", "CoresPerSocket=2", "corespersocket=1"),
            maybe("ThreadsPerCore=2", "ThreadsPerCore=1"),
            maybe("RealMemory=1000", "RealMemory=64000", "realmemory=5"),
            maybe("Feature=fast", "Features=fast,big", "Feature=big"),
            maybe("Weight=7", "State=UNKNOWN", "TmpDisk=9"),
        ]

    def node_line(self) -> tuple[list[str], str]:
        """A line of one to three nodes, and these."""
        names = [self.free.pop(0) for _ in range(min(len(self.free), self.rng.randint(1, 3)))]
        first, last = names[0][1:], names[-1][1:]
        text = names[0] if len(names) == 1 else f"h[{first}-{last}]"
        return names, self.line("NodeName", text, self.node_keys())

    def set_line(self, at: int, known: list[str]) -> tuple[str, str]:
        """A set of nodes, and its line."""
        some = ",".join(self.rng.sample(known, self.rng.randint(1, len(known))))
        says = self.rng.choice((f"Nodes={some}", "Feature=fast", f"Feature=big Nodes={some}"))
        return f"set{at}", self.line("NodeSet", f"set{at}", says.split())

    def partition_keys(self, nodes: str = "") -> list[str]:
        """What is said of partitions."""
        maybe = self.maybe
        return [
            nodes,
            maybe("MaxTime=90", "MaxTime=1:30", "MaxTime=2-00:00:00", "MaxTime=UNLIMITED"),
            maybe("DefaultTime=10", "DefaultTime=0:45", "DefaultTime=1:00:00", "DefaultTime=1-2"),
            maybe("PriorityTier=3", "Priority=5", "PriorityTier=0"),
            maybe("Default=YES", "default=no", "Default=yes"),
            maybe("State=UP", "OverSubscribe=NO", "MaxNodes=2"),
        ]

    def partition_line(self, at: int, known: list[str], sets: list[str]) -> str:
        """A partition's line."""
        some = self.rng.sample(known, self.rng.randint(1, len(known)))
        some += [name for name in sets if self.rng.random() < 0.5]
        nodes = self.rng.choice(("Nodes=ALL", f"Nodes={','.join(some)}", "Nodes=all", ""))
        return self.line("PartitionName", f"p{at}", self.partition_keys(nodes))

    def scheduling(self) -> str:
        """A line that says when Slurm looks at its queue."""
        words = ("bf_interval=7", "sched_interval=20", "defer", "bf_window=60", "nonsense=1")
        some = self.rng.sample(words, self.rng.randint(1, 3))
        return f"SchedulerParameters={','.join(some)}"

    def line(self, kind: str, name: str, keys: list[str]) -> str:
        """The line in one of the ways in which it may be written."""
        rng = self.rng
        parts = [f"{kind}={name}", *filter(None, keys)]
        written = []
        for part in parts:
            key, _, value = part.partition("=")
            value = f'"{value}"' if rng.random() < 0.1 else value
            written.append(f"{key}{rng.choice(('=', '=', '=', ' = ', '= '))}{value}")
        text = rng.choice((" ", " ", "  ", "\t")).join(written)
        if rng.random() < 0.15 and len(written) > 1:
            text = text.replace(written[-1], f"\\\n   {written[-1]}")
        return text + rng.choice(("", "", "", "  # as it is", "#"))


def of_scontrol(text: str) -> list[dict[str, str]]:
    """The `Key=value` of each line."""
    return [
        dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        for line in text.splitlines()
    ]


def minutes(text: str) -> float | None:
    """A time limit as scontrol shows it, in seconds."""
    return None if text in ("NONE", "UNLIMITED") else slurm_site.seconds(text)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_drawn_slurm_conf_is_read_as_slurmctld_reads_it(cluster: Cluster, part: int) -> None:
    draws = {f"case-{at:04}": Draw(at) for at in range(part, FILES, PARTS)}
    cluster.run("ctl", f"rm -rf {FOLDER} && mkdir -p {FOLDER}")
    cases = {
        name: {"slurm.conf": draw.text, "more_drawn.conf": draw.more}
        for name, draw in draws.items()
    }
    cluster.put("ctl", f"{FOLDER}/cases.json", json.dumps(cases))
    cluster.put("ctl", f"{FOLDER}/asks.py", ASKS)
    argv = ["python3", f"{FOLDER}/asks.py", FOLDER, str(MOST_NODES)]
    told = [json.loads(line) for line in cluster.run("ctl", shlex.join(argv)).out.splitlines()]
    assert len(told) == len(draws)
    taken = 0
    for case in told:
        draw = draws[case["case"]]
        files = {Path("/c/slurm.conf"): draw.text, Path("/c/more_drawn.conf"): draw.more}
        site = slurm_site.read(Path("/c/slurm.conf"), files.__getitem__)
        why = f"{case['case']}:\n{draw.text}\n{draw.more}\n{case['log']}"
        nodes = of_scontrol(case["nodes"])
        if not nodes or "NodeName" not in nodes[0]:
            assert "fatal" in case["log"], why
            continue
        taken += 1
        found = {one["NodeName"]: (int(one["CPUTot"]), int(one["RealMemory"])) for one in nodes}
        assert {name: tuple(room) for name, room in site.rooms.items()} == found, why
        parts = of_scontrol(case["partitions"])
        for one in parts:
            ours = site.partitions[one["PartitionName"]]
            shown = "" if one["Nodes"] == "(null)" else one["Nodes"]
            members = set(site.rooms) if ours.nodes is None else ours.nodes
            assert members == set(hostlist.expand(shown) if shown else ()), (shown, why)
            limits = minutes(one["MaxTime"]), minutes(one["DefaultTime"])
            assert (ours.most_s, ours.default_s) == limits, why
            assert ours.tier == int(one["PriorityTier"]), why
            assert ours.is_default == (one["Default"] == "YES"), why
        assert site.partitions.keys() == {one["PartitionName"] for one in parts}, why
    assert taken > 0.7 * len(told), [case["log"] for case in told if not case["nodes"]]
