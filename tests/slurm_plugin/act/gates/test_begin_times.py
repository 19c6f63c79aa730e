"""Begin times of jobs that Slurm put back, and those that an administrator gives them."""

from dataclasses import replace

import pytest
from slots_in_tests import DGX1, NOW, TERMS, Remembering, gated, look, planned, reconciler

from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.act.gates.limits import LOOK_S
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.interface import NOW as AT_ONCE
from slurm_plugin.slurm.interface import Reservation

#: It has room, and waits for better links.
PICKY = replace(
    gated(1, time_limit_s=600),
    admin_comment=f"[gpu-topo: min-utility=0.9] {gated(1).admin_comment}",
)
#: A lease and Slurm's own look at the queue, and not quite a second less.
LAST_S = 120 + LOOK_S - 1


def test_a_job_that_was_put_back_waits_for_the_begin_time_that_slurm_gave_it():
    """A node that did not answer its start may refuse it until then, and would end it."""
    waits = [
        gated(1, keys=f"tries=1 retry=990 begin={begin}", eligible=eligible)
        for begin, eligible in ((1001, 1001), (1000, 1000), (1120, 1000))
    ]
    # Of the last an administrator said: StartTime=now.
    assert [planned(job).released for job in waits] == [[], ["1"], ["1"]]


def test_a_sooner_begin_that_an_administrator_gave_is_kept_when_the_gate_is_shut_again():
    """StartTime=now+3 for one that Slurm put back for two minutes; shutting it writes over that."""
    made = planned(gated(1, keys="tries=1 retry=990 begin=1120", eligible=1003))
    assert made.released == []
    [(name, update)] = made.updates
    kept = GateRecord.read_from(update.admin_comment)
    assert (name, kept.begin, update.begin_time) == ("1", 1003, None)
    assert [one.name for one in made.renewals] == ["1"]
    made = planned(gated(1, keys="tries=1 retry=990 begin=1003", eligible=1120))
    assert made.updates == []


def test_of_a_heterogeneous_job_no_comment_is_written_over():
    """Slurm copies that of its first component to all of them."""
    keys = "tries=1 retry=990 begin=1120"
    parts = [gated(5 + at, 2, keys=keys, eligible=1003, het_id=5, het_offset=at) for at in (0, 1)]
    assert planned(*parts).updates == []


@pytest.mark.parametrize(
    ("reserved", "is_released"),
    [
        ([], False),
        ([Reservation("m", NOW + 600 + LAST_S, NOW + 9000, ("dgx1",))], True),
        ([Reservation("m", NOW + 600 + LAST_S + 2, NOW + 9000, ("dgx1",))], False),
        ([Reservation("m", NOW + 599, NOW + 9000, ("dgx1",))], True),
        ([Reservation("m", NOW + 600, NOW + 9000, ("dgx2",))], False),
        ([Reservation("m", NOW + 600, NOW + 9000, licenses="matlab:2")], True),
        ([Reservation("m", NOW + 600, NOW + 9000, ("dgx1",), ("TIME_FLOAT",))], False),
    ],
    ids=[
        "none",
        "it comes",
        "not yet",
        "too late",
        "of another node",
        "licences",
        "it floats",
    ],
)
def test_no_wait_loses_the_time_before_a_reservation(tmp_path, reserved, is_released):
    """A job of ten minutes waits for a pair of its worth, as long as it can be over in time."""
    slurm = Remembering(PICKY, used=(2, 3, 4, 5, 7))
    slurm.reserved = reserved
    look(reconciler(tmp_path, slurm, CapacityCache()), slurm)
    let_go = [names for names, change in slurm.updates if change.begin_time == AT_ONCE]
    assert let_go == ([("1",)] if is_released else [])


@pytest.mark.parametrize(
    ("start", "end", "others", "node"),
    [
        (NOW + 500, NOW + 900, ["dgx2"], "dgx2"),
        (NOW - 50, NOW + 1, ["dgx2"], "dgx2"),
        (NOW + 600, NOW + 900, ["dgx2"], "dgx1"),
        (NOW - 50, NOW, ["dgx2"], "dgx1"),
    ],
    ids=["it comes", "it is there", "it comes later", "it is over"],
)
def test_a_job_goes_where_it_meets_no_reservation(start, end, others, node):
    """Slurm would not start it there, unless a part of the node alone is reserved."""
    context = replace(TERMS, reserved=[Reservation("m", start, end, ("dgx1",))])
    nodes = [replace(DGX1, name=name) for name in others]
    made = planned(gated(1, time_limit_s=600), context=context, others=nodes)
    [release] = made.releases
    assert [list(hold.gpus) for hold in release.holds] == [[node]]


def test_one_that_would_meet_it_everywhere_is_slurms_own_and_keeps_nothing_from_others():
    """Slurm knows whether the reservation leaves room; a shorter job has the same slots now."""
    context = replace(TERMS, reserved=[Reservation("m", NOW + 500, NOW + 900, ("dgx1",))])
    long, short = gated(1, 8, time_limit_s=600), gated(2, 8, time_limit_s=60)
    made = planned(long, short, context=context)
    [(name, update)] = made.updates
    assert (name, made.released) == ("1", ["2"])
    assert "Slurm's own choice: a reservation begins" in (update.admin_comment or "")


@pytest.mark.parametrize(("is_slurms", "left"), [(True, ["1"]), (False, [])])
def test_a_job_that_fits_where_slurm_itself_opens_a_node_is_slurms_own(is_slurms, left):
    """Behind its gate Slurm would not see it, and switch no node on for it."""
    other = replace(DGX1, name="dgx2", is_open=False, is_slurms=is_slurms)
    made = planned(gated(1), others=[other], free=0)
    assert [name for name, _ in made.updates] == left


def test_where_reservations_cannot_be_read_gates_open_all_the_same(tmp_path, caplog):
    def fails():
        raise SlurmError("scontrol show reservations: timed out")

    slurm = Remembering(PICKY, gated(2, 1), used=(2, 3, 4, 5, 7))
    slurm.reservations = fails
    look(reconciler(tmp_path, slurm, CapacityCache()), slurm)
    assert [names for names, change in slurm.updates if change.begin_time == AT_ONCE] == [("2",)]
    assert "reservations: scontrol show reservations: timed out" in caplog.text


def test_the_next_round_has_forgotten_a_reservation_that_was_deleted(tmp_path):
    """The clock stands still: no waiting for a reading to grow old."""
    slurm, cache = Remembering(PICKY), CapacityCache()
    rounds = reconciler(tmp_path, slurm, cache)
    maintenance = Reservation("m", NOW + 500, NOW + 900, ("dgx1",))
    for reserved in ([maintenance], []):
        slurm.reserved = reserved
        look(rounds, slurm)
        assert cache.reserved == tuple(reserved)
