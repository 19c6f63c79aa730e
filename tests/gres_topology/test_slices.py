"""A declaration of MIG slices: what Slurm counts, in its order; what no GPU has is refused."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gres_topology import TopologyError, catalog, slices
from gres_topology.slices import declared, profile_of, words_of

#: Eight A100 whose model names 40 GB.
A100 = catalog.load("a100-pcie-bridged")
UNKNOWN = replace(A100, model=None)
H100 = catalog.load("dgx-h100")


@pytest.mark.parametrize(
    ("gres_type", "profile"),
    [
        ("1g.5gb", "1g.5gb"),
        ("a100_3g.20gb", "3g.20gb"),
        ("nvidia_a100_1c.3g.20gb", "1c.3g.20gb"),
        ("1g.10gb+me", "1g.10gb+me"),
        ("a100", ""),
        ("v100-sxm2-16gb", ""),
        ("", ""),
    ],
)
def test_the_profile_in_a_type(gres_type, profile):
    assert profile_of(gres_type) == profile


def test_devices_stand_in_slurms_order():
    found = declared(A100, ["2-7", "1/a100_1g.5gb*2", "0/3g.20gb"])
    assert found.parents == (2, 3, 4, 5, 6, 7, 1, 1, 0)
    assert found.profiles == ("",) * 6 + ("1g.5gb",) * 2 + ("3g.20gb",)
    assert found.of_profile == {"": 0b111111, "1g.5gb": 0b11000000, "3g.20gb": 0b100000000}
    assert found.devices_of[1] == 0b11000000
    assert found.runs == (1, 2, 4, 8, 16, 32, 0b11000000, 0b100000000)
    assert found.boards == ()
    assert found.untouched(0b111111111) == 8
    assert found.untouched(0b101111110) == 6
    assert found.shape != declared(A100, ["2-7", "0/1g.5gb*2", "1/3g.20gb"]).shape
    assert found == declared(A100, ["2-7", "1/1g.5gb*2", "0/3g.20gb"])


def test_an_h100_has_the_profiles_and_places_that_nvidia_smi_prints():
    """The figures of `mig -lgip` and `-lgipp`; a profile may have a variant (`1g.10gb+me`)."""
    text = (Path(__file__).parent / "assets/h100-mig-profiles.out").read_text()
    names = dict(re.findall(r"MIG ((?:\S+))\s+(\d+)\s+\d+/\d+", text))
    places = {
        number: (int(size), tuple(map(int, starts.split(","))))
        for number, starts, size in re.findall(r"Profile ID +(\d+) Pl.*?\{([\d,]+)\}:(\d)", text)
    }
    printed = {name: places[number] for name, number in names.items()}
    [known] = [family for gb, family in slices._FAMILIES if gb == 80]
    assert len(printed) == 7
    assert {(int(name[0]), int(name[3:5])): at for name, at in printed.items()} == known
    for name, (_, starts) in printed.items():
        assert declared(H100, [f"0/{name}*{len(starts)}", "1-7"]).profiles.count(name)
        with pytest.raises(TopologyError, match="do not fit on one GPU"):
            declared(H100, [f"0/{name}*{len(starts) + 1}", "1-7"])


FITS = [
    ("4/3g.20gb*2", True),
    ("4/3g.20gb*3", False),
    ("4/1g.5gb*7", True),
    ("4/1g.5gb*8", False),
    ("4/1g.10gb*4", True),
    ("4/2g.10gb*3 4/1g.5gb", True),
    ("4/4g.20gb 4/3g.20gb", True),
    ("4/4g.20gb*2", False),
    ("4/4g.20gb 4/2g.10gb 4/1g.5gb", True),
    # All of the memory is taken, though a seventh of the cores is left.
    ("4/3g.20gb*2 4/1g.5gb", False),
    ("4/7g.40gb", True),
    ("4/1c.3g.20gb*3 4/3g.20gb", True),
    ("4/1c.3g.20gb*4 4/3g.20gb", False),
    # Profiles of two sizes of GPU.
    ("4/1g.5gb 4/3g.40gb", False),
    ("4/1g.10gb*7", False),
]


@pytest.mark.parametrize(("words", "fits"), FITS)
def test_slices_that_do_not_fit_on_one_gpu_are_refused(words, fits):
    listed = ["0-3", "5-7", *words.split()]
    if fits:
        assert len(declared(A100, listed).profiles) > 7
    else:
        with pytest.raises(TopologyError, match=r"GPU 4: .* do not fit on one GPU"):
            declared(A100, listed)


def test_where_the_memory_is_not_known_any_gpu_of_these_profiles_will_do():
    assert declared(UNKNOWN, ["0-6", "7/1g.10gb*7"]).gpus == 14
    # A profile of a GPU that is not listed here: its cores alone are counted.
    assert declared(UNKNOWN, ["0-6", "7/1g.99gb*7"]).gpus == 14
    with pytest.raises(TopologyError, match="do not fit"):
        declared(UNKNOWN, ["0-6", "7/2g.99gb*4"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["0-6"], "GPU 7 stands nowhere; expected each GPU once"),
        (["0-7", "7"], "GPU 7 stands 2 times"),
        (["0-7", "7/1g.5gb"], "GPU 7 stands 2 times"),
        (["0-7", "8/1g.5gb"], "8/1g.5gb: a100-pcie-bridged has no GPU 8; expected 0 to 7"),
        (["0-8"], "0-8: a100-pcie-bridged has no GPU 8"),
        (["0-6", "7/v100"], "7/v100: 'v100' is no MIG profile"),
        (["0-6", "7/8g.5gb"], "no MIG profile"),
        (["0-6", "7/1g.5gb*0x"], "expected GPUs in Slurm's order, such as"),
        (["0-6", "seven"], "'seven': expected GPUs in Slurm's order"),
        (["0-999999"], "expected GPUs in Slurm's order"),
        (["7/1g.5gb*99"] * 9, "expected at most 64"),
    ],
)
def test_a_bad_declaration_names_its_word(words, says):
    with pytest.raises(TopologyError) as error:
        declared(A100, words)
    assert says in str(error.value)


#: As in NVIDIA's MIG user guide, with identifiers of our own; the second form is of older drivers.
LISTING = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-11111111-2222-3333-4444-555555555555)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-21111111-2222-3333-4444-555555555555)
  MIG 3g.20gb     Device  0: (UUID: MIG-31111111-2222-3333-4444-555555555555)
  MIG 2g.10gb     Device  1: (UUID: MIG-41111111-2222-3333-4444-555555555555)
  MIG 1g.5gb      Device  2: (UUID: MIG-51111111-2222-3333-4444-555555555555)
GPU 2: A100-SXM4-40GB (UUID: GPU-61111111-2222-3333-4444-555555555555)
  MIG 1g.5gb Device 0: (UUID: MIG-GPU-61111111-2222-3333-4444-555555555555/7/0)
  MIG 1g.5gb Device 1: (UUID: MIG-GPU-61111111-2222-3333-4444-555555555555/8/0)
GPU 3: NVIDIA A100-SXM4-40GB (UUID: GPU-71111111-2222-3333-4444-555555555555)
"""


def test_nvidia_smis_listing_becomes_a_declaration():
    words = words_of(LISTING)
    assert words == ["0", "3", "1/3g.20gb", "1/2g.10gb", "1/1g.5gb", "2/1g.5gb*2"]
    assert words_of("GPU 0: x\n  MIG 7g.40gb  Device  0: (UUID: MIG-1)\n") == ["0/7g.40gb"]
    with pytest.raises(TopologyError, match="expected the output of nvidia-smi -L"):
        words_of("NVIDIA-SMI has failed")
