"""The fake nvidia-smi, amd-smi and rocm-smi: what is read from them is that machine."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from gres_topology import Nic, NodeTopology, catalog, links
from gres_topology.readers import saved
from gres_topology.readers.amd import rocm_smi
from slurm_cluster.fake_tools import fake_tools
from slurm_plugin.act.collect import snippet
from slurm_plugin.act.collect.read_node import read_node

ROOT = Path(__file__).resolve().parents[2]
FAKE_SMI = ROOT / "slurm_cluster" / "docker" / "image" / "fake-smi"
AMD = ["mi250x", "mi300a", "mi300x", "mi325x", "mi355x"]
INTEL = ["aurora"]
NVIDIA = [name for name in catalog.names() if name not in (*AMD, *INTEL)]


def node(folder: Path, topology: NodeTopology, lacks: str = "") -> Callable[[str], str]:
    """A shell in which the vendor's tools answer as on a node of this topology, all but one."""
    answers, tools = folder / "fakegpu", folder / "bin"
    for path, text in fake_tools(topology).items():
        if path.startswith(f"{lacks}/"):
            continue
        (answers / path).parent.mkdir(parents=True, exist_ok=True)
        (answers / path).write_text(text)
    tools.mkdir(parents=True)
    for tool in ("nvidia-smi", "amd-smi", "rocm-smi", "xpu-smi", "numactl"):
        if (answers / tool).is_dir():
            (tools / tool).symlink_to(FAKE_SMI)
        else:
            # So that it is not asked for where the tests run.
            (tools / tool).write_text("#!/bin/sh\nexit 127\n")
            (tools / tool).chmod(0o755)

    def ask(script: str) -> str:
        environment = {"PATH": f"{tools}:/usr/bin:/bin", "FAKE_SMI_ROOT": str(answers)}
        return subprocess.run(
            ["sh", "-s"], input=script, env=environment, capture_output=True, text=True, check=True
        ).stdout

    return ask


def collected(folder: Path, topology: NodeTopology, lacks: str = "") -> NodeTopology:
    """What the collector makes of such a node."""
    script = snippet.script().replace("PATH=", "PATH=$PATH:", 1)
    return read_node("n1", snippet.sections(node(folder, topology, lacks)(script)))


def same_by_its_tools(actual: NodeTopology, machine: NodeTopology) -> None:
    """Tools count GPUs by address, and tell these of a node."""
    for field in ("kinds", "numa", "cpus", "model"):
        assert getattr(actual, field) == getattr(machine, field), field
    assert None not in actual.pci
    assert list(actual.pci) == sorted(actual.pci)


@pytest.mark.parametrize("name", NVIDIA)
def test_a_collected_nvidia_node_is_the_machine_of_the_catalog(name, tmp_path):
    machine = catalog.load(name)
    actual = collected(tmp_path, machine)
    same_by_its_tools(actual, machine)
    # Which rail a NIC is on no tool tells.
    assert actual.nics == tuple(replace(nic, rail=None) for nic in machine.nics)
    assert np.array_equal(actual.bandwidth_gbps, machine.bandwidth_gbps)
    assert actual.minors == tuple(range(machine.gpus))


@pytest.mark.parametrize("name", INTEL)
def test_a_collected_intel_node_is_the_machine_of_the_catalog(name, tmp_path):
    machine = catalog.load(name)
    same_by_its_tools(collected(tmp_path, machine), machine)


@pytest.mark.parametrize(("lacks", "tool"), [("rocm-smi", "amd-smi"), ("amd-smi", "rocm-smi")])
@pytest.mark.parametrize("name", AMD)
def test_a_collected_amd_node_is_the_machine_as_far_as_its_tool_tells(name, lacks, tool, tmp_path):
    """Neither has CPUs, nor how many links join a pair, nor which pairs the fabric joins by way of
    other GPUs alone: of a link it tells one."""
    machine = catalog.load(name)
    actual = collected(tmp_path, machine, lacks)
    assert actual.source.startswith(tool)
    assert actual.numa == machine.numa
    assert None not in actual.pci
    assert (actual.cpus, actual.model) == ((None,) * machine.gpus, machine.model)
    one_link = links.rates_of_model(machine.model).xgmi_gbps
    for i, j in combinations(range(machine.gpus), 2):
        hops = 1 if links.is_direct(machine.kinds[i][j]) else 2
        assert actual.kinds[i][j] == "XGMI"
        assert actual.bandwidth_gbps[i, j] == one_link / hops, (i, j)


@pytest.mark.parametrize("name", [*AMD, "two islands"])
def test_amd_smi_and_rocm_smi_tell_of_one_machine(name, tmp_path):
    text = (ROOT / "tests/gres_topology/assets/own-rocm-two-islands-excerpt.txt").read_text()
    islands = rocm_smi.read(text, name="n1", source="islands")
    machine = islands if name == "two islands" else catalog.load(name)
    found = [
        {**saved.to_dict(collected(tmp_path / lacks, machine, lacks)), "source": ""}
        for lacks in ("amd-smi", "rocm-smi")
    ]
    assert found[0] == found[1]


def test_amd_gpus_that_no_fabric_joins_are_reported_as_rocm_smi_does():
    text = (ROOT / "tests/gres_topology/assets/own-rocm-two-islands-excerpt.txt").read_text()
    islands = rocm_smi.read(text, name="n1", source="islands")
    tables = "\n".join(line.rstrip() for line in text.splitlines()[1:])
    assert tables in fake_tools(islands)["rocm-smi/showtopo.txt"]


@pytest.mark.parametrize("name", ["minsky", "mi300x"])
def test_addresses_that_are_known_are_kept(name, tmp_path):
    machine = catalog.load(name)
    addresses = tuple(f"{gpu:04x}:1a:00.0" for gpu in range(machine.gpus))
    assert collected(tmp_path, replace(machine, pci=addresses)).pci == addresses


def test_two_nics_are_as_near_as_the_gpus_beside_them_tell():
    text = fake_tools(catalog.load("dgx1v"))["nvidia-smi/topo-m.txt"]
    rows = {line.split("\t")[0]: line.split("\t")[9:] for line in text.splitlines()}
    assert rows["NIC0"] == [" X ", "PHB", "SYS", "SYS"]
    assert rows["NIC3"] == ["SYS", "SYS", "PHB", " X "]


def test_what_a_topology_does_not_know_is_left_open(tmp_path):
    nics = (Nic("ib0", ("N/A",)), Nic("ib1", ("PIX",)))
    bare = NodeTopology("minsky", "", (("X",),), np.zeros((1, 1)), (None,), (None,), nics=nics)
    actual = collected(tmp_path / "nvidia", bare)
    assert (actual.numa, actual.cpus, actual.nics) == (
        (None,),
        (None,),
        nics,
    )
    assert (actual.model, actual.pci) == ("Graphics Device", ("0000:01:00.0",))
    actual = collected(tmp_path / "amd", replace(bare, model="AMD Instinct MI100"))
    assert actual.source.startswith("amd-smi")
    assert (actual.numa, actual.cpus) == ((None,), (None,))


@pytest.mark.parametrize("name", NVIDIA)
def test_every_way_to_ask_nvidia_smi_tells_the_same_gpus(name, tmp_path):
    machine = catalog.load(name)
    ask = node(tmp_path, machine)
    fields = "index,name,uuid,pci.bus_id,memory.total"
    rows = ask(f"nvidia-smi --query-gpu={fields} --format=csv,noheader").splitlines()
    gpus = [row.split(", ") for row in rows]
    assert len({uuid for _, _, uuid, _, _ in gpus}) == machine.gpus
    listed = [f"GPU {i}: {machine.model} (UUID: {gpus[i][2]})" for i in range(machine.gpus)]
    assert ask("nvidia-smi -L").splitlines() == listed
    for gpu, report in zip(gpus, ask("nvidia-smi -q").split("\nGPU ")[1:], strict=True):
        values = [line.partition(" : ")[2] for line in report.splitlines()]
        assert set(gpu[1:]) <= set(values)
        # No card of the catalog is one that has to be made up.
        assert "0x000010DE" not in values
