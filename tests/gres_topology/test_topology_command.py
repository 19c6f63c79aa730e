"""`gputopo topology`: the doors users knock on."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import gres_topology
from gres_topology import catalog
from slurm_plugin.cli import cli

ASSETS = Path(__file__).parent / "assets"


def run(*arguments):
    return CliRunner().invoke(cli, ["topology", *map(str, arguments)])


def test_show_prints_matrix_links_and_numa_nodes():
    result = run("show", "dgx1v")
    assert result.exit_code == 0
    assert "GPU0    X     NV1   NV1   NV2   NV2   SYS" in result.output
    assert "NV2        50 GB/s per direction, 8 pairs" in result.output
    assert "NUMA node 1: GPUs 4-7, CPUs 20-39,60-79" in result.output


def test_show_says_which_rail_each_gpu_is_on():
    lines = run("show", "rtx-pro-6000").output.splitlines()
    heading = next(line for line in lines if "NUMA" in line and "rail" in line)
    assert heading.split()[-2:] == ["CPUs", "rail"]
    rows = [line.split() for line in lines if line.startswith("GPU")]
    assert [row[-1] for row in rows] == ["0", "0", "1", "1", "2", "2", "3", "3"]
    assert "rail" not in run("show", "dgx2").output


def test_the_largest_matrix_is_not_cut():
    row = next(
        line for line in run("show", "gb200-nvl72").output.splitlines() if line.startswith("GPU71 ")
    )
    assert row.split()[:2] == ["GPU71", "NV18"]
    assert row.count("NV18") == 71


@pytest.mark.parametrize("path", sorted(ASSETS.glob("*.txt")), ids=lambda p: p.stem)
def test_every_report_is_shown_or_refused_in_one_line(path):
    result = run("show", path)
    if "p2p" in path.name:
        assert result.exit_code == 2
        assert result.output.count("\n") == 1
    else:
        assert result.exit_code == 0, result.output
        assert gres_topology.read(path).name in result.output


def test_json_is_one_object_and_numactl_can_be_added():
    result = run(
        "show",
        ASSETS / "nvidia-smi-nic-legend.txt",
        "--json",
        "--numa",
        ASSETS / "numactl-two-nodes.txt",
    )
    found = json.loads(result.output)
    assert found["numa_nodes"][1]["memory_mb"] == 193477
    assert {"name", "source", "bandwidth_gbps", "pci", "minors", "nics"} <= set(found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "dgx9"), "'dgx9' is neither a file nor a machine of the catalog"),
        (("show", "/nonexistent/file"), "/nonexistent/file: No such file"),
        (("show", "/"), "/: Is a directory"),
        (("show", __file__), "test_topology_command.py: not a topology"),
        (("show", "dgx1v", "--numa", "/nonexistent"), "/nonexistent: No such file"),
        (("show", "dgx1v", "--plot", "/nonexistent/x.svg"), "/nonexistent/x.svg"),
        (("show", "dgx1v", "--plot", "/tmp/x.nonsense"), "nonsense"),
        (("gres-conf", "dgx1v", "n1"), "minor of GPU0 is unknown"),
    ],
)
def test_errors_are_one_line_and_exit_status_two(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1


def test_binary_files_are_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"\x00\x01GPU0\n")
    assert "binary data" in run("show", tmp_path / "x").output


def test_list_names_every_machine():
    lines = run("list").output.splitlines()
    assert [line.split()[0] for line in lines] == list(catalog.names())
    rows = json.loads(run("list", "--json").output)
    assert [row["name"] for row in rows] == list(catalog.names())
    assert {"name": "dgx1v", "gpus": 8, "model": catalog.load("dgx1v").model} in rows


def test_diff_as_json_has_the_same_sentences():
    result = run("diff", "dgx1v", "minsky", "--json")
    told = json.loads(result.output)
    assert result.exit_code == 1
    assert told["differences"] == run("diff", "dgx1v", "minsky").output.splitlines()
    assert json.loads(run("diff", "dgx1v", "dgx1v", "--json").output)["same"]


def test_gres_conf_is_printed_as_slurm_reads_it():
    result = run("gres-conf", "dgx1v", "dgx[1-2]", "--device", "/dev/fakegpu{index}")
    assert result.output.splitlines()[0] == (
        "NodeName=dgx[1-2] Name=gpu Type=v100 File=/dev/fakegpu0 Cores=0-19 Links=-1,1,1,2,2,0,0,0"
    )


def test_gres_conf_with_slots_says_what_slurm_conf_needs():
    result = run("gres-conf", "minsky", "n1", "--device", "/dev/fakegpu{index}", "--slots")
    first, second = result.output.splitlines()[:2]
    assert first.startswith("# slurm.conf: NodeName=n1 Gres=gpu:p100.s0:1,")
    assert second.startswith("NodeName=n1 Name=gpu Type=p100.s0 File=/dev/fakegpu0 ")


def test_diff_exits_one_where_machines_differ():
    assert run("diff", "dgx1v", "dgx1v").exit_code == 0
    result = run("diff", "dgx1v", "dgx1p")
    assert result.exit_code == 1
    assert "GPU0 and GPU3: expected NV2, found NV1" in result.output


@pytest.mark.parametrize("machine", ["dgx1v", "gb200-nvl72", "l40s-pcie"])
def test_plot_draws_the_machine_without_any_extra(machine, tmp_path, monkeypatch):
    for extra in ("matplotlib", "cairosvg"):
        monkeypatch.setitem(__import__("sys").modules, extra, None)
    target = tmp_path / "out.svg"
    assert run("show", machine, "--plot", target).exit_code == 0
    assert f"{machine}: {catalog.load(machine).gpus} GPUs" in target.read_text()


@pytest.mark.parametrize("name", ["listing", "-"])
def test_a_listing_among_other_bytes_is_read(tmp_path, name):
    text = b"GPU 0: NVIDIA\xae A100 (UUID: GPU-1)\n"
    (tmp_path / "listing").write_bytes(text)
    where = name if name == "-" else str(tmp_path / name)
    result = CliRunner().invoke(cli, ["topology", "slices", where], input=text)
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "slices: [0]")


def test_slices_of_nvidia_smis_listing_are_printed_for_gputopo_yaml():
    listing = "GPU 0: NVIDIA A100 (UUID: GPU-1)\nGPU 1: NVIDIA A100 (UUID: GPU-2)\n"
    listing += "".join(f"  MIG 3g.20gb     Device  {i}: (UUID: MIG-{i})\n" for i in range(2))
    result = CliRunner().invoke(cli, ["topology", "slices", "-"], input=listing)
    assert result.output == (
        "# slurm.conf: Gres=gpu:TYPE:COUNT,gpu:3g.20gb:COUNT\nslices: [0, 1/3g.20gb*2]\n"
    )
    wrong = CliRunner().invoke(cli, ["topology", "slices", "-"], input="no driver")
    assert (wrong.exit_code, wrong.output.count("\n")) == (2, 1)
    assert "expected the output of nvidia-smi -L" in wrong.output
