"""What Slurm adds to a job, or alone knows of its nodes: there it places the job itself."""

from dataclasses import replace

import pytest
from slot_submits_in_tests import NOW, cache, left, mode, site, state_of, submit, told

from slurm_plugin.queue.backfill import WaitingLine
from slurm_plugin.slurm.clients import scontrol_tables

MORE = "its partition gives more than it asks for (MinNodes, OverSubscribe=EXCLUSIVE)"
ONE_NETWORK = "its nodes are to be in one network, which Slurm alone knows"


@pytest.mark.parametrize(
    ("partition", "config", "nodes", "why"),
    [
        ({"share": 0}, {}, 1, MORE),
        ({"min_nodes": 2}, {}, 1, MORE),
        ({"min_nodes": 2}, {}, 2, ""),
    ],
)
def test_what_slurm_adds_to_a_job_is_slurms_to_place(tmp_path, partition, config, nodes, why):
    state = cache("dgx1", "dgx2")
    state.settings = site(config=config, **partition)
    answer = mode(tmp_path, state).on_submit(submit(nodes=nodes))
    assert left(answer) == why if why else state_of(told(answer)) == "placed"


S1, S2 = (f"SwitchName=s{i} Level=0 LinkSpeed=1 Nodes=dgx{i}" for i in (1, 2))
ROOT = "SwitchName=root Level=1 LinkSpeed=1 Nodes=dgx[1-2] Switches=s[1-2]"
BLOCK = "BlockName=b1 BlockIndex=0 Nodes=dgx[1-2] BlockSize=2"


@pytest.mark.parametrize(
    ("lines", "nodes", "why"),
    [
        ((ROOT, S1, S2), 2, ""),
        ((S1.replace("dgx1", "dgx[1-2]"), S2.replace("dgx2", "n[1-9]")), 2, ""),
        ((S1, S2), 2, ONE_NETWORK),
        ((S1, S2), 1, ""),
        ((S1,), 2, ONE_NETWORK),
        ((BLOCK,), 2, ONE_NETWORK),
        ((BLOCK,), 1, ""),
        # slurmctld did not answer, or shows something else.
        (("no such thing",), 2, ONE_NETWORK),
        (("no such thing",), 1, ""),
    ],
)
def test_a_job_of_several_nodes_is_slurms_where_its_partition_is_not_in_one_tree(
    tmp_path, lines, nodes, why
):
    state, settings = cache("dgx1", "dgx2"), site()
    told_by_slurm = scontrol_tables.networks(lambda argv: "\n".join(lines), settings.partitions)
    state.settings = replace(settings, networks=told_by_slurm)
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
