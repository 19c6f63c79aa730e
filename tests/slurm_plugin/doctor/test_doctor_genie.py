"""`gputopo doctor` on partitions whose jobs are shaped."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from genie_in_tests import GENIE, a_shaping
from machines_in_tests import BASIC, basic_config

from slurm_plugin.doctor.checks import check_genie
from slurm_plugin.slurm.interface import SlurmPartition

NODES = ("dgx1", "dgx2")
GOOD = [SlurmPartition(name, NODES, False) for name in ("dl", "strict", "plain", "tight")]
OTHER_NODES = [SlurmPartition("dl", (*NODES, "n9"), False), *GOOD[1:]]
MULTIFACTOR = {"PriorityType": "priority/multifactor"}
BASIC_ORDER = {"PriorityType": "priority/basic"}


def told(folder: Path, partitions: list[SlurmPartition], values: dict[str, str]) -> list[str]:
    a_shaping(folder)
    genie = basic_config(folder, BASIC + GENIE).genie
    assert genie is not None
    here = SimpleNamespace(
        config=SimpleNamespace(genie=genie),
        slurm=SimpleNamespace(partitions=lambda: partitions),
        slurm_config=values,
    )
    return [f"{one.level}: {one.text}" for one in check_genie(here)]


def test_what_is_right_is_told(tmp_path):
    said = told(tmp_path, GOOD, MULTIFACTOR)
    assert said[0] == "ok: dl: 2 nodes, classes urgent, prior, normal"
    assert said[-1].endswith("performance.db: 1 profiles")
    assert all(line.startswith("ok: ") for line in said)


@pytest.mark.parametrize(
    ("partitions", "values", "says"),
    [
        (GOOD[:1], MULTIFACTOR, "fail: strict is no partition of Slurm"),
        (
            OTHER_NODES,
            MULTIFACTOR,
            "fail: dl: Slurm's nodes and genie.partitions.dl.nodes differ in n9",
        ),
        (GOOD, BASIC_ORDER, "warn: the queue's order is not kept: PriorityType is priority/basic"),
    ],
    ids=["no partition", "other nodes", "basic priority"],
)
def test_what_keeps_it_from_working_is_named(tmp_path, partitions, values, says):
    assert says in told(tmp_path, partitions, values)
