"""What a site knows decides live: its own patterns, what it measured, what it usually asks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_harness import Busy, Gpus, got_by, topology_of

from policies import Cluster as Snapshot
from policies import NodeState, Placement, Request, Site
from policies.contract.demand import shares
from policies.mapa import Mapa, MapaPreserveSite
from policies.patterns import graph_file
from policies.patterns.pattern import add_graph
from slurm_cluster.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]

FOLDER = "/etc/slurm/knowledge"
NCCL_LOGS = Path(__file__).resolve().parents[2] / "slurm_plugin" / "nccl_logs.py"
#: Ranks 0 and 1 talk to all others, which do not talk to each other.
HALO = "0 1\n0 2\n0 3\n1 2\n1 3\n"
#: On these GPUs' leavings the graph and a ring want different sets (the test says so).
BUSY: Busy = {"dgx1": (0, 5)}
#: GB/s of a made-up site where a ring with a PCIe hop is as slow as that hop.
SITE = {
    (0, 3): 43.0, (4, 7): 43.4, (0, 1): 21.6, (0, 5): 9.1, (1, 6): 8.9, (0, 2, 3): 44.0,
    (0, 1, 5): 9.4, (0, 1, 2, 3): 66.0, (4, 5, 6, 7): 65.0, (0, 1, 4, 5): 44.1,
    (0, 1, 2, 3, 4): 10.0, tuple(range(8)): 128.0,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def site(session_cluster: Cluster) -> Iterator[None]:
    """A reset leads to an engine with a pattern of the site's own that knows its usual jobs."""
    session_cluster.run("ctl", ["mkdir", "-p", FOLDER])
    session_cluster.put("ctl", f"{FOLDER}/halo.txt", HALO)
    lines = f"patterns: {{halo: {FOLDER}/halo.txt}}\nusual_jobs: {{4: 1, 8: 1}}"
    with session_cluster.at_home(yaml=lines):
        yield


def left(busy: Busy) -> Snapshot:
    """dgx1 with these GPUs in use."""
    free = 0xFF - sum(1 << gpu for gpu in busy.get("dgx1", ()))
    return Snapshot({"dgx1": NodeState("dgx1", topology_of("dgx1"), free)})


def given(answer: object) -> Gpus:
    """The GPUs of a policy's answer, ascending."""
    assert isinstance(answer, Placement), answer
    return {node: tuple(sorted(gpus)) for node, gpus in answer.gpus.items()}


def test_a_pattern_of_the_sites_own(cluster):
    """Jobs ask for it by name; one of another size is placed as a ring, and its comment says so."""
    graph = graph_file.read(HALO, "halo.txt")
    name = add_graph("halo", graph.ranks, graph.edges)
    wanted = given(Mapa().place(Request((4,), pattern=name), left(BUSY)))
    assert wanted != given(Mapa().place(Request((4,)), left(BUSY)))
    cluster.occupy("dgx1", BUSY["dgx1"])
    hint = "--comment=gpu-topo: pattern=halo"
    job = cluster.started("-w", "dgx1", "--gres=gpu:4", hint, sleep_s=300)
    assert job.gpus == wanted
    assert "halo: " in job.fields["AdminComment"]
    other = cluster.sbatch("-w", "dgx2", "--gres=gpu:3", hint, sleep_s=300)
    assert "ring (halo is for 4 GPUs)" in cluster.wait_running(other).fields["AdminComment"]


def test_what_the_site_measured(cluster):
    """gputopo calibrate on the controller; five GPUs then avoid the hop that was slow."""
    source = NCCL_LOGS.read_text(encoding="utf-8")
    script = f"{source}\nprint(*write(Path('{FOLDER}'), {SITE!r}))"
    logs = cluster.run("ctl", ["python3", "-c", script]).out.split()
    model = f"{FOLDER}/dgx1v-model.yaml"
    command = ["gputopo", "calibrate", *logs, "--topology", "dgx1v", "--output", model]
    assert "mean" in cluster.run("ctl", command).out
    assert got_by(cluster, "-w", "dgx1", "--gres=gpu:5") == {"dgx1": (0, 1, 2, 3, 4)}
    edit = f"s|topology: dgx1v,|topology: dgx1v, bandwidth_model: {model},|"
    cluster.run("ctl", ["sed", "-i", edit, "/etc/slurm/gputopo.yaml"])
    cluster.engine("restart")
    cluster.wait_reconciled()
    job = cluster.started("-w", "dgx1", "--gres=gpu:5", sleep_s=300)
    assert job.gpus == {"dgx1": (0, 2, 3, 4, 7)}
    assert "as calibrated" in job.fields["AdminComment"]


def test_what_the_site_usually_asks(cluster):
    """mapa-preserve-site keeps together what jobs of the usual sizes will want."""
    usual = {4: 1, 8: 1}
    policy = MapaPreserveSite(Site(shares(usual)))
    wanted = given(policy.place(Request((1,)), left({})))
    hint = "--comment=gpu-topo: policy=mapa-preserve-site"
    job = cluster.started("-w", "dgx1", "--gres=gpu:1", hint, sleep_s=300)
    assert job.gpus == wanted
    assert "by mapa-preserve-site" in job.fields["AdminComment"]
