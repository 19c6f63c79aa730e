"""AMD's partitions: those that a GPU can have, and what amd-smi says of them.

The listings have the keys of `amd-smi partition --current --json` (amdsmi_cli/amdsmi_commands.py of
ROCm/amdsmi at 0ceca28): a row for every partition, mode and memory with the first one of a GPU.
"""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

import gres_topology
from gres_topology import TopologyError, catalog, partitions
from gres_topology.slices import declared, profile_of, words_of
from slurm_plugin.cli import cli

MI300X = catalog.load("mi300x")
MI300A = replace(MI300X, model="AMD Instinct MI300A")
UNKNOWN = replace(MI300X, model=None)


def listing(*gpus: tuple[str, str, int], shown="N/A") -> str:
    """What amd-smi prints of GPUs: (mode, memory, partitions) each."""
    rows = []
    for kind, memory, parts in gpus:
        for part in range(parts):
            mode = (kind, memory) if part == 0 else (shown, shown)
            rows.append({"gpu_id": len(rows), "memory": mode[1], "accelerator_type": mode[0],
                         "accelerator_profile_index": 0, "partition_id": part})  # fmt: skip
    return json.dumps({"current_partition": rows}, indent=4) + "\n"


@pytest.mark.parametrize(
    ("gres_type", "profile"),
    [("cpx", "cpx"), ("mi300x_cpx", "cpx"), ("mi300x-cpx_nps4", "cpx_nps4"), ("tpx", "tpx"),
     ("spx", ""), ("mi300x", ""), ("rcpx", ""), ("cpx_nps9", "")],
)  # fmt: skip
def test_the_mode_in_a_type(gres_type, profile):
    assert profile_of(gres_type) == profile


def test_partitions_are_devices_of_their_gpu():
    found = declared(MI300X, ["0-5", "7/mi300x_cpx*8", "6/dpx*2"])
    assert found.parents == (0, 1, 2, 3, 4, 5, *[7] * 8, 6, 6)
    assert found.of_profile == {"": 0x3F, "cpx": 0x3FC0, "dpx": 0xC000}
    assert found.numa[6:] == (1,) * 10


@pytest.mark.parametrize(
    ("machine", "words", "says"),
    [
        (MI300X, "7/cpx*8", ""),
        (MI300X, "7/cpx_nps4*8", ""),
        (MI300X, "7/qpx*4", ""),
        (MI300X, "7/cpx*7", "GPU 7: 7 parts in cpx; expected all of its 8"),
        (MI300X, "7/cpx*4 7/qpx*2", "GPU 7: cpx, qpx at once; expected one mode"),
        (MI300X, "7/dpx_nps4*2", "dpx with memory in 4 parts; expected (1, 2)"),
        (MI300X, "7/tpx*3", "tpx: AMD Instinct MI300X has no such mode; expected dpx, qpx, cpx"),
        (MI300X, "7/cpx*4 7/1g.5gb", "at once; expected one mode"),
        (MI300A, "7/tpx*3", ""),
        (MI300A, "7/cpx*6", ""),
        (MI300A, "7/cpx*8", "8 parts in cpx; expected all of its 6"),
        (UNKNOWN, "7/cpx*6", ""),
        (UNKNOWN, "7/cpx*5", "expected all of its 8 or 6"),
        (catalog.load("mi250x"), "7/cpx*8", "cpx: AMD Instinct MI250X cannot be partitioned"),
    ],
)
def test_partitions_that_a_gpu_cannot_have_are_refused(machine, words, says):
    listed = ["0-6", *words.split()]
    if not says:
        assert len(declared(machine, listed).profiles) > 7
        return
    with pytest.raises(TopologyError) as caught:
        declared(machine, listed)
    assert says in str(caught.value)


@pytest.mark.parametrize("shown", ["N/A", "CPX"])
def test_the_words_of_what_amd_smi_lists(shown):
    text = listing(("SPX", "NPS1", 1), ("CPX", "NPS4", 8), ("CPX", "NPS1", 8), shown=shown)
    assert words_of(text) == ["0", "1/cpx_nps4*8", "2/cpx*8"]
    # What a warning of the tool puts before it.
    assert words_of("WARNING: not in group render\n" + text)[0] == "0"


DAMAGED = [
    ("made by a user", listing(("N/A", "NPS1", 1)), "line 4: gpu_id 0: accelerator_type is 'N/A'"),
    ("a part of a whole GPU", listing(("SPX", "NPS1", 2)), "line 11: gpu_id 1"),
    ("another mode", listing(("XPX", "NPS1", 1)), "line 4: gpu_id 0: 'XPX' with 'NPS1'"),
    ("another memory", listing(("CPX", "NPS16", 8)), "'CPX' with 'NPS16'"),
    ("cut off", listing(("CPX", "NPS1", 8))[:300], "line 1"),
    ("no GPUs", '{"current_partition": []}', "no GPUs in current_partition"),
    ("no list", '{"current_partition": {"a": 1}}', "no GPUs in current_partition"),
    ("no rows", '{"current_partition": [1]}', "no GPUs in current_partition"),
    ("nested without end", '{"current_partition":' + "[" * 100_000, "current_partition"),
]


@pytest.mark.parametrize(("sentence", "text", "told"), DAMAGED, ids=[d[0] for d in DAMAGED])
def test_a_damaged_listing_is_refused_with_its_line(sentence, text, told):
    with pytest.raises(TopologyError) as caught:
        words_of(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_writes_the_key():
    text = listing(*[("SPX", "NPS1", 1)] * 6, *[("CPX", "NPS1", 8)] * 2)
    done = CliRunner().invoke(cli, ["topology", "slices", "-"], input=text)
    assert done.output.splitlines() == [
        "# slurm.conf: Gres=gpu:TYPE:COUNT,gpu:cpx:COUNT",
        "slices: [0, 1, 2, 3, 4, 5, 6/cpx*8, 7/cpx*8]",
    ]


def topology_json(gpus: int, address) -> str:
    """`amd-smi topology --json` of MI300X GPUs in parts; parts of one GPU show no links."""
    return json.dumps(
        [
            {
                "gpu": a,
                "bdf": address(a),
                "links": [
                    {
                        "gpu": b,
                        "bdf": address(b),
                        "weight": 0 if a == b else 15,
                        "link_type": "SELF" if a == b else "XGMI",
                        "num_hops": 0 if a == b else 1,
                    }
                    for b in range(gpus)
                ],
            }
            for a in range(gpus)
        ],
        indent=4,
    )


@pytest.mark.parametrize(
    "address",
    [lambda gpu: f"0000:{gpu // 8 + 5:02x}:00.{gpu % 8}", lambda gpu: f"0000:{gpu // 8:02x}:00.0"],
    ids=["a function each", "the GPU's address"],
)
def test_amd_smis_parts_are_read_as_their_gpu(address):
    found = gres_topology.read(topology_json(32, address) + "\n", name="n", source="f")
    assert found.gpus == 4
    assert found.pci == tuple(address(8 * gpu) for gpu in range(4))
    assert found.kinds[0] == ("X", "XGMI", "XGMI", "XGMI")


def test_modes_and_their_memory_are_those_of_the_driver():
    """A mode's parts are whole dies, and its memory is cut into no more parts than it has."""
    for xcds, modes in partitions._MODES.items():
        for parts, memories in modes.values():
            assert xcds % parts == 0
            assert max(memories) <= parts
