"""Hints that are refused without asking the engine."""

from __future__ import annotations

import pytest


def refusal(result):
    assert result.rc == -1
    (line,) = result.user
    assert "\n" not in line
    return line


@pytest.mark.parametrize("size", [1025, 10 * 1024 * 1024])
def test_a_hint_that_is_too_long_is_refused_with_its_length(lua, engine, size):
    # Built inside Lua: a command line of 10 MB says nothing about the bridge.
    lua.evaluate(f"long_comment = 'gpu-topo:' .. string.rep('x', {size})")
    text = lua.evaluate("return select(2, require('gputopo.hint').of(long_comment))")
    assert text == f"gpu-topo: the hint is {size} bytes long, at most 1024 are allowed"
    assert engine.connections == 0


OPTION = "_SLURM_SPANK_OPTION_gputopo_gpu_topo="
by_both_ways = pytest.mark.parametrize(
    "hinted",
    [lambda hint: {"comment": f"gpu-topo:{hint}"}, lambda hint: {"spank": [OPTION + hint]}],
    ids=["by the comment", "by the option"],
)


@by_both_ways
def test_a_hint_of_the_greatest_length_is_carried(lua, engine, hinted):
    assert lua.submit(tres_per_node="gpu:1", **hinted("x" * 1024)).rc == 0
    assert engine.requests[0].endswith("hint=" + "x" * 1024)
    assert "1025 bytes long" in refusal(lua.submit(tres_per_node="gpu:1", **hinted("x" * 1025)))


@by_both_ways
@pytest.mark.parametrize("bad", ["\n", "\t", "\x00", "\x1b[31m", "\x7f"])
def test_a_control_character_in_a_hint_is_refused(lua, engine, hinted, bad):
    result = lua.submit(tres_per_node="gpu:1", **hinted(f" pattern{bad}=ring"))
    assert "control character" in refusal(result)
    assert engine.connections == 0


@pytest.mark.parametrize("bad", ["[", "]", "|", "é"])
def test_what_delimits_our_records_is_in_no_hint(lua, engine, bad):
    """By the comment, by the option, and by an update."""
    told = f"'{bad}'" if bad.isascii() else "the byte 0xC3"
    hint = f"pattern=ring{bad}"
    for result in (
        lua.submit(tres_per_node="gpu:1", comment=f"gpu-topo: {hint}"),
        lua.submit(tres_per_node="gpu:1", spank=[OPTION + hint]),
        lua.modify({"job_state": 0, "tres_per_node": "gpu:1"}, comment=f"gpu-topo: {hint}"),
    ):
        assert f"holds {told}; hints are printable ASCII" in refusal(result)
    assert engine.connections == 0


def test_quotes_and_percent_signs_are_only_text(lua, engine):
    hint = """a="b"c='d'%41%s"$(id)`id`;\\"""
    assert lua.submit(tres_per_node="gpu:1", comment="gpu-topo:" + hint).rc == 0
    value = engine.requests[0].split(" hint=", 1)[1]
    assert " " not in value
    assert lua.evaluate(f"return require('gputopo.codec').decode([==[{value}]==])") == hint


@pytest.mark.parametrize("comment", ["run 7", "see gpu-topo: docs", " gpu-topo: x", "gpu-topo", ""])
def test_any_other_comment_is_the_users_own_business(lua, engine, comment):
    assert lua.submit(comment=comment).user == []
    assert lua.submit(tres_per_node="gpu:1", comment=comment).rc == 0
    assert "hint=" not in engine.requests[0]


@by_both_ways
def test_a_hint_on_a_job_without_gpus_is_refused(lua, engine, hinted):
    assert "asks for no GPUs" in refusal(lua.submit(**hinted("pattern=ring")))
    assert engine.connections == 0


def test_the_cpu_component_of_a_heterogeneous_job_may_carry_the_hint(lua):
    assert lua.submit(comment="gpu-topo: pattern=ring", het_job_offset=0).rc == 0


def test_hints_are_checked_even_when_the_engine_is_away(lua, engine):
    engine.stop()
    assert lua.submit(tres_per_node="gpu:1").rc == 0
    assert "control" in refusal(lua.submit(tres_per_node="gpu:1", comment="gpu-topo: \x01"))
