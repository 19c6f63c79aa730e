"""Replies are applied completely or not at all."""

from __future__ import annotations

import pytest

GPU_JOB = {"tres_per_node": "gres/gpu:2"}


def test_an_ok_reply_sets_fields_and_the_batch_environment(lua, engine):
    engine.answers(
        "ok id={id} set.req_nodes=n1,n2 set.tres_per_job= set.features=nv%7Cib env.NCCL_ALGO=Ring\n"
    )
    result = lua.submit(
        **GPU_JOB, tres_per_job="gres/gpu:2", script="#!/bin/sh", env={"PATH": "/bin"}
    )
    assert result.rc == 0
    assert result.job["req_nodes"] == "n1,n2"
    assert result.job["features"] == "nv|ib"
    assert "tres_per_job" not in result.job
    assert result.env == {"PATH": "/bin", "NCCL_ALGO": "Ring"}


def test_the_environment_of_srun_and_salloc_is_not_touched(lua, engine):
    engine.answers("ok id={id} set.req_nodes=n1 env.NCCL_ALGO=Ring\n")
    result = lua.submit(**GPU_JOB)
    assert result.job["req_nodes"] == "n1"
    assert result.env == {}
    assert result.log == []


def test_the_admin_comment_keeps_what_others_wrote(lua, engine):
    """test_texts.py has the cases; a comment that is too long to be read stays as it is."""
    engine.answers("ok id={id} set.admin_comment=[gpu-topo:%20ring]\n")
    assert lua.submit(**GPU_JOB).job["admin_comment"] == "[gpu-topo: ring]"
    for before, after in (("a [b]", "a [b] [gpu-topo: ring]"), ("x" * 40000, "x" * 40000)):
        assert lua.submit(**GPU_JOB, admin_comment=before).job["admin_comment"] == after


MAY_BORROW = (
    "ok id={id} set.admin_comment=[gpu-topo:%20remote=allow]%20[gpu-loan:%20may]"
    " env.GPUTOPO_REMOTE=allow\n"
)


def test_a_batch_job_is_told_that_it_may_borrow(lua, engine):
    engine.answers(MAY_BORROW)
    result = lua.submit(**GPU_JOB, script="#!/bin/sh", env={"PATH": "/bin"})
    assert result.job["admin_comment"] == "[gpu-topo: remote=allow] [gpu-loan: may]"
    assert result.env["GPUTOPO_REMOTE"] == "allow"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "jobs of srun and salloc have none; use sbatch"),
        ({"script": "#!/bin/sh", "het_job_offset": 1}, "the components of a heterogeneous job"),
    ],
    ids=["srun, salloc", "a component"],
)
def test_who_cannot_borrow_is_told_why_if_they_asked(lua, engine, fields, why):
    engine.answers(MAY_BORROW)
    asked = lua.submit(**GPU_JOB, **fields, comment="gpu-topo: remote=allow")
    assert asked.job["admin_comment"] == "[gpu-topo: remote=allow]"
    (line,) = asked.user
    assert line.startswith("gpu-topo: GPUs of other nodes are not lent to this job: ")
    assert why in line
    assert lua.submit(**GPU_JOB, **fields, comment="gpu-topo: pattern=ring").user == []


@pytest.mark.parametrize("asks", ["gres/shard:2", "gres/mps:50", "gres/gpu:1g.5gb:2"])
def test_who_asks_for_parts_of_gpus_is_told_that_they_are_not_lent(lua, engine, asks):
    """The job is left alone in all other ways."""
    for hint in ("remote=allow", "pattern=ring,remote=auto"):
        asked = lua.submit(tres_per_node=asks, comment=f"gpu-topo: {hint}")
        (line,) = asked.user
        assert "are not lent to this job: it asks for parts of GPUs (shards, MPS, MIG)" in line
        assert (asked.rc, asked.writes, engine.connections) == (0, [], 0)
    for hint in ("remote=no", "policy=topo-aware"):
        assert lua.submit(tres_per_node=asks, comment=f"gpu-topo: {hint}").user == []


def test_srun_and_salloc_do_not_borrow(lua, engine):
    engine.answers(MAY_BORROW)
    assert lua.submit(**GPU_JOB).job["admin_comment"] == "[gpu-topo: remote=allow]"
    engine.answers("ok id={id} set.admin_comment=[gpu-loan:%20may]\n")
    assert "admin_comment" not in lua.submit(**GPU_JOB, comment="x").job


def test_a_refusal_is_shown_to_the_user_in_one_line(lua, engine):
    engine.answers("refuse id={id} message=unknown%20key%20'patern';%0Aallowed:%09pattern%25\n")
    result = lua.submit(**GPU_JOB, comment="gpu-topo: patern=ring")
    assert result.rc == -1
    assert result.user == ["unknown key 'patern'; allowed: pattern%"]
    assert result.writes == []


def test_an_endless_refusal_is_cut(lua, engine):
    engine.answers("refuse id={id} message=" + "x" * 5000 + "\n")
    (line,) = lua.submit(**GPU_JOB).user
    assert len(line) == 512


def test_pass_leaves_the_job_alone(lua, engine):
    result = lua.submit(**GPU_JOB, comment="gpu-topo: off")
    assert (result.rc, result.writes, result.log) == (0, [], [])


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param("ok id={id} set.req_nodes=n1 set.priority=1000000", id="a field not allowed"),
        pytest.param("ok id={id} set.req_nodes=n1 set.script=x", id="the script"),
        pytest.param("ok id={id} set.req_nodes=n1 set.begin_time=5", id="a time of the slots mode"),
        pytest.param("ok id={id} set.req_nodes=n1 set.tres_per_socket=x", id="a text of that mode"),
        pytest.param("ok id={id} set.req_nodes=n1 set.min_nodes=1", id="a number of nodes"),
        pytest.param("ok id={id} set.num_tasks=3", id="tasks, which only a new shape has"),
        pytest.param("ok id={id} set.pn_min_cpus=3", id="CPUs, which only a new shape has"),
        pytest.param("ok id={id} set.req_nodes=n1 set.features=a%0Ab", id="a line feed in a value"),
        pytest.param("ok id={id} set.req_nodes=n1 set.features=a%00b", id="a zero byte"),
        pytest.param("ok id={id} set.req_nodes=n1 set.features=%zz", id="a bad escape"),
        pytest.param("ok id={id} set.req_nodes=n1 set.features=%4", id="a cut escape"),
        pytest.param("ok id={id} set.req_nodes=n1 set.req_nodes=n2", id="a field twice"),
        pytest.param("ok id={id} set.req_nodes=n1 what", id="a word without a value"),
        pytest.param("ok id={id} set.req_nodes=n1 what=1", id="an unknown key"),
        pytest.param("ok id={id} set.req_nodes=n1 set.admin_comment=hello", id="no bracket"),
        pytest.param(
            "ok id={id} set.req_nodes=n1 set.admin_comment=[gpu-topo:%20a]%20[x]", id="two brackets"
        ),
        pytest.param("ok id={id} set.req_nodes=n1 env.A-B=1", id="not a variable's name"),
        pytest.param("ok id={id} set.req_nodes=" + "n" * 5000, id="a value too long"),
        pytest.param(
            "ok id={id} token=ab set.admin_comment=[gpu-topo:%20a]", id="a token that is nowhere"
        ),
        pytest.param("ok id={id} token=a-b set.admin_comment=[gpu-topo:%20a-b]", id="no token"),
        pytest.param("ok id={id} set.req_nodes=n1 \xff", id="a byte outside ASCII"),
        pytest.param("refuse id={id}", id="a refusal without a message"),
        pytest.param("maybe id={id} message=x", id="an unknown verb"),
        pytest.param("error id={id} message=what?", id="the engine's error"),
    ],
)
def test_a_reply_with_one_bad_part_changes_nothing(lua, engine, reply):
    engine.answers(reply + "\n")
    result = lua.submit(**GPU_JOB)
    assert (result.rc, result.writes, result.user) == (0, [], [])
    (line,) = result.log
    assert "unusable reply" in line


def test_a_field_slurm_refuses_puts_the_others_back(lua, engine):
    engine.answers("ok id={id} set.exc_nodes=n9 set.features=a set.req_nodes=n1\n")
    result = lua.submit(**GPU_JOB, features="old", poisoned="req_nodes")
    assert result.rc == 0
    assert result.job["features"] == "old"
    assert "exc_nodes" not in result.job
    assert "req_nodes" not in result.job
    assert "could not be applied" in result.log[0]
