"""A user writes what switches the engine off for everybody else."""

import random

import pytest
from mallory import job_of

from slurm_plugin.base.protocol import Submit, decode


@pytest.mark.parametrize("enforcement", ["select", "slots"])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_numbers_a_job_has_its_line_is_one_the_engine_reads(
    installed, start_lua, engine, enforcement, seed
):
    (installed / "gputopo-bridge.conf").open("a").write(f"enforcement = {enforcement}\n")
    lua = start_lua(installed / "job_submit.lua")
    chance = random.Random(seed)
    for _ in range(100):
        lua.submit(script="#!/bin/sh", **job_of(chance))
    lua.submit(tres_per_node="gpu:2", script="#!/bin/sh")
    assert engine.requests
    for line in engine.requests:
        assert isinstance(decode(line.encode()), Submit)


def test_a_reply_that_is_of_no_use_concerns_one_job(lua, engine):
    """Whatever the engine could not make of one job, the next one is asked about."""
    for bad in (
        "error id={id} message=no",
        "ok id={id} set.admin_comment=[gpu-topo:%20[x]]",
        "maybe id={id}",
        "refuse id={id}",
    ):
        engine.answers(f"{bad}\n")
        assert lua.submit(tres_per_node="gpu:1", name="hostile").rc == 0
        engine.answers("refuse id={id} message=unknown%20pattern\n")
        result = lua.submit(tres_per_node="gpu:2", comment="gpu-topo: pattern=star")
        assert (result.rc, result.user) == (-1, ["unknown pattern"]), bad


@pytest.mark.cluster
@pytest.mark.enforced
def test_after_a_monstrous_job_the_next_ones_hint_is_still_checked(cluster):
    for nodes in ("2000000000", "1-2000000000"):
        cluster.run(
            "ctl",
            ["sbatch", "--gres=gpu:1000000", f"-N{nodes}", "--wrap=true"],
            user="mallory",
            check=False,
        )
        wrong = ["sbatch", "--gres=gpu:1", "--comment=gpu-topo: pattern=nonsense", "--wrap=true"]
        output = cluster.run("ctl", wrong, user="bob", check=False)
        assert output.code == 1
        assert "pattern" in output.err
