"""Jobs that ask for no GPUs but for their shape: the question, the reply, and no engine."""

from __future__ import annotations

import pytest

HINT = "policy=genie,profile=resnet50,batch=256,iterations=20000"
BATCH = {"script": "#!/bin/sh", "comment": f"gpu-topo: {HINT}"}
CHOSEN = (
    "ok id={id} set.tres_per_node=gres/gpu:4 set.min_nodes=2 set.max_nodes=2 set.num_tasks=8"
    " set.min_cpus=8 set.pn_min_cpus=4"
    " set.admin_comment=[gpu-topo:%20x%20|%20shape%202x4]%20[gpu-shape:%202x4%20t=ab]\n"
)


def test_the_engine_is_told_that_there_are_no_gpus_and_what_the_user_left_open(lua, engine):
    engine.answers(CHOSEN)
    assert lua.submit(**BATCH).rc == 0
    (asked,) = engine.requests
    assert " gpus=0 nodes=0 max_nodes=0 per_node=0 tasks=0 " in asked
    assert f" hint={HINT} shape=1 tasks_per_node=0 slots=1 form=node batch=1 " in asked


def test_what_the_user_fixed_is_told_too(lua, engine):
    engine.answers(CHOSEN)
    lua.submit(**BATCH, min_nodes=2, max_nodes=4, ntasks_per_node=1, num_tasks=3, cpus_per_task=5)
    (asked,) = engine.requests
    assert " nodes=2 max_nodes=4 per_node=0 tasks=3 " in asked
    assert " tasks_per_node=1 " in asked
    assert " cpus_per_task=5 " in asked


def test_nodes_gpus_and_tasks_are_set(lua, engine):
    engine.answers(CHOSEN)
    result = lua.submit(**BATCH)
    assert (result.rc, result.user) == (0, [])
    wanted = {"min_nodes": "2", "max_nodes": "2", "num_tasks": "8", "pn_min_cpus": "4"}
    assert wanted.items() <= result.job.items()
    assert result.job["tres_per_node"] == "gres/gpu:4"
    assert result.job["admin_comment"] == "[gpu-topo: x | shape 2x4] [gpu-shape: 2x4 t=ab]"


def test_a_notice_is_shown_and_the_job_let_in(lua, engine):
    engine.answers(CHOSEN.replace("\n", " message=too%20late\n"))
    result = lua.submit(**BATCH)
    assert (result.rc, result.user) == (0, ["too late"])
    assert result.job["min_nodes"] == "2"


def test_a_refusal_is_shown(lua, engine):
    engine.answers("refuse id={id} message=gpu-topo:%20batch:%20'0'\n")
    result = lua.submit(**BATCH)
    assert (result.rc, result.user) == (-1, ["gpu-topo: batch: '0'"])


def test_passed_means_that_the_hint_has_no_meaning_without_gpus(lua, engine):
    result = lua.submit(**BATCH)
    assert result.rc == -1
    assert "asks for no GPUs" in result.user[0]


def test_without_an_engine_the_job_is_held_and_keeps_what_it_asked(lua, engine):
    engine.stop()
    result = lua.submit(**BATCH, min_nodes=2, max_nodes=2, cpus_per_task=4)
    assert result.rc == 0
    assert "the job is held until" in result.user[0]
    assert result.job["priority"] == "0"
    assert "tres_per_node" not in result.job
    assert result.job["admin_comment"] == (
        f"[gpu-topo: {HINT} | held until the engine chooses its shape]"
        " [gpu-shape: none nodes=2 max_nodes=2 cpus_per_task=4]"
    )


def test_a_job_its_user_holds_stays_the_users(lua, engine):
    engine.stop()
    result = lua.submit(**BATCH, priority=0)
    assert result.job["admin_comment"].endswith("[gpu-shape: none held]")


def test_without_an_engine_srun_and_salloc_are_refused(lua, engine):
    engine.stop()
    result = lua.submit(comment=BATCH["comment"])
    assert result.rc == -1
    assert "does not answer; ask for GPUs yourself" in result.user[0]


@pytest.mark.parametrize("reply", ["ok id={id} set.nonsense=1\n", "error id={id} message=x\n"])
def test_a_reply_of_no_use_holds_the_job_too(lua, engine, reply):
    engine.answers(reply)
    result = lua.submit(**BATCH)
    assert (result.rc, result.job["priority"]) == (0, "0")


@pytest.mark.parametrize("hint", ["policy = genie", "iterations=5"])
def test_hints_that_may_ask_for_a_shape_reach_the_engine(lua, engine, hint):
    lua.submit(script="#!/bin/sh", comment=f"gpu-topo: {hint}")
    assert len(engine.requests) == 1


def test_a_new_hint_of_a_shaped_job_is_told_as_such(lua, engine):
    record = {"job_state": 0, "tres_per_node": "gres/gpu:4", "min_nodes": 2, "max_nodes": 2,
              "admin_comment": "[gpu-topo: x] [gpu-shape: 2x4]"}  # fmt: skip
    lua.modify(record, uid=0, comment=f"gpu-topo: {HINT}")
    assert engine.requests[0].endswith(" change=1")
