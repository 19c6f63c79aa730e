"""Heterogeneous jobs in a plan: their components start together or not at all."""

from dataclasses import replace
from functools import partial

import slots_in_tests
from slots_in_tests import DGX1, planned

from slurm_plugin.act.gates.planning import PARTLY_SLURMS
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob

NEXT_MONTH = 1000 + 31 * 86400
gated = partial(slots_in_tests.gated, eligible=1100, time_limit_s=60)


#: Slurm gives each component nodes of its own.
TWO = {"others": [replace(DGX1, name="dgx2")]}


def component(offset: int, gpus: int, **more: object) -> QueuedJob:
    return gated(5 + offset, gpus, het_id=5, het_offset=offset, **more)


def test_the_components_of_a_heterogeneous_job_start_together_the_first_ones_update_last():
    [release] = planned(component(1, 2), component(0, 3), **TWO).releases
    assert list(release.jobs) == ["5", "6"]
    (first, pinned), (second, own), (last, start) = release.steps
    assert (first, second, last) == ("5", "6", "5")
    assert (pinned.begin_time, pinned.req_nodes, pinned.num_nodes) == (None, None, None)
    assert " pin=dgx1]" in (pinned.admin_comment or "")
    assert (own.begin_time, own.req_nodes) == (None, "dgx2")
    assert own.tres_per_node == "gres/gpu:v100.s0:1,gres/gpu:v100.s1:1"
    assert start == JobUpdate(begin_time=NOW)


def test_a_component_without_gpus_keeps_its_nodes_and_its_comment():
    """What the first component is told, its nodes too, Slurm tells to all."""
    own = {"admin_comment": "mine", "req_nodes": "cpu1", "eligible": 0}
    others = component(1, 0, **own)
    [release] = planned(others, component(0, 3)).releases
    assert list(release.jobs) == ["5"]
    assert release.steps[1] == ("6", JobUpdate(req_nodes="cpu1", admin_comment="mine"))
    assert release.steps[2] == ("5", JobUpdate(begin_time=NOW))


def test_components_have_nodes_of_their_own():
    """On one node Slurm starts no two of them, however much is free there."""
    assert planned(component(1, 2), component(0, 3)).releases == []
    named = component(1, 0, admin_comment="", req_nodes="dgx1", eligible=0, min_nodes=1)
    [release] = planned(named, component(0, 3), **TWO).releases
    assert " pin=dgx2]" in (release.steps[0][1].admin_comment or "")


def test_where_slurm_is_to_place_one_of_the_components_all_are_its_own():
    """It may take the node that another one was given, and the job would never start."""
    for nodes, least in (("", 1), ("dgx1", 2), ("dgx[", 1)):
        other = component(1, 0, admin_comment="", req_nodes=nodes, min_nodes=least, eligible=0)
        made = planned(other, component(0, 3), **TWO)
        assert made.releases == []
        assert PARTLY_SLURMS in (made.updates[0][1].admin_comment or "")


def test_a_component_that_has_the_first_ones_comment_is_freed_of_it():
    """The engine ended between the two updates, or Slurm refused the second."""
    first = component(0, 3)
    made = planned(first, component(1, 2, admin_comment=first.admin_comment, req_nodes="dgx1"))
    assert [name for name, _ in made.updates] == ["5", "6"]
    assert made.updates[1] == ("6", JobUpdate(req_nodes="", admin_comment=""))


def test_a_heterogeneous_job_left_to_slurm_is_left_whole():
    """A component without GPUs keeps its own comment."""
    made = planned(component(0, 9), component(1, 0, admin_comment="mine"))
    assert [name for name, _ in made.updates] == ["5", "6"]
    assert made.updates[1][1].admin_comment == "mine"


def test_a_heterogeneous_job_takes_nothing_while_a_component_has_no_room():
    made = planned(component(0, 4), component(1, 8, eligible=1001), gated(9))
    assert made.released == ["9"]
    assert made.nodes["dgx1"].free.bit_count() == 6
    assert [one.name for one in made.renewals] == []
    made = planned(component(0, 4, eligible=1001), component(1, 8), gated(9, time_limit_s=0))
    assert [one.name for one in made.renewals] == ["5"]
    assert made.nodes["dgx1"].free.bit_count() == 6


def test_on_slurm_22_05_no_component_starts_between_two_updates():
    words = "[gpu-slots: gated token=t{} tpn=gres:gpu:2 nodes=1-1 by=node]"
    old = [component(at, 2, admin_comment=words.format(at)) for at in (1, 0)]
    [release] = planned(*old, **TWO).releases
    begins = [
        (name, step.begin_time) for name, step in release.steps if step.begin_time is not None
    ]
    assert [name for name, _ in begins] == ["5", "5"]
    assert begins[0][1] > NEXT_MONTH
    assert begins[1][1] == 0
    assert release.steps[0][1] == JobUpdate(begin_time=begins[0][1]), "before anything is taken"
    assert release.undo[-1][0] == "5"
