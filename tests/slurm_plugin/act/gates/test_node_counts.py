"""Where an operator changes how many nodes a job may have, Slurm holds it to no limit of nodes."""

from dataclasses import replace

import pytest
from slots_in_tests import DGX1, NOW, TERMS, gated, planned

from slurm_plugin.act.gates import change
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.queue.snapshot import Settings

#: Sixteen GPUs, wherever: two nodes, of which Slurm knows one as the least.
WIDE = gated(
    1,
    16,
    tres_per_node="",
    tres_per_job="gres/gpu:16",
    min_nodes=1,
    admin_comment="[gpu-slots: gated token=t tpj=gres/gpu:16 nodes=1- by=job]",
)
TWO_NODES = [replace(DGX1, name="dgx2")]
LIMITED = replace(TERMS, settings=Settings((), {"AccountingStorageEnforce": "limits"}))


@pytest.mark.parametrize(
    ("job", "nodes"),
    [
        (WIDE, 2),
        (replace(WIDE, min_nodes=2, max_nodes=2), 2),
        (replace(WIDE, min_nodes=0), 2),
        (gated(1, 2, min_nodes=1), 1),
    ],
    ids=["on more than it has to be", "on as many as it asked for", "not known", "on one"],
)
def test_a_release_names_as_many_nodes_as_the_job_has_to_have(job, nodes):
    """Of more Slurm would take some, and give it fewer GPUs."""
    made = planned(job, others=TWO_NODES)
    [(_, update)] = made.releases[0].steps
    assert update.num_nodes == (nodes, nodes)
    assert len(update.req_nodes.split(",")) == nodes


def test_where_there_are_limits_a_job_that_slurm_would_put_on_more_nodes_is_slurms_own():
    """With a number of nodes of ours it would evade a limit of nodes."""
    made = planned(WIDE, others=TWO_NODES, context=LIMITED)
    assert not made.releases
    [(_, update)] = made.updates
    assert "limits" in update.admin_comment
    shaped = "[gpu-slots: gated token=t tpn=gres/gpu:2 nodes=2-2 by=node]"
    stale = gated(1, 2, min_nodes=1, admin_comment=shaped)
    assert planned(stale, others=TWO_NODES, context=LIMITED).releases


def kept_of(nodes: str) -> GateRecord:
    found = GateRecord.read_from(f"[gpu-slots: gated token=t tpn=gres/gpu:2 nodes={nodes}]")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("asked", "has", "restored"),
    [
        ("1-", 1, (1, change.OPEN_MAX)),
        ("1-4", 1, (1, 4)),
        ("1-", 0, None),
        ("1-1", 1, None),
        ("1-", change.OPEN_MAX, None),
    ],
    ids=["any number", "up to four", "never released", "one", "restored before"],
)
def test_only_who_is_given_back_gets_the_most_that_it_asked_for(asked, has, restored):
    job = gated(1, 2, min_nodes=1, max_nodes=has)
    assert change.give_back(job, kept_of(asked), "why").num_nodes == restored
    assert change.regate(job, kept_of(asked), NOW, NOW, "why").num_nodes is None


def test_tasks_that_wait_together_keep_the_number_of_nodes_that_slurm_gave_them():
    """Slurm refuses the whole update else, and their gate would stay shut until it opens itself."""
    job = gated(1, 2, min_nodes=1, max_nodes=3, array_id=1, task="0-2", tasks=3)
    assert change.give_back(job, kept_of("1-"), "why").num_nodes is None
    assert change.give_back(replace(job, tasks=1), kept_of("1-"), "why").num_nodes is not None


@pytest.mark.parametrize(("has", "sent"), [(16, None), (2, None), (1, 2)])
def test_a_release_lowers_no_number_of_cpus(has, sent):
    """Its sixteen tasks need more than its two GPUs bring; and Slurm would lift limits of CPUs."""
    words = "token=t tpn=gres/gpu:2 nodes=1-1 by=node cpg=1"
    job = gated(1, 2, cpus=has, ntasks=has, admin_comment=f"[gpu-slots: gated {words}]")
    [(_, update)] = planned(job).releases[0].steps
    assert update.min_cpus == sent
