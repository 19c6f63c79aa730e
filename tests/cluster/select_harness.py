"""What the live tests of the select plugin share: the scripted engine and a few questions."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from live_harness import goes_by_links
from modes import enforcement

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

SOCKET, RULE, LOG = "/run/gputopo/engine.sock", "/tmp/rule.json", "/tmp/questions.log"
TABLES = LOG + ".tables"
PID = "/tmp/fake_engine.pid"
SCRIPT = Path(__file__).with_name("fake_engine.py")
SETTINGS = "/etc/slurm/gputopo-select.conf"
BRIDGE_SETTINGS = "/etc/slurm/gputopo-bridge.conf"
SWITCH = "/etc/slurm/gputopo.disable"
# Slurm takes the lowest indices first; a job with GPUs in this order was placed by us.
OURS = [6, 3, 5, 0, 7, 2, 4, 1]
PREFER: dict[str, Any] = {"do": "prefer", "order": OURS, "note": "by preference"}
#: What 22.05 takes for --gres=gpu:2 of an empty node: it finds the pair by Links.
LINKED_PAIRS = {"dgx1": (0, 3), "dgx2": (0, 3), "bridged1": (0, 2)}
# A wait must outlast whatever Slurm does by itself within a test.
LONG_S = 300
LAZY: dict[str, Any] = {"do": "wait", "s": LONG_S, "note": "for a pair"}
#: Jobs with this hint wait; all others get GPUs in our order.
LAZY_HINT = "--comment=gpu-topo: lazy"
LAZY_BY_HINT: dict[str, Any] = {"hints": {"lazy": LAZY}, "else": PREFER}


def stock_pair(cluster: Cluster, node: str = "dgx1") -> dict[str, tuple[int, ...]]:
    """What stock Slurm takes for --gres=gpu:2 of an empty node."""
    return {node: LINKED_PAIRS[node] if goes_by_links(cluster) else (0, 1)}


def told_stock_pair(cluster: Cluster) -> dict[str, list[int]]:
    """What `gputopo explain` calls Slurm's own for --gres=gpu:2 of an empty dgx1.

    At submit Slurm has not chosen: the slots mode takes it to be the lowest free ones.
    """
    pair = (0, 1) if enforcement() == "slots" else stock_pair(cluster)["dgx1"]
    return {"dgx1": list(pair)}


#: A deadline that a busy test machine can meet, and a breaker that closes before the next test.
SETTLED = {"deadline_ms": 450, "pass_budget_ms": 5000, "breaker_s": 1}


class FakeEngine:
    """The scripted engine in the controller."""

    def __init__(self, cluster: Cluster) -> None:
        """Stops the real engine and starts this one with the rule `pass`."""
        self.cluster = cluster
        self.settings: dict[str, Any] = {}
        cluster.engine("stop")
        self.put("/tmp/fake_engine.py", SCRIPT.read_text())
        self.rule(do="pass")
        self.start()

    def put(self, path: str, text: str) -> None:
        self.cluster.put("ctl", path, text)

    def start(self) -> None:
        """Starts the process and waits until it listens."""
        command = f"python3 /tmp/fake_engine.py {SOCKET} {RULE} {LOG}"
        self.cluster.run(
            "ctl",
            f"rm -f {SOCKET} {LOG} {TABLES}; touch {LOG} {TABLES};"
            f" setsid {command} >/tmp/fake_engine.out 2>&1 </dev/null &"
            f" echo $! >{PID}; until [ -S {SOCKET} ]; do sleep 0.05; done",
        )

    def signal(self, name: str) -> None:
        self.cluster.run("ctl", f"kill -{name} $(cat {PID})", check=False)

    def stop(self) -> None:
        """Ends the process; its socket goes with it."""
        self.signal("CONT")
        self.signal("KILL")
        self.cluster.run("ctl", f"rm -f {SOCKET}")

    def fresh(self, *, closed: bool = False, **settings: Any) -> None:
        """As a test expects to find it: answers `pass`, knows of no question, these settings.

        closed: slurmctld reads them in any case, which closes the breaker.
        """
        if closed or self.settings != {**SETTLED, **settings}:
            self.settle(**settings)
        self.ready()

    def ready(self) -> None:
        """It runs, answers `pass` and knows of no question; no kill switch."""
        self.rule(do="pass")
        alive = f"rm -f {SWITCH}; [ -S {SOCKET} ] && kill -CONT $(cat {PID}) && : >{LOG}"
        if self.cluster.run("ctl", alive, check=False).code:
            self.start()
            self.wait_for_table(0)

    def rule(self, **rule: Any) -> None:
        """What to answer from now on."""
        self.put(RULE, json.dumps(rule))

    def tables(self) -> list[str]:
        """The numbers of the tables of nodes that it was told, in order."""
        return self.cluster.run("ctl", f"cat {TABLES}").out.split()

    def wait_for_table(self, before: int) -> None:
        """Until it was told one more, where there is a plugin that tells of them."""
        if enforcement() == "slots" or not self.cluster.has_select_plugin:
            return

        def seen() -> str:
            last = self.cluster.run("ctl", f"tail -n 3 {LOG} /tmp/fake_engine.out", check=False)
            return f"the engine is told the nodes ({before} times before): {self.tables()} {last}"

        until(lambda: len(self.tables()) > before, seen)

    def settle(self, *, told: bool = True, **settings: Any) -> None:
        """Gives the plugin these settings beside SETTLED, and has it read them.

        told: a plugin that can read them tells the nodes anew.
        """
        before = len(self.tables())
        self.settings = {**SETTLED, **settings}
        self.put(SETTINGS, "".join(f"{key}={value}\n" for key, value in self.settings.items()))
        self.cluster.reconfigure()
        if told:
            self.wait_for_table(before)

    def lines(self, verb: str = "place") -> list[str]:
        """The lines received that start with `verb`."""
        received = self.cluster.run("ctl", f"cat {LOG}").out.splitlines()
        return [line for line in received if line.split(" ", 1)[0] == verb]

    def questions(self, jobid: int) -> list[dict[str, list[str]]]:
        """The questions about a job, each as key -> values."""
        result = []
        for line in self.lines():
            fields: dict[str, list[str]] = {}
            for key, _, value in (token.partition("=") for token in line.split()[1:]):
                fields.setdefault(key, []).append(value)
            if fields["job"] == [str(jobid)]:
                result.append(fields)
        return result

    def nodes_lines(self) -> list[dict[str, str]]:
        """The `nodes` lines received, each as key -> value."""
        return [
            dict(token.split("=", 1) for token in line.split()[1:]) for line in self.lines("nodes")
        ]

    def connections(self) -> int:
        """How many clients it has now."""
        return int(self.cluster.run("ctl", f"ss -xH state established src {SOCKET} | wc -l").out)

    @staticmethod
    def candidates(question: dict[str, list[str]]) -> list[str]:
        """The nodes that the job could have got, by a question about it."""
        return [node.split("/")[0] for node in question["node"]]

    def own_choice(self, jobid: int) -> dict[str, tuple[int, ...]]:
        """The GPUs that Slurm itself was about to take, from the last question about a job."""
        chosen = {}
        for node in self.questions(jobid)[-1]["node"]:
            name, _, _, own = node.split("/")[:4]
            if gpus := tuple(gpu for gpu in range(64) if int(own, 16) >> gpu & 1):
                chosen[name] = gpus
        return chosen

    def asked_nodes(self, jobid: int) -> list[str]:
        """The candidates in the first question about a job."""
        return self.candidates(self.questions(jobid)[0])


@contextmanager
def scripted_engine(cluster: Cluster) -> Iterator[FakeEngine]:
    """The scripted engine in place of the real one; no kill switch."""
    with cluster.at_home(engine=False, deadline_ms=None):
        cluster.run("ctl", f"rm -f {SWITCH}")
        fake = FakeEngine(cluster)
        fake.settle()
        try:
            yield fake
        finally:
            fake.stop()
            cluster.run("ctl", f"rm -f {SETTINGS} {SWITCH}")
            cluster.reconfigure()


@contextmanager
def scripted_for_bridge(cluster: Cluster, settings: str, variant: str = "") -> Iterator[FakeEngine]:
    """The scripted engine in place of the real one, and the bridge with these settings."""
    with cluster.at_home(variant=variant, engine=False, deadline_ms=None):
        cluster.put("ctl", BRIDGE_SETTINGS, settings)
        fake = FakeEngine(cluster)
        cluster.restart_slurmctld()
        try:
            yield fake
        finally:
            fake.stop()


def all_running(cluster: Cluster, jobid: int, count: int) -> bool:
    """Whether the array or heterogeneous job has so many records, all running."""
    return [job.state for job in cluster.jobs(jobid)] == ["RUNNING"] * count


def clear(cluster: Cluster) -> None:
    """Ends every job and waits until no GPU is in use; engine and slurm.conf stay."""
    cluster.run("ctl", "squeue -h -o %A | sort -u | xargs -r scancel")
    cluster.wait_idle()


def assert_no_overlap(cluster: Cluster) -> None:
    """No GPU of a node is held by two running jobs."""
    held: dict[str, list[int]] = {}
    for job in cluster.jobs():
        if job.state == "RUNNING":
            for node, gpus in job.gpus.items():
                held.setdefault(node, []).extend(gpus)
    for node, gpus in held.items():
        assert len(gpus) == len(set(gpus)), f"{node} gave a GPU twice: {sorted(gpus)}"
