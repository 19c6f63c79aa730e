"""The client over PySlurm, with a module that says what PySlurm says of a live Slurm 24.11."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from fake_slurm import FakeRunner

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.clients.pyslurm_client import PySlurm
from slurm_plugin.slurm.interface import NOW, JobUpdate


class PyslurmError(Exception):
    pass


class AnyField(SimpleNamespace):
    """A job or node of PySlurm: None where nothing was said."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Job(AnyField):
    modified: ClassVar[list[tuple[int, dict[str, Any]]]] = []
    refuse = ""

    def __init__(self, job_id: int = 0, **fields: Any) -> None:
        super().__init__(id=job_id, **fields)

    def get_resource_layout_per_node(self) -> dict[str, Any]:
        return self.layout or {}

    def modify(self, changes: SimpleNamespace) -> None:
        if self.refuse:
            raise PyslurmError(self.refuse)
        self.modified.append((self.id, vars(changes)))


def collection(*nouns: Any) -> type:
    return type("Collection", (), {"load": staticmethod(lambda: dict(enumerate(nouns)))})


@pytest.fixture
def pyslurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """The module; a slurm.conf beside it, without which nothing is imported."""
    (tmp_path / "slurm.conf").touch()
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(Job, "modified", [])
    running = Job(
        3,
        state="RUNNING",
        user_name="alice",
        user_id=2001,
        allocated_nodes="n[1-2]",
        time_limit=10,
        start_time=100,
        end_time=700,
        cpus=2,
        num_nodes=2,
        resource_sharing="OK",
        layout={
            "n1": {"gres": {"gpu:v100": {"count": 2, "indexes": "4,7"}}, "cpu_ids": "8"},
            "n2": {"gres": {"gpu:v100": {"count": 2, "indexes": "0-1"}}},
        },
    )
    array = Job(
        4,
        state="PENDING",
        array_id=4,
        array_tasks_waiting="1-3",
        array_tasks_parallel=2,
        state_reason="ReqNodeNotAvail, UnavailableNodes:n9",
        end_time=5,
        resource_sharing="NO",
        time_limit="UNLIMITED",
    )
    node = AnyField(
        name="n1",
        state="MIXED+DRAIN",
        configured_gres={"gpu:v100": 8},
        total_cpus=16,
        allocated_cpus=2,
        partitions=["gpu"],
        active_features=["v100"],
    )
    module = SimpleNamespace(
        PyslurmError=PyslurmError,
        Job=Job,
        JobSubmitDescription=SimpleNamespace,
        Jobs=collection(running, array, Job(2, state="COMPLETED")),
        Nodes=collection(node),
    )
    monkeypatch.setitem(sys.modules, "pyslurm", module)
    return module


def table(argv: list[str], _stdin: str) -> str:
    columns = [column.partition(":0") for column in argv[-1].split(",")]
    told = {"tres-per-job": "gres/gpu:v100:4", "cpus-per-task": "2"}
    return "".join(
        "".join(
            f"{job if name == 'JobId' else told.get(name, 'N/A')}{end}" for name, _, end in columns
        )
        + "\n"
        for job in (3, 4, 4, 4)
    )


@pytest.fixture
def run() -> FakeRunner:
    return FakeRunner(
        {"squeue -h": table, "scontrol update": "", "scontrol --version": "slurm 24.11.5"}
    )


def test_gpus_in_use_are_what_the_jobs_on_the_node_hold(pyslurm, run):
    (node,) = PySlurm(run).nodes()
    assert (node.used, node.used_by_type, node.gpus) == ((4, 7), {"v100": 2}, {"v100": 8})
    assert node.state == ("MIXED", "DRAIN")
    assert (node.alloc_cpus, node.features) == (2, ("v100",))


def test_the_queue_joins_what_pyslurm_and_squeue_know(pyslurm, run):
    running, array = PySlurm(run).queue()
    assert running.gpus == {"n1": (4, 7), "n2": (0, 1)}
    assert (running.end, running.time_limit_s) == (700, 600)
    assert (running.tres_per_job, running.cpus_per_task) == ("gres/gpu:v100:4", 2)
    assert (array.name, array.tasks, array.throttle) == ("4_[1-3]", 3, 2)
    assert (array.reason, array.end, array.time_limit_s) == ("ReqNodeNotAvail", 0, 0)
    assert array.exclusive
    assert not running.exclusive


def test_what_modify_can_do_it_does_and_scontrol_the_rest(pyslurm, run):
    client = PySlurm(run)
    client.update(["3", "8"], JobUpdate(begin_time=1795229124, admin_comment="x"))
    assert Job.modified == [
        (job, {"begin_time": 1795229124, "admin_comment": "x"}) for job in (3, 8)
    ]
    assert run.calls == []
    for jobs, change in (
        (["3"], JobUpdate(req_nodes="")),
        (["3"], JobUpdate(begin_time=NOW)),
        (["3"], JobUpdate(tres_per_job="gpu:1")),
        (["4_1"], JobUpdate(begin_time=1795229124)),
    ):
        client.update(jobs, change)
        assert run.calls[-1][0][:3] == ["scontrol", "update", f"JobId={jobs[0]}"]
    assert len(Job.modified) == 2


def test_errors_of_pyslurm_are_ours_in_its_words(pyslurm, run, monkeypatch):
    client = PySlurm(run)
    monkeypatch.setattr(Job, "refuse", "Invalid job id specified")
    with pytest.raises(SlurmError, match="update of job 9: Invalid job id"):
        client.update(["9"], JobUpdate(admin_comment="x"))

    def down() -> None:
        raise PyslurmError("Unable to contact slurm controller")

    monkeypatch.setattr(pyslurm.Nodes, "load", staticmethod(down))
    with pytest.raises(SlurmError, match="Unable to contact slurm controller; is slurmctld up"):
        client.nodes()


def test_gpus_that_pyslurm_cannot_read_are_an_error_and_not_free(pyslurm, run, monkeypatch):
    def fails(_job: Job) -> None:
        raise ValueError("invalid literal for int() with base 10: '4(IDX'")

    monkeypatch.setattr(Job, "get_resource_layout_per_node", fails)
    with pytest.raises(SlurmError, match=r"give GPUs a Type= .* or set slurm\.client: command"):
        PySlurm(run).nodes()
