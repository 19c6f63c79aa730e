"""The recommendation says what the numbers carry, and nothing where they carry nothing."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from gres_topology import catalog
from policies import Placement
from simulation.core.jobs import SimJob
from simulation.core.record import Record, SimulatedRun
from simulation.report.breakdown import (
    MOMENTS,
    bandwidth_by_user,
    in_use,
    moments,
    natural,
    waits_by_size,
)
from simulation.report.recommendation import PARTS, difference, differences, recommendation

CLUSTER = {"h1": catalog.load("dgx1v"), "h2": catalog.load("dgx1v")}
GOOD, BAD = (0, 3), (0, 6)
FACTS = {"communication": 0.0}


def placed(gpus):
    return Placement(gpus, "a policy", "a test")


def a_run(policy, waits, gpus=GOOD, users=("anna",), size=None):
    """Jobs that begin one after the other on h1; job n waits waits[n]."""
    records = []
    for number, wait in enumerate(waits):
        asked = (size or len(gpus),)
        job = SimJob(number, asked, 100.0, number * 50.0, user=users[number % len(users)])
        start = job.submit_s + wait
        records.append(Record(job, start, start + 100.0, placed({"h1": gpus})))
    return SimulatedRun(policy, records, gpus=16)


def noisy(mean, seed=1, count=400):
    draw = random.Random(seed)
    return [max(0.0, draw.gauss(mean, 200)) for _ in range(count)]


def test_shorter_waits_at_equal_links_are_recommended():
    runs = [a_run("stock", noisy(900)), a_run("mapa", noisy(500, 2))]
    said = recommendation(runs, CLUSTER, FACTS)
    assert said.startswith("Take mapa. With mapa instead of stock, on average jobs wait 8.")
    assert "links are as good" in said


def test_what_got_worse_beside_a_shorter_mean_is_named():
    """A few wait for hours, and one job of PCIe rings ends late; the others wait less."""
    waits = [0.0] * 360 + [4000.0] * 39 + [9000.0]
    runs = [a_run("stock", noisy(900)), a_run("mapa", random.Random(3).sample(waits, 400), BAD)]
    said = recommendation(runs, CLUSTER, FACTS)
    [worse] = re.findall(r"Worse with mapa, each a single figure of this log: ([^:]*)\.", said)
    assert "95 of 100 wait at most 66.7 min instead of 2" in worse
    assert "rings over PCIe 100.0 % instead of 0.0 %" in worse
    assert "the last job ends after" in worse
    assert "stranded" not in worse
    back = recommendation(runs[::-1], CLUSTER, FACTS)
    assert "Worse with stock" not in back


def test_what_differs_by_chance_is_no_difference():
    runs = [a_run("stock", noisy(900)), a_run("mapa", noisy(900, 2))]
    said = recommendation(runs, CLUSTER, FACTS)
    assert said.startswith("No difference can be told between ")
    assert "keep stock." in said
    told = r"no difference in waits can be told \([\d.]+ min instead of [\d.]+ min: "
    assert re.search(told + r"[\d.]+ s less to [\d.]+ s more\)", said)


def test_what_is_best_already_is_kept_and_what_the_other_costs_is_said():
    runs = [a_run("stock", noisy(500)), a_run("mapa", noisy(900, 2))]
    said = recommendation(runs, CLUSTER, FACTS)
    assert said.startswith("Keep stock: no other policy beats it")
    assert "jobs wait 14.8 min instead of 8.6 min (5.7 min to 6.8 min more)" in said


def test_waits_against_links_is_a_choice_of_the_site():
    runs = [a_run("best-fit", noisy(300), BAD), a_run("mapa", noisy(900, 2), GOOD)]
    said = recommendation(runs, CLUSTER, FACTS)
    assert said.startswith("Take best-fit if jobs shall get through soonest, mapa if links")
    assert "of the ideal bandwidth" in said


def test_of_policies_alike_the_one_that_wins_more_against_the_present_one_is_taken():
    """First mapa wins in waits and links and best-fit in waits alone, then both in both."""
    draw = random.Random(7)
    links = [draw.choice((GOOD, BAD)) for _ in range(400)]
    stock = a_run("stock", noisy(900), BAD)
    fit, mapa = a_run("best-fit", noisy(500, 2), BAD), a_run("mapa", noisy(505, 3), GOOD)
    said = recommendation([stock, fit, mapa], CLUSTER, FACTS)
    assert said.startswith("Take mapa. With mapa instead of stock")
    mixed = [
        replace(one, placement=placed({"h1": gpus}))
        for one, gpus in zip(fit.records, links, strict=True)
    ]
    same = SimulatedRun("best-fit", mixed, gpus=16), SimulatedRun("mapa", mixed, gpus=16)
    said = recommendation([stock, *same], CLUSTER, FACTS)
    assert said.startswith("Take best-fit, or mapa: no difference between them can be told.")
    again = recommendation([stock, *same[::-1]], CLUSTER, FACTS)
    assert again.startswith("Take ")


def test_the_size_of_jobs_that_waits_longer_though_the_mean_wins_is_named():
    def mixed(policy, small, large):
        runs = a_run(policy, small, (0,)), a_run(policy, large, (0, 1, 2, 3))
        jobs = [
            replace(one, job=replace(one.job, job_id=one.job.job_id + 1000))
            for one in runs[1].records
        ]
        return SimulatedRun(policy, [*runs[0].records, *jobs], gpus=16)

    before = mixed("stock", noisy(2000), noisy(500, 2))
    after = mixed("mapa", noisy(600, 3), noisy(900, 4))
    said = recommendation([before, after], CLUSTER, FACTS)
    assert "Jobs of 3 to 4 wait longer: " in said
    assert "Jobs of 1" not in said


def test_users_who_lose_are_counted():
    before = a_run("stock", noisy(900), GOOD, users=("anna", "bob"))
    after = a_run("mapa", noisy(300, 2), BAD, users=("anna", "bob"))
    said = recommendation([before, after], CLUSTER, FACTS)
    assert "2 of 2 users lose more than 1 % of their bandwidth." in said


def test_an_empty_cluster_tells_nothing_of_waits():
    runs = [a_run("stock", [0.0] * 200), a_run("mapa", [0.0] * 200)]
    assert "Hardly a job waits here" in recommendation(runs, CLUSTER, FACTS)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([a_run("mapa", noisy(1))], "Nothing to compare"),
        ([a_run("a", [1.0] * 99), a_run("b", [2.0] * 99)], "No recommendation: 99 jobs are too"),
    ],
)
def test_too_little_is_said_to_be_too_little(runs, said):
    assert recommendation(runs, CLUSTER, FACTS).startswith(said)


def test_chance_calls_few_differences_real():
    """Two samples of one distribution, 400 times: about one in twenty differs by chance."""
    draw, called = random.Random(5), 0
    for _ in range(400):
        own, other = ({n: draw.gauss(100, 30) for n in range(20 * PARTS)} for _ in range(2))
        called += difference(own, other).counts
    assert called <= 0.1 * 400


def test_an_interval_holds_the_truth_as_often_as_it_says():
    draw, held = random.Random(6), 0
    for _ in range(400):
        own, other = ({n: draw.gauss(mean, 30) for n in range(20 * PARTS)} for mean in (100, 80))
        low, high = difference(own, other).bounds
        held += low <= 20 <= high
    assert 0.92 * 400 <= held <= 0.98 * 400


def test_the_figures_behind_the_words_are_given_with_their_bounds():
    runs = [a_run("stock", noisy(900)), a_run("mapa", noisy(500, 2))]
    [(name, rows)] = differences(runs, CLUSTER).items()
    waits, links = rows["wait_mean_s"], rows["bandwidth_share_by_job"]
    assert name == "mapa"
    assert waits["counts"]
    assert not links["counts"]
    assert waits["low"] < waits["own"] - waits["other"] < waits["high"] < 0
    assert differences(runs[:1], CLUSTER) == {}


def test_a_difference_of_all_jobs_alike_counts():
    other = {n: 100.0 + n % 7 for n in range(200)}
    assert difference({n: value - 20 for n, value in other.items()}, other).counts
    assert not difference(other, other).counts


def test_waits_are_told_by_size():
    small, large = a_run("mapa", [10.0, 30.0], (0,)), a_run("mapa", [7.0], (0, 1, 2))
    found = waits_by_size(SimulatedRun("mapa", [*large.records, *small.records]))
    assert list(found) == ["1 GPU", "3 to 4"]
    assert (found["1 GPU"].jobs, found["1 GPU"].mean_s) == (2, 20.0)


def test_bandwidth_is_told_by_user_and_single_gpus_have_none():
    pair, single = a_run("mapa", [0.0], GOOD), a_run("mapa", [0.0], (0,), users=("bob",))
    found = bandwidth_by_user(SimulatedRun("mapa", [*pair.records, *single.records]), CLUSTER)
    assert list(found) == ["anna"]
    assert found["anna"] > 30


def test_free_gpus_are_stranded_while_what_waits_needs_more_on_one_node():
    """Four GPUs are left on each node while a job of 8 waits, then it takes one node."""
    first = [
        Record(SimJob(n, (4,), 100.0), 0.0, 100.0, placed({node: (0, 1, 2, 3)}))
        for n, node in enumerate(CLUSTER)
    ]
    waits = Record(SimJob(9, (8,), 100.0), 100.0, 200.0, placed({"h1": tuple(range(8))}))
    found = moments(SimulatedRun("x", [*first, waits], gpus=16), CLUSTER, 0.0, 200.0)
    half = MOMENTS // 2
    assert {(one.free, one.stranded) for one in found[:half]} == {(8, 8)}
    assert {(one.free, one.stranded) for one in found[half:]} == {(8, 0)}


def test_a_job_that_no_node_is_large_enough_for_strands_nothing():
    run = SimulatedRun("x", [Record(SimJob(1, (16,), 5.0), 50.0, 55.0, placed({"h1": ()}))])
    assert {one.stranded for one in moments(run, CLUSTER, 0.0, 50.0)} == {0}


def test_use_adds_up_to_the_gpu_time():
    run = a_run("mapa", [0.0, 25.0, 0.0], (0, 1, 2))
    found = in_use(run, CLUSTER, 0.0, 200.0, 7)
    assert sum(found["h1"]) * 200 / 7 * 8 == pytest.approx(3 * 100 * 3)
    assert set(found["h2"]) == {0.0}


def test_names_are_sorted_as_people_count():
    assert sorted(["h10", "h2", "h1", "g3"], key=natural) == ["g3", "h1", "h2", "h10"]
