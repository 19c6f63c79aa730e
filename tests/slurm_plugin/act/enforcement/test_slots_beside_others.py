"""What Slurm adds to a job, or alone knows of its nodes: there it places the job itself."""

from dataclasses import replace

import pytest
from slot_submits_in_tests import NOW, cache, left, mode, site, state_of, submit, told

from slurm_plugin.queue.backfill import WaitingLine

MORE = "its partition gives more than it asks for (MinNodes, OverSubscribe=EXCLUSIVE)"
ONE_NETWORK = "its nodes are to be in one network, which Slurm alone knows"


@pytest.mark.parametrize(
    ("partition", "config", "nodes", "why"),
    [
        ({"share": 0}, {}, 1, MORE),
        ({"min_nodes": 2}, {}, 1, MORE),
        ({"min_nodes": 2}, {}, 2, ""),
        ({}, {"TopologyPlugin": "topology/block"}, 2, ONE_NETWORK),
        ({}, {"TopologyPlugin": "topology/block"}, 1, ""),
    ],
)
def test_what_slurm_adds_to_a_job_is_slurms_to_place(tmp_path, partition, config, nodes, why):
    state = cache("dgx1", "dgx2")
    where = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    state.settings = site(config={**where, **config}, **partition)
    answer = mode(tmp_path, state).on_submit(submit(nodes=nodes))
    assert left(answer) == why if why else state_of(told(answer)) == "placed"


def test_a_job_of_several_nodes_is_slurms_where_topology_yaml_is(tmp_path):
    (tmp_path / "topology.yaml").touch()
    state = cache("dgx1", "dgx2")
    state.settings = site(config={"SLURM_CONF": str(tmp_path / "slurm.conf")})
    assert left(mode(tmp_path, state).on_submit(submit(nodes=2))) == ONE_NETWORK


LEAVES = "SwitchName=s1 Nodes=dgx1\nSwitchName=s2 Nodes=dgx2\n"


@pytest.mark.parametrize(
    ("switches", "nodes", "why"),
    [
        (f"{LEAVES}SwitchName=root Switches=s[1-2]", 2, ""),
        ("SwitchName=a Nodes=dgx[1-2]\nSwitchName=other Nodes=n[1-9]", 2, ""),
        (LEAVES, 2, ONE_NETWORK),
        (LEAVES, 1, ""),
        ("SwitchName=a Nodes=dgx1", 2, ONE_NETWORK),
        ("SwitchName=a Switches=unknown", 2, ONE_NETWORK),
        (None, 2, ONE_NETWORK),
    ],
)
def test_a_job_of_several_nodes_is_slurms_where_its_partition_has_several_trees(
    tmp_path, switches, nodes, why
):
    if switches is not None:
        (tmp_path / "topology.conf").write_text(switches)
    state = cache("dgx1", "dgx2")
    config = {"SLURM_CONF": str(tmp_path / "slurm.conf"), "TopologyPlugin": "topology/tree"}
    state.settings = site(config=config)
    answer = mode(tmp_path, state).on_submit(submit(nodes=nodes))
    assert left(answer) == why if why else state_of(told(answer)) == "placed"


@pytest.mark.parametrize("whole", ["the job's", "the node's", "threads of"])
@pytest.mark.parametrize("jobs", [0, 1])
def test_who_needs_cores_that_lie_in_some_way_gets_slots_on_nodes_without_jobs(
    tmp_path, whole, jobs
):
    """Slurm does not say which cores are free; where none is sure it places the job itself."""
    state = cache("dgx1")
    node = replace(state.nodes["dgx1"], jobs=jobs, by_core=whole == "the node's", threads=2)
    state.update({"dgx1": node}, (), WaitingLine(), NOW)
    answer = mode(tmp_path, state).on_submit(
        submit(by_core=whole == "the job's", by_thread=whole == "threads of")
    )
    if jobs:
        assert "which cores other jobs leave it" in left(answer)
    else:
        assert state_of(told(answer)) == "placed"


def test_one_thread_of_each_core_is_all_of_it_where_it_has_no_other(tmp_path):
    state = cache("dgx1")
    state.update({"dgx1": replace(state.nodes["dgx1"], jobs=1)}, (), WaitingLine(), NOW)
    answer = mode(tmp_path, state).on_submit(submit(by_thread=True))
    assert state_of(told(answer)) == "placed"
