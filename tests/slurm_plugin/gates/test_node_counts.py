"""Where an operator changes how many nodes a job may have, Slurm holds it to no limit of nodes."""

from dataclasses import replace

import pytest
from slots_in_tests import DGX1, NOW, gated, planned

from slurm_plugin.gates import change
from slurm_plugin.job_notes.records import GateRecord

#: Sixteen GPUs, wherever: two nodes, of which Slurm knows one as the least.
WIDE = gated(
    1, 16, tres_per_node="", tres_per_job="gres/gpu:16", min_nodes=1,
    admin_comment="[gpu-slots: gated token=t tpj=gres/gpu:16 nodes=1- by=job]",
)  # fmt: skip
TWO_NODES = [replace(DGX1, name="dgx2")]


@pytest.mark.parametrize(
    ("job", "nodes"),
    [
        (WIDE, (1, 2)),
        (replace(WIDE, min_nodes=2, max_nodes=2), (2, 2)),
        (replace(WIDE, min_nodes=0), (2, 2)),
        (gated(1, 2, min_nodes=1), (1, 1)),
    ],
    ids=["on more than it has to be", "on as many as it asked for", "not known", "on one"],
)
def test_a_release_leaves_the_fewest_nodes_as_they_are(job, nodes):
    made = planned(job, others=TWO_NODES)
    [(_, update)] = made.releases[0].steps
    assert (update.num_nodes, len(update.req_nodes.split(","))) == (nodes, nodes[1])


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


@pytest.mark.parametrize(("has", "sent"), [(16, None), (2, None), (1, 2)])
def test_a_release_lowers_no_number_of_cpus(has, sent):
    """Its sixteen tasks need more than its two GPUs bring; and Slurm would lift limits of CPUs."""
    words = "token=t tpn=gres/gpu:2 nodes=1-1 by=node cpg=1"
    job = gated(1, 2, cpus=has, ntasks=has, admin_comment=f"[gpu-slots: gated {words}]")
    [(_, update)] = planned(job).releases[0].steps
    assert update.min_cpus == sent
