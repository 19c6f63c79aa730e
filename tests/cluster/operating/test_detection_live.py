"""GPUs that slurmd finds by itself, by Slurm's own plugins for NVML and ROCm SMI.

The vendors' libraries are those of slurm_cluster/gpu_libraries; all else is Slurm's: which GPUs
there are, in which order, their Links, Cores, device files and MIG slices.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from gres_topology import NodeTopology, catalog
from gres_topology.slices import declared
from slurm_cluster import detected as by_slurmd
from slurm_cluster.cluster import Cluster
from slurm_cluster.detected import Detected, detected, partitioned, remaining, slice_uuid
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin, pytest.mark.enforced]

NODE = "bridged1"
#: Pairs 0-2, 1-3, 4-5, 6-7 on a bridge; /dev/nvidia0 is the last GPU on the bus.
MACHINE = replace(catalog.load("a100-pcie-bridged"), minors=tuple(range(7, -1, -1)))
KEYS = "topology: collected, slurm_index: gres-conf"
LONG = "a node's slurmd is started several times"


def with_plugin(cluster: Cluster, node: str, kind: str) -> None:
    if not by_slurmd.has_plugin(cluster, node, kind):
        pytest.skip(f"Debian {cluster.suite} has no gpu/{kind}")


@contextmanager
def node_of(
    cluster: Cluster, topology: NodeTopology, gres: str, keys: str = KEYS, node: str = NODE
) -> Iterator[Detected]:
    """A node that detects its GPUs, of which nothing was collected before."""
    with detected(cluster, node, topology, gres, keys) as here:
        try:
            yield here
        finally:
            cluster.run("ctl", ["rm", "-rf", "/var/lib/gputopo/topologies"])


def collected(cluster: Cluster, node: str = NODE, *args: str) -> dict[str, Any]:
    command = ["gputopo", "topology", "collect", node, "--json", *args]
    (row,) = json.loads(cluster.run("ctl", command, check=False, timeout_s=120).out)["nodes"]
    return dict(row)


def wrong(cluster: Cluster, node: str = NODE) -> list[str]:
    """What doctor says is wrong with the node."""
    done = cluster.run("ctl", ["gputopo", "doctor", "--json"], check=False, timeout_s=60)
    rows = [row for row in json.loads(done.out)["findings"] if row["level"] == "fail"]
    return [row["text"] for row in rows if row["text"].startswith(node)]


def pair(cluster: Cluster, *args: str, node: str = NODE) -> tuple[tuple[int, ...], int]:
    """What a job of two GPUs gets, and its id; it goes on."""
    job = cluster.started("-w", node, "--gres=gpu:2", *args, sleep_s=300)
    return job.gpus[node], job.id


def test_slurmd_finds_the_gpus_and_the_job_has_those_of_one_bridge(live: Cluster):
    """Minors run against PCI addresses: GPU 0 of all is /dev/nvidia7; jobs count as NVML does."""
    with_plugin(live, NODE, "nvml")
    with node_of(live, MACHINE, "gpu:a100:8") as here:
        found = here.gres()
        assert [row["File"] for row in found] == [f"/dev/nvidia{7 - gpu}" for gpu in range(8)]
        assert found[0]["Links"] == "-1,0,12,0,0,0,0,0"
        assert [row["Cores"] for row in found] == ["0-7"] * 4 + ["8-15"] * 4
        assert collected(live)["what"] == "new"
        assert wrong(live) == []
        live.occupy(NODE, [0])
        gpus, job = pair(live)
        assert gpus == (1, 3)
        assert live.visible_gpus(job) == (1, 3)
        files = [found[gpu]["File"] for gpu in gpus]
        assert files == ["/dev/nvidia6", "/dev/nvidia4"]


@pytest.mark.long(LONG)
def test_a_bridge_that_is_gone_is_named_and_its_pair_is_one_no_more(live: Cluster):
    with_plugin(live, NODE, "nvml")
    with node_of(live, MACHINE, "gpu:a100:8") as here:
        collected(live)
        here.becomes(remaining(MACHINE, range(8), cut=[(0, 2)]))
        here.restart()
        assert here.gres()[0]["Links"] == "-1,0,0,0,0,0,0,0"
        row = collected(live)
        assert (row["what"], row["text"]) == (
            "changed",
            "GPU0 and GPU2: expected NV12, found SYS",
        )
        (text,) = wrong(live)
        assert "is left to Slurm" in text
        assert "GPU0 and GPU2: expected NV12, found SYS" in text
        assert collected(live, NODE, "--accept")["what"] == "accepted"
        assert wrong(live) == []
        assert pair(live)[0] == (1, 3)


@pytest.mark.long(LONG)
def test_a_gpu_that_fell_off_the_bus_is_told_and_the_node_serves_again_without_it(live: Cluster):
    """Lost: slurmd counts it and gets no handle. After the next boot NVML knows seven GPUs."""
    with_plugin(live, NODE, "nvml")
    with node_of(live, MACHINE, "gpu:a100:8") as here:
        collected(live)
        here.becomes(MACHINE, lost=[2])
        row = collected(live)
        assert row["what"] == "failed"
        assert "the device handle for GPU0000:41:00.0: GPU is lost" in row["text"]
        here.restart()

        def is_drained() -> bool:
            shown = live.run("ctl", ["scontrol", "show", "node", NODE]).out
            return "count reported lower than configured (7 < 8)" in shown

        until(is_drained, "slurmctld has drained the node")
        assert [row["File"] for row in here.gres()].count("/dev/nvidia5") == 0
        (text,) = wrong(live)
        assert "slurmd found 7 GPUs of 8, and the node is" in text
        assert collected(live)["what"] == "failed"
        # The administrator goes on with seven.
        here.becomes(remaining(MACHINE, [0, 1, 3, 4, 5, 6, 7]))
        change = f"sed -i '/^NodeName={NODE} /s/gpu:a100:8/gpu:a100:7/' /cluster/slurm.conf"
        live.run("ctl", change)
        live.restart_slurmctld()
        here.restart()
        resume = f"scontrol update nodename={NODE} state=resume"
        idle = f"sinfo -h -N -n {NODE} -p gpu -o %T | grep -qx idle"
        until(lambda: not live.run("ctl", f"{resume}; {idle}", check=False).code, "it is idle", 60)
        assert collected(live, NODE, "--accept")["what"] == "accepted"
        assert wrong(live) == []
        # Slurm's 1 and 2 are what was GPU 1 and 3.
        assert pair(live)[0] == (1, 2)


#: GPU 7 is /dev/nvidia0: its slices come first.
WORDS = ["0-5", "7/1g.5gb*7", "6/3g.20gb*2"]
SLICED = declared(MACHINE, WORDS)


@pytest.mark.long(LONG)
def test_mig_slices_that_slurmd_finds_are_placed_by_their_gpu(live: Cluster):
    with_plugin(live, NODE, "nvml")
    if live.release < (23, 2):
        pytest.skip("22.05 counts slices that it detects in turns with GPUs (docs/slices.md)")
    keys = f"topology: collected, slices: [{', '.join(WORDS)}]"
    gres = "gpu:a100:6,gpu:1g.5gb:7,gpu:3g.20gb:2"
    with node_of(live, SLICED, gres, keys) as here:
        found = here.gres()
        assert [row["Type"] for row in found] == ["a100"] * 6 + ["1g.5gb"] * 7 + ["3g.20gb"] * 2
        assert [row["File"].split(",")[0] for row in found[6:]] == ["/dev/nvidia0"] * 7 + [
            "/dev/nvidia1"
        ] * 2
        assert collected(live)["what"] == "new"
        assert wrong(live) == []
        one = live.started("-w", NODE, "--gres=gpu:1g.5gb:1", "--mem=1", sleep_s=300)
        assert one.gpus == {NODE: (6,)}
        assert visible(live, one.id) == [slice_uuid(MACHINE, 7, 1)]
        two = live.started("-w", NODE, "--gres=gpu:3g.20gb:2", "--mem=1", sleep_s=300)
        assert two.gpus == {NODE: (13, 14)}
        assert visible(live, two.id) == [slice_uuid(MACHINE, 6, i) for i in (1, 2)]
        assert pair(live, "--gres=gpu:a100:2", "--mem=1")[0] == (0, 2)


def visible(cluster: Cluster, job: int, name: str = "CUDA_VISIBLE_DEVICES") -> list[str]:
    return cluster.env_of(job)[name].split(",")


AMD = "amd1"


@pytest.mark.long(LONG)
@pytest.mark.parametrize(("machine", "best"), [("mi250x", "XGMI4"), ("mi300x", "XGMI")])
def test_amds_gpus_are_found_by_rocm_smi(live: Cluster, machine: str, best: str):
    with_plugin(live, AMD, "rsmi")
    backwards = replace(catalog.load(machine), minors=tuple(range(7, -1, -1)))
    cores = {"mi250x": ["12-15", "12-15", "4-7"], "mi300x": ["0-7"] * 3}[machine]
    # amd-smi does not tell how many links join a pair: the machine is that of the catalog.
    keys = f"topology: {machine}, slurm_index: gres-conf"
    with node_of(live, backwards, f"gpu:{machine}:8", keys, AMD) as here:
        found = here.gres()
        assert [row["File"] for row in found] == [f"/dev/dri/renderD{135 - g}" for g in range(8)]
        assert [row["Cores"] for row in found[:3]] == cores
        assert found[1]["Links"] == "0,-1,0,0,0,0,0,0"
        assert collected(live, AMD)["what"] == "new"
        assert wrong(live, AMD) == []
        live.occupy(AMD, [0])
        gpus, job = pair(live, node=AMD)
        assert backwards.kinds[gpus[0]][gpus[1]] == best
        assert visible(live, job, "ROCR_VISIBLE_DEVICES") == [str(gpu) for gpu in gpus]


@pytest.mark.long(LONG)
def test_partitions_that_rocm_smi_counts_are_placed_by_their_gpu(live: Cluster):
    """Two MI300X in CPX, all of one type; GPU 1 is in use, Slurm itself would begin GPU 0."""
    with_plugin(live, AMD, "rsmi")
    parts = partitioned(remaining(catalog.load("mi300x"), [0, 4]), 8)
    keys = "topology: collected, slices: [0/cpx*8, 1/cpx*8]"
    with node_of(live, parts, "gpu:mi300x:16", keys, AMD) as here:
        renders = [*range(128, 136), *range(160, 168)]
        assert [row["File"] for row in here.gres()] == [f"/dev/dri/renderD{n}" for n in renders]
        row = collected(live, AMD)
        assert (row["what"], row["text"].split(",")[0]) == ("new", "2 GPUs")
        assert wrong(live, AMD) == []
        one = ("-w", AMD, "--gres=gpu:mi300x:1", "--mem=1")
        held = [live.started(*one, sleep_s=300) for _ in range(9)]
        assert [job.gpus[AMD][0] for job in held] == list(range(9))
        live.cancel(*(job.id for job in held[:8]))
        for job in held[:8]:
            live.wait_finished(job.id)
        for asked, got in (("gpu:mi300x:2", (9, 10)), ("gpu:1", (11,))):
            job = live.started("-w", AMD, f"--gres={asked}", "--mem=1", sleep_s=300)
            assert job.gpus[AMD] == got
