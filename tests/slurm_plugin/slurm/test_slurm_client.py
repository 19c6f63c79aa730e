"""The Slurm client on replies recorded from each release (record-replies.sh)."""

import json
import tracemalloc
from pathlib import Path

import pytest
from fake_slurm import RELEASES, REPLIES, FakeRunner, RecordedRunner, tool

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.runner import ProcessRunner

GPUS = {
    "amd1": {"mi250x": 8},
    "bridged1": {"a100": 8},
    "dgx1": {"v100": 8},
    "dgx2": {"v100": 8},
    "minsky1": {"p100": 4},
}


@pytest.fixture(params=RELEASES)
def client(request: pytest.FixtureRequest) -> SlurmClient:
    return SlurmClient(RecordedRunner(REPLIES / request.param))


def test_every_release_we_support_is_recorded():
    assert {release[:5] for release in RELEASES} >= {"22.05", "24.11", "26.05"}


@pytest.mark.parametrize("release", RELEASES)
def test_the_version_is_the_controllers(release):
    assert SlurmClient(RecordedRunner(REPLIES / release)).version() == release


def test_nodes_have_their_gpus_by_type_and_what_is_used(client):
    nodes = {node.name: node for node in client.nodes()}
    assert {name: node.gpus for name, node in nodes.items()} == GPUS
    assert {name: len(node.used) for name, node in nodes.items()} == {
        "amd1": 0, "bridged1": 8, "dgx1": 5, "dgx2": 3, "minsky1": 1,
    }  # fmt: skip
    assert nodes["dgx1"].cpus == 16
    assert nodes["dgx1"].memory_mb == 4000
    assert nodes["dgx1"].weight == 1
    assert {"gpu", "dgx"} <= set(nodes["dgx1"].partitions)


def test_a_drained_node_says_so(client):
    (node,) = (node for node in client.nodes() if node.name == "amd1")
    assert "DRAIN" in node.state


def test_a_job_that_is_over_says_when_it_ran_and_no_other_does(client):
    jobs = {job.name: job for job in client.jobs()}
    done = jobs["done"]
    assert done.state == "COMPLETED"
    assert 0 < done.start <= done.end < done.start + 60
    others = [job for job in jobs.values() if job.state in ("PENDING", "RUNNING")]
    assert {(job.start, job.end) for job in others} == {(0, 0)}


def test_the_configuration_is_keys_and_text(client):
    values = client.config()
    assert values["SelectType"] == "select/cons_tres"
    assert values["SLURM_CONF"] == "/etc/slurm/slurm.conf"
    assert values["SlurmUser"].startswith("slurm(")
    assert values["PluginDir"].startswith("/usr/lib")


def test_partitions_have_their_nodes(client):
    partitions = {partition.name: partition for partition in client.partitions()}
    assert partitions["dgx"].nodes == ("dgx1", "dgx2")
    assert partitions["gpu"].is_default
    assert set(partitions["gpu"].nodes) == set(GPUS)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("slurm: not json", "is not JSON"),
        ("[]", "no list 'nodes'"),
        ('{"nodes": 5}', "no list 'nodes'"),
        ('{"nodes": [{}]}', "cannot be read"),
        ('{"nodes": ["n1"]}', "cannot be read"),
        (json.dumps({"nodes": [{"name": "n1", "gres": "gpu:x:y"}]}), "is no GRES"),
    ],
)
def test_a_reply_that_is_not_what_slurm_says_is_an_error(reply, says):
    runner = FakeRunner({"scontrol --version": "slurm 24.11.5", "scontrol show nodes": reply})
    with pytest.raises(SlurmError, match=says):
        SlurmClient(runner).nodes()


def test_a_release_too_old_is_refused():
    with pytest.raises(SlurmError, match=r"older than 22\.05"):
        SlurmClient(FakeRunner({"scontrol --version": "slurm 21.08.8"})).nodes()


def test_a_command_that_fails_says_what_slurm_said(tmp_path):
    tool(tmp_path, "scontrol", "echo reason >&2; echo consequence >&2; exit 3")
    with pytest.raises(SlurmError, match="scontrol ping: exit 3: reason; consequence"):
        ProcessRunner(tmp_path)(["scontrol", "ping"])


def test_what_a_failed_command_is_told_of_fits_into_the_journal(tmp_path):
    """Our squeue asks for fields with a control character at their end."""
    tool(tmp_path, "squeue", "printf 'no\\033[31m way' >&2; exit 1")
    with pytest.raises(SlurmError, match=r"^squeue JobId: 5d: exit 1: no \[31m way$"):
        ProcessRunner(tmp_path)(["squeue", "JobId:\x1f5d"])


def test_a_command_that_hangs_is_given_up(tmp_path):
    tool(tmp_path, "scontrol", "exec sleep 60")
    with pytest.raises(SlurmError, match="is slurmctld up"):
        ProcessRunner(tmp_path, timeout_s=0.2)(["scontrol", "ping"])


@pytest.mark.parametrize("where", ["", ">&2"])
def test_a_command_that_prints_without_end_is_ended_and_said_in_one_line(tmp_path, where):
    """The tools of a node are among them (`topology collect`)."""
    tool(tmp_path, "srun", f"echo $$ > {tmp_path}/pid\nexec yes {'x' * 1000} {where}")
    tracemalloc.start()
    said = "^srun /bin/sh: ended, for it printed more than 2 MiB; run it by hand to see what$"
    with pytest.raises(SlurmError, match=said):
        ProcessRunner(tmp_path, timeout_s=5, max_bytes=2 << 20)(["srun", "/bin/sh"])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 << 20
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_a_command_gets_its_input_and_its_output_is_whole(tmp_path):
    tool(tmp_path, "sbatch", "cat; echo done >&2")
    text = "".join(f"line {i} é\n" for i in range(50_000))
    assert ProcessRunner(tmp_path)(["sbatch"], text) == text


def test_a_persons_settings_do_not_hide_jobs(tmp_path, monkeypatch):
    tool(tmp_path, "squeue", "env")
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    told = ProcessRunner(tmp_path)(["squeue"]).splitlines()
    assert "SLURM_BITSTR_LEN=0" in told
    assert not [line for line in told if line.startswith("SQUEUE_")]
    told = ProcessRunner(tmp_path, shows_all=True)(["squeue"]).splitlines()
    assert [line for line in told if line.startswith("SQUEUE_")] == ["SQUEUE_ALL=1"]


@pytest.mark.parametrize(("own", "told"), [(None, ":/etc/localtime"), ("Asia/Tokyo", "Asia/Tokyo")])
def test_commands_know_their_time_zone_without_looking_it_up_each_time(monkeypatch, own, told):
    """squeue of ten thousand jobs takes three times the processor time otherwise."""
    monkeypatch.delenv("TZ", raising=False)
    if own:
        monkeypatch.setenv("TZ", own)
    assert f"TZ={told}" in ProcessRunner()(["env"]).splitlines()


def test_a_missing_command_says_what_to_install(tmp_path):
    with pytest.raises(SlurmError, match=r"install Slurm's client tools or set slurm\.bin_dir"):
        ProcessRunner(tmp_path)(["scontrol", "ping"])


@pytest.mark.parametrize(
    ("said", "factors"),
    [
        ("", {}),
        ("7 -4000\n  8   0\n7 -4000\n", {7: -4000, 8: 0}),
        ("7 2147483645\n", {7: 2147483645}),
    ],
)
def test_site_factors_are_sprios(said, factors):
    client = SlurmClient(lambda argv, **_: said)
    assert client.site_factors() == factors


@pytest.mark.parametrize("said", ["You are not running a supported priority plugin", "7", "7 x"])
def test_anything_else_of_sprio_is_an_error(said):
    with pytest.raises(SlurmError, match=r"sprio .*expected two numbers"):
        SlurmClient(lambda argv, **_: said).site_factors()
