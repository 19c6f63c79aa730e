"""nvidia-smi topo -m, as drivers print it and as people paste it."""

import random
import re
from pathlib import Path

import pytest

from gres_topology import TopologyError, catalog
from gres_topology.readers import nvidia_smi, pasted, reading

ASSETS = Path(__file__).parents[1] / "assets"
DGX1V = (ASSETS / "own-dgx1v-nics-out-of-order.txt").read_text()
BRIDGED = (ASSETS / "own-a100-bridged.txt").read_text()
STEP = (ASSETS / "own-a100-masked-step.txt").read_text()


def read(text, source="node.txt"):
    return nvidia_smi.read(text, name="node", source=source)


def asset(name):
    return read((ASSETS / name).read_text(), name)


def table(text):
    """Header and rows of the matrix, as lists of lines."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if "GPU0" in line and not line.startswith("#"))
    end = next((i for i in range(start, len(lines)) if not lines[i].strip()), len(lines))
    return lines[:start], lines[start:end], lines[end:]


def changed(text, change):
    before, rows, after = table(text)
    return "\n".join([*before, *change(rows), *after])


def without_column(text, title):
    def cut(rows):
        at = rows[0].split("\t").index(title)
        return ["\t".join(c for i, c in enumerate(r.split("\t")) if i != at) for r in rows]

    return changed(text, cut)


def expanded(rows):
    return [row.expandtabs(8) for row in rows]


def shuffled_rows(rows):
    return [rows[0], *random.Random(3).sample(rows[1:], len(rows) - 1)]


def shuffled_columns(rows):
    devices = len([c for c in rows[0].split("\t") if re.match(r"GPU\d|mlx", c)])
    order = random.Random(4).sample(range(1, devices + 1), devices)

    def reorder(row):
        cells = row.split("\t")
        return "\t".join([cells[0], *(cells[i] for i in order), *cells[devices + 1 :]])

    return [reorder(row) for row in rows]


def run_together(rows):
    return [re.sub(r"(GPU\d)\t(?=GPU|mlx)", r"\1", rows[0]), *rows[1:]]


PRINTED = [
    ("as printed", lambda text: text),
    ("with tabs expanded to spaces", lambda text: changed(text, expanded)),
    ("header without its leading tab", lambda text: changed(
        text, lambda r: [r[0].lstrip(), *r[1:]])),
    ("header names run together", lambda text: changed(text, run_together)),
    ("rows in any order", lambda text: changed(text, shuffled_rows)),
    ("columns in any order", lambda text: changed(text, shuffled_columns)),
    ("with SOC for SYS", lambda text: text.replace("SYS", "SOC")),
    ("without legend", lambda text: text.split("Legend")[0]),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "paste"), PRINTED, ids=[p[0] for p in PRINTED])
@pytest.mark.parametrize(("text", "machine"), [(DGX1V, "dgx1v"), (BRIDGED, "a100-pcie-bridged")])
def test_the_same_machine_is_read(sentence, paste, text, machine):
    found, expected = read(paste(text)), catalog.load(machine)
    assert found.kinds == expected.kinds
    assert found.cpus == expected.cpus
    assert {nic.name: nic.kinds for nic in found.nics} == {
        nic.name: nic.kinds for nic in expected.nics
    }


#: A terminal wrapped each row before NIC2, and the copy lost the blanks there: the form in
#: github.com/sgl-project/sglang/issues/14092 (36 NICs), shortened.
WRAPPED = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1       NIC2    NIC3    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    NV18    NV18    PIX     NODENODE    SYS     0-55,112-167    0               N/A
GPU1    NV18     X      NV18    NV18    NODE    PIXNODE     SYS     0-55,112-167    0               N/A
GPU2    NV18    NV18     X      NV18    SYS     SYSPIX      NODE    56-111,168-223  1               N/A
GPU3    NV18    NV18    NV18     X      SYS     SYSNODE     PIX     56-111,168-223  1               N/A
NIC0    PIX     NODE    SYS     SYS      X      NODESYS     SYS
NIC1    NODE    PIX     SYS     SYS     NODE     X SYS      SYS
NIC2    NODE    NODE    PIX     NODE    SYS     SYS X       NODE
NIC3    SYS     SYS     NODE    PIX     SYS     SYSNODE      X
"""  # noqa: E501


def test_cells_that_lost_the_blanks_between_them_are_told_apart():
    found = read(WRAPPED)
    assert [nic.kinds for nic in found.nics] == [
        ("PIX", "NODE", "SYS", "SYS"),
        ("NODE", "PIX", "SYS", "SYS"),
        ("NODE", "NODE", "PIX", "NODE"),
        ("SYS", "SYS", "NODE", "PIX"),
    ]
    assert found.kinds[3] == ("NV18", "NV18", "NV18", "X")
    assert (found.numa[2], found.cpus[2][0]) == (1, 56)
    assert read(WRAPPED.replace("NV18    NV18    NV18    PIX", "NV18NV18NV18PIX")) == found
    with pytest.raises(TopologyError, match="line 2, cell GPU0-NIC1: 'NODENODEX1' is not a link"):
        read(WRAPPED.replace("NODENODE ", "NODENODEX1 "))
    with pytest.raises(TopologyError, match="line 2"):
        read(WRAPPED.replace("NODENODE ", "NODENODENODE "))


P2P = (ASSETS / "own-p2p-read.txt").read_text()
AROUND = [
    ("a table of -p2p before it", P2P + WRAPPED),
    ("a table of -p2p behind it", WRAPPED + P2P),
    ("prompts", f"(base) u@n1:~$ nvidia-smi topo -m\n{WRAPPED}(base) u@n1:~$ exit\n"),
    ("colours", f"\x1b[4m{WRAPPED}\x1b[0m"),
    ("a note on MIG", f"Warning: MIG mode is enabled on GPU 0\n{WRAPPED}"),
    ("slices", f"GPU 0: NVIDIA H200 (UUID: GPU-x)\n  MIG 1g.18gb  Device  0: (UUID: y)\n{WRAPPED}"),
]


@pytest.mark.parametrize("text", [a[1] for a in AROUND], ids=[a[0] for a in AROUND])
def test_what_stands_around_the_matrix_does_not_matter(text):
    assert reading.read(text, name="node", source="f").nics == read(WRAPPED).nics


def test_lines_that_a_terminal_wrapped_into_two_are_refused_with_the_line():
    text = "\n".join(f"{line[:70]}\n{line[70:]}" for line in WRAPPED.splitlines())
    with pytest.raises(TopologyError, match=r"^f line 1: no row for GPU0"):
        reading.read(text, name="node", source="f")


@pytest.mark.parametrize(
    ("title", "numa", "cpus"),
    [("NUMA Affinity", None, True), ("CPU Affinity", 1, False), ("GPU NUMA ID", 1, True)],
)
def test_a_missing_column_costs_only_itself(title, numa, cpus):
    text = BRIDGED.replace("\t\tN/A", "\tN/A")  # one tab per column, so that one can be cut
    found = read(without_column(text, title))
    assert (found.numa[7], found.cpus[7] is not None) == (numa, cpus)


@pytest.mark.parametrize(
    "spread", [str, lambda text: changed(text, expanded)], ids=["tabs", "blanks"]
)
def test_a_job_step_that_sees_no_cpus_of_a_gpu_still_tells_its_numa_node(spread):
    found = read(spread(STEP))
    assert found.numa == (0, 0, 1, 1)
    assert found.cpus == ((7,), (7,), None, None)


def test_the_last_of_too_few_values_is_the_gpus_own_memory_node_where_it_says_none():
    head = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    text = head + "GPU0\t X \tSYS\t0-1\t0\tN/A\nGPU1\tSYS\t X \t8-9\t\tN/A\n"
    found = read(text)
    assert (found.numa, found.cpus) == ((0, None), ((0, 1), (8, 9)))


def test_numa_nodes_may_be_lists_and_the_gpus_own_memory_node_is_not_its_numa_node():
    found = asset("own-gh200-numa-lists.txt")
    assert found.numa == (0, 1, 2, 3)
    assert found.cpus[3] == tuple(range(216, 288))


def test_cpu_lists_of_single_cpus_are_read():
    assert asset("own-minsky-spaces.txt").cpus[2] == tuple(range(80, 160, 8))


def test_numa_not_available_is_none():
    assert asset("own-v100-numa-na.txt").numa == (None,) * 4


def test_nic_names_come_from_the_nic_legend():
    found = asset("nvidia-smi-nic-legend.txt")
    assert [nic.name for nic in found.nics] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
    assert found.nics[2].kinds == ("SYS", "SYS", "NODE", "NODE")


def test_nics_of_any_name_are_columns():
    renamed = DGX1V
    for old, new in [("mlx5_0", "hfi1_0"), ("mlx5_1", "bnxt_re1"), ("mlx5_2", "roce-p1")]:
        renamed = renamed.replace(old, new)
    assert {nic.name for nic in read(renamed).nics} == {"hfi1_0", "bnxt_re1", "roce-p1", "mlx5_3"}


def test_one_gpu_and_sixteen_are_machines_too():
    assert asset("own-one-gpu.txt").kinds == (("X",),)
    assert asset("own-dgx2-sixteen.txt").kinds == catalog.load("dgx2").kinds


def test_what_driver_580_prints_in_a_virtual_machine():
    """One H100; the header is underlined, though nobody sees it on a terminal."""
    text = (ASSETS / "h100-vm-nvidia-smi.txt").read_text()
    assert "\x1b[4m" in text
    found = reading.read(text, name="node")
    assert (found.gpus, found.model) == (1, "NVIDIA H100 80GB HBM3")
    assert (found.numa, found.cpus) == ((0,), (tuple(range(16)),))


def test_a_gpu_that_fell_off_the_bus_leaves_the_others():
    def drop(rows):
        return [
            "\t".join(c for i, c in enumerate(r.split("\t")) if i != 3)
            for r in rows
            if not r.startswith("GPU2")
        ]

    found = read(changed(BRIDGED, drop))
    assert found.gpus == 7
    assert found.kinds[0] == ("X", "SYS", "SYS", "SYS", "SYS", "SYS", "SYS")


def test_old_drivers_legend_means_the_first_nvlink():
    assert asset("own-minsky-spaces.txt").bandwidth_gbps[0, 1] == 40
    assert asset("own-dgx1p-soc-run-together.txt").bandwidth_gbps[0, 1] == 20


def test_the_model_sets_the_bandwidth_where_nvidia_smi_names_it():
    text = "GPU 0: NVIDIA B200 (UUID: GPU-1)\nGPU 1: NVIDIA B200 (UUID: GPU-2)\n"
    found = read(text + "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n")
    assert found.model == "NVIDIA B200"
    assert found.bandwidth_gbps[0, 1] == 900


def test_a_capability_matrix_behind_the_links_is_passed_over():
    p2p = (ASSETS / "own-p2p-read.txt").read_text().split("\n", 1)[1]
    assert read(BRIDGED + "\n" + p2p).kinds == read(BRIDGED).kinds
    # The words below a capability matrix make none of what stands above it.
    no_columns = "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n"
    assert read(no_columns + "\n" + p2p).kinds == (("X", "PIX"), ("PIX", "X"))
    one = "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\t0\n\n  OK   = Status Ok\n"
    assert read(one).numa == (0,)


PATHS = ("SYS", "NODE", "PHB", "PXB", "PIX")
REFUSED = [
    ("a capability matrix", (ASSETS / "own-p2p-read.txt").read_text(),
     "node.txt line 2: this is a peer-to-peer capability matrix (nvidia-smi topo -p2p)"),
    ("that of one GPU", pasted.clean((ASSETS / "h100-vm-p2p.txt").read_text()),
     "node.txt line 2: this is a peer-to-peer capability matrix (nvidia-smi topo -p2p)"),
    ("a capability matrix of one GPU", "\tGPU0\n GPU0\tX\n\n  OK   = Status Ok\n",
     "node.txt line 1: this is a peer-to-peer capability matrix"),
    ("no matrix at all", "hello\n", "node.txt: no header line naming GPU0"),
    ("a link that is none", BRIDGED.replace("GPU1\tSYS", "GPU1\tNV", 1),
     "node.txt line 4, cell GPU1-GPU0: 'NV' is not a link; expected X, NV<n>, C2C, PIX"),
    ("an asymmetric pair", BRIDGED.replace("GPU1\tSYS", "GPU1\tNV2", 1),
     "node.txt line 3, cell GPU0-GPU1: is SYS but cell GPU1-GPU0 in line 4 is NV2"),
    ("X off the diagonal", BRIDGED.replace("GPU1\tSYS", "GPU1\tX", 1),
     "node.txt line 4, cell GPU1-GPU0: is 'X'; expected X on the diagonal only"),
    ("no X on the diagonal", BRIDGED.replace("GPU0\t X ", "GPU0\tSYS", 1),
     "node.txt line 3, cell GPU0-GPU0: is 'SYS'; expected X on the diagonal"),
    ("a row too short", "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\n",
     "node.txt line 3, cell GPU1-GPU1: missing; expected 2 links in the row"),
    ("a row missing", "\tGPU0\tGPU1\nGPU0\t X \tPIX\n",
     "node.txt line 2: no row for GPU1, cell GPU1-GPU0 is missing"),
    ("a row twice", "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU0\t X \tPIX\n",
     "node.txt line 3: row GPU0 (again) has no column in the header"),
    ("a row of no column", "\tGPU0\nGPU0\t X \nGPU7\tPIX\n",
     "node.txt line 3: row GPU7 has no column in the header"),
    ("only some of the NIC rows", STEP[: STEP.rindex("NIC2")],
     "node.txt line 8: no row for NIC2, cell NIC2-GPU0 is missing"),
    ("CPUs that are none", BRIDGED.replace("32-63", "63-32", 1),
     "node.txt line 7, cell GPU4-CPU Affinity: '63-32' is not a range"),
    ("two nodes' reports", BRIDGED + "\n\n" + BRIDGED, "node.txt line 14: a second matrix begins"),
    ("a second node's report cut off", BRIDGED + "\n\n" + BRIDGED.partition("\nGPU0")[0] + "\n",
     "node.txt line 14: a second matrix begins"),
    ("paths alone (topo -mp)", "\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n\nLegend:\n\n"
     "  X    = Self\n" + "".join(f"  {path:4} = Connection\n" for path in PATHS),
     "node.txt line 12: the legend has no NV#: this is nvidia-smi topo -mp, which leaves"),
    ("a second node's rows without their header",
     f"{BRIDGED}\nnode B\n{BRIDGED[BRIDGED.rindex('GPU2'):]}",
     "a second matrix begins; expected the output of one node"),
    ("a second node's header cut in a word", f"{BRIDGED}\n\tGPU0\tGPU1\tCPU Aff\n",
     "a second matrix begins; expected the output of one node"),
    ("a cut NIC legend", (ASSETS / "nvidia-smi-nic-legend.txt").read_text().split("  NIC3:")[0],
     "the NIC legend does not name NIC3"),
]  # fmt: skip


def test_columns_of_drives_and_cpus_are_no_nics():
    """`nvidia-smi topo -all`; a drive at a GPU's switch makes no rail."""
    text = "\tGPU0\tNVME0\tDD0\tmlx5_0\tCPU0\nGPU0\t X \tPIX\tPIX\tNODE\tPHB\n"
    assert [nic.name for nic in read(text).nics] == ["mlx5_0"]


def test_a_nic_legend_may_say_more_than_the_name():
    text = "\tGPU0\tNIC0\nGPU0\t X \tPIX\n\nNIC Legend:\n\n  NIC0: mlx5_3  ens1f0  0000:1a:00.0\n"
    assert [nic.name for nic in read(text).nics] == ["mlx5_3"]


def test_a_legend_may_have_lost_what_nobody_needed():
    """Six PCIe GPUs, pasted with the entries of the paths that they have."""
    legend = "\nLegend:\n\n  SYS  = Connection\n  PIX  = Connection\n"
    whole = "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n"
    assert read(whole + legend).kinds == read(whole).kinds


@pytest.mark.parametrize(("sentence", "text", "message"), REFUSED, ids=[r[0] for r in REFUSED])
def test_what_is_no_topology_is_refused_in_one_line(sentence, text, message):
    with pytest.raises(TopologyError) as caught:
        read(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
