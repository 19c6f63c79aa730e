"""`gputopo audit`: a site as it is, by what Slurm tells anybody, beside the default policy."""

import json
import time
from dataclasses import replace

import pytest
from commands_in_tests import refused, run

from policies.registry import DEFAULT
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.snapshot import Detail, Settings, Snapshot
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode, SlurmPartition

NOW = 1_000_000
HEAD = (
    "JobID|User|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|AllocTRES|Partition"
)


def log(jobs=20, users=1, since_s=3600, tres="cpu=1,gres/gpu=2"):
    """What sacct prints of jobs that were submitted a minute apart, and ran for another one."""
    first = int(time.time()) - since_s
    rows = [
        f"{number}|u{number % users}|COMPLETED|{at}|{at}|{at + 5}|{at + 65}|60|5|1|{tres}|gpu"
        f"|[gpu-topo: pattern=ring | d1:0,1 by horizon]"
        for number, at in ((number, first + 60 * number) for number in range(1, jobs + 1))
    ]
    return "\n".join([f"{HEAD}|AdminComment", *rows]) + "\n"


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
        self.nodes = [node("d1", {"h100": 8}, 5), node("d2", {"h100": 8}, 5)]
        self.jobs = [job(1, 4), job(2, 0, tres_per_node="")]
        self.sacct = log()
        self.settings = {}
        self.asked = []

    def snapshot(self, client):
        part = SlurmPartition("gpu", tuple(one.name for one in self.nodes), True)
        return Snapshot(0.0, NOW, tuple(self.jobs), Detail.SETTINGS, tuple(self.nodes),
                        Settings((part,), {"PrivateData": "none", **self.settings}))  # fmt: skip

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
    said = run("audit", "--days", "3", "--machine", "h100=dgx-h100")
    assert "Now: of 16 GPUs 6 are free, and 6 of those are stranded" in said
    assert "0 jobs with GPUs run, and 1 wait." in said
    assert "What 1 of them wait for:" in said
    assert "20 jobs on 2 nodes, 16 GPUs (sacct)" in said
    assert "Job 1 waits for 4 free GPUs on one node: 6 are free" in said
    assert "2 nodes with 8 GPUs of type h100: dgx-h100, as you say." in said
    columns = next(line.split() for line in said.splitlines() if "stock" in line)
    assert columns == ["stock", DEFAULT]
    assert [argv[-4:] for argv in site.asked if argv[0] == "sacct"] == [
        ["--starttime", "now-3days", "--endtime", "now"]
    ]


def test_nodes_of_one_type_may_be_two_machines(site):
    site.nodes = [node("a1", {"a100": 8}), node("a2", {"a100": 4})]
    machines = "--machine", "a100=dgx-a100", "--machine", "a100=hgx-a100-4"
    said = run("audit", *machines)
    assert "1 node with 8 GPUs of type a100: dgx-a100, as you say." in said
    assert "1 node with 4 GPUs of type a100: hgx-a100-4, as you say." in said
    assert "or hgx-a100-4" not in run("audit", *machines[:2], code=2)


def test_a_machine_whose_links_differ_is_not_guessed(site):
    """A wrong guess would show what links bring that nobody has."""
    site.nodes = [node("d1", {"v100": 8})]
    assert "as in --machine v100=dgx1v; a file may" in run("audit", code=2)
    assert "dgx1v, as you say" in run("audit", "--machine", "v100=dgx1v")


def test_declared_slices_are_left_out(site, tmp_path):
    site.nodes = [node("d1", {"a100_1g.5gb": 7}), node("d2", {"h100": 8})]
    (tmp_path / "gputopo.yaml").write_text(
        "nodes:\n  - {nodes: d1, topology: hgx-a100-4, slices: [1g.5gb*7]}\n"
    )
    said = run("audit")
    assert "1 nodes are left out: slices are not simulated" in said
    assert "on 1 nodes, 8 GPUs" in said


def test_gpus_without_a_type_go_by_slurms_own_word(site):
    site.nodes = [node("a1", {"": 8})]
    assert "alike (--machine gpu=FILE says otherwise)" in run("audit")
    assert "dgx-a100, as you say" in run("audit", "--machine", "gpu=dgx-a100")


def test_a_type_with_one_machine_is_taken_for_it(site):
    assert "taken for dgx-h100, the only machine of the catalog with these" in run("audit")


def test_a_type_with_several_machines_is_asked_for(site):
    site.nodes = [node("a1", {"a100": 8})]
    said = run("audit", code=2)
    assert "as in --machine a100=a100-pcie-bridged or dgx-a100" in said
    assert "dgx-a100, as you say" in run("audit", "--machine", "A100=dgx-a100")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("h100", "expected TYPE=NAME"),
        ("=dgx-h100", "expected TYPE=NAME"),
        ("h100=dgx9", "neither a file nor a machine of the catalog"),
        ("h100=dgx2", "no node that is not declared has 16 such GPUs; there are 8 x h100"),
        ("a100=dgx-a100", "no node that is not declared has 8 such GPUs"),
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
    assert "1 node with 8 GPUs of type h100: taken for dgx-h100" in said
    assert "on 2 nodes, 16 GPUs" in said


def test_the_page_and_the_json_have_all_of_it(site, tmp_path):
    page = tmp_path / "audit.html"
    run("audit", "--html", str(page))
    found = json.loads(run("audit", "--json"))
    assert found["now"] == {
        "gpus": 16, "free": 6, "stranded": 6, "running": 0, "waiting": 1,
        "causes": {"fragmentation": 1},
    }  # fmt: skip
    assert set(found["policies"]) == {"stock", DEFAULT}
    text = page.read_text()
    assert "Now: of 16 GPUs 6 are free" in text
    assert "What each policy would have done" in text


def test_tasks_that_wait_together_are_counted_one_by_one(site):
    site.jobs = [job(1, 4, name="1_[0-9]", array_id=1, task="0-9", tasks=10)]
    said = run("audit")
    assert "and 10 wait." in said
    assert "What 10 of them wait for:" in said


def test_jobs_that_slurm_hides_are_named(site, monkeypatch):
    monkeypatch.setattr("os.getuid", lambda: 1000)
    site.settings = {"PrivateData": "jobs"}
    assert "Slurm hides other users' jobs from you (PrivateData)" in run("audit")


def test_jobs_of_another_time_and_on_slices_are_left_out(site):
    site.sacct = log(jobs=5) + log(3, since_s=3 * 86_400).partition("\n")[2]
    site.sacct += log(2, tres="cpu=1,gres/gpu:a100_1g.5gb=1,gres/gpu=1").partition("\n")[2]
    said = run("audit", "--days", "2")
    assert "5 jobs on 2 nodes" in said
    assert "3 left out: waited before these days" in said
    assert "2 left out: jobs on slices of GPUs" in said


def test_a_configuration_that_names_no_known_node_is_no_fault(site, tmp_path):
    (tmp_path / "gputopo.yaml").write_text(
        f"state_dir: {tmp_path}\nnodes:\n  - {{nodes: 'd[1-2]', topology: collected}}\n"
    )
    said = run("audit")
    assert "2 nodes are left out until gputopo topology collect" in said
    assert "taken for dgx-h100" in said
    (tmp_path / "gputopo.yaml").write_text("nodes:\n  - {nodes: 'x[1-9]', topology: dgx-h100}\n")
    assert "on 2 nodes, 16 GPUs" in run("audit")
    for damaged in ("nodes: 7\n", "nodes:\n  - {nodes: 'd[1-2]', topology: nowhere.yaml}\n"):
        (tmp_path / "gputopo.yaml").write_text(damaged)
        said = run("audit")
        assert "note: " in said
        assert "on 2 nodes, 16 GPUs" in said


def test_a_folder_that_is_not_there_is_named_before_the_work(site, tmp_path):
    said = refused("audit", "--html", str(tmp_path / "none" / "page.html"))
    assert "none is not there" in said
    assert not site.asked


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
