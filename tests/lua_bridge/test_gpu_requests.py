"""Which jobs are asked about, and with which line."""

from __future__ import annotations

import pytest

NO_VAL = 4294967294


def line_of(lua, engine, **fields):
    """The request line for a job, without its id."""
    before = len(engine.requests)
    result = lua.submit(**fields)
    assert result.rc == 0
    assert len(engine.requests) == before + 1
    verb, _, rest = engine.requests[-1].split(" ", 2)
    assert verb == "submit"
    return rest


SAME_JOBS = {
    "two GPUs on one node": (
        "gpus=2 nodes=1 per_node=2 tasks=1",
        [
            {"tres_per_node": "gres/gpu:2"},
            {"tres_per_node": "gres:gpu:2"},
            {"tres_per_job": "gres/gpu:2"},
            {"tres_per_task": "gres/gpu:2"},
            {"tres_per_task": "gres/gpu:2", "num_tasks": 1},
            {"tres_per_node": "gres/gpu:2", "min_nodes": 1, "max_nodes": NO_VAL},
            {"tres_per_socket": "gres/gpu:1", "sockets_per_node": 2},
        ],
    ),
    "two GPUs on no more than one node": (
        "gpus=2 nodes=1 max_nodes=1 per_node=2 tasks=1",
        [
            {"tres_per_job": "gres/gpu:2", "min_nodes": 1, "max_nodes": 1},
            {"tres_per_task": "cpu:4,gres/gpu:2", "min_nodes": 1, "max_nodes": 1},
        ],
    ),
    "eight typed GPUs, and four on each node": (
        "gpus=8 type=v100 nodes=2 per_node=4 tasks=2",
        [{"tres_per_job": "gres/gpu:v100:8", "tres_per_node": "gres/gpu:v100:4"}],
    ),
    "four typed GPUs on each of two nodes": (
        "gpus=8 type=v100 nodes=2 max_nodes=2 per_node=4 tasks=2",
        [
            {"tres_per_node": "gres/gpu:v100:4", "min_nodes": 2, "max_nodes": 2},
            {"tres_per_job": "gres/gpu:v100:8", "min_nodes": 2, "max_nodes": 2},
            {"tres_per_task": "gres/gpu:v100:4", "min_nodes": 2, "max_nodes": 2},
            {"tres_per_task": "gres/gpu:v100:4", "min_nodes": 2, "max_nodes": 2, "num_tasks": 2},
        ],
    ),
    "four tasks, one GPU each, two nodes": (
        "gpus=4 nodes=2 per_node=2 tasks=4",
        [
            {"tres_per_node": "gres/gpu:2", "min_nodes": 2, "num_tasks": 4},
            {"tres_per_job": "gres/gpu:4", "min_nodes": 2, "num_tasks": 4},
            {"tres_per_task": "gres/gpu:1", "min_nodes": 2, "num_tasks": 4},
            {"tres_per_task": "gres/gpu:1", "min_nodes": 2, "ntasks_per_node": 2},
            {"tres_per_node": "gres/gpu:2", "min_nodes": 2, "ntasks_per_gpu": 1},
        ],
    ),
}


@pytest.mark.parametrize("job", SAME_JOBS)
def test_every_way_to_write_one_job_gives_the_same_line(lua, engine, job):
    expected, forms = SAME_JOBS[job]
    for form in forms:
        assert line_of(lua, engine, **form) == f"uid=1000 partition=main {expected}", form


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {"tres_per_job": "gres/gpu:3", "min_nodes": 2, "max_nodes": 4},
            "gpus=3 nodes=2 max_nodes=4 per_node=0 tasks=2",
            id="a range of nodes leaves the share of a node open",
        ),
        pytest.param(
            {"tres_per_node": "gres/gpu:2", "min_nodes": 1, "max_nodes": 4},
            "gpus=0 nodes=1 max_nodes=4 per_node=2 tasks=1",
            id="a range of nodes leaves the total open",
        ),
        pytest.param(
            {"tres_per_job": "gres/gpu:3", "min_nodes": 2, "max_nodes": 2},
            "gpus=3 nodes=2 max_nodes=2 per_node=0 tasks=2",
            id="three GPUs do not split evenly over two nodes",
        ),
        pytest.param(
            {"tres_per_socket": "gres/gpu:1"},
            "gpus=0 nodes=1 per_node=0 tasks=1",
            id="per socket, the sockets unknown",
        ),
        pytest.param(
            {"ntasks_per_gpu": 2, "num_tasks": 8},
            "gpus=4 nodes=1 per_node=4 tasks=8",
            id="GPUs derived from --ntasks-per-gpu",
        ),
        pytest.param(
            {"tres_per_job": "gres/gpu:8", "tres_per_task": "gres/gpu:2"},
            "gpus=8 nodes=1 per_node=8 tasks=4",
            id="tasks derived from GPUs per task",
        ),
    ],
)
def test_what_cannot_be_known_at_submit_is_zero(lua, engine, fields, expected):
    assert line_of(lua, engine, **fields) == f"uid=1000 partition=main {expected}"


def test_identity_and_hint_travel_encoded(lua, engine):
    line = line_of(
        lua,
        engine,
        tres_per_node="gres/gpu:1",
        user_id=1234,
        account='my "account" 100%',
        partition="gpu,long",
        name="differs from job to job",
        comment="gpu-topo:  pattern=ring,policy=mapa 100% ",
    )
    assert line == (
        "uid=1234 account=my%20%22account%22%20100%25 partition=gpu,long gpus=1 nodes=1"
        " per_node=1 tasks=1 hint=pattern=ring,policy=mapa%20100%25"
    ).replace("%22", '"')


def test_names_are_bounded_before_they_are_encoded(lua, engine):
    long_list = ",".join(f"partition{i:03}" for i in range(40))
    line = line_of(lua, engine, tres_per_node="gpu:1", account=" " * 5000, partition=long_list)
    words = dict(word.split("=", 1) for word in line.split())
    assert words["account"] == "%20" * 256
    assert len(words["partition"]) <= 256
    assert set(words["partition"].split(",")) <= set(long_list.split(","))


def test_the_default_partition_is_named_when_the_user_names_none(lua, engine):
    parts = {"cpu": 0, "gpu": 1}
    assert " partition=gpu " in line_of(lua, engine, tres_per_node="gpu:1", parts=parts)
    parts = {"cpu": 1, "gpu": 0}
    assert " partition=cpu " in line_of(lua, engine, tres_per_node="gpu:1", parts=parts)
    assert "partition=" not in line_of(lua, engine, tres_per_node="gpu:1", parts={})


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"tres_per_task": "cpu:4"}, id="cpus per task"),
        pytest.param({"tres_per_node": "gres/nvme:1"}, id="another gres"),
        pytest.param({"tres_per_node": "gres/gpu:0"}, id="zero GPUs"),
        pytest.param({"tres_per_node": "gres/gpu:1g.5gb:1", "comment": "gpu-topo: x"}, id="MIG"),
        pytest.param({"tres_per_node": "gres/shard:1", "comment": "gpu-topo: x"}, id="shards"),
        pytest.param({"tres_per_job": "gres/mps:50"}, id="MPS"),
        pytest.param({"tres_per_job": "mps:50", "comment": "gpu-topo: x"}, id="MPS alone"),
    ],
)
def test_jobs_that_are_not_ours_cause_no_traffic_and_no_change(lua, engine, fields):
    result = lua.submit(**fields)
    assert (result.rc, result.user, result.log, result.writes) == (0, [], [], [])
    assert engine.connections == 0


def test_a_job_without_gpus_costs_eight_field_reads(lua):
    result = lua.submit(num_tasks=4, min_nodes=2)
    assert len(result.reads) <= 8


def test_fields_that_are_dear_to_read_are_never_read(lua, engine):
    engine.answers("ok id={id} set.admin_comment=%5Bgpu-topo:%20ring%5D\n")
    result = lua.submit(tres_per_node="gpu:2", comment="gpu-topo: pattern=ring", script="#!")
    assert not {"user_name", "script", "environment"} & set(result.reads)
    assert len(result.reads) == len(set(result.reads)) + 1  # admin_comment: ours are merged into it
