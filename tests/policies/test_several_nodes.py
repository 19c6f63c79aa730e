"""Jobs of several nodes: few switches apart, near the NICs, and what remains in each."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from machines import machine

from gres_topology import Network, Nic, NodeTopology
from gres_topology.slurm_files.topology_conf import parse
from policies import Cluster, NodeState, Placement, Request
from policies.contract.assign import FIRST, _assign, _key_of, assign
from policies.contract.bits import mask_of
from policies.contract.nodes import Candidates, NodeTable
from policies.registry import registry

DGX = machine("dgx1v")
FULL = list(range(8))
TREE = parse(
    "SwitchName=s1 Nodes=n[1-3]\nSwitchName=s2 Nodes=n[4-6]\nSwitchName=s3 Nodes=n[7-9]\n"
    "SwitchName=west Switches=s[1-2]\nSwitchName=top Switches=west,s3",
    "topology.conf",
)
NETWORKED = ("mapa", "mapa-widest", "mapa-preserve", "mapa-preserve-site", "mapa-greedy")


def cluster(
    frees: dict[str, list[int]],
    network: Network | None = TREE,
    weights: dict[str, int] | None = None,
    topologies: dict[str, NodeTopology] | None = None,
) -> Cluster:
    states = {
        name: NodeState(
            name,
            (topologies or {}).get(name, DGX),
            mask_of(free),
            weight=(weights or {}).get(name, 1),
        )
        for name, free in frees.items()
    }
    return Cluster(states, network=network)


def placed(policy: str, counts: tuple[int, ...], asked: Cluster) -> Placement:
    answer = registry.get(policy).place(Request(counts), asked)
    assert isinstance(answer, Placement)
    return answer


CHOICES = [
    ("two nodes are taken below one switch", (8, 8),
     {"n1": FULL, "n4": FULL, "n5": FULL}, {"n4", "n5"}),
    ("a switch with room comes before better links inside the nodes", (2, 2),
     {"n1": [0, 3], "n4": [0, 5], "n5": [0, 5], "n7": [0, 3]}, {"n4", "n5"}),
    ("of two switches the one with the better links", (2, 2),
     {"n1": [0, 5], "n2": [0, 5], "n4": [0, 3], "n5": [0, 3]}, {"n4", "n5"}),
    ("of two equal switches the one with fewer free GPUs", (8, 8),
     dict.fromkeys(("n1", "n2", "n3", "n4", "n5"), FULL), {"n4", "n5"}),
    ("of two switches all alike the first by name", (8, 8),
     dict.fromkeys(("n4", "n5", "n1", "n2"), FULL), {"n1", "n2"}),
    ("what no leaf holds is taken below the next switch", (8, 8, 8, 8),
     dict.fromkeys(("n1", "n2", "n4", "n5", "n7", "n8"), FULL), {"n1", "n2", "n4", "n5"}),
    ("below the top switch if it must be", (8, 8), {"n1": FULL, "n7": FULL}, {"n1", "n7"}),
    ("nodes that hang nowhere are used when nothing else is left", (8, 8),
     {"stray1": FULL, "stray2": FULL}, {"stray1", "stray2"}),
    ("of two switches the one with fewer whole nodes, whatever else is free there", (8, 8),
     {"n1": FULL, "n2": FULL, "n3": FULL, "n4": FULL, "n5": FULL, "n6": FULL[:7],
      "n7": FULL, "n8": FULL, "n9": FULL}, {"n4", "n5"}),
    ("what no switch holds is taken from as few leaves as can be", (8,) * 5,
     dict.fromkeys(("n1", "n2", "n4", "n5", "n6", "n7", "n8", "n9"), FULL),
     {"n1", "n2", "n4", "n5", "n6"}),
    ("inside a switch the fuller node, so that the empty one stays whole", (4, 4),
     {"n1": FULL, "n2": [0, 1, 2, 3], "n3": [4, 5, 6, 7]}, {"n2", "n3"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "frees", "expected"), [pytest.param(*row[1:], id=row[0]) for row in CHOICES]
)
def test_node_choice(counts, frees, expected):
    assert set(placed("mapa", counts, cluster(frees)).gpus) == expected


ONE_NODE = [
    ("a whole node is opened where fewest are whole", 2,
     {"n1": FULL, "n2": FULL, "n3": FULL, "n4": FULL, "n5": FULL, "n7": FULL, "n8": FULL,
      "n9": FULL}, {"n4"}),
    ("a used node is filled up where fewest nodes are whole", 2,
     {"n1": FULL, "n2": FULL, "n3": [0, 3], "n4": FULL, "n6": [0, 3], "n9": FULL}, {"n6"}),
    ("what is left in the node comes before where it is", 2,
     {"n1": FULL, "n2": FULL, "n3": [0, 3], "n6": [0, 1, 2, 3]}, {"n3"}),
    ("leaves alike: below the switch with fewest whole nodes", 8,
     {"n1": FULL, "n4": FULL, "n7": FULL}, {"n7"}),
    ("a node below no switch is of no use to jobs of several", 8,
     {"n1": FULL, "stray": FULL}, {"stray"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "frees", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ONE_NODE]
)
def test_a_job_of_one_node_keeps_switches_whole(count, frees, expected):
    assert set(placed("mapa", (count,), cluster(frees)).gpus) == expected


def test_whole_nodes_that_the_job_may_not_use_count_for_others():
    """Of two free nodes that it may use the one is below a switch with another whole node."""
    table = NodeTable([NodeState(name, DGX, 0xFF) for name in ("n1", "n4", "n2")])
    of_type = 1 << table.place["n1"] | 1 << table.place["n4"]
    asked = Cluster(Candidates(table, of_type, {}), network=TREE)
    assert set(placed("mapa", (8,), asked).gpus) == {"n4"}


def test_five_nodes_of_three_blocks_alone_take_one_block_whole():
    """Nothing joins the blocks: the largest one goes first, the rest where it fits best."""
    blocks = parse(
        "BlockName=a Nodes=n[1-3]\nBlockName=b Nodes=n[4-7]\nBlockName=c Nodes=n[8-9]\n"
        "BlockSizes=3",
        "",
    )
    frees = {f"n{i}": FULL for i in range(1, 10)}
    assert set(placed("mapa", (8,) * 6, cluster(frees, blocks)).gpus) == {
        "n4", "n5", "n6", "n7", "n8", "n9"
    }  # fmt: skip


@pytest.mark.parametrize("policy", NETWORKED)
def test_every_policy_of_the_family_looks_at_the_network(policy):
    frees = {"n1": FULL, "n4": FULL, "n6": FULL, "n7": FULL}
    found = placed(policy, (4, 4), cluster(frees))
    assert set(found.gpus) == {"n4", "n6"}
    assert found.reason.split("(")[0].rstrip().endswith("nodes below s2")


def test_lighter_nodes_come_before_nearer_ones():
    frees = {"n1": FULL, "n2": FULL, "n4": FULL, "n7": FULL}
    weights = {"n1": 1, "n4": 1, "n2": 9, "n7": 9}
    assert set(placed("mapa", (8, 8), cluster(frees, weights=weights)).gpus) == {"n1", "n4"}


def test_without_a_network_nodes_are_alike_and_the_reason_says_nothing_of_it():
    frees = {"n1": FULL, "n4": FULL, "n5": FULL}
    found = placed("mapa", (8, 8), cluster(frees, network=None))
    assert set(found.gpus) == {"n1", "n4"}
    assert "nodes" not in found.reason


def test_one_node_is_not_moved_by_the_network():
    frees = {"n1": [0, 5], "n7": [0, 3]}
    found = placed("mapa", (2,), cluster(frees))
    assert set(found.gpus) == {"n7"}
    assert "nodes below" not in found.reason


@pytest.mark.parametrize("policy", NETWORKED)
def test_what_is_used_and_left_is_counted_over_all_nodes(policy):
    one = placed(policy, (4,), cluster({"n1": FULL}))
    both = placed(policy, (4, 4), cluster({"n1": FULL, "n2": FULL}))
    assert both.gpus == {"n1": one.gpus["n1"], "n2": one.gpus["n1"]}
    assert both.effbw_gbps == one.effbw_gbps
    assert both.agg_gbps == pytest.approx(2 * one.agg_gbps)
    assert both.preserved_gbps == pytest.approx(2 * one.preserved_gbps)
    assert both.preserved_gbps > 0


def test_nodes_that_nothing_joins_are_said_to_be_so():
    found = placed("mapa", (8, 8), cluster({"n1": FULL, "stray": FULL}))
    assert "nodes joined by no switch" in found.reason


@pytest.mark.parametrize("seed", range(12))
def test_no_other_nodes_of_the_same_weight_are_fewer_switches_apart(seed):
    """Against every choice of nodes there is."""
    draw = Random(seed)
    frees = {f"n{i}": draw.sample(FULL, draw.randint(0, 8)) for i in range(1, 10)}
    weights = {name: draw.choice((1, 1, 2)) for name in frees}
    counts = tuple(sorted((draw.randint(1, 4) for _ in range(draw.randint(2, 3))), reverse=True))
    asked = cluster(frees, weights=weights)

    def fits(names: tuple[str, ...]) -> bool:
        room = sorted((len(frees[name]) for name in names), reverse=True)
        return all(r >= c for r, c in zip(room, counts, strict=True))

    choices = [names for names in combinations(frees, len(counts)) if fits(names)]
    if not choices:
        return
    chosen = placed("mapa", counts, asked).gpus

    def cost(names) -> tuple[int, int]:
        joined = TREE.common(names)
        return sum(weights[n] for n in names), TREE.top + 1 if joined is None else joined.level

    assert cost(chosen) == min(cost(names) for names in choices)


def test_the_same_nodes_are_chosen_whatever_the_order_they_come_in():
    frees = {f"n{i}": FULL[: 4 + i % 4] for i in range(1, 10)}
    backwards = dict(reversed(frees.items()))
    assert (
        placed("mapa", (4, 4), cluster(frees)).gpus
        == placed("mapa", (4, 4), cluster(backwards)).gpus
    )


def test_a_thousand_nodes_ask_for_few_sets():
    """Nodes of a state share their key across switches: the work does not grow with them."""
    names = [f"n{i}" for i in range(1000)]
    lines = "\n".join(f"SwitchName=l{i} Nodes=n[{25 * i}-{25 * i + 24}]" for i in range(40))
    network = parse(lines + "\nSwitchName=top Switches=l[0-39]", "t")
    asked = cluster({name: FULL if i % 2 else FULL[:6] for i, name in enumerate(names)}, network)
    questions = []

    def key(state: NodeState, count: int) -> tuple[float, ...]:
        questions.append((state.free, count))
        return (float(-state.free),)

    pairs = assign((6, 6), asked.nodes, key, network=network)
    assert len(questions) <= 8
    assert network.common(state.name for state, _ in pairs).level == 0


def with_nics(*nics: Nic) -> NodeTopology:
    """An l40s-pcie: four GPUs, two behind each PCIe switch."""
    return replace(machine("l40s-pcie"), nics=nics)


FOUR = list(range(4))
ON_GPU_1 = Nic("mlx5_0", ("NODE", "PIX", "SYS", "SYS"))


def test_how_far_the_nearest_nic_is():
    second = Nic("mlx5_1", ("PHB", "SYS", "PXB", "SYS"))
    assert with_nics(ON_GPU_1).nic_distance == (3, 0, 4, 4)
    assert with_nics(ON_GPU_1, second).nic_distance == (2, 0, 1, 4)
    assert with_nics().nic_distance == ()
    assert DGX.nic_distance == ()  # each GPU of a DGX-1V has a NIC on its switch


def test_among_equal_sets_a_job_of_several_nodes_takes_the_one_at_the_nic():
    """Both pairs of an l40s are alike; its one NIC is beside the second here."""
    topology = with_nics(Nic("mlx5_0", ("SYS", "SYS", "NODE", "PIX")))
    asked = cluster({"n1": FOUR, "n2": FOUR}, topologies={"n1": topology, "n2": topology})
    for policy in NETWORKED:
        assert set(placed(policy, (1, 1), asked).gpus.values()) == {(3,)}, policy
        for gpus in placed(policy, (2, 2), asked).gpus.values():
            assert set(gpus) == {2, 3}, policy


def test_a_job_of_one_node_does_not_look_for_the_nic():
    topology = with_nics(Nic("mlx5_0", ("SYS", "SYS", "NODE", "PIX")))
    one = cluster({"n1": FOUR}, topologies={"n1": topology})
    plain = cluster({"n1": FOUR}, topologies={"n1": with_nics()})
    for count in (1, 2, 3):
        assert placed("mapa", (count,), one).gpus == placed("mapa", (count,), plain).gpus


def test_links_come_before_the_nic():
    """The bridged pair that is farther away beats a PCIe pair at the NIC."""
    topology = replace(
        machine("a100-pcie-bridged"),
        nics=(Nic("mlx5_0", ("SYS", "PIX", "SYS", "SYS", "PIX", "SYS", "SYS", "SYS")),),
    )
    bridged = [
        {a, b} for a, b in combinations(range(8), 2) if topology.kinds[a][b].startswith("NV")
    ]
    asked = cluster({"n1": FULL, "n2": FULL}, topologies={"n1": topology, "n2": topology})
    for gpus in placed("mapa", (2, 2), asked).gpus.values():
        assert set(gpus) in bridged
        assert {1, 4} & set(gpus)


def test_of_two_nodes_the_one_whose_gpus_are_nearer_to_a_nic():
    """Equal links, equal GPUs free: n2 and n3 have theirs beside the NIC."""
    topologies = dict.fromkeys(("n1", "n2", "n3"), with_nics(ON_GPU_1))
    frees = {"n1": [2, 3], "n2": [0, 1], "n3": [0, 1]}
    asked = cluster(frees, topologies=topologies)
    assert set(placed("mapa", (2, 2), asked).gpus) == {"n2", "n3"}


def test_nodes_that_differ_in_their_nics_only_are_told_apart():
    """They share every table, but not the answer."""
    other = Nic("mlx5_0", ("SYS", "SYS", "NODE", "PIX"))
    topologies = {"n1": with_nics(ON_GPU_1), "n2": with_nics(other)}
    asked = cluster({"n1": FOUR, "n2": FOUR}, topologies=topologies)
    assert placed("mapa", (1, 1), asked).gpus == {"n1": (1,), "n2": (3,)}


class Ranked:
    """Places by key, as a ranking walks them."""

    def __init__(self, by_key: dict[tuple[int, int], int]) -> None:
        self.by_key = by_key

    def walk(self, among: int):
        for key in sorted(self.by_key):
            if self.by_key[key] & among:
                yield key, self.by_key[key] & among


def test_what_a_domain_is_ranked_by_is_that_of_the_nodes_that_are_taken():
    """The worst of what the job feels, then sums; counted or taken one by one, it is the same."""
    draw = Random(7)
    for _ in range(3000):
        by_key: dict[tuple[float, ...], int] = {}
        for place in range(draw.randint(1, 24)):
            key = (
                draw.choice((1, 1, 2)),
                draw.randint(0, 3),
                draw.randint(0, 3),
                draw.choice((0.1, 0.7)),
            )
            by_key[key] = by_key.get(key, 0) | 1 << place
        wanted, inside = [4] * draw.randint(1, 6), draw.getrandbits(24)
        rankings, most = {4: Ranked(by_key)}, draw.choice((2, 3, 5, 20))
        chosen = _assign(wanted, rankings, inside)
        is_light = not isinstance(chosen, int) and sum(key[0] for key, _ in chosen) <= most
        found = _key_of(wanted, rankings, inside, most)
        if not is_light:
            assert found is None
            continue
        keys = [key[1:] for key, _ in chosen]
        sums = [sum(parts) for parts in zip(*(key[FIRST:] for key in keys), strict=True)]
        assert found == pytest.approx((*max(key[:FIRST] for key in keys), *sums))
