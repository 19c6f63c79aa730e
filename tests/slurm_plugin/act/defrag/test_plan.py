"""Which moves free what: the cheapest, onto nodes with room, of jobs that allow it alone."""

from itertools import product
from random import Random

import jobs_in_tests
import pytest
from jobs_in_tests import runs

from gres_topology import catalog
from gres_topology.slurm_files import topology_conf
from slurm_plugin.act.defrag.movable import Movable, interval_of, movable_jobs, waiting_jobs
from slurm_plugin.act.defrag.plan import Planner
from slurm_plugin.act.defrag.sight import Sight
from slurm_plugin.config.sections import Rule
from slurm_plugin.decide.machines import Machine
from slurm_plugin.queue.candidates import Need, fits
from slurm_plugin.queue.capacity import Node, with_hold, without_holds
from slurm_plugin.queue.snapshot import Detail, Snapshot

NOW = 100_000.0
ENFORCE = Rule(mode="enforce")


def job(number, node, gpus, *, ran_s=3600, hint="movable=30", **more):
    values = {"user": "alice", "uid": 1000, "partition": "gpu", "start": int(NOW - ran_s),
              "admin_comment": f"[gpu-topo: {hint} | note]"}  # fmt: skip
    return runs(number, {node: gpus}, **(values | more))


def waits(number, gpus, nodes=1, **more):
    values = {"partition": "gpu", "min_nodes": nodes, "priority": 1, "time_limit_s": 0}
    return jobs_in_tests.waits(number, gpus, **(values | more))


def cluster(jobs, *names, gpus=8):
    """Nodes of one partition, with what these jobs leave free."""
    found = {}
    for name in names:
        used = [gpu for one in jobs for gpu in one.gpus.get(name, ())]
        free = ((1 << gpus) - 1) & ~sum(1 << gpu for gpu in used)
        found[name] = Node(
            name, ("v100",) * gpus, free, 64 - len(used), 10_000, partitions=frozenset(["gpu"])
        )
    return found


def seen(jobs):
    return Snapshot(0.0, NOW, tuple(jobs), Detail.SETTINGS)


def allowed(jobs, nodes, moved=(), rule=ENFORCE):
    return movable_jobs(seen(jobs), nodes, lambda *_: rule, moved, Sight())


def planner(jobs, *names, most=3, moved=(), gpus=8):
    nodes = cluster(jobs, *names, gpus=gpus)
    return Planner(nodes, allowed(jobs, nodes, moved), NOW, most)


def moved(gain):
    return [(move.of.job.job_id, move.target) for move in gain.moves]


def asked(gpus, nodes=1):
    return waits(99, gpus, nodes), Need(gpus, nodes, partitions=frozenset(["gpu"]))


def test_two_half_full_nodes_become_one_that_is_whole():
    jobs = [job(1, "n1", range(4)), job(2, "n2", range(4), hint="")]
    gain = planner(jobs, "n1", "n2").for_job(*asked(8))
    assert moved(gain) == [(1, "n2")]
    assert gain.what == "job 99 starts on n1"
    assert gain.cost_gpu_s == 4 * 1800


def test_of_two_ways_the_cheaper_one_is_taken():
    """By GPUs and checkpoints, not by how long a job has run."""
    jobs = [
        job(1, "n1", range(4), ran_s=50_000, hint="movable=5"),
        job(2, "n2", range(4), ran_s=900, hint="movable"),
    ]
    assert moved(planner(jobs, "n1", "n2").for_job(*asked(8))) == [(1, "n2")]
    jobs[0] = job(1, "n1", range(4), ran_s=50_000, hint="movable")
    gain = planner(jobs, "n1", "n2").for_job(*asked(8))
    assert moved(gain) == [(2, "n1")]
    assert gain.cost_gpu_s == 4 * 900
    assert gain.moves[0].of.basis == "all since its start: it says no interval of checkpoints"


def test_several_jobs_leave_a_node_for_several_others():
    jobs = [job(1, "n1", [0, 1]), job(2, "n1", [2]), job(3, "n2", range(6), hint=""),
            job(4, "n3", range(7), hint="")]  # fmt: skip
    assert moved(planner(jobs, "n1", "n2", "n3").for_job(*asked(8))) == [(1, "n2"), (2, "n3")]
    assert planner(jobs, "n1", "n2", "n3", most=1).for_job(*asked(8)) is None


def test_a_job_of_two_nodes_gets_both():
    jobs = [job(1, "n1", range(2)), job(2, "n2", range(2)), job(3, "n3", range(4), hint="")]
    gain = planner(jobs, "n1", "n2", "n3").for_job(*asked(8, 2))
    assert sorted(moved(gain)) == [(1, "n3"), (2, "n3")]
    assert gain.what == "job 99 starts on n1, n2"


def test_nodes_blocks_and_pairs():
    jobs = [job(1, "n1", range(2)), job(2, "n3", range(4), hint="")]
    some = planner(jobs, "n1", "n2", "n3")
    assert [(gain.what, moved(gain)) for gain in some.nodes_freed()] == [
        ("n1 is whole", [(1, "n3")])
    ]
    network = topology_conf.parse(
        "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-4]\nSwitchName=t Switches=s[1-2]\n",
        "topology.conf",
    )
    assert [gain.what for gain in some.blocks_freed(network)] == ["all of s1 is whole"]
    # A DGX-1V whose free GPUs 1 and 6 have no NVLink; 0 and 3 are joined by two.
    jobs = [job(1, "n1", [0, 3]), job(2, "n1", [2, 4, 5, 7], hint=""),
            job(3, "n2", range(4), hint="")]  # fmt: skip
    machines = {name: Machine(catalog.load("dgx1v")) for name in ("n1", "n2")}
    (gain,) = planner(jobs, "n1", "n2").pairs_freed(machines)
    assert (gain.kind, moved(gain)) == ("pair", [(1, "n2")])


def test_moving_to_a_node_that_nobody_uses_frees_no_node():
    assert list(planner([job(1, "n1", range(2))], "n1", "n2").nodes_freed()) == []


LEFT = [
    ("no hint", {"hint": ""}),
    ("movable by the site's default alone", {"hint": "pattern=ring"}),
    ("off", {"hint": "off"}),
    ("a hint that cannot be read", {"hint": "movable=0"}),
    ("nodes that its user named", {"req_nodes": "n1"}),
    ("a reservation", {"reservation": "r"}),
    ("a whole node", {"exclusive": True}),
    ("tasks that Slurm counts anew", {"ntasks": 4, "tasks_per_gpu": 1}),
    ("a component of a heterogeneous job", {"het_id": 1}),
    ("a task of an array", {"array_id": 1, "task": "2"}),
    ("it is ending", {"state": "COMPLETING"}),
    ("it is suspended", {"state": "SUSPENDED"}),
    ("a loan", {"admin_comment": "[gpu-topo: movable=30 |] [gpu-loan: x]"}),
    ("a donor", {"admin_comment": "[gpu-topo: movable=30 |] [gpu-donor: x]"}),
    ("slots", {"admin_comment": "[gpu-topo: movable=30 |] [gpu-slots: placed token=x]"}),
    ("a comment that is not ours", {"admin_comment": "[[gpu-topo: movable=30 |]]"}),
]


@pytest.mark.parametrize("more", [row[1] for row in LEFT], ids=[row[0] for row in LEFT])
def test_jobs_that_are_not_moved(more):
    jobs = [job(1, "n1", range(4), **more), job(2, "n2", range(4), hint="")]
    assert planner(jobs, "n1", "n2").for_job(*asked(8)) is None


def test_none_twice_and_none_in_a_partition_that_is_observed():
    jobs = [job(1, "n1", range(4)), job(2, "n2", range(4), hint="")]
    assert planner(jobs, "n1", "n2", moved={1}).for_job(*asked(8)) is None
    nodes = cluster(jobs, "n1", "n2")
    assert allowed(jobs, nodes, rule=Rule(mode="observe")) == []
    assert allowed(jobs, nodes)[0].job.job_id == 1


@pytest.mark.parametrize(
    ("hint", "wanted"),
    [("movable", 0), ("movable=yes", 0), ("movable=30", 1800), ("pattern=ring", None), ("", None),
     ("movable=0", None), ("movable=99999", None), ("movable=30,movable=40", None)],
)  # fmt: skip
def test_intervals_by_the_hint(hint, wanted):
    assert interval_of(hint, ENFORCE) == wanted


def test_waiting_jobs_are_those_that_lack_gpus_in_slurms_order():
    jobs = [
        job(1, "n1", range(4)),
        waits(2, 8),
        waits(3, 8, priority=9),
        waits(4, 2),
        waits(5, 8, reason="Dependency"),
        waits(6, 8, priority=0),
        waits(7, 8, dependency="afterok:9(unfulfilled)"),
        waits(8, 8, eligible=int(NOW) + 9),
    ]
    nodes = cluster(jobs, "n1")
    found = waiting_jobs(seen(jobs), nodes, NOW, Sight())
    assert [one.job_id for one, _ in found] == [3, 2]


def cheapest_by_hand(some: Planner, gpus: int, most: int) -> float | None:
    """Every set of jobs, on every node: the least cost after which a node has room."""
    best = None
    targets = [None, *some.nodes]
    for choice in product(targets, repeat=len(some.movable)):
        moves = [(one, to) for one, to in zip(some.movable, choice, strict=True) if to]
        if not 0 < len(moves) <= most or len({one.node for one, _ in moves}) != 1:
            continue
        nodes = without_holds(some.nodes, [one.hold for one, _ in moves])
        for one, to in moves:
            if to == one.node or not fits(one.need, nodes[to]):
                break
            free = nodes[to].free
            mask = sum(sorted(1 << gpu for gpu in range(8) if free >> gpu & 1)[: one.gpus])
            nodes = with_hold(nodes, one.need.hold([to], mask, 0))
        else:
            source = moves[0][0].node
            if nodes[source].free.bit_count() >= gpus:
                cost = sum(one.cost_gpu_s(NOW) for one, _ in moves)
                best = cost if best is None else min(best, cost)
    return best


def test_small_clusters_are_planned_exactly():
    """Against every set of moves there is."""
    draw, found = Random(5), 0
    for round_ in range(120):
        names, jobs, number = ["n1", "n2", "n3"], [], 0
        for name in names:
            at = 0
            while at < 8 and draw.random() < 0.75:
                size = min(draw.choice([1, 2, 3]), 8 - at)
                number += 1
                hint = f"movable={draw.choice([5, 30, 90])}" if draw.random() < 0.6 else ""
                jobs.append(
                    job(
                        number, name, range(at, at + size), hint=hint, ran_s=draw.choice([60, 4000])
                    )
                )
                at += size
        some = planner(jobs, *names, most=2)
        if len(some.movable) > 6:
            continue
        gpus = draw.choice([4, 6, 8])
        if any(node.free.bit_count() >= gpus for node in some.nodes.values()):
            continue
        gain = some.for_job(*asked(gpus))
        by_hand = cheapest_by_hand(some, gpus, 2)
        assert (gain and gain.cost_gpu_s) == by_hand, (round_, gain)
        found += gain is not None
    assert found > 10


def test_many_movable_jobs_are_planned_in_time():
    """A hundred nodes of eight jobs each: a plan for every one of ten waiting jobs."""
    import time

    names = [f"n{at}" for at in range(100)]
    jobs = [job(8 * at + gpu, name, [gpu]) for at, name in enumerate(names) for gpu in range(7)]
    some = planner(jobs, *names)
    began = time.process_time()
    assert some.for_job(*asked(3)) is not None
    assert some.for_job(*asked(8)) is None
    assert time.process_time() - began < 20
    assert isinstance(some.movable[0], Movable)
