"""horizon: what waits and what comes free decides between sets that are as good for the job."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random
from statistics import fmean

import pytest
from machines import asked_by, cluster, machine

from papers.experiments import philly
from policies import (
    Ahead,
    Cluster,
    NodeState,
    Placement,
    Release,
    Request,
    Wait,
    WaitingJob,
    mask_of,
)
from policies.contract.bits import gpus_of
from policies.contract.policy import Site
from policies.horizon.futures import Choices, World
from policies.horizon.settings import HorizonSettings
from policies.registry import registry
from simulation.core.jobs import mixed_jobs
from simulation.core.link_quality import judge
from simulation.models.placing import Simulator
from simulation.report.pareto import run

HORIZON, MAPA = registry.get("horizon"), registry.get("mapa")
HOUR_S = 3600.0


def placed(counts: tuple[int, ...], where: Cluster, **more: object) -> Placement:
    answer = HORIZON.place(Request(counts, **more), where)
    assert isinstance(answer, Placement)
    return answer


def test_the_set_is_left_that_the_next_job_needs():
    soon = [Release(60.0, "n", mask_of([1, 5]))]
    free = [0, 2, 3, 4, 6, 7]
    alone = placed((2,), cluster(free, Ahead(HOUR_S, (), soon)))
    assert alone.gpus == {"n": (2, 3)}
    six_wait = placed((2,), cluster(free, Ahead(HOUR_S, [WaitingJob((6,), HOUR_S)], soon)))
    assert six_wait.gpus == {"n": (0, 4)}
    left = "leaves 2,3,6,7 for the next job of 6, with 1,5 once they are free"
    assert six_wait.reason.endswith(f"chosen with the next jobs in mind; {left}")
    assert six_wait.effbw_gbps == alone.effbw_gbps


@pytest.mark.parametrize(
    ("counts", "kind"),
    [((2, 2), "dgx1v"), ((2,), "dgx-h100"), ((2,), "torus-16"), ((2,), "dgx2")],
)
def test_several_nodes_equal_links_and_large_nodes_are_mapas(counts, kind):
    topology = machine(kind)
    free = (1 << topology.gpus) - 1
    nodes = {name: NodeState(name, topology, free) for name in ("a", "b")}
    ahead = Ahead(HOUR_S, [WaitingJob((4,), HOUR_S)], [])
    ours = HORIZON.place(Request(counts), Cluster(nodes, ahead=ahead))
    assert ours == replace(MAPA.place(Request(counts), Cluster(nodes)), policy="horizon")


def test_a_job_gets_the_best_of_a_slower_kind_before_a_poor_pair_of_a_faster_one():
    """It is measured by what its node's kind has to give, and leaves no GPU of the pair alone."""
    nodes = {
        "n": NodeState("n", machine("dgx1v"), mask_of([0, 1, 2])),
        "z": NodeState("z", philly.cluster()["pair001"], 3),
    }
    ahead = Ahead(HOUR_S, [WaitingJob((2,), HOUR_S)], [])
    found = placed((2,), Cluster(nodes, ahead=ahead))
    assert (found.gpus.keys(), found.utility) == ({"z"}, 1.0)


def drawn_ahead(draw: Random, free: int) -> Ahead:
    """Jobs that wait, and some of the GPUs in use come free."""
    queue = [
        WaitingJob(
            (draw.randint(1, 8),) * draw.choice((1, 1, 2)),
            draw.choice((60.0, 600.0, HOUR_S)),
            draw.choice(("ring", "tree")),
            draw.random() < 0.7,
            draw.choice((None, 0.0, 0.6)),
        )
        for _ in range(draw.randint(0, 70))
    ]
    busy = gpus_of(255 & ~free)
    releases = [
        Release(
            draw.choice((0.0, draw.uniform(0, 900))),
            draw.choice(("n", "elsewhere")),
            1 << gpu,
            -draw.choice((0.0, draw.uniform(0, 9000))),
            draw.randint(0, 10**9),
        )
        for gpu in busy
        if draw.random() < 0.8
    ]
    used = draw.choice(((), (1.0,) * 9, sorted(draw.random() for _ in range(9)), (0.0, 0.0)))
    return Ahead(600.0, queue, sorted(releases), backfill=draw.random() < 0.5, used=used)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_ahead_the_answer_is_free_and_always_the_same(seed):
    draw = Random(seed)
    free = draw.randint(1, 255)
    count = draw.randint(1, free.bit_count())
    where = cluster(list(gpus_of(free)), drawn_ahead(draw, free))
    options = draw.choice(({}, {"communication": f"{draw.random():.2f}"}))
    request = Request((count,), sensitive=draw.random() < 0.5, options=options)
    answer = HORIZON.place(request, where)
    if isinstance(answer, Wait):
        assert 0 < answer.at_most_s <= 600
        said = "communication unknown" in answer.reason
        assert said == ("communication" not in options)
        answer = answer.instead
    [gpus] = answer.gpus.values()
    assert len(set(gpus)) == count
    assert not mask_of(gpus) & ~free
    fresh = registry.build("horizon").place(request, replace(where, nodes=dict(where.nodes)))
    assert fresh == HORIZON.place(request, where)


def test_a_heavier_node_is_never_taken_while_a_lighter_one_has_room():
    topology = machine("dgx1v")
    # On the light node any pair breaks what the next job needs; the heavy one is empty.
    nodes = {
        "heavy": NodeState("heavy", topology, 255, weight=2),
        "light": NodeState("light", topology, mask_of([0, 1, 2, 3])),
    }
    ahead = Ahead(HOUR_S, [WaitingJob((4,), HOUR_S)] * 3, [Release(1.0, "light", 0xF0)])
    answer = HORIZON.place(Request((2,)), Cluster(nodes, ahead=ahead))
    assert isinstance(answer, Placement)
    assert list(answer.gpus) == ["light"]


@pytest.mark.parametrize(
    ("lasts_s", "backfill", "starts"),
    [(30.0, True, 0b1), (90.0, True, 0b1101), (30.0, False, 0b1101)],
)
def test_backfill_starts_who_does_not_delay_the_first(lasts_s, backfill, starts):
    """Three wait for the two GPUs that end in 60 s; the one behind them fits now."""
    ahead = Ahead(
        HOUR_S,
        [WaitingJob((3,), HOUR_S), WaitingJob((1,), lasts_s)],
        [Release(60.0, "n", 0b1100)],
        backfill,
    )
    where = cluster([0, 1], ahead, kind="minsky")
    request = Request((1,))
    world = World(Choices(MAPA.tables, MAPA._objective), where, request, where.nodes.values())
    [own] = [one for one in world.sets(where.nodes["n"], 1) if one.mask == 0b10]
    # The job takes GPU 1, so GPU 0 is left.
    future = world.play(where.nodes["n"], 1, own)
    assert future.next_mask == starts


def test_the_set_is_left_for_the_next_job_whenever_others_end():
    last = [Release(3000.0, "n", mask_of([1, 5]), 0.0, 1)]
    waits = [WaitingJob((6,), HOUR_S)]
    ahead = Ahead(HOUR_S, waits, last, used=(0.1, 0.5, 1.0))
    assert placed((2,), cluster([0, 2, 3, 4, 6, 7], ahead)).gpus == {"n": (0, 4)}


#: On a dgx1v 0,3 have a double link and 0,5 none.
PAIR, FREE = [0, 3], [0, 5]


def soon(in_s: float, *waits: WaitingJob, lasts_s: float = HOUR_S) -> Cluster:
    """GPU 3 comes free."""
    return cluster(FREE, Ahead(lasts_s, waits, [Release(in_s, "n", 1 << 3)]))


def test_a_job_waits_for_gpus_with_which_it_ends_sooner():
    answer = HORIZON.place(asked_by("0.4"), soon(120.0))
    assert isinstance(answer, Wait)
    assert answer.instead is not None
    assert answer.instead.gpus == {"n": (0, 5)}
    assert answer.reason == (
        "GPUs 0,3 of n are expected in 120 s: 100 % of the best GPUs' bandwidth, now 26 %;"
        " ends 4,020 s sooner"
    )
    assert answer.at_most_s == 600.0, "what the site allows: less than half of its run"


@pytest.mark.parametrize(
    ("request_", "where"),
    [
        pytest.param(asked_by("0"), soon(120.0), id="it communicates nothing"),
        pytest.param(asked_by("0.01"), soon(120.0), id="it hardly communicates"),
        pytest.param(asked_by("0.4"), soon(700.0), id="longer than the site lets it wait"),
        pytest.param(asked_by("0.4"), soon(120.0, lasts_s=60.0), id="it is over before"),
        pytest.param(asked_by("0.4"), cluster(FREE, Ahead(HOUR_S)), id="nothing comes free"),
        pytest.param(asked_by("0.4"), cluster(FREE, None), id="nothing is known"),
        pytest.param(
            replace(asked_by("0.4"), sensitive=False), soon(120.0), id="it feels no slow links"
        ),
        pytest.param(
            asked_by("0.4"), soon(120.0, WaitingJob((2,), 9e4)), id="another one takes GPU 0"
        ),
    ],
)
def test_a_job_that_gains_nothing_does_not_wait(request_, where):
    answer = HORIZON.place(request_, where)
    assert isinstance(answer, Placement)
    assert answer.gpus == {"n": (0, 5)}


def test_where_the_site_lets_nobody_wait_nobody_does():
    strict = registry.build("horizon", {}, Site(longest_wait_s=0.0))
    assert isinstance(strict.place(asked_by("0.4"), soon(0.0)), Placement)


def test_who_sits_there_waits_only_for_what_the_job_itself_says():
    sits = Request((2,), interactive=True)
    assert isinstance(HORIZON.place(sits, soon(120.0)), Placement)
    says = replace(asked_by("0.4"), interactive=True)
    assert isinstance(HORIZON.place(says, soon(120.0)), Wait)


def test_a_job_that_says_nothing_waits_by_what_is_usual_and_the_reason_says_so():
    answer = HORIZON.place(Request((2,)), soon(120.0))
    assert isinstance(answer, Wait)
    assert answer.reason.endswith(
        "ends 2,985 s sooner; communication unknown, 30 % of its time taken (3 to 67 usual)"
    )
    assert "unknown" not in HORIZON.place(asked_by("0.3"), soon(120.0)).reason


@pytest.mark.parametrize(
    ("taken", "in_s", "lasts_s", "waits"),
    [
        pytest.param(0.0, 120.0, HOUR_S, False, id="the site takes none to communicate"),
        pytest.param(0.01, 120.0, HOUR_S, False, id="next to none"),
        pytest.param(0.1, 120.0, HOUR_S, True, id="a tenth pays here"),
        pytest.param(0.3, 500.0, HOUR_S, True, id="three tenths pay later"),
        pytest.param(0.3, 500.0, 900.0, False, id="longer than half of its run"),
    ],
)
def test_what_silent_jobs_communicate_is_the_sites_to_say(taken, in_s, lasts_s, waits):
    policy = registry.build("horizon", {"horizon": HorizonSettings(usual_communication=taken)})
    answer = policy.place(Request((2,)), soon(in_s, lasts_s=lasts_s))
    assert isinstance(answer, Wait) == waits


def test_on_a_node_of_sixteen_jobs_wait_and_are_placed_as_by_mapa():
    """GPU 1 of the torus comes free beside 0; 0 and 10 are far from each other."""
    ahead = Ahead(HOUR_S, (), [Release(60.0, "n", 0b10)], used=(0.1, 0.5, 1.0))
    answer = HORIZON.place(Request((2,)), cluster([0, 10], ahead, "torus-16"))
    assert isinstance(answer, Wait)
    assert answer.instead is not None
    assert answer.instead.gpus == {"n": (0, 10)}
    assert " guesses" not in answer.reason, "the middle future alone"


def test_where_all_links_are_alike_a_silent_job_does_not_wait():
    ahead = Ahead(HOUR_S, (), [Release(1.0, "n", 1 << 3)])
    assert isinstance(HORIZON.place(Request((2,)), cluster(FREE, ahead, "dgx-h100")), Placement)


def test_a_wait_in_vain_counts():
    """Of six guesses one or all have GPU 3 free within ten minutes."""
    for limit_s, waits in ((1000.0, True), (20_000.0, False)):
        release = [Release(limit_s, "n", 1 << 3, 0.0, 1)]
        ahead = Ahead(20_000.0, (), release, used=(0.1, 0.3, 0.5, 0.7, 0.9))
        answer = HORIZON.place(asked_by("0.4"), cluster(FREE, ahead))
        assert isinstance(answer, Wait) == waits
        assert not waits or " guesses" in answer.reason


@pytest.mark.parametrize(
    ("own", "other", "gpus"),
    [("0.004", 0.6, (0, 6)), ("0.02", 0.6, (1, 2)), ("0.6", 0.02, (1, 2)), ("0.3", None, (1, 2))],
)
def test_the_double_link_goes_to_the_job_that_communicates_more(own, other, gpus):
    """As far as that costs the one that is asked about no more than a percent of its run time."""
    waits = [WaitingJob((2,), HOUR_S, communication=other)]
    where = cluster([0, 1, 2, 6], Ahead(HOUR_S, waits))
    answer = HORIZON.place(asked_by(own), where)
    assert isinstance(answer, Placement)
    assert answer.gpus == {"n": gpus}


def test_no_job_gives_up_for_others_what_it_asks_for():
    """Without the hint it gets 0 and 6; with it, it would wait for what is free."""
    where = cluster([0, 1, 2, 6], Ahead(HOUR_S, [WaitingJob((2,), HOUR_S, communication=0.6)]))
    picky = replace(asked_by("0.004"), min_utility=0.9)
    answer = HORIZON.place(picky, where)
    assert isinstance(answer, Placement)
    assert answer.gpus == {"n": (1, 2)}


def test_a_release_is_expected_by_what_its_users_jobs_took():
    """By its limit GPU 3 comes free in hours."""
    for took_s, waits in (((60.0, 70.0, 80.0), True), ((), False)):
        release = [Release(20_000.0, "n", 1 << 3, 0.0, 1, took_s)]
        where = cluster(FREE, Ahead(20_000.0, (), release, used=(0.9, 1.0)))
        assert isinstance(HORIZON.place(asked_by("0.4"), where), Wait) == waits
        by_limits = registry.build("horizon", {"horizon": HorizonSettings(users=False)})
        assert isinstance(by_limits.place(asked_by("0.4"), where), Placement)


def test_a_backlog_gets_far_more_of_the_ideal_than_from_mapa():
    """The first seeds of those that no weight was chosen with; docs/policies/horizon.md has all."""
    ours = run("horizon", "dgx1v", range(1000, 1010), 150)
    mapas = run("mapa", "dgx1v", range(1000, 1010), 150)
    assert fmean(point.share for point in ours) >= 0.97 > fmean(point.share for point in mapas)
    assert fmean(point.pcie_hops for point in ours) <= 0.16 < fmean(p.pcie_hops for p in mapas)


def test_where_all_limits_are_alike_less_of_the_gain_is_left():
    """As live, where jobs of seconds have limits of minutes."""
    points = run("horizon", "dgx1v", range(1, 6), 150, limit_s=600.0)
    share, exact = (
        fmean(point.share for point in some)
        for some in (points, run("horizon", "dgx1v", range(1, 6), 150))
    )
    mapas = fmean(point.share for point in run("mapa", "dgx1v", range(1, 6), 150, limit_s=600.0))
    assert exact - 0.01 > share > mapas + 0.01


@pytest.mark.parametrize("most", [4.0, 40.0])
def test_limits_that_say_little_leave_most_of_the_gain(most):
    """Users ask for up to so many times what their jobs take."""
    shares: dict[str, list[float]] = {"mapa": [], "horizon": []}
    hops: dict[str, list[float]] = {"mapa": [], "horizon": []}
    topology = machine("dgx1v")
    for name, seed in product(shares, range(1000, 1006)):
        draw = Random(seed)
        jobs = [
            replace(job, walltime_s=job.duration_s * draw.uniform(1, most))
            for job in mixed_jobs(seed, 150)
        ]
        run = Simulator({"n": topology}, registry.build(name)).run(jobs)
        judged = [judge(topology, one.placement.gpus["n"]) for one in run.records]
        shares[name] += [one.share for one in judged if one.gpus > 1]
        hops[name] += [one.pcie_hop for one in judged if one.gpus > 1]
    assert fmean(shares["horizon"]) > fmean(shares["mapa"]) + 0.01
    assert fmean(hops["horizon"]) < fmean(hops["mapa"]) - 0.05


@pytest.mark.parametrize(
    ("off", "gpus"),
    [
        pytest.param({}, (0, 4), id="whole"),
        pytest.param({"queue": False}, (2, 3), id="no queue: mapa's own"),
        pytest.param({"releases": False}, (2, 3), id="nothing comes free: the six cannot start"),
        pytest.param({"guesses": False}, (0, 4), id="by the middle guess alone"),
        pytest.param({"wait": False}, (0, 4), id="it does not wait anyway"),
    ],
)
def test_a_site_switches_parts_off(off, gpus):
    policy = registry.build("horizon", {"horizon": HorizonSettings(**off)})
    last = [Release(600.0, "n", mask_of([1, 5]))]
    ahead = Ahead(HOUR_S, [WaitingJob((6,), HOUR_S)], last, used=(0.1, 0.5, 1.0))
    answer = policy.place(Request((2,)), cluster([0, 2, 3, 4, 6, 7], ahead))
    assert isinstance(answer, Placement)
    assert answer.gpus == {"n": gpus}


def test_without_waiting_a_job_that_communicates_starts_at_once():
    policy = registry.build("horizon", {"horizon": HorizonSettings(wait=False)})
    assert isinstance(policy.place(asked_by("0.4"), soon(120.0)), Placement)
