"""mapa-preserve-site looks ahead to what the site asks; single GPUs spare the wide links."""

from __future__ import annotations

import math
from itertools import combinations
from random import Random

import numpy as np
import pytest
from machines import drawn, machine

from gres_topology import NodeTopology, catalog
from policies import Cluster, NodeState, Placement, Policy, Request, Site
from policies.contract.bits import EXACT_GPUS, gpus_of, mask_of
from policies.contract.demand import Shares, shares
from policies.errors import PolicyError
from policies.mapa import MapaPreserveSite
from policies.matching.links import link_mbps
from policies.registry import registry
from policies.scoring.node_tables import FUTURES
from policies.scoring.tables import Tables

#: The policies that say so on their pages.
SPARING = ("mapa", "mapa-widest", "mapa-preserve-site")
MACHINES = [name for name in catalog.names() if machine(name).gpus <= EXACT_GPUS]


def of_site(demand: Shares) -> MapaPreserveSite:
    return MapaPreserveSite(Site(demand))


def chosen(policy: Policy, topology: NodeTopology, free: int, request: Request) -> tuple[int, ...]:
    answer = policy.place(request, Cluster({"n": NodeState("n", topology, free)}))
    assert isinstance(answer, Placement)
    return answer.gpus["n"]


def cut(topology: NodeTopology, gpu: int, free: int) -> int:
    """The widest link from a GPU to those that stay free, MB/s."""
    others = [other for other in gpus_of(free) if other != gpu]
    return max((int(link_mbps(topology)[gpu, other]) for other in others), default=0)


def masks(gpus: int) -> list[int]:
    """Every free mask of a small machine, some of a large one."""
    if gpus <= 8:
        return list(range(1, 1 << gpus))
    draw = Random(gpus)
    return [draw.randrange(1, 1 << gpus) for _ in range(300)]


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("policy", SPARING)
def test_one_gpu_breaks_no_wider_link_than_it_must_on_any_machine(policy, name):
    topology, found = machine(name), registry.get(policy)
    for free in masks(topology.gpus):
        (gpu,) = chosen(found, topology, free, Request((1,)))
        least = min(cut(topology, other, free) for other in gpus_of(free))
        assert cut(topology, gpu, free) == least, f"{free:x}"


@pytest.mark.parametrize("policy", SPARING)
def test_one_insensitive_gpu_spares_them_too(policy):
    topology, found = machine("a100-pcie-bridged"), registry.get(policy)
    (gpu,) = chosen(found, topology, 0b100101, Request((1,), sensitive=False))
    assert gpu == 5


def test_an_insensitive_pair_leaves_what_the_site_asks_next():
    """Two of a minsky's three: a site of pairs keeps the linked pair whole."""
    minsky = machine("minsky")
    pairs = of_site(shares({2: 1}))
    assert chosen(pairs, minsky, 0b1111, Request((1,))) == (0,)
    left = 0b1111 & ~mask_of(chosen(pairs, minsky, 0b1111, Request((2,), sensitive=False)))
    assert cut(minsky, gpus_of(left)[0], left) == link_mbps(minsky).max()


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_is_worth_what_brute_force_finds(seed):
    topology, demand = drawn(6, seed), shares({1: 1, 2: 2, 4: 1, 9: 100})
    tables = Tables().of(topology, "ring")
    future = tables.future_of(demand)
    share = {}
    for k in (1, 2, 4):
        table = tables.sets(k)
        ideal = table.ideal_effbw_gbps
        share |= {
            int(m): v / ideal if ideal else 1.0
            for m, v in zip(table.masks, table.effbw, strict=True)
        }
    for free in range(64):
        expected = 0.0
        for k, weight in ((1, 0.25), (2, 0.5), (4, 0.25)):  # nine do not fit the node
            sets = combinations(gpus_of(free), k)
            expected += weight * max((share[mask_of(s)] for s in sets), default=0.0)
        assert future[free] == pytest.approx(expected)


def test_the_loss_of_a_set_is_before_less_after():
    topology, demand = machine("dgx1v"), shares({2: 1, 4: 1})
    policy = of_site(demand)
    future = Tables().of(topology, "ring").future_of(demand)
    for free in (0xFF, 0b11011010, 0b1110111):
        taken = mask_of(chosen(policy, topology, free, Request((3,), sensitive=False)))
        least = min(
            future[free] - future[free & ~mask_of(s)] for s in combinations(gpus_of(free), 3)
        )
        assert future[free] - future[free & ~taken] == pytest.approx(least)


def test_a_sensitive_job_still_gets_the_largest_effective_bandwidth():
    """Algorithm 1; demand decides among equals only."""
    topology, paper = machine("dgx1v"), registry.get("mapa-preserve")
    for free in range(3, 256, 7):
        for k in range(2, free.bit_count() + 1):
            cluster = Cluster({"n": NodeState("n", topology, free)})
            found = of_site(shares({8: 1})).place(Request((k,)), cluster)
            known = paper.place(Request((k,)), cluster)
            assert isinstance(found, Placement)
            assert isinstance(known, Placement)
            assert found.effbw_gbps == pytest.approx(known.effbw_gbps)


def test_another_demand_is_another_question():
    """It may decide; and answers are remembered with the demand they were given for."""
    policies = [of_site(shares({size: 1})) for size in (2, 4)]
    asked, differing = Request((3,), sensitive=False), 0
    for free in masks(16)[:60]:
        if free.bit_count() > 6:
            two, four, again = (
                chosen(policy, machine("cubemesh-16"), free, asked)
                for policy in (*policies, policies[0])
            )
            assert again == two
            differing += two != four
    assert differing


def test_demands_of_the_past_do_not_pile_up():
    tables = Tables().of(machine("dgx1v"), "ring")
    tables.future_of(())
    before = tables.size_bytes()
    for k in range(2, 9):
        tables.future_of(shares({k: 1, 1: k}))
    # Each demand costs 2 KB; sets of the sizes themselves are computed once.
    assert tables.size_bytes() < before + FUTURES * 256 * 8 + sum(
        3 * 8 * math.comb(8, k) for k in range(1, 9)
    )


def test_weights_become_shares():
    assert shares({4: 1, 1: 3, 2: 0}) == ((1, 0.75), (4, 0.25))
    assert shares({}) == ()
    assert np.isclose(sum(share for _, share in shares({1: 0.1, 2: 0.7, 3: 9})), 1)


@pytest.mark.parametrize(
    ("counts", "told"),
    [({0: 1}, "0 GPUs: 1"), ({2: -1}, "2 GPUs: -1"), ({2: math.nan}, "2 GPUs: nan"),
     ({2: 0}, "all weights are 0")],
)  # fmt: skip
def test_weights_that_are_none_are_refused(counts, told):
    with pytest.raises(PolicyError, match=told):
        shares(counts)
