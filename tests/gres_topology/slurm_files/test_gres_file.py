"""What Slurm needs of a topology: gres.conf, and which GPU its indices mean."""

import dataclasses
import re
from pathlib import Path

import pytest

from gres_topology import NumaNode, TopologyError, catalog, cpulist, gres_conf, links
from gres_topology.slurm_files import gres_file, mapping

FAKE = "/dev/fakegpu{index}"


def written(text):
    """Keys and values of each line."""
    return [dict(word.split("=") for word in line.split()) for line in text.splitlines()]


def read(text):
    return gres_file.load_devices(Path("my.conf"), lambda _: text)


#: What nvidia-smi, rocm-smi and xpu-smi call GPUs, and the type that gres.conf gets.
NAMES = {
    "NVIDIA RTX A6000": "a6000",
    "NVIDIA RTX A4500": "a4500",
    "NVIDIA RTX A2000 12GB": "a2000",
    "Quadro P4000": "p4000",
    "Quadro RTX 6000": "rtx_6000",
    "Quadro RTX 8000": "rtx_8000",
    "Quadro GV100": "gv100",
    "Quadro M6000 24GB": "m6000",
    "NVIDIA RTX 6000 Ada Generation": "rtx_6000_ada",
    "NVIDIA RTX 4000 SFF Ada Generation": "rtx_4000_sff_ada",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx_pro_6000",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "rtx_pro_6000",
    "NVIDIA RTX PRO 4500 Blackwell": "rtx_pro_4500",
    "NVIDIA GeForce RTX 5090": "rtx_5090",
    "NVIDIA GeForce RTX 4090 D": "rtx_4090_d",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "rtx_4070_ti_super",
    "NVIDIA GeForce RTX 2080 Ti": "rtx_2080_ti",
    "NVIDIA GeForce GTX 1080 Ti": "gtx_1080_ti",
    "NVIDIA TITAN RTX": "titan_rtx",
    "NVIDIA TITAN V": "titan_v",
    "TITAN Xp": "titan_xp",
    "Tesla K40m": "k40m",
    "Tesla K80": "k80",
    "Tesla M60": "m60",
    "Tesla P4": "p4",
    "Tesla P100-PCIE-16GB": "p100",
    "Tesla V100S-PCIE-32GB": "v100s",
    "Tesla T4": "t4",
    "NVIDIA A2": "a2",
    "NVIDIA A10G": "a10g",
    "NVIDIA A30": "a30",
    "NVIDIA A40": "a40",
    "NVIDIA A100 80GB PCIe": "a100",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": "a100",
    "NVIDIA A800-SXM4-80GB": "a800",
    "NVIDIA H100 NVL": "h100",
    "NVIDIA H20": "h20",
    "NVIDIA GH200 480GB": "gh200",
    "NVIDIA B300 SXM6 AC": "b300",
    "NVIDIA GB10": "gb10",
    "NVIDIA L4": "l4",
    "NVIDIA L40": "l40",
    "NVIDIA T1000 8GB": "t1000",
    "AMD Instinct MI210": "mi210",
    "AMD Instinct MI308X OAM": "mi308x",
    "AMD Radeon PRO W7900": "w7900",
    "AMD Radeon RX 7900 XTX": "rx_7900_xtx",
    "Intel(R) Data Center GPU Max 1100": "max_1100",
    "Intel(R) Data Center GPU Flex 170": "flex_170",
    "Intel(R) Arc(TM) Pro B60 Graphics": "b60",
}


class TestGresConf:
    @pytest.mark.parametrize("name", catalog.names())
    def test_what_is_written_reads_back(self, name):
        machine = catalog.load(name)
        text = gres_conf(machine, "n[1-2]", FAKE)
        files = [f"/dev/fakegpu{i}" for i in range(machine.gpus)]
        assert read(text).files("n1") == read(text).files("n2") == files
        assert read(text).files("n3") == []
        for gpu, line in enumerate(written(text)):
            assert line["Name"] == "gpu"
            counts = list(map(int, line["Links"].split(",")))
            assert counts[gpu] == -1
            assert [c for i, c in enumerate(counts) if i != gpu] == [
                links.link_count(k) for i, k in enumerate(machine.kinds[gpu]) if i != gpu
            ]

    def test_types_are_short_names_of_models(self):
        types = {n: gres_file.type_of(catalog.load(n).model) for n in catalog.names()}
        assert types["dgx1v"] == "v100"
        assert types["mi250x"] == "mi250x"
        assert types["l40s-pcie"] == "l40s"
        assert types["gb200-nvl72"] == "gb200"
        assert types["tsubame25"] == "k20x"
        assert gres_file.type_of(None) is None

    @pytest.mark.parametrize(
        "model", [*NAMES, *sorted({catalog.load(n).model for n in catalog.names()})]
    )
    def test_a_type_is_part_of_what_autodetect_calls_the_gpu(self, model):
        """Slurm's gpu_common.c makes the name lower case and blanks underscores; gres.conf(5)."""
        detected = model.lower().replace(" ", "_")
        kind = gres_file.type_of(model)
        assert kind == NAMES.get(model, kind)
        assert kind is not None
        before, _, behind = detected.partition(kind)
        assert kind in detected
        assert not before[-1:].isalnum(), "never the end of a longer word"
        assert not behind[:1].isalnum(), "never the beginning of one"
        assert re.fullmatch(r"[a-z][a-z0-9_]*", kind), "slot types can be made of it"

    @pytest.mark.parametrize("model", ["NVIDIA Graphics Device", "16GB HBM2", "gfx90a", ""])
    def test_a_name_without_a_number_makes_no_type(self, model):
        assert gres_file.type_of(model) is None

    def test_the_product_counts_and_not_the_chip(self):
        assert gres_file.type_of("GH100 [H100 SXM5 80GB]") == "h100"
        assert gres_file.type_of("Aldebaran/MI200 [Instinct MI250X/MI250]") == "mi250x"

    def test_cores_count_node_by_node_and_threads_are_folded(self):
        def cores(name):
            return [line["Cores"] for line in written(gres_conf(catalog.load(name), "n1", FAKE))]

        assert cores("dgx1v") == ["0-19"] * 4 + ["20-39"] * 4  # siblings apart: 0 and 40
        assert cores("minsky") == ["0-9"] * 2 + ["10-19"] * 2  # eight adjacent threads
        assert cores("dgx-a100")[:3] == ["48-63", "48-63", "16-31"]
        assert cores("a100-pcie-bridged")[4] == "32-63"  # one thread

    @pytest.mark.parametrize(
        ("cpus", "cores"),
        [
            ((range(8), range(8, 16)), ("0-7", "8-15")),
            (([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]), ("0-3", "4-7")),
            # Two runs that are no halves: nothing says that the second are siblings.
            (([0, 1, 2, 3, 4, 5, 8, 9], [6, 7, 10, 11, 12, 13, 14, 15]), ("0-7", "8-15")),
            (([0, 1, 2, 3, 6, 7, 8, 9, 10], [4, 5, 11, 12, 13]), ("0-8", "9-13")),
        ],
        ids=["one run", "siblings apart", "unequal runs", "an odd number"],
    )
    def test_threads_that_nobody_states_are_told_by_how_cpus_are_numbered(self, cpus, cores):
        machine = catalog.load("dgx1v")
        there = dataclasses.replace(
            machine,
            numa_nodes=tuple(NumaNode(i, cpus=tuple(some)) for i, some in enumerate(cpus)),
            threads_per_core=None,
        )
        found = gres_file.core_numbers(there)
        assert tuple(cpulist.format_list(found[i]) for i in (0, 1)) == cores

    def test_cores_are_left_out_on_request(self):
        assert "Cores" not in gres_conf(catalog.load("dgx1v"), "n1", FAKE, with_cores=False)

    @pytest.mark.parametrize("name", catalog.names())
    def test_cores_may_be_stated_by_numa_node(self, name):
        machine = catalog.load(name)
        stated = {node: (2 * i, 2 * i + 1) for i, node in enumerate(sorted(set(machine.numa)))}
        lines = written(gres_conf(machine, "n1", FAKE, numa_cores=stated))
        cores = [cpulist.parse_list(line["Cores"]) for line in lines]
        assert cores == [stated[node] for node in machine.numa]

    def test_cores_that_cannot_be_counted_are_refused(self):
        machine = catalog.load("dgx1v")
        half = dataclasses.replace(machine, numa_nodes=machine.numa_nodes[1:], numa=(1,) * 8)
        with pytest.raises(TopologyError, match="cores cannot be counted"):
            gres_conf(half, "n1", FAKE)

    def test_unknown_minors_are_not_guessed(self):
        with pytest.raises(TopologyError, match="minor of GPU0 is unknown; give a device pattern"):
            gres_conf(catalog.load("dgx1v"), "n1")

    def test_known_minors_name_the_files(self):
        machine = dataclasses.replace(catalog.load("minsky"), minors=(2, 3, 0, 1))
        files = read(gres_conf(machine, "n1")).files("n1")
        assert files == [f"/dev/nvidia{minor}" for minor in (2, 3, 0, 1)]

    def test_file_ranges_are_written_out(self):
        found = read("NodeName=n1 Name=gpu File=/dev/nvidia[0-1,3] Cores=0-3 # x\n")
        assert found.files("n1") == ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia3"]

    def test_lists_may_end_in_a_comma_and_cores_stand_in_brackets(self):
        """MIT CSAIL's gres.conf, and one with COREs=: Slurm's hostlist.c and bitstring.c."""
        text = "NodeName=n1,n2, Name=gpu COREs=[0-3] File=/dev/x0,\n"
        found = read(text)
        assert found.files("n1") == found.files("n2") == ["/dev/x0"]

    def test_a_bad_line_is_named(self):
        with pytest.raises(TopologyError, match=r"my.conf line 2: 'Links'; expected Key=value"):
            read("Name=gpu File=/dev/nvidia0\nName=gpu Links File=/dev/nvidia1\n")

    @pytest.mark.parametrize("bad", ["n1 Name=x", "n1\nNodeName=n2", ""])
    def test_node_names_cannot_smuggle_lines(self, bad):
        with pytest.raises(TopologyError, match="expected Slurm's form"):
            gres_conf(catalog.load("minsky"), bad, FAKE)


class TestDeviceFiles:
    def test_lines_without_a_node_count_for_all_and_before_a_nodes_own(self):
        """As slurmd does, wherever they stand in the file."""
        text = "NodeName=n[1-2] Name=gpu File=/dev/x0\nName=gpu File=/dev/x[2-3]\n"
        text += "NodeName=n2 Name=gpu File=/dev/x1\nName=gpu File=/dev/x4\n"
        found = read(text)
        common = ["/dev/x2", "/dev/x3", "/dev/x4"]
        assert found.files("n9") == common
        assert found.files("n1") == [*common, "/dev/x0"]
        assert found.files("n2") == [*common, "/dev/x0", "/dev/x1"]

    def test_a_host_list_that_cannot_be_read_is_named(self):
        with pytest.raises(TopologyError, match=r"my.conf line 1: NodeName=n\[1-: "):
            read("NodeName=n[1- Name=gpu File=/dev/x0")

    @pytest.mark.parametrize(
        ("text", "by_node"),
        [
            ("Name=gpu File=/dev/x0", {"n1": "", "n2": ""}),
            ("AutoDetect=NVML", {"n1": "nvml", "n2": "nvml"}),
            ("AutoDetect=nvml\nNodeName=n1 AutoDetect=off Name=gpu File=/dev/x0",
             {"n1": "", "n2": "nvml"}),
            ("NodeName=n[2-3] Autodetect=rsmi\nAutoDetect=off", {"n1": "", "n2": "rsmi"}),
            ("AutoDetect=Full\nNodeName=n2 AutoDetect=NRT", {"n1": "full", "n2": "nrt"}),
            ("AutoDetect=gpu/oneAPI", {"n1": "oneapi"}),
            ("Name=gpu AutoDetect=nvml\nNodeName=n2 Name=gpu AutoDetect=rsmi",
             {"n1": "", "n2": "rsmi"}),
        ],
    )  # fmt: skip
    def test_a_nodes_own_word_on_detecting_counts_before_that_for_all(self, text, by_node):
        found = read(text)
        assert {node: found.detected_by(node) for node in by_node} == by_node

    @pytest.mark.parametrize("word", ["nvlm", "offline", "yes"])
    def test_a_way_of_detecting_that_no_release_knows_is_named(self, word):
        says = f"my.conf line 2: AutoDetect={word}; expected full, .*, nvidia or off"
        found = read(f"# GPUs\nAutoDetect={word}\n")
        with pytest.raises(TopologyError, match=says):
            found.detected_by("n1")

    @pytest.mark.parametrize(
        "bad",
        [
            "AutoDetect=nvlm",
            "Name=gpu File=/dev/x[3-1]",
            "Name=gpu File=/dev/x[0-7] Count=7",
            "Name=gpu File=/dev/x1 Cores=0-",
        ],
    )
    def test_a_line_that_cannot_be_read_costs_its_own_nodes(self, bad):
        text = f"Name=gpu File=/dev/x0\nNodeName=n[2-3] {bad}\nNodeName=n3 Name=gpu File=/dev/x1\n"
        found = read(text)
        assert (found.files("n1"), found.detected_by("n1")) == (["/dev/x0"], "")
        for node in ("n2", "n3"):
            for ask in (found.files, found.detected_by, lambda node: found.follows_types(node, ())):
                with pytest.raises(TopologyError, match=r"my.conf line 2: "):
                    ask(node)

    @pytest.mark.parametrize("links", ["0,0,-1,,0", "a", "1;2", ""])
    def test_links_that_slurmd_ignores_cost_nothing(self, links):
        """One of deepops' issue 1102, which ran so."""
        found = read(f'NodeName=n1 Name=gpu File=/dev/x0 Links="{links}"\n')
        assert found.files("n1") == ["/dev/x0"]

    def test_a_gpu_may_be_named_in_any_case(self):
        found = read("NodeName=n1 name=GPU Type=h100 FILE=/dev/x[0-1]\n")
        assert found.files("n1") == ["/dev/x0", "/dev/x1"]

    @pytest.mark.parametrize(
        ("types", "follows"),
        [
            (("a100", "h100"), True), (("h100", "a100"), False), (("", "a100"), True),
            (("A100", "H100"), True), (("H100", "A100"), False),
            ((), True), (("l40s",), True),
        ],
    )  # fmt: skip
    def test_slurmd_counts_the_types_in_slurm_confs_order(self, types, follows):
        text = "Name=gpu Type=a100 File=/dev/x0\nName=gpu Type=h100 File=/dev/x[1-2]\n"
        assert read(text).follows_types("n1", types) == follows

    def test_types_that_take_turns_are_in_no_order_of_types(self):
        text = "".join(f"Name=gpu Type={kind} File=/dev/x{i}\n" for i, kind in enumerate("aba"))
        for types in (("a", "b"), ("b", "a")):
            assert not read(text).follows_types("n1", types)

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (None, "gres.conf: No such file"),
            (b"Name=gpu File=/dev/x0\0\n", "gres.conf: has a NUL byte"),
        ],
    )
    def test_a_file_that_cannot_be_read_is_one_line(self, tmp_path, content, told):
        path = tmp_path / "gres.conf"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(TopologyError, match=told):
            gres_file.load_devices(path)


class TestSlots:
    def test_every_gpu_is_a_type_of_its_own(self):
        lines = written(gres_conf(catalog.load("minsky"), "n1", FAKE, slots=True))
        assert [line["Type"] for line in lines] == ["p100.s0", "p100.s1", "p100.s2", "p100.s3"]
        unnamed = gres_conf(catalog.load("minsky"), "n1", FAKE, gpu_type="", slots=True)
        assert [line["Type"] for line in written(unnamed)] == ["s0", "s1", "s2", "s3"]

    def test_the_node_line_has_the_same_types_and_the_model_as_a_feature(self):
        words = gres_file.slots_node_words(catalog.load("minsky"), "n[1-2]")
        assert words == (
            "NodeName=n[1-2] Gres=gpu:p100.s0:1,gpu:p100.s1:1,gpu:p100.s2:1,gpu:p100.s3:1"
            " Feature=p100"
        )

    @pytest.mark.parametrize("bad", ["a.100", "a:100", "1a", "a,b"])
    def test_a_type_slurm_could_not_read_is_refused(self, bad):
        with pytest.raises(TopologyError, match="GRES type"):
            gres_conf(catalog.load("minsky"), "n1", FAKE, gpu_type=bad, slots=True)


class TestSlurmIndex:
    def test_a_stated_permutation_is_taken(self):
        assert mapping.explicit(catalog.load("minsky"), [3, 2, 1, 0]) == (3, 2, 1, 0)

    def test_gres_conf_order_and_minors_give_the_permutation(self):
        machine = dataclasses.replace(catalog.load("minsky"), minors=(2, 3, 0, 1))
        files = [f"/dev/nvidia{i}" for i in range(4)]
        assert mapping.from_gres_conf(machine, files) == (2, 3, 0, 1)

    PCI = ("0001:03:00.0", "0000:c1:00.0", "0000:0a:00.0", "0000:07:00.0")

    @pytest.mark.parametrize(
        ("detection", "files", "order"),
        [
            ("nvml", [], (3, 2, 1, 0)),
            ("nvml", [f"/dev/nvidia{i}" for i in range(4)], (3, 2, 1, 0)),
            ("rsmi", [], (3, 2, 1, 0)),
            ("nvidia", [], (2, 3, 0, 1)),
            ("nvidia", [f"/dev/nvidia{i}" for i in (3, 1, 0, 2)], (2, 3, 0, 1)),
            ("", [f"/dev/nvidia{i}" for i in (3, 1, 0, 2)], (1, 3, 2, 0)),
        ],
    )
    def test_detected_gpus_are_in_slurmds_own_order(self, detection, files, order):
        machine = dataclasses.replace(catalog.load("minsky"), minors=(2, 3, 0, 1), pci=self.PCI)
        assert mapping.from_gres_conf(machine, files, detection) == order

    def test_the_first_way_that_finds_a_gpu_is_known_where_all_count_alike(self):
        """AutoDetect=full: NVML where the node has it, else the device files."""
        machine = dataclasses.replace(catalog.load("minsky"), minors=(3, 2, 1, 0), pci=self.PCI)
        assert mapping.from_gres_conf(machine, [], "full") == (3, 2, 1, 0)
        other = dataclasses.replace(machine, minors=(2, 3, 0, 1))
        with pytest.raises(TopologyError, match=r"by device file, and they differ .* slurm_index"):
            mapping.from_gres_conf(other, [], "full")

    @pytest.mark.parametrize(
        ("detection", "files", "message"),
        [
            ("full", [], "minor of GPU0 is unknown"),
            ("nvml", [], "PCI addresses of GPUs are unknown"),
            ("nvml", ["/dev/nvidia0"], "1 device files for 4 GPUs"),
            ("nvidia", [], "minor of GPU0 is unknown"),
            ("rsmi", [], "and AutoDetect=rsmi counts by them"),
            ("oneapi", [], "AutoDetect=oneapi gres.conf does not tell Slurm's order"),
        ],
    )
    def test_an_order_of_detecting_that_is_not_known_is_refused(self, detection, files, message):
        with pytest.raises(TopologyError, match=message):
            mapping.from_gres_conf(catalog.load("minsky"), files, detection)

    @pytest.mark.parametrize(
        ("minors", "files", "message"),
        [
            ((0, 1, None, 3), ["/dev/nvidia0"] * 4, "minor of GPU2 is unknown"),
            ((0, 1, 1, 3), ["/dev/nvidia0"] * 4, "device minors .* repeat"),
            ((0, 1, 2, 3), ["/dev/nvidia0"] * 3, "3 device files for 4 GPUs"),
            ((0, 1, 2, 3), [f"/dev/nvidia{i}" for i in (0, 1, 2, 5)], "nvidia5 is no GPU's"),
            ((0, 1, 2, 3), [f"/dev/nvidia{i}" for i in (0, 1, 2, 2)], "each of 0..3 once"),
            ((0, 1, 2, 3), ["/dev/nvidia0", "/dev/x", "/dev/y", "/dev/z"], "/dev/x is no GPU's"),
        ],
    )
    def test_a_mapping_that_cannot_be_established_is_refused(self, minors, files, message):
        machine = dataclasses.replace(catalog.load("minsky"), minors=minors)
        with pytest.raises(TopologyError, match=message):
            mapping.from_gres_conf(machine, files)

    @pytest.mark.parametrize("wrong", [[0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 4]])
    def test_a_wrong_permutation_is_refused(self, wrong):
        with pytest.raises(TopologyError):
            mapping.explicit(catalog.load("minsky"), wrong)
