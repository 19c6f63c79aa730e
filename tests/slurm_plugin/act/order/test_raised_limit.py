"""A job that passed by a limit, left for another partition and began there with a longer one."""

from __future__ import annotations

from dataclasses import replace

from passing_in_tests import FIRST, Site, engine_with, job, polled, runs

from slurm_plugin.serve.loops.order import OrderLoop
from slurm_plugin.slurm.clients.update_text import words
from slurm_plugin.slurm.interface import JobUpdate


def test_its_limit_becomes_the_one_that_it_passed_by(tmp_path, slurm: Site):
    loop = OrderLoop(engine_with(tmp_path))
    assert polled(loop, slurm)["3"]
    moved = replace(runs(job(3, limit_s=90_000), 6), partition="other")
    for limit_s, expected in ((90_000, True), (300, False), (90_000, False)):
        slurm.jobs_there = [FIRST, replace(moved, time_limit_s=limit_s)]
        polled(loop, slurm)
        assert ((("3",), JobUpdate(time_limit=5)) in slurm.updates) == expected


def test_scontrol_is_told_minutes():
    assert words(["3"], JobUpdate(time_limit=5), "/") == ["JobId=3", "TimeLimit=5"]
