"""Debian's Prometheus scrapes the live cluster: each panel has data, each alert fires by its fault.

The cluster lends GPUs: two are free on each of dgx1 and dgx2, all on the other nodes.
"""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pytest
from lending_harness import FOUR, borrower, donors
from live_harness import CONFIG, PICKY, got_by
from modes import enforcement
from prometheus_process import (
    SITE_PACKAGES,
    Prometheus,
    hasty_rules,
    metrics_in,
    panels,
    prometheus,
)

from slurm_cluster.cluster import Cluster
from slurm_cluster.faults import SMALL_DISK
from slurm_cluster.hosts import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.enforced,
    pytest.mark.long("two minutes with a Prometheus of our own"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Debian's prometheus is not installed"
    ),
]
pytest.importorskip("prometheus_client", reason="the extra `metrics` is not installed")

#: Panels about what the other way of enforcing does.
EMPTY = {
    "select": {
        *("site: Gates", "site: Wait behind gates"),
        *("engine: Release of gates", "engine: What became of gates"),
    },
    "slots": {"engine: Left to Slurm"},
}
PATIENCE = "waiting: {step_s: 1, max_postponements: 2}\n"
PAIR = ("-w", "bridged1", "--gres=gpu:2")
SLOW = """
import time
from policies.first_fit import FirstFit

class Slow(FirstFit):
    name = "slow"

    def place(self, request, cluster):
        if "warm-up" not in cluster.nodes:
            time.sleep(0.1)
        return super().place(request, cluster)
"""
NOT_COLLECTED = "nodes:\n  - {nodes: new1, topology: collected}\n"
KILL_SWITCH = "/etc/slurm/gputopo.disable"


@pytest.mark.both_modes("short")
def test_every_panel_has_data(lending, tmp_path):
    with metrics_in(lending, PATIENCE), prometheus(lending, tmp_path) as asked:
        make_everything_happen(lending)
        lost = {title for title in panels() if title not in EMPTY[enforcement()]}

        def has_data() -> bool:
            for title in list(lost):
                if all(asked.query(text) for text in panels()[title]):
                    lost.remove(title)
            return not lost

        until(has_data, lambda: f"panels without data: {sorted(lost)}", 60)


def make_everything_happen(cluster: Cluster) -> None:
    """Each thing twice, since a counter that first shows with its first event has not grown."""
    for _ in range(2):
        got_by(cluster, *PAIR)
        got_by(cluster, "-w", "minsky1", "--gres=gpu:3")
        got_by(cluster, *PAIR, "--comment=gpu-topo: off")
        got_by(cluster, "-w", "dgx2", "--gres=gpu:2", PICKY)
        full = cluster.started("-w", "minsky1", "--gres=gpu:4", sleep_s=300)
        waits = cluster.sbatch("-w", "minsky1", "--gres=gpu:4", sleep_s=300)
        cluster.wait_reconciled()
        cluster.cancel(full.id)
        cluster.wait_running(waits)
        cluster.cancel(waits)
        cluster.wait_finished(waits)
    borrower(cluster)
    for _ in range(2):
        cluster.sbatch("-w", "minsky1", "--gres=gpu:4", sleep_s=300)


@contextmanager
def engine_stopped(cluster: Cluster) -> Iterator[None]:
    cluster.engine("stop")
    yield
    cluster.engine("start")


@contextmanager
def reconfigured(cluster: Cluster, change: Callable[[str], str]) -> Iterator[None]:
    """The engine after a reload with a gputopo.yaml that was changed."""
    before = cluster.read("ctl", CONFIG)
    assert change(before) != before
    reload = "kill -HUP $(clusterctl engine pid)"
    try:
        cluster.put("ctl", CONFIG, change(before))
        cluster.run("ctl", reload)
        yield
    finally:
        cluster.put("ctl", CONFIG, before)
        cluster.run("ctl", reload)


@contextmanager
def slow_policy(cluster: Cluster) -> Iterator[None]:
    """A site's own policy takes twice the deadline."""
    site = cluster.run("ctl", f"echo {SITE_PACKAGES}").out.strip()
    before = cluster.read("ctl", CONFIG)
    entry = "[gputopo.policies]\nslow = slow:Slow\n"
    try:
        cluster.run("ctl", f"mkdir {site}/slow-1.dist-info")
        cluster.put("ctl", f"{site}/slow.py", SLOW)
        cluster.put("ctl", f"{site}/slow-1.dist-info/METADATA", "Name: slow\nVersion: 1\n")
        cluster.put("ctl", f"{site}/slow-1.dist-info/entry_points.txt", entry)
        cluster.put("ctl", CONFIG, before.replace("policy: mapa", "policy: slow"))
        cluster.engine("restart")
        yield
    finally:
        cluster.put("ctl", CONFIG, before)
        cluster.run("ctl", f"rm -rf {site}/slow*")
        cluster.engine("restart")


@contextmanager
def breaker_open(cluster: Cluster) -> Iterator[None]:
    """The engine hangs; after a question or two without an answer the others are not asked."""
    held = ("-w", "bridged1", "--gres=gpu:1", "--hold")
    ids = [cluster.sbatch(*held, sleep_s=300) for _ in range(6)]
    cluster.engine("pause")
    cluster.run("ctl", ["scontrol", "release", ",".join(map(str, ids))])
    for jobid in ids:
        cluster.wait_running(jobid, timeout_s=60)
    cluster.engine("resume")
    yield
    cluster.cancel(*ids)


@contextmanager
def slurmctld_killed(cluster: Cluster) -> Iterator[None]:
    cluster.saved()
    cluster.slurmctld("kill")
    yield
    cluster.slurmctld("start")


@contextmanager
def engine_that_knows_no_controller(cluster: Cluster) -> Iterator[None]:
    with slurmctld_killed(cluster):
        cluster.engine("restart")
        yield


@contextmanager
def log_on_a_full_disk(cluster: Cluster) -> Iterator[None]:
    small = f"decision_log: {{path: {SMALL_DISK}/decisions.jsonl}}"

    def moved(text: str) -> str:
        return re.sub(r"^decision_log:.*", small, text, flags=re.M)

    with reconfigured(cluster, moved), cluster.full_disk():
        for _ in range(4):
            got_by(cluster, *PAIR)
        yield
    cluster.run("ctl", f"rm -f {SMALL_DISK}/decisions.jsonl*")


@contextmanager
def donor_that_cannot_be_cancelled(cluster: Cluster) -> Iterator[None]:
    """Its borrower is gone, and scancel is refused."""
    commands = "/tmp/commands"
    cluster.run(
        "ctl",
        f"mkdir {commands}; ln -s /usr/bin/s* {commands}; rm {commands}/scancel;"
        f" ln -s /bin/false {commands}/scancel",
    )
    with reconfigured(cluster, lambda text: text + f"slurm: {{bin_dir: {commands}}}\n"):
        # The former engine's client may still cancel it.
        time.sleep(2)
        leaked = cluster.started(*PAIR, "--comment=gpu-donor of=999999", sleep_s=300)
        yield
        cluster.run("ctl", ["scancel", str(leaked.id)])
    cluster.run("ctl", f"rm -r {commands}")


@contextmanager
def donor_cancelled(cluster: Cluster) -> Iterator[None]:
    job = borrower(cluster)
    cluster.cancel(*(donor.id for donor in donors(cluster)))
    yield
    cluster.cancel(job.id)


@contextmanager
def nobody_can_use_what_is_free(cluster: Cluster) -> Iterator[None]:
    """A job of four waits, and on each of its nodes two are free."""
    waits = cluster.sbatch(*FOUR, sleep_s=300)
    yield
    cluster.cancel(waits)


FAULTS: dict[str, Callable[[Cluster], AbstractContextManager[None]]] = {
    "GputopoGpusStranded": nobody_can_use_what_is_free,
    "GputopoReloadFailed": lambda cluster: reconfigured(cluster, lambda text: text + "wrong: 1\n"),
    "GputopoNodesLeftToSlurm": lambda cluster: reconfigured(
        cluster, lambda text: text.replace("nodes:\n", NOT_COLLECTED, 1)
    ),
    "GputopoSwitchedOff": lambda cluster: cluster.temporarily(
        f"touch {KILL_SWITCH}", f"rm {KILL_SWITCH}"
    ),
    "GputopoAnswersLate": slow_policy,
    "GputopoNotAsked": breaker_open,
    "GputopoDecisionsNotLogged": log_on_a_full_disk,
    "GputopoDonorsLeft": donor_that_cannot_be_cancelled,
    "GputopoLoansLost": donor_cancelled,
    "GputopoSlurmUnreachable": slurmctld_killed,
    "GputopoNobodyInCharge": engine_that_knows_no_controller,
    "GputopoEngineDown": engine_stopped,
}


def test_every_alert_fires_when_its_fault_is_made_and_ends_with_it(lending, tmp_path):
    assert FAULTS.keys() == {rule["alert"] for rule in hasty_rules()["groups"][0]["rules"]}
    with metrics_in(lending, PATIENCE), prometheus(lending, tmp_path) as asked:
        for alert, fault in FAULTS.items():
            until(lambda: not asked.firing(), lambda: f"all end; {asked.firing()} fire", 90)
            with fault(lending):
                fires = partial(is_firing, asked, alert, lending)
                until(fires, f"{alert} fires", 60)


def is_firing(asked: Prometheus, alert: str, cluster: Cluster) -> bool:
    """Does it fire? A job comes and goes meanwhile, as on any site."""
    if alert == "GputopoAnswersLate":
        got_by(cluster, *PAIR)
    return alert in asked.firing()
