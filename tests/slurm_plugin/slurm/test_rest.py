"""The client over slurmrestd, on answers recorded from each release (record-replies.sh)."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_slurm import REPLIES, FakeRunner, RecordedRunner
from fake_slurmrestd import FakeSlurmrestd, recorded

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.clients import rest
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.clients.rest import Rest
from slurm_plugin.slurm.interface import NOW, JobUpdate

RELEASES = sorted(path.parent.name for path in REPLIES.glob("*/rest_jobs.http"))


@dataclass
class Service:
    """A client, the server it asks and the commands it may run besides."""

    release: str
    client: Rest
    server: FakeSlurmrestd
    run: FakeRunner

    @property
    def is_old(self) -> bool:
        return self.release.startswith("22.05")


def table(argv: list[str], _stdin: str) -> str:
    """squeue's columns: job 10 alone is exclusive, and has 4 CPUs per task."""
    (_, _, end), (name, _, last) = (word.partition(":0") for word in argv[-1].split(","))
    told = {"Exclusive": "NODE", "cpus-per-task": "4"}[name]
    return f"10{end}{told}{last}\n"


def serving(release: str, folder: Path) -> Iterator[Service]:
    nodes = (REPLIES / release / "scontrol_show_nodes.out").read_text()
    told = {"scontrol --version": f"slurm {release}", "scontrol show nodes": nodes}
    run = FakeRunner({**told, "scontrol update": "", "squeue -h": table})
    path = folder / "rest.sock"
    with recorded(REPLIES / release, path) as server:
        yield Service(release, Rest(path, run, timeout_s=5), server, run)


@pytest.fixture(params=RELEASES)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    yield from serving(request.param, tmp_path)


@pytest.fixture
def late(tmp_path: Path) -> Iterator[Service]:
    """24.11."""
    yield from serving("24.11.5", tmp_path)


def test_every_release_we_support_is_recorded():
    assert [release[:5] for release in RELEASES] == ["22.05", "24.11", "26.05"]


def test_the_release_is_the_one_slurmrestd_is_of(service):
    assert service.client.version() == service.release


def test_nodes_are_those_that_the_commands_tell_of(service):
    by_command = SlurmClient(RecordedRunner(REPLIES / service.release)).nodes()
    nodes = {node.name: node for node in service.client.nodes()}
    assert list(nodes) == [node.name for node in by_command]
    for node in by_command:
        assert nodes[node.name].gpus == node.gpus
        assert nodes[node.name].used_by_type == node.used_by_type
        assert nodes[node.name].partitions == node.partitions


def test_the_queue_has_what_waits_and_what_runs(service):
    queue = {job.name: job for job in service.client.queue()}
    states = sorted(job.state for job in queue.values())
    assert states == ["PENDING"] * 4 + ["RUNNING"] * 5
    (array,) = (job for job in queue.values() if job.tasks > 1)
    assert (array.task, array.tasks, array.throttle) == ("1-3", 3, 1)
    held = sum(len(gpus) for job in queue.values() for gpus in job.gpus.values())
    assert held == sum(len(node.used) for node in service.client.nodes())


def test_what_the_api_does_not_say_comes_from_squeue(service):
    (later,) = (job for job in service.client.queue() if job.job_id == 10)
    if service.is_old:
        assert later.cpus_per_task == 4
    assert later.exclusive == service.release.startswith("26.05")


def test_a_change_is_posted_in_the_apis_words_and_on_22_05_made_by_scontrol(service):
    change = JobUpdate(
        begin_time=1795229124,
        tres_per_node="gpu:s1:1,gres:gpu:s3:1",
        tres_per_job="",
        req_nodes="n[1-2]",
        exc_nodes="",
        num_nodes=(2, 2),
        memory_per_node_mb=100,
    )
    service.client.update(["10"], change)
    if service.is_old:
        assert service.server.posted == []
        (argv,) = (argv for argv, _ in service.run.calls if argv[:2] == ["scontrol", "update"])
        assert "TresPerNode=gres:gpu:s1:1,gres:gpu:s3:1" in argv
        return
    ((path, body),) = service.server.posted
    assert path.endswith("/job/10")
    assert body == {
        "tres_per_node": "gres/gpu:s1:1,gres/gpu:s3:1",
        "tres_per_job": "",
        "required_nodes": ["n1", "n2"],
        "excluded_nodes": [""],
        "minimum_nodes": 2,
        "maximum_nodes": 2,
        "memory_per_node": {"set": True, "number": 100},
        "begin_time": {"set": True, "number": 1795229124},
    }


def test_an_arrays_tasks_are_changed_by_scontrol_and_jobs_beside_them_by_the_api(late):
    late.client.update(["10", "4_[1-3]", "5_1"], JobUpdate(begin_time=NOW))
    assert [path.rpartition("/")[2] for path, _ in late.server.posted] == ["10"]
    argv = late.run.calls[-1][0]
    assert argv == ["scontrol", "update", "JobId=4_[1-3],5_1", "StartTime=now"]


def test_a_refused_change_is_told_and_the_others_are_still_made(late):
    refused = (REPLIES / late.release / "rest_refused.http").read_text()
    changed = late.server.answers.pop("POST /slurm/v[0-9.]+/job/[0-9]+")
    late.server.answers |= {"POST .*/job/8": refused, "POST .*/job/9": changed}
    with pytest.raises(SlurmError, match=r"update of job 8: .*Invalid Trackable RESource"):
        late.client.update(["8", "9"], JobUpdate(tres_per_node="nosuch:1"))
    assert len(late.server.posted) == 2


def test_without_slurmctld_the_queue_is_an_error_and_not_empty(service):
    down = (REPLIES / service.release / "rest_down.http").read_text()
    service.server.answers = {"GET /slurm/.*": down} | {
        "GET /openapi/v3": service.server.answers["GET /openapi/v3"]
    }
    with pytest.raises(SlurmError, match="is slurmctld up"):
        service.client.queue()


def test_a_slurmrestd_without_slurmctlds_api_is_told_apart(late):
    late.server.answers["GET /openapi/v3"] = '200\n{"paths": {"/slurmdb/v0.0.42/jobs/": {}}}'
    with pytest.raises(SlurmError, match="offers no API of slurmctld"):
        late.client.nodes()


@pytest.mark.parametrize("body", ["", "<html>502</html>", '{"meta": 1}', "[" * 100_000])
@pytest.mark.parametrize("asked", ["version", "nodes", "queue"])
def test_an_answer_that_is_not_the_json_expected_is_an_error_of_slurms(late, asked, body):
    late.server.answers = {"GET /slurm/.*": f"200\n{body}", **late.server.answers}
    with pytest.raises(SlurmError, match="slurmrestd"):
        getattr(late.client, asked)()


def test_an_answer_without_end_is_refused(late, monkeypatch):
    monkeypatch.setattr(rest, "MAX_BYTES", 1000)
    with pytest.raises(SlurmError, match=r"slurmrestd: /.*: more than 0 MiB"):
        late.client.nodes()


@pytest.mark.parametrize(
    ("closes", "says"), [(False, r"no answer within 1 s"), (True, "only its own user and root")]
)
def test_a_server_that_says_nothing_is_given_up(tmp_path, closes, says):
    path = tmp_path / "rest.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        closer = threading.Thread(target=lambda: closes and silent.accept()[0].close())
        closer.start()
        with pytest.raises(SlurmError, match=says):
            Rest(path, FakeRunner(), timeout_s=1).nodes()
        closer.join()
