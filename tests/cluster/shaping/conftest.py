"""What tests of policy=genie on a live Slurm need."""

from collections.abc import Iterator

import pytest
from modes import enforcement

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from tests.cluster.shaping.genie_queue import RUNS
from tests.cluster.shaping.genie_site import DATABASE, FOLDER, GENIE


@pytest.fixture(scope="module")
def profiles(session_cluster: Cluster) -> Iterator[None]:
    """From here on a reset leads to an engine that shapes the jobs of partition dgx."""
    session_cluster.run("ctl", ["mkdir", "-p", FOLDER])
    for name, some in RUNS.items():
        rows = [f"{run.nodes},{run.gpus},{run.local_batch},{run.step_s}" for run in some]
        file = f"{FOLDER}/{name}.csv"
        session_cluster.put("ctl", file, "\n".join(["nodes,gpus,local_batch,step_s", *rows]))
        session_cluster.run("ctl", ["gputopo", "profile", "fit", file, "--database", DATABASE])
    with session_cluster.at_home(yaml=GENIE):
        yield
    session_cluster.run("ctl", ["rm", "-rf", FOLDER])


@pytest.fixture
def shaping(profiles: None, cluster: Cluster) -> Cluster:
    """A cluster whose engine shapes jobs, and knows what Slurm's books say."""
    until(lambda: cluster.status()["genie"]["domains"], "the engine has read the queue", 20)
    cluster.wait_reconciled()
    return cluster


@pytest.fixture
def reshapes(live: Cluster) -> None:
    """Only where a waiting job can be given another shape."""
    if enforcement() == "slots" and live.release < (23, 2):
        pytest.skip("on 22.05 with slots a waiting job keeps its shape")
