"""scontrol update of a pending job's comment: the new hint is checked like the first."""

from __future__ import annotations

import pytest

PENDING = {"job_state": 0, "tres_per_node": "gres/gpu:2", "user_id": 1000, "partition": "main"}
UPDATE = {"user_id": 4294967294, "comment": "gpu-topo: pattern=star"}
ANSWER = "ok id={id} set.admin_comment=[gpu-topo:%20pattern=star] set.req_nodes=n9\n"


def test_any_other_update_passes_without_traffic(lua, engine):
    assert lua.modify(PENDING, min_nodes=2).rc == 0
    assert lua.modify(PENDING, comment="run 7").rc == 0
    assert engine.connections == 0


def test_a_running_job_is_not_our_business(lua, engine):
    assert lua.modify({**PENDING, "job_state": 1}, **UPDATE).rc == 0
    assert engine.connections == 0


def test_the_engine_is_asked_about_the_job_as_it_will_be(lua, engine):
    lua.modify({**PENDING, "min_nodes": 3, "max_nodes": 3}, **UPDATE)
    assert engine.requests[0].split(" ", 2)[2] == (
        "uid=1000 partition=main gpus=6 nodes=3 max_nodes=3 per_node=2 tasks=3 hint=pattern=star"
    )


def test_a_bad_hint_is_refused_with_the_engines_line(lua, engine):
    engine.answers("refuse id={id} message=unknown%20pattern\n")
    result = lua.modify(PENDING, **UPDATE)
    assert (result.rc, result.user) == (-1, ["unknown pattern"])


def test_a_hint_for_a_job_without_gpus_is_refused(lua):
    record = {"job_state": 0, "user_id": 1000}
    assert "no GPUs" in lua.modify(record, **UPDATE).user[0]
    assert lua.modify({**record, "tres_fmt_req_str": "cpu=1,gres/gpu=1"}, **UPDATE).rc == 0


def test_an_administrators_update_rewrites_only_the_bracket(lua, engine):
    engine.answers(ANSWER)
    record = {**PENDING, "admin_comment": "site [gpu-topo: pattern=ring | n2 chosen]"}
    result = lua.modify(record, uid=0, **UPDATE)
    assert result.job["admin_comment"] == "site [gpu-topo: pattern=star]"
    assert result.writes == ["admin_comment"]


def test_a_new_hint_says_nothing_about_a_loan(lua, engine):
    """It ends no loan that is under way, and starts none that the submit did not ask for."""
    engine.answers(ANSWER.replace("] set.req", "]%20[gpu-loan:%20may] set.req"))
    for before in (" [gpu-loan: meets tpn=gres/gpu:4 loan=n1/3,n2/3/71]", ""):
        record = {**PENDING, "admin_comment": f"[gpu-topo: pattern=ring]{before}"}
        result = lua.modify(record, uid=0, **UPDATE)
        assert result.job["admin_comment"] == f"[gpu-topo: pattern=star]{before}"


def test_a_user_may_not_write_admin_comment_so_a_new_hint_is_refused(lua, engine):
    """Slurm denies the whole update when an ordinary user's changes AdminComment."""
    engine.answers(ANSWER)
    record = {**PENDING, "admin_comment": "[gpu-topo: pattern=ring]"}
    result = lua.modify(record, uid=1000, **UPDATE)
    assert result.rc == -1
    assert "submit it again" in result.user[0]


@pytest.mark.parametrize("comment", ["", "[gpu-topo: pattern=star | waited 3 s]"])
def test_a_user_may_write_a_hint_that_no_bracket_contradicts(lua, engine, comment):
    engine.answers(ANSWER)
    result = lua.modify({**PENDING, "admin_comment": comment}, uid=1000, **UPDATE)
    assert (result.rc, result.writes) == (0, [])


def test_a_dead_engine_lets_every_update_pass(lua, engine):
    engine.stop()
    record = {**PENDING, "admin_comment": "[gpu-topo: pattern=ring]"}
    assert lua.modify(record, **UPDATE).rc == 0
