"""Jobs that meet differ in colour, keep it, and have it wherever they are drawn."""

import random
import re

import pytest
from web_in_tests import Site, seen

from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.web.colours import COLOURS, Colours


def job(number: int, user: str, *nodes: str) -> QueuedJob:
    return QueuedJob(number, user=user, state="RUNNING", gpus=dict.fromkeys(nodes, (0,)))


def test_jobs_of_a_node_and_of_those_beside_it_differ():
    jobs = [job(7 * k, "ada", f"n{k // 2}") for k in range(40)]
    colours = Colours()
    colours.renew(jobs)
    for k in range(20):
        near = [one for one in jobs if any(f"n{at}" in one.gpus for at in (k - 1, k, k + 1))]
        own = [colours.of_job[one.job_id][0] for one in near]
        assert len(set(own)) == len(own)
    assert {user for _, user in colours.of_job.values()} == {0}


def test_where_colours_do_not_go_round_those_of_one_node_differ_first():
    jobs = [job(10 * k + at, "ada", f"n{k}") for k in range(1, 4) for at in range(COLOURS)]
    colours = Colours()
    colours.renew(jobs)
    for k in range(1, 4):
        own = [colours.of_job[10 * k + at][0] for at in range(COLOURS)]
        assert sorted(own) == list(range(COLOURS))
    more = Colours()
    more.renew([job(k, f"u{k}", "n1") for k in range(20)])
    assert {number for number, _ in more.of_job.values()} == set(range(COLOURS))


def test_a_colour_is_kept_as_long_as_its_job_runs():
    draw, colours = random.Random(5), Colours()
    running = {k: job(k, f"u{k % 9}", f"n{draw.randrange(12)}") for k in range(30)}
    colours.renew([*running.values()])
    for step in range(50):
        before = dict(colours.of_job)
        del running[draw.choice([*running])]
        new = 100 + step
        running[new] = job(new, f"u{new % 9}", f"n{draw.randrange(12)}")
        colours.renew([*running.values()])
        assert colours.of_job.keys() == running.keys()
        for number in before.keys() & running.keys():
            assert colours.of_job[number] == before[number]


def test_waiting_jobs_have_none():
    colours = Colours()
    colours.renew([QueuedJob(1, user="ada", state="PENDING")])
    assert colours.of_job == {}


@pytest.mark.parametrize("node", ["dgx1", "dgx2"])
def test_tile_and_picture_of_a_node_have_the_same_colour(tmp_path, node):
    site = Site(tmp_path)
    jobs = seen(site, 0)["jobs"]
    svg = seen(site, 0, f"/api/node/{node}")["pictures"][0]["svg"]
    there = {number: row for number, row in jobs.items() if node in row.get("gpus", {})}
    assert there
    for number, row in there.items():
        # The class of a GPU's box, and the name in it.
        drawn = re.findall(rf'class="gt-job(\d)[^"]*"(?:(?!gt-job\d).)*?job {number}', svg, re.S)
        assert {int(one) for one in drawn} == {row["colours"][0]}
