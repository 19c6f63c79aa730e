"""The `genie` section: what is read, and which mistakes are named."""

from pathlib import Path

import pytest
from machines_in_tests import basic_config

from policies.genie.submit import PAPER, Within
from slurm_plugin.config import settings as config
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.errors import ConfigError
from slurm_plugin.genie.site import site_of

FILE = Path("/etc/slurm/gputopo.yaml")


def test_without_the_section_no_jobs_are_shaped():
    assert config.parse("", FILE).genie is None


def test_partitions_take_what_they_do_not_say_from_the_section():
    text = """
genie:
  database: perf.db
  late: refuse
  classes: {prior: 1.5, normal: 12h}
  partitions:
    a: {nodes: "n[1-2]"}
    b: {nodes: n3, late: accept, classes: {urgent: 0}, max_nodes: 1, max_gpus_per_node: 4}
  accounts: {gold: {classes: {urgent: 0, normal: 1}}}
"""
    genie = config.parse(text, FILE).genie
    assert genie.database == Path("/etc/slurm/perf.db")
    a, b = genie.partitions["a"], genie.partitions["b"]
    assert (a.nodes, a.late, a.max_nodes) == (("n1", "n2"), "refuse", 0)
    assert a.classes == {"prior": Within(1.5), "normal": Within(seconds=43200)}
    assert (b.late, b.classes, b.max_nodes) == ("accept", {"urgent": Within(0)}, 1)
    assert tuple(genie.accounts["gold"].classes) == ("urgent", "normal")


def test_the_papers_classes_hold_where_the_site_names_none():
    genie = config.parse("genie: {partitions: {a: {nodes: n1}}}", FILE).genie
    assert genie.partitions["a"].classes == PAPER
    assert {name: within.times for name, within in PAPER.items()} == {
        "urgent": 0.0, "prior": 1.0, "normal": 2.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ("dgx[1-4]", "genie.partitions.dl.nodes: dgx4 is not declared"),
        ("dgx1,minsky1", "genie.partitions.dl.nodes: nodes of 4, 8 GPUs; expected nodes of one"),
    ],
)
def test_nodes_must_be_declared_and_alike(tmp_path, nodes, says):
    from machines_in_tests import BASIC

    text = BASIC + f"genie: {{{{partitions: {{{{dl: {{{{nodes: '{nodes}'}}}}}}}}}}}}\n"
    settings = basic_config(tmp_path, text)
    assert settings.genie is not None
    with pytest.raises(ConfigError) as caught:
        site_of(settings.genie, load_machines(settings), str(settings.path))
    assert says in str(caught.value)
