"""What is read of Slurm at one moment."""

import pytest

from gres_topology.slurm_files.network import BLOCK
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.snapshot import read_snapshot
from slurm_plugin.slurm.clients import scontrol_tables
from tests.slurm_plugin.slots_in_tests import TwoNodes

SHOWN = "BlockName=b1 BlockIndex=0 Nodes=dgx[1-2] BlockSize=2"


class InBlocks(TwoNodes):
    """A Slurm whose TopologyPlugin may be one; it does not answer where nothing is `shown`."""

    values: dict[str, str]
    shown = SHOWN

    def config(self):
        return self.values

    def networks(self):
        if not self.shown:
            raise SlurmError("no answer")
        return scontrol_tables.networks(lambda argv: self.shown, ())


@pytest.mark.parametrize("plugin", ["topology/block", "topology/tree", "topology/default", ""])
@pytest.mark.parametrize("has_yaml", [False, True])
def test_the_network_is_asked_for_where_slurm_weighs_one(tmp_path, plugin, has_yaml):
    """topology.yaml counts whatever slurm.conf says."""
    slurm = InBlocks()
    slurm.values = {"TopologyPlugin": plugin, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    if has_yaml:
        (tmp_path / "topology.yaml").touch()
    found = read_snapshot(slurm).settings.networks
    if has_yaml or plugin in ("topology/block", "topology/tree"):
        assert found.default.kind == BLOCK
    else:
        assert found is None


def test_of_a_network_that_slurmctld_does_not_tell_the_kind_is_empty():
    slurm = InBlocks()
    slurm.values, slurm.shown = {"TopologyPlugin": "topology/block"}, ""
    found = read_snapshot(slurm).settings.networks
    assert (found.default.kind, found.default.units) == ("", ())
