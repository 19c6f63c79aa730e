"""`gputopo audit`: a site as it is, by what Slurm tells anybody, beside the default policy."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from commands_in_tests import refused, run

from policies.registry import DEFAULT
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.snapshot import Detail, Settings, Snapshot
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode, SlurmPartition

LOG = Path(__file__).parents[2] / "simulation" / "traces" / "assets" / "sacct-24.11.parsable2"
NOW = 1_000_000


def node(name, gpus, used=0):
    return SlurmNode(name, ("IDLE",), ("gpu",), 1, 16, 4000, gpus, tuple(range(used)),
                     dict.fromkeys(gpus, used))  # fmt: skip


def job(number, gpus, **more):
    usual = QueuedJob(number, str(number), uid=1000, user="ada", partition="gpu", state="PENDING",
                      reason="Resources", priority=10, submit=NOW, eligible=NOW, time_limit_s=60,
                      min_nodes=1, cpus=1, tres_per_node=f"gres/gpu:{gpus}")  # fmt: skip
    return replace(usual, **more)


class PlayedSite:
    """Slurm's words: nodes, jobs, and what sacct prints."""

    def __init__(self):
        self.nodes = [node("d1", {"v100": 8}, 5), node("d2", {"v100": 8}, 5)]
        self.jobs = [job(1, 4), job(2, 0, tres_per_node="")]
        self.sacct = LOG.read_text()
        self.asked = []

    def snapshot(self, client):
        part = SlurmPartition("gpu", tuple(one.name for one in self.nodes), True)
        return Snapshot(0.0, NOW, tuple(self.jobs), Detail.SETTINGS, tuple(self.nodes),
                        Settings((part,)))  # fmt: skip

    def __call__(self, argv, stdin="", timeout_s=None):
        self.asked.append(argv)
        if argv[0] != "sacct":
            return ""
        if not self.sacct:
            raise SlurmError("sacct: exit 1: Slurm accounting storage is disabled")
        return self.sacct


@pytest.fixture
def site(monkeypatch, tmp_path):
    played = PlayedSite()
    monkeypatch.setattr("slurm_plugin.queue.snapshot.read_snapshot", played.snapshot)
    monkeypatch.setattr("slurm_plugin.slurm.runner.ProcessRunner", lambda *args, **more: played)
    monkeypatch.setenv("GPUTOPO_CONFIG", str(tmp_path / "gputopo.yaml"))
    return played


def test_now_and_the_last_days_without_any_configuration(site):
    said = run("audit", "--days", "3", "--machine", "v100=dgx1v")
    assert "Now: of 16 GPUs 6 are free, and 6 of those are stranded" in said
    assert "and 1 wait:" in said
    assert "Job 1 waits for 4 free GPUs on one node: 6 are free" in said
    assert "2 nodes with 8 GPUs of type v100: dgx1v, as you say." in said
    columns = next(line.split() for line in said.splitlines() if "stock" in line)
    assert columns == ["stock", DEFAULT]
    assert [argv[-4:] for argv in site.asked if argv[0] == "sacct"] == [
        ["--starttime", "now-3days", "--endtime", "now"]
    ]


def test_a_type_with_one_machine_is_taken_for_it(site):
    assert "taken for dgx1v, the only machine of the catalog with these" in run("audit")


def test_a_type_with_several_machines_is_asked_for(site):
    site.nodes = [node("a1", {"a100": 8})]
    said = run("audit", code=2)
    assert "can be a100-pcie-bridged or dgx-a100: say which (--machine a100=" in said
    assert "dgx-a100, as you say" in run("audit", "--machine", "A100=dgx-a100")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("v100", "expected TYPE=NAME"),
        ("=dgx1v", "expected TYPE=NAME"),
        ("v100=dgx9", "neither a file nor a machine of the catalog"),
        ("v100=dgx2", "dgx2 has 16 GPUs, the nodes 8"),
    ],
)
def test_a_machine_that_cannot_be(site, given, says):
    assert says in " ".join(run("audit", "--machine", given, code=2).split())


def test_links_that_nobody_knows_are_alike_and_slices_are_left_out(site):
    site.nodes += [node("r1", {"rtx2080": 4}), node("m1", {"a100_1g.5gb": 7})]
    said = run("audit")
    assert "1 node with 4 GPUs of type rtx2080: links not known, so all are taken" in said
    assert "left out, as slices are not simulated" in said
    assert "on 3 nodes, 20 GPUs" in said


def test_nodes_of_the_configuration_are_as_it_says(site, tmp_path):
    (tmp_path / "gputopo.yaml").write_text("nodes:\n  - {nodes: d1, topology: dgx1p}\n")
    said = run("audit")
    assert "1 node with 8 GPUs of type v100: taken for dgx1v" in said
    assert "on 2 nodes, 16 GPUs" in said


def test_the_page_and_the_json_have_all_of_it(site, tmp_path):
    page = tmp_path / "audit.html"
    run("audit", "--html", str(page))
    found = json.loads(run("audit", "--json"))
    assert found["now"] == {
        "gpus": 16, "free": 6, "stranded": 6, "running": 0, "waiting": {"fragmentation": 1},
    }  # fmt: skip
    assert set(found["policies"]) == {"stock", DEFAULT}
    text = page.read_text()
    assert "Now: of 16 GPUs 6 are free" in text
    assert "What each policy would have done" in text


def test_without_accounting_the_moment_is_told_and_the_rest_refused(site):
    site.sacct = ""
    said = run("audit", code=2)
    assert "Now: of 16 GPUs" in said
    assert "storage is disabled; past jobs are known by Slurm's accounting alone" in said


def test_a_site_without_gpus(site):
    site.nodes = [node("login", {})]
    assert "no node with whole GPUs" in refused("audit")


def test_who_sees_only_own_jobs_is_told(site):
    assert "one user's; where Slurm hides others' jobs from you" in run("audit")
