"""`gputopo init`: the gputopo.yaml that a site can begin with, and that no file is lost by it."""

import re
from pathlib import Path

import pytest
from commands_in_tests import refused, run

from gres_topology import hostlist
from slurm_plugin.config import settings
from slurm_plugin.enabling import first_file
from slurm_plugin.slurm.interface import SlurmNode

IDLE, YAML = ("IDLE",), Path("/etc/slurm/gputopo.yaml")


def node(name, gpus, state=IDLE, features=()):
    return SlurmNode(name, state, ("batch",), 1, 64, 512000, gpus, features=features)


def nodes(names, gpus, **more):
    return [node(name, gpus, **more) for name in hostlist.expand(names)]


def sets(*groups):
    """The lines below `nodes:`."""
    known = [one for group in groups for one in group]
    said = first_file.text(YAML, known, (), {"SLURM_CONF": "/nowhere/slurm.conf"}, "+".join)
    return said.partition("\nnodes:")[2].splitlines()[1:]


@pytest.fixture
def loaded(tmp_path):
    """The same text as the engine reads it."""

    def load(*groups, collected=(), **config):
        path = tmp_path / "gputopo.yaml"
        known = [one for group in groups for one in group]
        config = {"SLURM_CONF": str(tmp_path / "slurm.conf"), **config}
        path.write_text(first_file.text(path, known, collected, config, ",".join))
        return settings.load(path)

    return load


@pytest.mark.parametrize(
    ("gpus", "topology", "why"),
    [
        ({"h100": 8}, "dgx-h100", "a guess: the only machine"),
        ({"nvidia_h100_80gb_hbm3": 8}, "dgx-h100", "a guess"),
        ({"MI300X": 8}, "mi300x", "a guess"),
        ({"a100": 8}, "collected", "could be a100-pcie-bridged or dgx-a100, so they are asked"),
        ({"h200": 4}, "collected", "not in the catalog"),
        ({"b200": 4}, "collected", "not in the catalog"),
        ({"h20": 8}, "collected", "not in the catalog"),
        ({"amd": 4}, "collected", "not in the catalog"),
        ({"gpu": 6}, "collected", "not in the catalog"),
        ({"l4": 8}, "collected", "not in the catalog"),
        ({"gb200": 4}, "gb200-tray", "a guess"),
        ({"H200": 8}, "dgx-h200", "a guess"),
        ({"h100": 4}, "collected", "not in the catalog, so they are asked"),
        ({"v100": 8}, "collected", "could be dgx1v, so they are asked"),
        ({"": 8}, "collected", "not in the catalog, so they are asked"),
        ({"a100": 4, "h100": 4}, "collected", "4 GPUs of type a100 and 4 GPUs of type h100"),
        ({"v100.s0": 1, "v100.s1": 1, "v100.s2": 1, "v100.s3": 1}, "collected", "4 GPUs of type"),
    ],
)
def test_a_machine_is_named_where_the_type_leaves_no_other(gpus, topology, why):
    comment, line = sets(nodes("n[1-2]", gpus))
    assert f"topology: {topology}}}" in line
    assert why in comment
    assert "2 nodes with" in comment


def test_what_was_written_is_a_configuration_that_observes(loaded):
    config = loaded(
        nodes("a[1-3]", {"h100": 8}), nodes("b1", {"l40s": 4}), nodes("login", {}),
    )  # fmt: skip
    assert [(one.nodes, one.topology) for one in config.nodes] == [
        (("a1", "a2", "a3"), "dgx-h100"),
        (("b1",), "collected"),
    ]
    assert config.partitions["default"].mode == "observe"


def test_hardware_that_is_known_is_not_guessed(loaded):
    config = loaded(nodes("a[1-3]", {"h100": 8}), collected=["a2"])
    assert [(one.nodes, one.topology) for one in config.nodes] == [
        (("a1", "a3"), "dgx-h100"),
        (("a2",), "collected"),
    ]


def test_gres_conf_says_which_gpu_is_which_where_it_does(loaded, tmp_path):
    path = tmp_path / "gres.conf"
    path.write_text("NodeName=a[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-7]\n")
    [one] = loaded(nodes("a[1-2]", {"a100": 8})).nodes
    assert (one.slurm_index, one.gres_conf) == ("gres-conf", path)
    [one] = loaded(nodes("a[1-3]", {"a100": 8})).nodes
    assert one.slurm_index == "identity"
    path.write_text("NodeName=a[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-3]\n")
    [one] = loaded(nodes("a[1-2]", {"a100": 8})).nodes
    assert one.slurm_index == "identity"
    path.write_text("NodeName=a[1-2 Name=gpu Type=a100 File=/dev/nvidia[0-7]\n")
    [one] = loaded(nodes("a[1-2]", {"a100": 8})).nodes
    assert one.slurm_index == "identity"
    assert "# gres.conf cannot be used" in (tmp_path / "gputopo.yaml").read_text()


TREE, BLOCK = "SwitchName=s Nodes=a1\n", "BlockName=b Nodes=a1\nBlockSizes=1\n"
YAML_TREE = "- topology: t\n  cluster_default: true\n  tree: {switches: [{switch: s, nodes: a1}]}\n"


@pytest.mark.parametrize(
    ("plugin", "version", "files", "named"),
    [
        ("topology/block", "24.11.5", {"topology.conf": BLOCK}, "topology.conf"),
        ("topology/tree", "24.11.5", {"topology.conf": TREE}, "topology.conf"),
        ("topology/tree", "24.11.5", {}, None),
        ("topology/default", "24.11.5", {"topology.conf": TREE}, None),
        ("topology/flat", "25.05.0", {"topology.yaml": YAML_TREE}, "topology.yaml"),
        ("topology/flat", "24.11.5", {"topology.yaml": YAML_TREE}, None),
        ("topology/tree", "24.11.5", {"topology.conf": "SwitchName="}, None),
    ],
)
def test_the_network_that_slurmctld_weighs_is_named(
    loaded, tmp_path, plugin, version, files, named
):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    config = loaded(nodes("a1", {"h100": 8}), TopologyPlugin=plugin, SLURM_VERSION=version)
    assert config.topology_conf == (named and tmp_path / named)
    is_left_out = "topology_conf is left out" in (tmp_path / "gputopo.yaml").read_text()
    assert is_left_out == (files.get("topology.conf") == "SwitchName=")


@pytest.mark.parametrize("gres_type", ["a100_1g.5gb", "A100_1G.5GB", "MI300X_CPX"])
def test_slices_are_left_to_slurm_in_words(gres_type):
    [line] = sets(nodes("a1", {gres_type: 7}))
    assert line.lstrip().startswith(f"# 1 node with 7 GPUs of type {gres_type}: left to Slurm")


def test_a_site_of_slices_alone_declares_no_node(loaded):
    assert not loaded(nodes("a1", {"a100_1g.5gb": 7})).nodes


def test_nodes_that_come_and_go_are_declared_by_a_feature_of_their_own(loaded):
    cloud = nodes("c[1-2]", {"h100": 8}, state=("IDLE", "CLOUD"), features=("gpu", "h100"))
    rest = nodes("p1", {"l40s": 4}, features=("gpu",))
    first, second = loaded(cloud, rest).nodes
    assert (first.features, first.topology) == ("h100", "dgx-h100")
    assert second.nodes == ("p1",)


@pytest.mark.parametrize("feature", ["cloud", "aws", "#foo: h100", "h100x"])
def test_a_feature_that_may_mean_other_nodes_declares_nothing(loaded, feature):
    """One that a node without GPUs has, or that does not name the type of GPU."""
    cloud = nodes("c[1-2]", {"h100": 8}, state=("IDLE", "CLOUD"), features=(feature,))
    [one] = loaded(cloud, nodes("p1", {}, features=("cloud",))).nodes
    assert one.nodes == ("c1", "c2")


def test_one_feature_is_one_set_though_some_of_its_nodes_are_known(loaded):
    cloud = nodes("c[1-2]", {"h100": 8}, state=("IDLE", "CLOUD"), features=("h100",))
    [one] = loaded(cloud, collected=["c2"]).nodes
    assert (one.features, one.topology) == ("h100", "dgx-h100")


class PlayedSlurm:
    """slurmctld of a site with three DGX-H100, and a slurm.conf in a folder of its own."""

    nodes_there = tuple(nodes("h[1-3]", {"h100": 8}))

    def __init__(self, run):
        pass

    def nodes(self):
        return list(self.nodes_there)

    def config(self):
        return {"SLURM_CONF": "/opt/slurm/etc/slurm.conf"}


@pytest.fixture
def yaml(tmp_path, monkeypatch):
    def folded(argv):
        assert argv[:3] == ["scontrol", "show", "hostlistsorted"]
        return "h[1-3]\n" if argv[3] == "h1,h2,h3" else argv[3]

    monkeypatch.setattr("slurm_plugin.slurm.clients.command_line.SlurmClient", PlayedSlurm)
    monkeypatch.setattr("slurm_plugin.slurm.runner.ProcessRunner", lambda place: folded)
    return tmp_path / "gputopo.yaml"


def test_it_shows_and_with_apply_it_writes(yaml):
    said = run("init", "--config", str(yaml))
    assert "nothing was written" in said
    assert not yaml.exists()
    said = run("init", "--config", str(yaml), "--apply")
    assert f"done: {yaml}" in said
    assert '- {nodes: "h[1-3]", topology: dgx-h100}' in yaml.read_text()
    assert run("config", "check", str(yaml)).startswith(f"{yaml}: 3 nodes, 1 rules")
    assert "names nodes already" in refused("init", "--config", str(yaml), "--apply")


def test_the_sample_is_written_over_and_no_other_file(yaml):
    yaml.write_bytes(settings.SAMPLE.read_bytes())
    yaml.chmod(0o640)
    run("init", "--config", str(yaml), "--apply")
    assert yaml.stat().st_mode & 0o777 == 0o640
    assert "dgx-h100" in yaml.read_text()
    yaml.write_text("slurm: {timeout_s: 5}\n")
    said = run("init", "--config", str(yaml), "--apply", code=2)
    assert "has keys of its own: put these lines into it" in said
    assert yaml.read_text() == "slurm: {timeout_s: 5}\n"


def test_a_site_without_gpus_gets_no_file(yaml, monkeypatch):
    monkeypatch.setattr(PlayedSlurm, "nodes_there", (node("login", {}),))
    assert "no node with GPUs" in run("init", "--config", str(yaml), "--apply", code=2)
    assert not yaml.exists()


def test_names_are_folded_by_slurm_a_few_thousand_at_a_time(yaml, monkeypatch):
    many = tuple(node(f"h{number}", {"h100": 8}) for number in range(4500))
    monkeypatch.setattr(PlayedSlurm, "nodes_there", many)
    run("init", "--config", str(yaml), "--apply")
    [line] = re.findall(r'nodes: "(.*)", topology', yaml.read_text())
    assert len(line.split(",")) == 4500
