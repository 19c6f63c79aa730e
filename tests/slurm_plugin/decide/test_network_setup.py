"""topology.conf in the engine: jobs of several nodes get them below one switch."""

import logging
from pathlib import Path

import pytest
from engine_in_tests import written
from machines_in_tests import BASIC, mask, node, question

from slurm_plugin.errors import ConfigError
from slurm_plugin.serve import setup

FULL = 0xFF
SWITCHES = (
    "SwitchName=s1 Nodes=dgx1\nSwitchName=s2 Nodes=dgx[2-3]\nSwitchName=top Switches=s[1-2]\n"
)


def loaded(folder: Path, switches: str | None) -> setup.Setup:
    if switches is not None:
        (folder / "topology.conf").write_text(switches)
    return setup.load(written(folder, BASIC + "topology_conf: topology.conf\n"))


def test_two_nodes_are_moved_below_one_switch(tmp_path):
    """Slurm chose dgx1 and dgx2; dgx2 and dgx3 are nearer to each other."""
    found = loaded(tmp_path, SWITCHES)
    asked = question(
        node("dgx1", FULL, mask(0, 1)), node("dgx2", FULL, mask(0, 1)), node("dgx3", FULL)
    )
    reply = found.enforcement.on_place(asked).reply
    assert set(reply.nodes) == {"dgx2", "dgx3"}
    assert "nodes below s2" in reply.note


def test_nodes_below_no_switch_are_named_once(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        loaded(tmp_path, SWITCHES)
    assert "2 nodes are below no switch: minsky1, mirrored" in caplog.text


@pytest.mark.parametrize(
    ("switches", "told"),
    [
        (None, r"topology_conf: .*topology\.conf: cannot be read"),
        ("SwitchName=a", r"topology_conf: .*topology\.conf:1: switch a has neither"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(tmp_path, switches, told):
    with pytest.raises(ConfigError, match=told):
        loaded(tmp_path, switches)
