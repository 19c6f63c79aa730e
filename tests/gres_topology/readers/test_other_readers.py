"""rocm-smi, NCCL and RCCL XML, hwloc XML, numactl: what each says of real machines."""

import re
from pathlib import Path

import pytest

import gres_topology
from gres_topology import TopologyError, catalog, links, merge_numa
from gres_topology.readers import nvidia_smi

ASSETS = Path(__file__).parents[1] / "assets"


def asset(name):
    return gres_topology.read(ASSETS / name)


def text_of(name):
    return (ASSETS / name).read_text()


def read(text):
    return gres_topology.read(text + "\n", name="node", source="node.txt")


class TestRocmSmi:
    def test_islands_are_xgmi_inside_and_pcie_between(self):
        found = asset("own-rocm-two-islands-excerpt.txt")
        assert found.kinds[0] == ("X", *["XGMI"] * 3, *["PCIE"] * 4)
        assert found.bandwidth_gbps[0, 1] > found.bandwidth_gbps[0, 4]
        assert found.numa == (None,) * 8

    def test_numa_nodes_are_read_without_brackets_around_the_gpu(self):
        """`GPU 0          : (Topology) Numa Node: 0`, as some releases print it."""
        text = text_of("own-rocm-mi300x-full.txt")
        spaced = re.sub(r"GPU\[(\d)\]", r"GPU \1", text)
        assert spaced != text
        assert read(spaced).numa == read(text).numa
        assert read(spaced).pci == read(text).pci

    def test_addresses_model_and_numa_nodes_are_read_where_printed(self):
        found = asset("own-rocm-mi300x-full.txt")
        assert found.pci[1] == "0000:15:00.0"
        assert found.model == "AMD Instinct MI300X"
        assert found.numa == (0, 0, 0, 0, 1, 1, 1, 1)
        assert found.bandwidth_gbps[0, 1] == 64

    def test_a_table_under_the_wrong_title_is_known_by_its_cells(self):
        found = asset("rocm-smi-partitions.txt")
        assert found.gpus == 12
        assert found.kinds[1][:6] == ("XGMI", "X", "N/A", "N/A", "N/A", "XGMI")
        assert found.numa[9:] == (1, 2, 3)

    @pytest.mark.parametrize("lost", ["Weight", "Hops", "Link Type"])
    def test_any_one_table_may_be_missing(self, lost):
        text = text_of("own-rocm-two-islands-excerpt.txt")
        cut = re.sub(rf"=+ {lost} between.*\n(?:.*GPU.*\n)+", "", text)
        assert lost not in cut
        assert read(cut).kinds == read(text).kinds
        assert (read(cut).bandwidth_gbps == read(text).bandwidth_gbps).all()

    def test_not_supported_everywhere_is_said(self):
        text = "== Link Type between two GPUs ==\nNot supported on the given system\n"
        with pytest.raises(TopologyError, match="neither a table of link types"):
            read(text)

    def test_two_xgmi_hops_share_the_bandwidth(self):
        table = "GPU0 GPU1\nGPU0 0 {0}\nGPU1 {0} 0\n"
        text = "== Hops ==\n" + table.format(2) + "== Link Type between two GPUs ==\n"
        assert read(text + table.format("XGMI")).bandwidth_gbps[0, 1] == 25


class TestNcclXml:
    def test_nvswitches_join_all_pairs(self):
        found = asset("own-nccl-nvswitch.txt")
        assert set(found.kinds[0][1:]) == {"NV18"}
        assert found.bandwidth_gbps[0, 7] == 450
        assert found.numa == (0, 0, 0, 0, 1, 1, 1, 1)
        assert found.cpus[4] == tuple(range(16, 32))

    def test_nvlinks_and_xgmi_are_counted_per_pair(self):
        row = asset("own-nccl-nvlink-four.txt").kinds[0]
        assert row == ("X", "NV2", "NV1", "SYS")
        row = asset("own-rccl-xgmi-four.txt").kinds[0]
        assert row == ("X", "XGMI2", "XGMI", "SYS")

    def test_the_pci_tree_gives_the_paths(self):
        found = asset("nccl-p4d-static.txt")
        assert found.kinds[0] == ("X", "PIX", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS")
        assert found.nics[0].kinds == found.kinds[0][1:2] * 2 + found.kinds[0][2:]
        assert found.pci[0] == "0000:10:1c.0"

    def test_switch_below_switch_is_pxb(self):
        pci = '<pci busid="{}" class="{}" link_speed="16 GT/s" link_width="16">{}</pci>'
        gpus = [pci.format(f"0000:0{i}:00.0", "0x030200", "") for i in range(2)]
        below = [pci.format(f"0000:1{i}:00.0", "0x060400", gpus[i]) for i in range(2)]
        top = pci.format("0000:20:00.0", "0x060400", "".join(below))
        found = read(f'<system>\n<cpu numaid="0" affinity="ff">{top}</cpu></system>')
        assert found.kinds[0] == ("X", "PXB")
        assert found.bandwidth_gbps[0, 1] == pytest.approx(25.6)

    @pytest.mark.parametrize(("sm", "gbps"), [(60, 20), (70, 25), (80, 25), (90, 25), (100, 50)])
    def test_the_compute_capability_tells_how_fast_a_link_is(self, sm, gbps):
        text = text_of("own-nccl-nvlink-four.txt").replace('sm="70"', f'sm="{sm}"')
        assert read(text).bandwidth_gbps[0, 2] == gbps

    def test_a_link_that_sleeps_at_low_speed_is_not_slow(self):
        # The switches' upstream ports say 5 GT/s.
        assert asset("own-nccl-nvlink-four.txt").bandwidth_gbps[0, 3] == 48

    def test_dev_numbers_order_the_gpus(self):
        text = text_of("own-nccl-nvlink-four.txt")
        swapped = text.replace('dev="0" sm', 'dev="9" sm')
        assert read(swapped).pci[-1] == read(text).pci[0]

    def test_a_job_may_not_see_every_gpu_a_link_ends_at(self):
        text = text_of("own-nccl-nvlink-four.txt")
        cut = re.sub(r'<cpu numaid="1".*</cpu>', "", text, flags=re.S)
        assert read(cut).kinds == (("X", "NV2"), ("NV2", "X"))

    def test_numa_minus_one_is_unknown(self):
        text = text_of("own-nccl-nvlink-four.txt").replace('numaid="0"', 'numaid="-1"')
        assert read(text).numa == (None, None, 1, 1)

    def test_what_nccl_dumps_in_a_virtual_machine(self):
        """NUMA node -1, a link of no lanes, and a network of sockets below no PCI device."""
        found = asset("h100-vm-nccl.txt")
        assert (found.kinds, found.pci) == ((("X",),), ("0000:00:06.0",))
        assert (found.numa, found.cpus, found.numa_nodes) == ((None,), (None,), ())
        assert [(nic.name, nic.kinds, nic.pci) for nic in found.nics] == [("eth0", ("PHB",), None)]

    def test_a_link_of_no_lanes_is_as_fast_as_its_generation(self):
        """Two of such GPUs, which such a machine does not have."""
        text = text_of("h100-vm-nccl.txt")
        pci = re.search(r" *<pci.*?</pci>\n", text, re.S).group()
        second = pci.replace(":06.0", ":07.0").replace('dev="0"', 'dev="1"')
        found = read(text.replace(pci, pci + second))
        assert found.kinds[0] == ("X", "PHB")
        assert found.bandwidth_gbps[0, 1] == links.rates(4, 5).gbps("PHB")

    def test_no_gpu_is_refused(self):
        with pytest.raises(TopologyError, match=r"node.txt line 2: no GPU in <system>"):
            read('\n<system version="1"><cpu numaid="0"/></system>')

    def test_a_one_way_link_is_refused_with_line_and_cell(self):
        text = text_of("own-nccl-nvlink-four.txt")
        at = text.index("<nvlink")
        with pytest.raises(TopologyError, match=r"node.txt line 8, cell 0000:10.*2 links there"):
            read(text[:at] + text[at:].replace('count="1"', 'count="2"', 1))

    def test_a_gpu_that_lost_its_links_to_the_switches_goes_by_pcie(self):
        """As in the report of a GB300 tray, one of whose GPUs had no NVLink."""
        text = text_of("own-nccl-nvswitch.txt")
        whole = read(text)
        lost = re.sub(r"<nvlink[^>]*/>", "", text, count=text.count("<nvlink") // whole.gpus)
        found = read(lost)
        assert not any(links.is_direct(kind) for kind in found.kinds[0])
        assert found.kinds[1][2:] == whole.kinds[1][2:]
        assert links.is_direct(found.kinds[1][2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("$ nvidia-smi topo -m\nFailed to run topology matrix\n",
         "f line 2: the tool failed: Failed to run topology matrix"),
        ("$ nvidia-smi topo -mp\n\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n",
         "f line 1: this is nvidia-smi topo -mp, which leaves NVLinks out"),
        ('{"system": {"(Topology) Numa Node": "0"}}\n',
         "expected the output of rocm-smi --showtopo, as text"),
        ("available: 0 nodes ()\nNo distance information available.\n",
         "f line 1: no NUMA nodes, as in a container"),
    ],
    ids=["nvidia-smi that failed", "paths alone", "rocm-smi's JSON", "numactl in a container"],
)  # fmt: skip
def test_what_a_tool_could_not_tell_is_said_by_name(text, message):
    with pytest.raises(TopologyError) as caught:
        gres_topology.read(text, name="n", source="f")
    assert message in str(caught.value)


def test_rccl_names_an_mi300a_by_a_number():
    found = read(text_of("own-rccl-xgmi-four.txt").replace('gcn="910"', 'gcn="940"'))
    # Two links of 64 GB/s join its pairs.
    assert (found.model, found.bandwidth_gbps.max()) == ("gfx940", 128)


class TestHwlocXml:
    def test_a_real_power9_node(self):
        found = asset("hwloc-lassen.txt")
        assert found.model == "Tesla V100-SXM2-16GB"
        assert found.kinds[0] == ("X", "PIX", "SYS", "SYS")
        assert found.numa == (0, 0, 8, 8)
        assert found.pci[2] == "0035:03:00.0"
        assert found.cpus[0] == tuple(range(8, 88))
        assert dict(found.numa_nodes[0].distances) == {0: 10, 8: 40}
        assert {nic.name: nic.kinds[0] for nic in found.nics}["mlx5_2"] == "SYS"

    def test_a_real_mi250x_node(self):
        found = asset("hwloc-tioga.txt")
        assert found.numa == catalog.load("mi250x").numa
        assert set(found.kinds[3]) == {"X", "XGMI"}
        assert found.bandwidth_gbps[0, 1] == 100
        assert len(found.numa_nodes) == 4
        assert sorted(nic.name for nic in found.nics) == ["hsi0", "hsi1", "hsi2", "hsi3"]

    def test_a_machine_whose_only_display_is_the_boards_has_no_gpu(self):
        """hwloc's tests/hwloc/xml/96em64t-4n4d3ca2co-pci.xml."""
        text = text_of("own-hwloc-version1.txt")
        text = re.sub(r"0302 \[10de:[0-9a-f]{4}", "0300 [1002:515e", text)
        with pytest.raises(TopologyError, match="no GPU among the PCI devices"):
            read(text)

    @pytest.mark.parametrize(
        ("vga", "gpu"),
        [("1002:515e", "0302 [10de:06d2"), ("1002:164e", "0302 [10de:26b9"),
         ("1002:164e", "0300 [10de:2684"), ("1002:515e", "1200 [1002:74a1")],
        ids=["ES1000 and Tesla", "EPYC 4004 and L40S", "EPYC 4004 and GeForce", "and MI300X"],
    )  # fmt: skip
    def test_a_boards_own_vga_is_no_gpu_where_others_are(self, vga, gpu):
        """ATI's ES1000 as in hwloc's tests/hwloc/xml/24em64t-2n6c2t-pci.xml; 0300 is VGA."""
        text = text_of("own-hwloc-version1.txt")
        first = re.search(r'pci_type="(0302 \[10de:[0-9a-f]{4})', text)
        rest = text.replace(first[1], gpu)
        before = gres_topology.read(rest, name="n", source="f")
        at = rest.rindex("<object", 0, first.start())
        chip = f'<object type="PCIDev" pci_busid="0000:00:01.0" pci_type="0300 [{vga}] [0:0] 02">'
        chip += '<info name="PCIDevice" value="ES1000"/></object>'
        found = gres_topology.read(rest[:at] + chip + rest[at:], name="n", source="f")
        assert (found.pci, found.model, found.kinds) == (before.pci, before.model, before.kinds)

    @pytest.mark.parametrize(
        ("bridges", "osdev", "is_gpu"),
        [(2, "opencl0d0", True), (1, "rsmi0", True), (0, "opencl0d0", False), (2, "card1", False)],
    )
    def test_a_display_that_computes_and_is_a_card_is_a_gpu(self, bridges, osdev, is_gpu):
        """A Radeon Vega FE beside a GeForce: flux-framework/flux-sched, chimera.xml."""
        text = text_of("own-hwloc-version1.txt")
        first = re.search(r'pci_type="0302 \[10de:', text)
        at = text.rindex("<object", 0, first.start())
        bridge = '<object type="Bridge" bridge_type="1-1">'
        card = (
            '<object type="PCIDev" pci_busid="0000:44:00.0" pci_type="0300 [1002:6863] [0:0] 00">'
        )
        card += f'<object type="OSDev" name="{osdev}" osdev_type="5"/></object>'
        card = bridge * bridges + card + "</object>" * bridges
        found = read(text[:at] + card + text[at:])
        above = list(read(text).pci)
        assert sorted(found.pci) == sorted([*above, "0000:44:00.0"] if is_gpu else above)

    def test_a_nic_at_the_gpus_own_switch_is_as_near_as_a_gpu_there(self):
        """LLNL/mpibind, topo-xml/cts1-pascal.xml: two P100 and a ConnectX-5 at one switch."""
        text = text_of("own-hwloc-version1.txt")
        gpus = list(re.finditer(r'<object type="PCIDev"[^>]*pci_type="0302 \[10de:', text))
        at = gpus[1].start()
        nic = '<object type="PCIDev" pci_busid="0000:42:00.0" pci_type="0207 [15b3:1017] [0:0] 00">'
        nic += '<object type="OSDev" name="mlx5_9" osdev_type="3"/></object>'
        found = read(text[:at] + nic + text[at:])
        (kinds,) = (nic.kinds for nic in found.nics if nic.name == "mlx5_9")
        assert kinds[1] == found.kinds[0][1] == "PIX"

    def test_what_hwloc_says_of_a_virtual_machine(self):
        """With the NVML and OpenCL plugins; sysfs names no NUMA node for any device."""
        found = asset("h100-vm-hwloc.txt")
        assert (found.gpus, found.model) == (1, "NVIDIA H100 80GB HBM3")
        assert (found.numa, found.cpus) == ((0,), (tuple(range(16)),))
        assert (found.pci, found.nics) == (("0000:00:06.0",), ())

    def test_nvlink_bandwidths_become_links(self):
        found = asset("own-hwloc-nvlink.txt")
        assert found.kinds[0] == ("X", "NV2", "NV1", "SYS")
        assert found.bandwidth_gbps[0, 1] == 50

    def test_nvswitch_bandwidths_join_pairs(self):
        text = text_of("own-hwloc-nvlink.txt")
        # Two of the four ends become an NVSwitch with one GPU's six links to it.
        text = text.replace('name="nvml3"', 'name="NVSwitch"')
        text = re.sub(r"0 25000 50000 1000000", "150000 150000 150000 1000000", text)
        text = re.sub(r"(<u64values[^>]*>\d+ \d+ \d+) \d+ <", r"\1 150000 <", text)
        text = text.replace("150000 150000 150000 150000", "150000 150000 150000 1000000")
        assert read(text).kinds[1][2] == "NV6"

    def test_version_one_is_read(self):
        found = asset("own-hwloc-version1.txt")
        assert found.kinds[0] == ("X", "PIX", "SYS", "SYS")
        assert found.numa == (0, 0, 1, 1)
        assert found.numa_nodes[0].distances == ((0, 10), (1, 21))
        assert found.numa_nodes[1].memory_mb == 32768

    def test_the_boards_own_display_is_no_gpu(self):
        with pytest.raises(TopologyError, match="no GPU among the PCI devices"):
            read(
                text_of("own-hwloc-version1.txt")
                .replace("0302 [10de", "0300 [1a03")
                .replace("OSDev", "Misc")
            )


class TestNumactl:
    def test_nodes_memory_and_distances(self):
        found = asset("numactl-eight-nodes.txt")
        assert found.gpus == 0
        assert [node.number for node in found.numa_nodes] == list(range(8))
        assert found.numa_nodes[0].memory_mb == 63733
        assert dict(found.numa_nodes[7].distances)[0] == 32

    def test_merging_gives_gpus_the_cpus_of_their_node(self):
        text = "\tGPU0\tNUMA Affinity\nGPU0\t X \t1\n"
        bare = nvidia_smi.read(text, name="node", source="node.txt")
        merged = merge_numa(bare, text_of("numactl-two-nodes.txt"))
        assert merged.cpus == (tuple(range(32, 64)),)
        assert len(merged.numa_nodes) == 2

    def test_merging_gives_gpus_the_node_of_their_cpus(self):
        text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t32-40\nGPU1\tSYS\t X \t0-40\n"
        bare = nvidia_smi.read(text, name="node", source="node.txt")
        assert merge_numa(bare, text_of("numactl-two-nodes.txt")).numa == (1, None)

    def test_a_node_whose_cpus_are_others_is_refused(self):
        text = "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t64-95\t1\n"
        bare = nvidia_smi.read(text, name="node", source="node.txt")
        with pytest.raises(TopologyError, match=r"NUMA node 1 has CPUs 32-63, .* 64-95 for GPU0"):
            merge_numa(bare, text_of("numactl-two-nodes.txt"))

    def test_a_report_of_another_node_is_refused(self):
        with pytest.raises(TopologyError, match="no NUMA node 3"):
            merge_numa(catalog.load("dgx-a100"), text_of("numactl-two-nodes.txt"))

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("1:  32  10", "1:  31  10", "cell 0-1: distance 32 but 31 the other way"),
            ("1:  32  10", "1:  32", "line 12, cell 1-1: 1 distances; expected 2"),
            ("(0-1)", "(0-2)", "line 2: 2 nodes but 3 numbers"),
            ("node 1 cpus:", "node 1 CPUS:", "line 6: 'node 1 CPUS"),
        ],
    )
    def test_damage_is_named_by_line(self, old, new, message):
        with pytest.raises(TopologyError) as caught:
            read(text_of("numactl-two-nodes.txt").replace(old, new))
        assert message in str(caught.value)
