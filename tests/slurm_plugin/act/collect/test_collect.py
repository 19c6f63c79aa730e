"""Collecting through Slurm: the snippet, its sections, the store, and what is told of each node."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeRunner, tool

from gres_topology import catalog
from gres_topology.slurm_files.gres_file import gres_conf
from slurm_cluster.detected import partitioned, remaining
from slurm_cluster.fake_tools import fake_tools
from slurm_plugin.act.collect import snippet
from slurm_plugin.act.collect.read_node import read_node
from slurm_plugin.act.collect.run import Collector
from slurm_plugin.errors import PluginError, SlurmError
from slurm_plugin.learn.collected import Store
from slurm_plugin.slurm.interface import SlurmNode

TOPO = """\
\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV12\t0-7\t0
GPU1\tNV12\t X \t0-7\t0

Legend:

  X    = Self
"""
LIST = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\nGPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2)\n"
QUERY = """
Attached GPUs                             : 2
GPU 00000000:07:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    Minor Number                          : 1
    GPU Operation Mode
GPU 00000000:0A:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    Minor Number                          : 0
"""
ASSETS = Path(__file__).parents[3] / "gres_topology/assets"
NODE = SlurmNode("n1", ("IDLE",), ("gpu",), 1, 16, 4000, {"a100": 2})
MISSING = ("", 127)
A100 = {"nvidia-smi-list": LIST, "nvidia-smi-topo": TOPO, "nvidia-smi-query": QUERY}


def output(**tools: str | tuple[str, int]) -> str:
    """What the snippet prints where the named tools answer; underscores stand for dashes."""
    found = {name.replace("_", "-"): value for name, value in tools.items()}
    text = ""
    for name in snippet.COMMANDS:
        value = found.get(name, MISSING)
        body, status = (value, 0) if isinstance(value, str) else value
        text += f"@gputopo begin {name}\n{body}\n@gputopo end {name} {status}\n"
    return text


def a100(**other: str | tuple[str, int]) -> str:
    return output(**A100, **other)


def test_the_snippet_runs_in_a_posix_shell_and_marks_every_section(tmp_path):
    done = subprocess.run(
        ["sh", "-s"], input=snippet.script(), capture_output=True, text=True, check=True
    )
    found = snippet.sections(done.stdout)
    assert list(found) == list(snippet.COMMANDS)
    assert found["drm"].status == 0
    assert done.stderr == ""


def test_a_tools_output_and_status_arrive_unchanged(tmp_path):
    tool(tmp_path, "nvidia-smi", 'echo "out $*"; echo err >&2; exit 9')
    script = snippet.script().replace("PATH=", f"PATH={tmp_path}:", 1)
    done = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, check=True)
    found = snippet.sections(done.stdout)
    assert found["nvidia-smi-topo"] == snippet.Section("out topo -m\nerr\n", 9)


def test_an_answer_cut_off_is_noticed():
    whole = a100()
    with pytest.raises(PluginError, match="cut off before drm"):
        snippet.sections(whole[: whole.index("@gputopo end drm")])


def test_links_addresses_minors_and_model_come_together():
    topology = read_node("n1", snippet.sections(a100()))
    assert topology.kinds == (("X", "NV12"), ("NV12", "X"))
    assert topology.pci == ("0000:07:00.0", "0000:0a:00.0")
    assert topology.minors == (1, 0)
    assert topology.model == "NVIDIA A100-SXM4-40GB"


def test_an_answer_of_a_virtual_machine_with_one_h100():
    """As the snippet printed it there: driver 580, no other vendor's tools, no DRM devices."""
    text = (Path(__file__).parent / "assets/h100-vm.txt").read_text()
    topology = read_node("vm", snippet.sections(text))
    assert (topology.gpus, topology.model) == (1, "NVIDIA H100 80GB HBM3")
    assert (topology.pci, topology.minors) == (("0000:00:06.0",), (0,))
    assert (topology.numa, topology.cpus) == ((0,), (tuple(range(16)),))
    assert gres_conf(topology, "vm") == (
        "NodeName=vm Name=gpu Type=h100 File=/dev/nvidia0 Cores=0-15 Links=-1\n"
    )


def test_a_query_of_other_gpus_than_the_matrix_is_not_mixed_in():
    query = QUERY[: QUERY.index("GPU 00000000:0A")]
    found = output(**{**A100, "nvidia-smi-query": query})
    topology = read_node("n1", snippet.sections(found))
    assert topology.minors == (None, None)


def test_numactl_of_another_machine_is_left_out():
    numactl = "available: 1 nodes (4)\nnode 4 cpus: 0\nnode 4 size: 1 MB\nnode 4 free: 1 MB\n"
    numactl += "node distances:\nnode   4 \n  4:  10 \n"
    assert read_node("n1", snippet.sections(a100(numactl=numactl))).gpus == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (output(), "none of nvidia-smi, amd-smi, rocm-smi and xpu-smi is installed"),
        (output(nvidia_smi_topo=("no driver\nNVIDIA-SMI has failed", 9)), "status 9: NVIDIA-SMI"),
        (output(nvidia_smi_topo=("", 124)), "failed with status 124"),
    ],
)
def test_a_node_without_tools_says_why(text, says):
    with pytest.raises(PluginError, match=says):
        read_node("n1", snippet.sections(text))


def collector(tmp_path: Path, srun: str | Callable[[list[str], str], str]) -> Collector:
    return Collector(FakeRunner({"srun": srun}), Store(tmp_path), wait_s=5)


def test_a_node_is_asked_through_slurm_with_the_snippet_on_its_standard_input(tmp_path):
    runner = FakeRunner({"srun": a100()})
    list(Collector(runner, Store(tmp_path), wait_s=5).collect([NODE]))
    ((argv, stdin),) = runner.calls
    assert {"--nodelist=n1", "--immediate=5", "--partition=gpu", "/bin/sh"} <= set(argv)
    assert not any("gres" in word or "gpu-topo" in word for word in argv)
    assert stdin == snippet.script()


def test_collecting_twice_changes_nothing(tmp_path):
    first = list(collector(tmp_path, a100()).collect([NODE]))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.json")}
    second = list(collector(tmp_path, a100()).collect([NODE]))
    assert ([o.what for o in first], [o.what for o in second]) == (["new"], ["same"])
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.json")} == before


def test_the_nvlink_domain_of_a_node_is_kept_and_follows_its_cables(tmp_path):
    fabric = """
    Fabric
        State                             : Completed
        Status                            : Success
        CliqueId                          : 7
        ClusterUUID                       : dc6e40c4-d722-4357-9ba6-5291dd461278
    Processes                             : None"""
    store = Store(tmp_path)
    joined = re.sub(r"(Minor Number .*)", lambda line: line[1] + fabric, QUERY)
    domain_7 = "dc6e40c4-d722-4357-9ba6-5291dd461278.7"
    for query, domain in (
        (joined, domain_7),
        (("NVML: cut off", 124), domain_7),
        (QUERY, ""),
    ):
        text = output(**{**A100, "nvidia-smi-query": query})
        [_] = Collector(lambda *_, text=text: text, store).collect([NODE])
        assert store.domains()["n1"] == domain


def test_changed_hardware_is_named_and_kept_apart_until_accepted(tmp_path):
    list(collector(tmp_path, a100()).collect([NODE]))
    lost = a100().replace("NV12", "SYS")
    (changed,) = collector(tmp_path, lost).collect([NODE])
    assert changed.what == "changed"
    assert changed.text == "GPU0 and GPU1: expected NV12, found SYS"
    record = Store(tmp_path).nodes()["n1"]
    assert record.accepted != record.latest
    (repaired,) = collector(tmp_path, a100()).collect([NODE])
    assert repaired.what == "same"
    assert Store(tmp_path).nodes()["n1"].latest == record.accepted
    (accepted,) = collector(tmp_path, lost).collect([NODE], accept=True)
    assert accepted.what == "accepted"
    record = Store(tmp_path).nodes()["n1"]
    assert record.accepted == record.latest


def test_confined_devices_are_asked_for_with_all_gpus(tmp_path):
    def confined(argv: list[str], _stdin: str) -> str:
        if "--gres=gpu:2" in argv:
            return a100()
        return output(nvidia_smi_topo=("No devices were found", 6))

    runner = FakeRunner({"srun": confined})
    (outcome,) = Collector(runner, Store(tmp_path)).collect([NODE])
    assert outcome.what == "new"
    assert "--comment=gpu-topo: off" in runner.calls[1][0]


def test_every_failed_node_is_named_and_the_others_are_kept(tmp_path):
    def srun(argv: list[str], _stdin: str) -> str:
        if "--nodelist=n2" in argv:
            raise SlurmError("srun: Unable to allocate resources")
        return a100()

    nodes = [
        NODE,
        replace(NODE, name="n2"),
        replace(NODE, name="n3", state=("IDLE", "DRAIN")),
        replace(NODE, name="n4", gpus={"a100": 4}),
    ]
    outcomes = list(collector(tmp_path, srun).collect(nodes))
    assert [(o.node, o.what) for o in outcomes] == [
        ("n1", "new"), ("n2", "failed"), ("n3", "failed"), ("n4", "failed"),
    ]  # fmt: skip
    assert "Unable to allocate" in outcomes[1].text
    assert outcomes[2].text == "the node is DRAIN"
    assert outcomes[3].text == "its tools show 2 GPUs, Slurm has 4"
    assert set(Store(tmp_path).nodes()) == {"n1"}


XPU = {"xpu-smi-topo": "GPU/Tile", "xpu-smi-list": '{"device_list": [{"device_id": "\\u001b[2J"}]}'}


@pytest.mark.parametrize(
    "answer",
    [
        output(**{**A100, "nvidia-smi-query": QUERY.replace("Number : 1", f"Number : {'1' * 5000}")
               .replace(": 1\n    GPU Op", f": {'1' * 5000}\n    GPU Op")}),
        output(**XPU),
        output(**{"amd-smi-topo": "[" * 100_000, "amd-smi-asic": "[" * 100_000}),
        output(**{"rocm-smi-topo": "GPU0 \x1b]0;x\x07" * 9}),
        "\0" * 99,
    ],
    ids=["many digits", "an odd list", "deeply nested", "a terminal's commands", "nothing of ours"],
)  # fmt: skip
def test_whatever_one_node_answers_the_others_are_read(tmp_path, answer):
    nodes = [replace(NODE, name="bad"), NODE]
    asked = collector(tmp_path, lambda argv, _: answer if "--nodelist=bad" in argv else a100())
    bad, good = asked.collect(nodes)
    assert (bad.what, good.what) == ("failed", "new")
    assert bad.text
    assert bad.text.isprintable()
    assert len(bad.text) <= 2000
    assert set(Store(tmp_path).nodes()) == {"n1"}


def test_slices_are_counted_with_the_gpus_they_are_of(tmp_path):
    """Slurm counts a whole GPU and seven slices, the tools two GPUs."""
    listed = (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\nGPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2)\n"
    )
    listed += "".join(f"  MIG 1g.5gb      Device  {i}: (UUID: MIG-{i})\n" for i in range(7))
    answer = a100(nvidia_smi_list=listed)
    cut = replace(NODE, gpus={"a100": 1, "a100_1g.5gb": 7})
    (outcome,) = collector(tmp_path, answer).collect([cut])
    assert (outcome.what, outcome.text.split(",")[0]) == ("new", "2 GPUs")
    known = Store(tmp_path).topology(Store(tmp_path).nodes()["n1"].latest)
    assert known.model == "NVIDIA A100-SXM4-40GB"
    missing = replace(NODE, name="n2", gpus={"a100": 2, "a100_1g.5gb": 7})
    (outcome,) = collector(tmp_path, answer).collect([missing])
    assert outcome.text == "its tools show 2 GPUs, Slurm has 2 and 7 slices"


@pytest.mark.parametrize(("counted", "told"), [(16, "2 GPUs"), (12, "its tools show 2 GPUs"),
                                               (2, "2 GPUs")])  # fmt: skip
def test_partitions_have_the_type_of_their_gpu(tmp_path, counted, told):
    """amd-smi lists each partition, and so does gpu/rsmi: 8 of each MI300X."""
    mi300x = remaining(catalog.load("mi300x"), [0, 4])
    texts = fake_tools(partitioned(mi300x, 8))
    answer = output(
        amd_smi_topo=texts["amd-smi/topology.json"], amd_smi_asic=texts["amd-smi/asic-bus.json"]
    )
    parts = replace(NODE, gpus={"mi300x": counted})
    (outcome,) = collector(tmp_path, answer).collect([parts])
    assert outcome.text.split(",")[0] == told


def test_a_key_that_leads_out_of_the_store_is_refused(tmp_path):
    with pytest.raises(PluginError, match="no key of ours"):
        Store(tmp_path).topology("../../etc/passwd")


def test_a_node_whose_model_is_known_now_is_the_hardware_it_was(tmp_path):
    rocm = (ASSETS / "own-rocm-mi300x-full.txt").read_text()
    links, _, product = rocm.partition(" Product Info ")
    end = "\n================================== End of ROCm SMI Log ==\n"
    node = replace(NODE, gpus={"mi300x": 8})
    before = output(rocm_smi_topo=links.rpartition("\n")[0] + end)
    (first,) = collector(tmp_path, before).collect([node])
    (second,) = collector(tmp_path, output(rocm_smi_topo=rocm)).collect([node])
    assert product
    assert [first.what, second.what] == ["new", "same"]
    record = Store(tmp_path).nodes()["n1"]
    assert record.accepted == record.latest
    assert Store(tmp_path).topology(record.accepted).model == "AMD Instinct MI300X"
    (without,) = collector(tmp_path, before).collect([node])
    assert (without.what, Store(tmp_path).nodes()["n1"].latest) == ("same", record.accepted)


def test_a_tool_that_failed_adds_nothing_to_what_the_other_said(tmp_path):
    links, cards, _ = re.split(r"(?m)^(?=\{)", (ASSETS / "amd-smi-mi300x-cli-10.json").read_text())
    found = read_node(
        "n1",
        snippet.sections(
            output(
                amd_smi_topo=links,
                amd_smi_asic=cards,
                amd_smi_numa=("usage: amd-smi static\n{--numa}", 2),
                rocm_smi_topo=("No module named rocm_smi", 1),
                drm="renderD131 /sys/devices/pci0000:00/0000:1e:00.0\n",
            )
        ),
    )
    assert (found.model, found.numa) == ("AMD Instinct MI300X", (None,) * 8)
    assert found.minors == (None, None, 131, *[None] * 5)
