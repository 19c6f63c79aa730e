"""What `gputopo try` says of jobs of several nodes in blocks, and what becomes of them.

Eight nodes of four GPUs, in three or four blocks of two which Slurm joins in several ways: in
random states random jobs are tried, then submitted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from live_harness import becomes, configure_engine

from slurm_cluster.cluster import Cluster
from slurm_cluster.pytest_plugin import Clean

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.select_plugin,
    pytest.mark.long("half a minute for each state"),
]
BLOCKS = [f"BlockName=b{i} Nodes=g[{2 * i - 1}-{2 * i}]\n" for i in range(1, 5)]
#: How many of the blocks there are (the last nodes may be in none), and BlockSizes.
SITES = ((4, "2,4,8"), (4, "2,8"), (4, "2"), (3, "2,4"))
SLURMS, OURS = "/etc/slurm/topology.conf", "/etc/slurm/gputopo-network.conf"
NODES = [f"g{i}" for i in range(1, 9)]
#: For each site two tests of so many states, with so many jobs in each.
PARTS, STATES, JOBS = (0, 1), 4, 3
#: Of a test's jobs so many at least start, and so many do not: else it would see nothing.
LEAST = 1


@pytest.fixture(params=SITES, ids=lambda site: f"{site[0]} of {site[1]}")
def eight(slurm_cluster: Clean, request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, int]]:
    """The cluster, and how many of its nodes are in blocks, the first ones."""
    cluster = slurm_cluster(nodes={"g[1-8]": "minsky"})
    if cluster.release < (24, 11):
        # And 22.05 has no topology/block at all.
        pytest.skip("before 24.11 `scontrol show topology` tells no sizes of blocks")
    count, sizes = request.param
    text = f"{''.join(BLOCKS[:count])}BlockSizes={sizes}\n"
    cluster.put("ctl", SLURMS, text)
    cluster.put("ctl", OURS, text)
    cluster.configure_extra("TopologyPlugin=topology/block")
    configure_engine(cluster, f"topology_conf: {OURS}")
    yield cluster, 2 * count
    cluster.run("ctl", "rm -f /cluster/extra.conf")
    cluster.switch("gputopo")
    cluster.run("ctl", f"rm -f {SLURMS} {OURS}")


def drawn_job(rng: random.Random) -> list[str]:
    """The options of a job of several nodes."""
    kind = rng.random()
    if kind < 0.25:
        return [f"--gpus={rng.randint(2, 16)}"]
    options = [f"-N{rng.randint(2, 6)}", f"--gres=gpu:{rng.choice((1, 2, 4))}"]
    if kind > 0.7:
        options.append(f"-w{','.join(rng.sample(NODES, rng.choice((1, 2))))}")
    return options


@pytest.mark.parametrize("part", PARTS)
def test_what_is_said_of_jobs_in_blocks_comes_true(eight: tuple[Cluster, int], part: int) -> None:
    cluster, joined = eight
    wrong, seen = [], []
    for number in range(part * STATES, (part + 1) * STATES):
        rng = random.Random(f"blocks {number}")
        # Slurm refuses a job that names a node in no block.
        cluster.occupy_nodes({node: range(rng.choice((0, 0, 2, 4))) for node in NODES[:joined]})
        for _ in range(JOBS):
            options = drawn_job(rng)
            argv = ["gputopo", "try", "--json", "-t", "5", *options]
            said = json.loads(cluster.run("ctl", argv, user="alice").out)
            found = becomes(cluster, options)
            seen.append(found)
            # What is said never to start is said not to start now, too.
            if said["starts_now"] != (found == "starts"):
                wrong.append((number, options, said["sentence"], found))
        cluster.run("ctl", "scancel -u bob")
        cluster.wait_idle()
    assert not wrong, wrong
    starts = seen.count("starts")
    assert LEAST <= starts <= len(seen) - LEAST, seen
