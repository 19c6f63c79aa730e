"""Nodes that are declared by their features: which they are, and what is kept of it."""

import re
from pathlib import Path

import pytest
from machines_in_tests import named

from gres_topology import catalog
from slurm_plugin.config import settings as config
from slurm_plugin.config.settings import Config
from slurm_plugin.decide.load_machines import load_machines, node_sets
from slurm_plugin.errors import ConfigError, PluginError
from slurm_plugin.learn import by_feature
from slurm_plugin.serve.loops.nodes import find
from slurm_plugin.slurm.interface import SlurmNode

RULES = """\
- {nodes: "dgx[1-2]", topology: dgx1v}
- {features: v100&nvlink, topology: dgx1v}
- {features: v100|p100, topology: minsky}
"""


def node(name: str, *features: str) -> SlurmNode:
    return SlurmNode(name, ("IDLE",), ("gpu",), 1, 16, 4000, features=features)


NODES = (
    node("dgx1", "v100", "nvlink"),
    node("pod2", "nvlink", "v100", "rack7"),
    node("pod1", "v100", "nvlink"),
    node("m1", "p100"),
    node("cpu1"),
)


def settings_in(folder, nodes: str) -> Config:
    return config.parse(f"state_dir: {folder}\nnodes:\n{nodes}", folder / "gputopo.yaml")


def test_each_node_has_the_machine_of_the_first_set_that_means_it(tmp_path):
    settings = settings_in(tmp_path, RULES)
    assert set(load_machines(settings)) == {"dgx1", "dgx2"}
    assert by_feature.keep(tmp_path, find(settings, NODES))
    found = load_machines(settings)
    assert {name: machine.topology.name for name, machine in found.items()} == {
        "dgx1": "dgx1v", "dgx2": "dgx1v", "pod1": "dgx1v", "pod2": "dgx1v", "m1": "minsky"
    }  # fmt: skip
    assert not any(machine.problem for machine in found.values())
    # One object for all nodes of a kind.
    assert found["pod1"] is found["dgx1"]


def test_a_node_that_goes_is_given_up(tmp_path):
    settings = settings_in(tmp_path, RULES)
    by_feature.keep(tmp_path, find(settings, NODES))
    assert not by_feature.keep(tmp_path, find(settings, reversed(NODES)))
    left = [one for one in NODES if one.name != "pod1"]
    assert by_feature.keep(tmp_path, find(settings, left))
    assert "pod1" not in load_machines(settings)


def test_without_features_nothing_is_read(tmp_path):
    settings = settings_in(tmp_path, RULES.splitlines()[0] + "\n")
    (tmp_path / by_feature.NAME).write_text("damaged")
    assert node_sets(settings) is settings.nodes


@pytest.mark.parametrize(
    "content",
    named(
        [
            ("cut", b'{"v100|p100": ["m1"'),
            ("of another kind", b'{"v100|p100": "m1"}'),
            ("no text", b"\xff\xfe"),
            ("nested", b"[" * 100_000),
        ]
    ),
)
def test_a_damaged_file_counts_as_none_and_is_written_anew(tmp_path, content, caplog):
    settings = settings_in(tmp_path, RULES)
    (tmp_path / by_feature.NAME).write_bytes(content)
    with pytest.raises(PluginError, match=r"nodes-by-feature\.json: [^;]*; remove it"):
        by_feature.read(tmp_path)
    assert set(load_machines(settings)) == {"dgx1", "dgx2"}
    assert "nodes declared by features are Slurm's own choice" in caplog.text
    assert by_feature.keep(tmp_path, find(settings, NODES))
    assert "m1" in load_machines(settings)


def test_a_huge_file_is_none_of_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(by_feature, "MAX_BYTES", 10)
    (tmp_path / by_feature.NAME).write_text('{"v100": ["pod1"]}')
    with pytest.raises(PluginError, match="larger than"):
        by_feature.read(tmp_path)


@pytest.mark.parametrize(
    ("nodes", "said"),
    named(
        [
            ("both", "{nodes: n1, features: v100, topology: dgx1v}", "a host list, or else"),
            ("neither", "{topology: dgx1v}", "a host list, or else `features`"),
            ("a count", "{features: 'v100*2', topology: dgx1v}", "names of features with &"),
            ("an open end", "{features: v100&, topology: dgx1v}", "names of features with &"),
            ("of one of each", "{features: '[a|b]', topology: dgx1v}", "names of features"),
        ]
    ),
)
def test_what_cannot_be_is_refused_with_its_line(tmp_path, nodes, said):
    with pytest.raises(ConfigError, match=rf"gputopo.yaml:3: nodes\[0\]\..*{said}"):
        load_machines(settings_in(tmp_path, f"- {nodes}\n"))


def test_a_pattern_for_nodes_that_are_not_there_at_the_moment_is_no_mistake(tmp_path):
    """Else the engine would not start, and never find them."""
    (tmp_path / "halo.txt").write_text("\n".join(f"{k} {(k + 1) % 8}" for k in range(8)))
    text = (
        f"state_dir: {tmp_path}\npatterns: {{halo: halo.txt}}\nnodes:\n"
        "- {nodes: n1, topology: minsky}\n- {features: v100, topology: dgx1v}\n"
    )
    settings = config.parse(text, tmp_path / "gputopo.yaml")
    assert set(load_machines(settings)) == {"n1"}


def test_the_pages_examples_are_machines_that_there_are():
    docs = Path(__file__).parents[3] / "docs"
    for page in ("configuration.md", "controllers.md"):
        named = re.findall(r"\{features: [^}]*topology: ([\w-]+)\}", (docs / page).read_text())
        assert named
        assert {*named} <= {*catalog.names()}
