"""What NVML's Python module is told of this node, as JSON: run by test_detected.py as a program."""

import json
import sys

import pynvml

#: nvmlGpuTopologyLevel_t -> label (nvml.h).
LEVELS = {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
LANES = 18
WORDS = 64  # of 64 bits, of CPUs or NUMA nodes
NODE_SCOPE = 0


def ends(gpu) -> list[str | None]:
    """The other end of each NVLink that is up: a GPU's address, or None for a switch."""
    found = []
    for lane in range(LANES):
        if pynvml.nvmlDeviceGetNvLinkState(gpu, lane):
            kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, lane)
            is_switch = kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
            end = pynvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, lane).busId
            found.append(None if is_switch else end)
    return found


def address(gpu) -> str:
    return pynvml.nvmlDeviceGetPciInfo(gpu).busId


def kind(a, b) -> str:
    """The label of the path between two GPUs."""
    if address(a) == address(b):
        return "X"
    if links := ends(a).count(address(b)) or ends(a).count(None):
        return f"NV{links}"
    return LEVELS[pynvml.nvmlDeviceGetTopologyCommonAncestor(a, b)]


def numa(gpu) -> int:
    words = pynvml.nvmlDeviceGetMemoryAffinity(gpu, WORDS, NODE_SCOPE)
    return sum(word << 64 * at for at, word in enumerate(words)).bit_length() - 1


def gpu_at(index: int):
    try:
        return pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        sys.exit(f"GPU{index}: {error}")


pynvml.nvmlInit()
gpus = [gpu_at(index) for index in range(pynvml.nvmlDeviceGetCount())]
print(
    json.dumps(
        {
            "kinds": [[kind(a, b) for b in gpus] for a in gpus],
            "models": [pynvml.nvmlDeviceGetName(gpu) for gpu in gpus],
            "numa": [numa(gpu) for gpu in gpus],
            "pci": [address(gpu) for gpu in gpus],
            "minors": [pynvml.nvmlDeviceGetMinorNumber(gpu) for gpu in gpus],
        }
    )
)
