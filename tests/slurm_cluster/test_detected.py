"""The libraries that answer for a machine, asked as Slurm and NVML's Python module ask them."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gres_topology import NodeTopology, catalog, pci
from gres_topology.slices import declared
from slurm_cluster import detected
from slurm_cluster.fake_tools import addresses

#: Tells what NVML's Python module is told.
READ = Path(__file__).with_name("nvml_reader.py").read_text()
#: Machines of every kind of path: links of two kinds, a switch, bridges, PCIe alone.
NVIDIA = ("dgx1v", "dgx2", "hgx-b200", "a100-pcie-bridged", "l40s-pcie", "rtx-pro-6000", "summit")
BRIDGED = replace(catalog.load("a100-pcie-bridged"), minors=tuple(range(7, -1, -1)))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (shutil.which("gcc") and shutil.which("make")):
        pytest.skip("no gcc and make here")
    out = tmp_path_factory.mktemp("libraries")
    command = ["make", "-s", "-C", str(detected.SOURCES), f"OUT={out}", "CC=gcc"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def told(topology: NodeTopology, folder: Path, lost=()) -> Path:
    path = folder / "machine"
    whole = getattr(topology, "whole", topology)
    cores = {node: range(node * 8, node * 8 + 8) for node in sorted(set(whole.numa)) if node}
    text = detected.machine_file(topology, {0: range(8), **cores}, lost)
    path.write_text(text)
    return path


def asked(libraries: Path, machine: Path, script: str) -> subprocess.CompletedProcess[str]:
    environ = {"LD_LIBRARY_PATH": str(libraries), "FAKEGPU_MACHINE": str(machine)}
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", NVIDIA)
def test_nvml_tells_the_machine(libraries, tmp_path, name):
    pytest.importorskip("pynvml")
    machine = catalog.load(name)
    done = asked(libraries, told(machine, tmp_path), READ)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kinds"] == [list(row) for row in machine.kinds]
    assert set(found["models"]) == {str(machine.model)}
    assert found["numa"] == [node or 0 for node in machine.numa]
    known = [pci.normalise(address) for address in addresses(machine)]
    assert [pci.normalise(address) for address in found["pci"]] == known


def test_minors_against_pci_addresses_are_told_apart(libraries, tmp_path):
    pytest.importorskip("pynvml")
    found = json.loads(asked(libraries, told(BRIDGED, tmp_path), READ).stdout)
    assert found["minors"] == list(range(7, -1, -1))
    assert found["pci"] == sorted(found["pci"])


def test_a_lost_gpu_is_named(libraries, tmp_path):
    pytest.importorskip("pynvml")
    done = asked(libraries, told(BRIDGED, tmp_path, lost=[2]), READ)
    assert done.stderr.strip() == "GPU2: GPU is lost"


@pytest.mark.parametrize("line", ["gpu 0", "link 9 0000:01:00.0", "nonsense", "node 99 ff"])
def test_a_file_with_another_line_is_no_driver(libraries, tmp_path, line):
    pytest.importorskip("pynvml")
    machine = told(BRIDGED, tmp_path)
    machine.write_text(machine.read_text() + line + "\n")
    done = asked(libraries, machine, READ)
    assert f"fake GPUs: not understood: {line}" in done.stderr
    assert "Driver Not Loaded" in done.stderr


def test_a_bridge_that_is_gone_is_gone_for_both_gpus():
    left = detected.remaining(BRIDGED, range(8), cut=[(0, 2)])
    assert (left.kinds[0][2], left.kinds[2][0], left.kinds[1][3]) == ("SYS", "SYS", "NV12")
    seven = detected.remaining(BRIDGED, [0, 1, 3, 4, 5, 6, 7])
    assert (seven.gpus, seven.minors, seven.kinds[1][2]) == (7, (7, 6, 4, 3, 2, 1, 0), "NV12")


def test_slices_are_found_by_the_minor_of_their_gpu():
    minors = detected.mig_minors(declared(BRIDGED, ["0-6", "7/3g.20gb*2"]))
    assert minors.splitlines()[2:] == [
        "gpu0/gi1/access 3",
        "gpu0/gi1/ci0/access 4",
        "gpu0/gi2/access 5",
        "gpu0/gi2/ci0/access 6",
    ]


ROCM = """
import ctypes
smi = ctypes.CDLL("librocm_smi64.so")
count, minor, node, address = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint64()
name = ctypes.create_string_buffer(64)
assert smi.rsmi_init(ctypes.c_uint64(0)) == 0
smi.rsmi_num_monitor_devices(ctypes.byref(count))
smi.rsmi_dev_name_get(1, name, ctypes.c_size_t(64))
smi.rsmi_dev_drm_render_minor_get(1, ctypes.byref(minor))
smi.rsmi_topo_get_numa_node_number(1, ctypes.byref(node))
smi.rsmi_dev_pci_id_get(1, ctypes.byref(address))
print(count.value, name.value.decode(), minor.value, node.value, hex(address.value))
print(smi.rsmi_dev_name_get(count.value, name, ctypes.c_size_t(64)))
"""


def test_rocm_smi_tells_the_machine(libraries, tmp_path):
    done = asked(libraries, told(catalog.load("mi250x"), tmp_path), ROCM)
    assert done.stdout.splitlines() == ["8 AMD Instinct MI250X 129 3 0xc600", "1"], done.stderr


def test_the_libraries_have_every_function_that_slurm_calls(libraries):
    """Undefined symbols of Debian's gpu_nvml.so and gpu_rsmi.so, 24.11.5."""
    for library, functions in SLURM_CALLS.items():
        loaded = ctypes.CDLL(str(libraries / library))
        assert [name for name in functions.split() if not hasattr(loaded, name)] == []


SLURM_CALLS = {
    "libnvidia-ml.so.1": """nvmlDeviceGetApplicationsClock nvmlDeviceGetAttributes_v2
        nvmlDeviceGetComputeInstanceId nvmlDeviceGetComputeRunningProcesses_v3
        nvmlDeviceGetCount_v2 nvmlDeviceGetCpuAffinity nvmlDeviceGetGpuInstanceId
        nvmlDeviceGetGraphicsRunningProcesses_v3 nvmlDeviceGetHandleByIndex_v2
        nvmlDeviceGetMaxMigDeviceCount nvmlDeviceGetMigDeviceHandleByIndex nvmlDeviceGetMigMode
        nvmlDeviceGetMinorNumber nvmlDeviceGetName nvmlDeviceGetNvLinkRemotePciInfo_v2
        nvmlDeviceGetNvLinkState nvmlDeviceGetPciInfo_v3 nvmlDeviceGetProcessUtilization
        nvmlDeviceGetSupportedGraphicsClocks nvmlDeviceGetSupportedMemoryClocks nvmlDeviceGetUUID
        nvmlDeviceResetApplicationsClocks nvmlDeviceSetApplicationsClocks nvmlErrorString
        nvmlInit_v2 nvmlShutdown nvmlSystemGetDriverVersion nvmlSystemGetNVMLVersion""",
    "librocm_smi64.so": """rsmi_compute_process_info_by_pid_get rsmi_dev_brand_get
        rsmi_dev_drm_render_minor_get rsmi_dev_gpu_clk_freq_get rsmi_dev_gpu_clk_freq_set
        rsmi_dev_name_get rsmi_dev_pci_id_get rsmi_dev_perf_level_set rsmi_dev_power_ave_get
        rsmi_dev_unique_id_get rsmi_init rsmi_num_monitor_devices rsmi_shut_down
        rsmi_status_string rsmi_topo_get_numa_node_number rsmi_version_get rsmi_version_str_get""",
}
