"""NVML, with a module that answers as pynvml does for a made-up node."""

from types import SimpleNamespace

import pytest

from gres_topology import TopologyError
from gres_topology.readers import nvml


class FakeNvml:
    """Answers for `gpus` GPUs; `ends[g]` lists (remote type, remote address) per link."""

    NVML_NVLINK_MAX_LINKS = 6

    class NVMLError(Exception):
        pass

    def __init__(self, ends, name=b"Tesla V100-SXM2-16GB", ancestor=50):
        self.ends, self.name, self.ancestor = ends, name, ancestor
        self.is_open = False

    def nvmlInit(self):
        self.is_open = True

    def nvmlShutdown(self):
        self.is_open = False

    def nvmlDeviceGetCount(self):
        return len(self.ends)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetPciInfo(self, gpu):
        return SimpleNamespace(busId=f"00000000:0{gpu + 1}:00.0".encode())

    def nvmlDeviceGetName(self, gpu):
        return self.name

    def nvmlDeviceGetMinorNumber(self, gpu):
        return len(self.ends) - 1 - gpu  # probed from the last slot to the first

    def nvmlDeviceGetCpuAffinity(self, gpu, words):
        return [0xFF << 8 * (gpu // 2)] + [0] * (words - 1)

    def nvmlDeviceGetMemoryAffinity(self, gpu, words, scope):
        return [1 << gpu // 2] + [0] * (words - 1)

    def nvmlDeviceGetNvLinkState(self, gpu, link):
        if link >= len(self.ends[gpu]):
            raise self.NVMLError("Invalid Argument")
        return 1

    def nvmlDeviceGetNvLinkVersion(self, gpu, link):
        return 2

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu, link):
        return self.ends[gpu][link][0]

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu, link):
        return SimpleNamespace(busId=self.ends[gpu][link][1])

    def nvmlDeviceGetTopologyCommonAncestor(self, a, b):
        return self.ancestor

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu):
        return 3


def to(*gpus):
    return [(0, f"00000000:0{gpu + 1}:00.0") for gpu in gpus]


PAIRS = [to(1, 1), to(0, 0), to(3), to(2)]


def test_links_addresses_minors_and_locality_are_read():
    found = nvml.read(FakeNvml(PAIRS))
    assert found.kinds[0] == ("X", "NV2", "SYS", "SYS")
    assert found.bandwidth_gbps[0].tolist() == [0, 50, 12, 12]
    assert found.pci[3] == "0000:04:00.0"
    assert found.minors == (3, 2, 1, 0)
    assert found.numa == (0, 0, 1, 1)
    assert found.cpus[2] == tuple(range(8, 16))
    assert found.model == "Tesla V100-SXM2-16GB"


def test_a_link_that_is_down_hides_none_behind_it():
    fake = FakeNvml(PAIRS)
    up = fake.nvmlDeviceGetNvLinkState
    fake.nvmlDeviceGetNvLinkState = lambda gpu, link: 0 if link == 0 and gpu < 2 else up(gpu, link)
    assert nvml.read(fake).kinds[0] == ("X", "NV1", "SYS", "SYS")


def test_links_to_nvswitches_join_all():
    switch = [(2, "00000000:b0:00.0")] * 3 + [(2, "00000000:b1:00.0")] * 3
    found = nvml.read(FakeNvml([switch] * 3))
    assert found.kinds[0] == ("X", "NV6", "NV6")


@pytest.mark.parametrize(
    ("level", "label"),
    [(0, "PIX"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS"), (99, "N/A")],
)
def test_the_common_ancestor_names_the_path(level, label):
    found = nvml.read(FakeNvml([[], []], ancestor=level))
    assert found.kinds[0][1] == label


def test_a_link_seen_from_one_side_only_is_refused_and_nvml_closed():
    fake = FakeNvml([to(1), []])
    with pytest.raises(TopologyError, match=r"1 NVLinks from 0000:01:00.0 to 0000:02:00.0 but 0"):
        nvml.read(fake)
    assert not fake.is_open


def test_what_an_old_driver_cannot_say_stays_unknown():
    fake = FakeNvml([[], []])

    def unsupported(*_):
        raise fake.NVMLError("Function Not Found")

    fake.nvmlDeviceGetMinorNumber = unsupported
    fake.nvmlDeviceGetMemoryAffinity = unsupported
    found = nvml.read(fake)
    assert found.minors == (None, None)
    assert found.numa == (None, None)


def test_no_driver_is_one_line():
    fake = FakeNvml([[]])

    def missing():
        raise fake.NVMLError("NVML Shared Library Not Found")

    fake.nvmlInit = missing
    with pytest.raises(TopologyError, match="NVML Shared Library Not Found; expected a node"):
        nvml.read(fake)


def test_a_node_without_gpus_is_refused():
    with pytest.raises(TopologyError, match="no GPU on this node"):
        nvml.read(FakeNvml([]))


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with pytest.raises(TopologyError, match=r"pip install 'slurm-gputopo\[nvml\]'"):
        nvml.read()


class OneH100(FakeNvml):
    """What nvidia-ml-py 13 and driver 580 answered in a virtual machine with one H100."""

    NVML_NVLINK_MAX_LINKS = 36

    def __init__(self):
        super().__init__([[]], name="NVIDIA H100 80GB HBM3")

    def nvmlDeviceGetPciInfo(self, gpu):
        return SimpleNamespace(busId="00000000:00:06.0")

    def nvmlDeviceGetMinorNumber(self, gpu):
        return 0

    def nvmlDeviceGetCpuAffinity(self, gpu, words):
        return [65535] + [0] * (words - 1)

    def nvmlDeviceGetMemoryAffinity(self, gpu, words, scope):
        return [1] + [0] * (words - 1)

    def nvmlDeviceGetNvLinkState(self, gpu, link):
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu):
        return 5


def test_one_h100_of_a_virtual_machine():
    """NVLinks are not supported there."""
    found = nvml.read(OneH100(), name="vm")
    assert (found.kinds, found.model) == ((("X",),), "NVIDIA H100 80GB HBM3")
    assert (found.pci, found.minors) == (("0000:00:06.0",), (0,))
    assert (found.numa, found.cpus) == ((0,), (tuple(range(16)),))
