"""An answer the engine marks with keep_s is used again for the very same request."""

from __future__ import annotations

GPU_JOB = {"tres_per_node": "gres/gpu:2", "comment": "gpu-topo: pattern=ring"}
KEPT = "ok id={id} keep_s=60 set.admin_comment=[gpu-topo:%20pattern=ring]\n"


def test_equal_submits_are_asked_once(lua, engine):
    engine.answers(KEPT)
    for _ in range(3):
        result = lua.submit(**GPU_JOB, admin_comment="site")
        assert result.job["admin_comment"] == "site [gpu-topo: pattern=ring]"
    assert len(engine.requests) == 1


def test_a_refusal_is_kept_too(lua, engine):
    engine.answers("refuse id={id} keep_s=60 message=no\n")
    assert [lua.submit(**GPU_JOB).user for _ in range(2)] == [["no"], ["no"]]
    assert len(engine.requests) == 1


def test_any_difference_is_asked_anew(lua, engine):
    engine.answers(KEPT)
    lua.submit(**GPU_JOB)
    lua.submit(**GPU_JOB, user_id=1001)
    lua.submit(**GPU_JOB, num_tasks=2)
    lua.submit(**{**GPU_JOB, "comment": "gpu-topo: off"})
    assert len(engine.requests) == 4


def test_without_the_engines_word_nothing_is_kept(lua, engine):
    for reply in ("pass id={id}\n", "pass id={id} keep_s=0\n", "pass id={id} keep_s=-5\n"):
        engine.answers(reply)
        lua.submit(**GPU_JOB)
        lua.submit(**GPU_JOB)
    assert len(engine.requests) == 6


MARKED = "[gpu-topo:%20x]%20[gpu-shape:%202x4%20t=ab1]"
KEPT_MARK = f"ok id={{id}} keep_s=60 token=ab1 set.admin_comment={MARKED}\n"


def test_each_job_an_answer_is_used_for_has_a_token_of_its_own(lua, engine):
    engine.answers(KEPT_MARK)
    comments = [lua.submit(**GPU_JOB).job["admin_comment"] for _ in range(3)]
    assert len(engine.requests) == 1
    assert comments == [
        f"[gpu-topo: x] [gpu-shape: 2x4 t={token}]" for token in ("ab1", "ab1-1", "ab1-2")
    ]
