"""The measure of slices: the same jobs for both sides, and what Slurm says is in use by GPU."""

from __future__ import annotations

import pytest

from bench.live.placed.slices import (
    BUSY,
    SHARD_SIZES,
    SIZES,
    WORDS,
    Outcome,
    figures,
    outcome,
    script,
    steps,
)
from gres_topology import catalog
from gres_topology.slices import declared

TOPOLOGIES = {"bridged1": declared(catalog.load("a100-pcie-bridged"), WORDS)}
#: Six GPUs are cut, in three pairs; 3 is one of GPU 1's halves, 20 one of GPU 6's sevenths.
IDLE = "bridged1 gpu:whole:0(IDX:N/A),gpu:3g.20gb:0(IDX:N/A),gpu:1g.5gb:0(IDX:N/A)\nstep\n"
USED = "bridged1 gpu:whole:1(IDX:0),gpu:3g.20gb:1(IDX:3),gpu:1g.5gb:3(IDX:6-7,20)\nstep\n"


def test_a_gpu_is_untouched_while_none_of_its_slices_is_in_use() -> None:
    found = outcome(f"{IDLE}refused\n{USED}", TOPOLOGIES)
    assert found == Outcome([6, 3], [3, 0], 1)


def test_a_shared_gpu_is_untouched_while_none_of_its_shards_is_in_use() -> None:
    topologies = {"dgx1": declared(catalog.load("a100-pcie-bridged"), ["0-7"])}
    idle = ",".join(["0/4"] * 8)
    some = f"1/4,{idle[4:]}"
    said = f"dgx1 gpu:whole:0(IDX:N/A),shard:whole:0({idle})\nstep\n"
    said += f"dgx1 gpu:whole:1(IDX:7),shard:whole:1({some})\nstep\n"
    # Bridges join 0 and 2, 6 and 7.
    assert outcome(said, topologies) == Outcome([8, 6], [4, 2], 0)


@pytest.mark.parametrize("sizes_of", [SIZES, SHARD_SIZES], ids=["slices", "shards"])
def test_the_jobs_of_a_seed_never_ask_for_more_than_there_is(sizes_of) -> None:
    for seed in range(20):
        held: dict[int, tuple[str, int]] = {}
        for step in steps(seed, sizes_of):
            if step.ends:
                del held[step.job]
            else:
                held[step.job] = (step.gres, step.count)
            for gres, (total, sizes) in sizes_of.items():
                used = sum(count for of, count in held.values() if of == gres)
                assert used < max(BUSY) * total + max(sizes)
    assert steps(3) == steps(3) != steps(4)


def test_a_side_differs_by_its_partition_alone() -> None:
    ours, stock = (script(steps(1), partition) for partition in ("gpu", "off"))
    assert ours.replace("-p gpu --gres", "-p off --gres") == stock


def test_more_gpus_in_use_than_under_stock_slurm_misses_the_bar() -> None:
    better, worse = Outcome([4, 4], [1, 1], 0), Outcome([3, 4], [1, 1], 0)
    good = next(figures({"stock": [worse], "ours": [better]}, "shards", 24))
    bad = next(figures({"stock": [better], "ours": [worse]}, "shards", 24))
    assert (good.ok, bad.ok) == (True, False)
