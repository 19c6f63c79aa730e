"""A future that is played fast is the one that the rules say, word by word."""

from __future__ import annotations

from random import Random

import pytest
from machines import machine

from policies import Ahead, Cluster, NodeState, Release, Request, WaitingJob
from policies.contract.bits import gpus_of, mask_of
from policies.horizon.communication import Communication
from policies.horizon.futures import Choices, World
from policies.horizon.playing import DEEP, NOWHERE, STARTS, Waits, WantedPart
from policies.matching.links import host_mbps
from policies.registry import registry

MAPA = registry.get("mapa")
KINDS = ("dgx1v", "mi250x", "a100-pcie-bridged")


class Plain:
    """The rules, one step after the other, without any thought of speed."""

    def __init__(self, world: World, node: int, mask: int, future: int) -> None:
        self.world, self.own, self.mask = world, node, mask
        self.free = [set(gpus_of(free)) for free in world._free]
        self.free[node] -= set(gpus_of(mask))
        ends, self.waits, _ = world._played_in(future)
        self.ends = [(at_s, place, set(gpus_of(gpus))) for at_s, place, gpus, _ in ends]
        self.ends.append((world._played_in(future)[2], node, set(gpus_of(mask))))
        self.now_s = self.worth = 0.0
        self.starts = self.next_mask = 0
        self.at_once: set[int] = set()

    def best(self, part: WantedPart, without: int) -> tuple[int, int] | None:
        """Node and GPUs (mask): of the lightest nodes the one that mapa ranks first."""
        ranked = []
        for number, node in enumerate(self.world.nodes):
            if len(self.free[number]) >= part.gpus and number != without:
                free = mask_of(self.free[number])
                found = Choices(MAPA.tables, MAPA._objective).find(part, node.topology, free)
                ranked.append((node.weight, found.key, number, found.mask, found.gain))
        if not ranked:
            return None
        _, _, number, mask, own = min(ranked)
        self.worth += own * part.weight
        return number, mask

    def start(self, part: WantedPart, lasts_s: float, without: int = NOWHERE) -> bool:
        found = self.best(part, without)
        if found is None:
            return False
        number, mask = found
        self.free[number] -= set(gpus_of(mask))
        self.ends.append((self.now_s + lasts_s, number, set(gpus_of(mask))))
        self.starts += 1
        if self.now_s == 0.0:
            self.at_once.add(id(part))
        if number == self.own and not self.next_mask:
            self.next_mask = mask
        return True

    def promise(self, gpus: int) -> tuple[float, int]:
        free = [len(some) for some in self.free]
        for at_s, number, some in sorted(self.ends, key=lambda end: (*end[:2], mask_of(end[2]))):
            free[number] += len(some)
            if free[number] >= gpus:
                return at_s, number
        return float("inf"), NOWHERE

    def play(self, backfill: bool) -> tuple[float, int, set[int]]:
        left = list(self.waits)
        while left and self.starts < STARTS:
            _, lasts_s, part = left[0]
            if self.start(part, lasts_s):
                left = left[1:]
                continue
            if not self.ends:
                break
            if backfill:
                self.pass_(left)
            self.ends.sort(key=lambda end: (*end[:2], mask_of(end[2])))
            self.now_s, number, some = self.ends.pop(0)
            self.free[number] |= some
        next_mask = 0 if self.next_mask & self.mask else self.next_mask
        return self.worth, next_mask, self.at_once

    def pass_(self, left: list[Waits]) -> None:
        starts_s, promised = self.promise(left[0][0])
        at = 1
        while at < len(left) and at <= DEEP:
            _, lasts_s, part = left[at]
            is_over = self.now_s + lasts_s <= starts_s
            if self.start(part, lasts_s, NOWHERE if is_over else promised):
                del left[at]
            else:
                at += 1


def drawn(draw: Random) -> tuple[Cluster, Request]:
    """A few nodes, who waits and what comes free."""
    nodes, releases = {}, []
    for at in range(draw.randint(1, 4)):
        topology = machine(draw.choice(KINDS))
        free = mask_of(gpu for gpu in range(topology.gpus) if draw.random() < 0.4)
        nodes[f"n{at}"] = NodeState(f"n{at}", topology, free, 0, draw.choice((1, 1, 2)))
        releases += [
            Release(draw.uniform(0, 9000), f"n{at}", 1 << gpu, -draw.uniform(0, 900), 9 * at + gpu)
            for gpu in range(topology.gpus)
            if not free >> gpu & 1 and draw.random() < 0.8
        ]
    queue = [
        WaitingJob(
            (draw.randint(1, 8),) * draw.choice((1, 1, 2)),
            draw.choice((60.0, 600.0, 3600.0)),
            sensitive=draw.random() < 0.8,
            communication=draw.choice((None, 0.1, 0.5)),
        )
        for _ in range(draw.randint(1, 20))
    ]
    used = draw.choice(((), tuple(sorted(draw.random() for _ in range(9)))))
    ahead = Ahead(3600.0, queue, sorted(releases), draw.random() < 0.7, used)
    return Cluster(nodes, ahead=ahead), Request((1,))


@pytest.mark.parametrize("seed", range(60))
def test_a_future_is_the_one_that_the_rules_say(seed):
    draw = Random(seed)
    cluster, request = drawn(draw)
    world = World(Choices(MAPA.tables, MAPA._objective), cluster, request, cluster.nodes.values())
    for node in cluster.nodes.values():
        if not node.free:
            continue
        count = draw.randint(1, node.free.bit_count())
        own = world.sets(node, count)[-1]
        for future in range(world.futures):
            number = world.nodes.index(node)
            plain = Plain(world, number, own.mask, future)
            worth, next_mask, at_once = plain.play(cluster.ahead.backfill)
            found = world.play(node, count, own, future)
            assert found.worth == pytest.approx(own.gain + worth, abs=1e-12)
            assert (found.next_mask, found.at_once) == (next_mask, at_once)


@pytest.mark.parametrize("kind", [*KINDS, "torus-16", "cubemesh-16"])
def test_sets_without_their_rank_orders_are_mapas_own(kind):
    topology, draw = machine(kind), Random(kind)
    host_gbps = host_mbps(topology) / 1000
    choices = Choices(MAPA.tables, MAPA._objective)
    for _ in range(40):
        free = draw.randint(1, (1 << topology.gpus) - 1)
        count = draw.randint(1, free.bit_count())
        job = WaitingJob((count,), 60.0, draw.choice(("ring", "tree")), draw.random() < 0.7)
        request = Request(job.gpus_per_node, pattern=job.pattern, sensitive=job.sensitive)
        objective = MAPA._objective(request)
        tops = MAPA.tables.top(topology, job.pattern, count, free, objective)
        feels = job.sensitive and count > 1
        gains = [feels * (one.share - 0.1 * (one.weakest_gbps <= host_gbps)) for one in tops]
        found = choices.sets(request, count, NodeState("n", topology, free))
        assert [one.mask for one in found] == [one.mask for one in tops]
        assert [one.gain for one in found] == gains
        best = choices.find(WantedPart(job, count, (), 1.0), topology, free)
        assert (best.mask, best.gain, best.share) == (tops[0].mask, gains[0], tops[0].share)


def test_a_jobs_parts_are_made_once_for_the_same_kinds_of_node():
    choices, told = Choices(MAPA.tables, MAPA._objective), Communication({}, MAPA.tables)
    job, one, two = WaitingJob((2,), 60.0), machine("dgx1v"), machine("mi250x")
    made = choices.parts(job, [one], [one.shape], told)
    assert choices.parts(job, [one], [one.shape], told) is made
    other = choices.parts(job, [two, one], [two.shape, one.shape], told)
    assert [len(part.known) for part in other] == [2]
    assert other[0].known[1] is made[0].known[0]
    assert choices.parts(WaitingJob((3,), 60.0), [one], [one.shape], told)[0].gpus == 3


@pytest.mark.parametrize("pattern", ["hypercube", "ring+tree"])
def test_a_set_that_is_in_no_table_is_the_one_that_is_searched(pattern):
    torus, job = machine("torus-16"), WaitingJob((3,), 60.0, pattern)
    free = mask_of([1, 5, 6, 9, 12])
    best = Choices(MAPA.tables, MAPA._objective).find(WantedPart(job, 3, (), 1.0), torus, free)
    first = MAPA.tables.first(torus, pattern, 3, free, MAPA.sensitive)
    worth = MAPA.tables.worth(torus, pattern, first.order, free)
    assert worth.share < 1 or pattern != "hypercube"
    assert (best.mask, best.share) == (first.mask, worth.share)
