"""--gpu-topo, as a SPANK plugin hands it over: the same meaning as the comment."""

from __future__ import annotations

import pytest

OPTION = "_SLURM_SPANK_OPTION_gputopo_gpu_topo="
OTHER = "_SLURM_SPANK_OPTION_pyxis_container_image=debian"
GPUS = {"tres_per_node": "gpu:2"}


def hint_sent(engine) -> str | None:
    line = engine.requests[-1]
    return line.split(" hint=", 1)[1] if " hint=" in line else None


@pytest.mark.parametrize("name", [OPTION, "_SLURM_SPANK_OPTION_gputopo_gpu-topo="])
@pytest.mark.parametrize("before", [[], [OTHER]])
def test_the_option_is_sent_like_a_comments_hint(lua, engine, name, before):
    lua.submit(**GPUS, spank=[*before, name + " pattern=tree "])
    assert hint_sent(engine) == "pattern=tree"


def test_no_spank_variables_or_only_others_are_no_hint(lua, engine):
    lua.submit(**GPUS)
    lua.submit(**GPUS, spank=[OTHER, "_SLURM_SPANK_OPTION_gputopo_gpu_topology=x", ""])
    assert [" hint=" in line for line in engine.requests] == [False, False]


@pytest.mark.parametrize("comment", ["gpu-topo: pattern=tree, pack", "run 7", ""])
def test_an_option_and_a_comment_that_agree_are_one_hint(lua, engine, comment):
    result = lua.submit(**GPUS, comment=comment, spank=[OPTION + "pattern=tree,pack"])
    assert result.rc == 0
    assert hint_sent(engine) == "pattern=tree,pack"


def test_an_option_and_a_comment_that_differ_are_refused_with_one_line(lua, engine):
    result = lua.submit(**GPUS, comment="gpu-topo: pattern=ring", spank=[OPTION + "pattern=tree"])
    assert result.rc == -1
    assert result.user == [
        "gpu-topo: --gpu-topo says 'pattern=tree' and --comment says 'pattern=ring';"
        " give the hint once"
    ]
    assert engine.connections == 0


def test_without_an_engine_the_option_is_kept_in_the_admin_comment_for_the_start(lua, engine):
    engine.stop()
    result = lua.submit(**GPUS, admin_comment="site", spank=[OPTION + "pattern=tree"])
    assert result.job["admin_comment"] == "site [gpu-topo: pattern=tree]"
    assert lua.submit(**GPUS, spank=[OPTION + "a]b"]).writes == []
    assert lua.submit(**GPUS, comment="gpu-topo: pattern=tree").writes == []


def test_where_the_engine_passes_nothing_is_written(lua, engine):
    assert lua.submit(**GPUS, spank=[OPTION + "pattern=tree"]).writes == []


def test_a_later_comment_must_not_contradict_the_option(lua, engine):
    record = {
        "job_state": 0, "user_id": 1000, "partition": "main",
        "tres_per_node": "gres/gpu:2", "spank": [OPTION + "pattern=tree"],
    }  # fmt: skip
    update = {"user_id": 4294967294}
    assert lua.modify(record, comment="gpu-topo: pattern=tree", **update).rc == 0
    refused = lua.modify(record, comment="gpu-topo: pattern=ring", **update)
    assert refused.rc == -1
    assert "give the hint once" in refused.user[0]


def test_the_users_default_account_is_sent_where_none_is_named(lua, engine):
    lua.submit(**GPUS, default_account="research")
    assert " account=research " in engine.requests[-1]
    lua.submit(**GPUS, account="physics", default_account="research")
    assert " account=physics " in engine.requests[-1]
