"""Loans in the plan of the slots mode: who is offered one, and what becomes of it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from loans_in_tests import (
    AT,
    LOAN,
    SETTINGS,
    THREE,
    a_donor,
    gated_with,
    node,
    placed_with,
    queued,
    ready,
    room,
)
from slots_in_tests import first_choice

from slurm_plugin.act.gates.plan import GateContext, GatePlan
from slurm_plugin.act.gates.planning import OVERTAKEN, plan
from slurm_plugin.act.gates.want import Wants
from slurm_plugin.act.lending import matcher
from slurm_plugin.act.lending.choice.offer import Offer, Refusal, offer
from slurm_plugin.act.lending.plan import LoanCandidate
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.node.remote import join
from slurm_plugin.queue.capacity import Node, emptied
from slurm_plugin.slurm.interface import NOW, QueuedJob


class OneByOne:
    """Lends to whoever asks, by the R queue."""

    at_once = False

    def borrow(self, jobs: Sequence[LoanCandidate], made: GatePlan) -> list[Offer | Refusal | None]:
        [one] = jobs
        job = replace(
            matcher.borrower(one.need, made.nodes, SETTINGS), end=AT + one.job.time_limit_s
        )
        return [offer(job, matcher.spare_capacity(made.nodes), SETTINGS)]


def planned(*jobs: QueuedJob, nodes: dict[str, Node], lends: bool = True) -> GatePlan:
    context = GateContext(AT, ready_s=60 if lends else None, lease_s=120)
    wants = Wants().read(jobs, emptied(nodes))
    return plan(jobs, wants, nodes, context, first_choice, (), OneByOne() if lends else None)


TWO = room(node("dgx1", 0b111), node("dgx2", 0b11))


def test_a_job_that_fits_nowhere_is_offered_a_loan_and_stays_gated():
    made = planned(queued(), nodes=TWO)
    [(job, _, found)] = made.offers
    assert (job.name, found.host, found.donors) == ("7", "dgx1", {"dgx2": 0b11})
    assert (made.releases, made.first) == ([], None)
    assert {name: one.free for name, one in made.nodes.items()} == {"dgx1": 0, "dgx2": 0}


def test_a_job_that_fits_somewhere_borrows_nothing():
    made = planned(queued(), nodes=room(node("dgx1", 0x1F), node("dgx2", 0xFF)))
    assert made.released == ["7"]
    assert made.offers == []


@pytest.mark.parametrize("lends", [True, False])
def test_who_may_borrow_is_offered_a_loan_before_slurm_gets_the_job(lends):
    """It was released from a hold since the last look, in which Slurm's own jobs started."""
    held = {"dgx1": (3, 4, 5, 6, 7)}
    values = {"state": "RUNNING", "start": AT - 1, "submit": AT - 2, "priority": 1}
    passed = QueuedJob(9, nodes=("dgx1",), gpus=held, **values)
    made = planned(queued(submit=AT - 9, priority=1), passed, nodes=TWO, lends=lends)
    assert len(made.offers) == lends
    left = [one for _, one in made.updates if OVERTAKEN in (one.admin_comment or "")]
    assert len(left) == (not lends)


def test_a_loan_delays_nobody_who_came_first():
    """The first job waits for all of dgx1, which is free at 1050."""
    first = queued(job_id=1, priority=200)
    eight = first.admin_comment.replace("gpu:5", "gpu:8")
    first = replace(first, admin_comment=eight, dependency="")
    held = tuple(range(3, 8))
    running = QueuedJob(9, state="RUNNING", nodes=("dgx1",), gpus={"dgx1": held}, end=1050)
    for limit_s, names in ((50, ["7"]), (51, [])):
        made = planned(running, first, queued(time_limit_s=limit_s), nodes=TWO)
        assert [job.name for job, _, _ in made.offers] == names


def test_a_job_starts_on_its_local_slots_once_its_donors_are_ready():
    made = planned(gated_with(LOAN), ready(71), ready(72, 5001), nodes=THREE)
    [release] = made.releases
    [(name, update)] = release.steps
    assert (name, update.begin_time, update.req_nodes) == ("7", NOW, "dgx1")
    assert update.tres_per_node == "gres/gpu:v100.s0:1,gres/gpu:v100.s1:1"
    kept = GateRecord.read_from(update.admin_comment or "")
    assert (kept.state, kept.get("tpn")) == ("placed", "gres/gpu:5")
    found = [(one.node, one.gpus, one.job_id, one.port) for one in join.donors_in(kept.text())]
    assert found == [("dgx2", 2, 71, 5000), ("dgx3", 1, 72, 5001)]


def test_while_donors_get_ready_everything_is_kept_for_the_loan():
    waiting = a_donor(71, state="PENDING")
    made = planned(gated_with(LOAN), waiting, a_donor(72), nodes=THREE)
    assert (made.releases, made.broken) == ([], [])
    # dgx3's GPU is the running donor's already, as Slurm's own figures say.
    assert {name: one.free for name, one in made.nodes.items()} == {"dgx1": 0, "dgx2": 1, "dgx3": 1}


@pytest.mark.parametrize(
    ("jobs", "nodes", "why"),
    [
        ([ready(71)], THREE, "the donor on dgx3 is gone"),
        ([ready(71), ready(72)], room(node("dgx1", 1)), "the GPUs of dgx1 are others' now"),
        (
            [ready(71), ready(72)],
            room(node("dgx1", 3, is_open=False)),
            "the GPUs of dgx1 are others' now",
        ),
    ],
    ids=["gone", "local GPUs taken", "node down"],
)
def test_a_loan_is_given_up_whole(jobs, nodes, why):
    made = planned(gated_with(LOAN), *jobs, nodes=nodes)
    assert [(job.name, said) for job, _, said in made.broken] == [("7", why)]
    assert (made.releases, made.added) == ([], [])


def test_donors_that_take_too_long_are_given_up():
    slow = (a_donor(71), a_donor(72))
    assert planned(gated_with(LOAN, AT - 60), *slow, nodes=THREE).broken == []
    made = planned(gated_with(LOAN, AT - 61), *slow, nodes=THREE)
    assert made.broken[0][2] == "donors were not ready within 60 s"


def test_a_site_that_lends_no_more_ends_the_loans_under_way():
    made = planned(gated_with(LOAN), ready(71), ready(72), nodes=THREE, lends=False)
    assert made.broken[0][2] == "GPUs are not lent any more"


def test_a_released_borrower_keeps_its_slots_until_it_starts():
    made = planned(placed_with(AT), ready(71), ready(72), nodes=THREE)
    assert made.updates == []
    assert made.nodes["dgx1"].free == 0


def test_a_borrower_that_was_put_back_asks_for_all_its_gpus_again():
    made = planned(placed_with(AT - 5, eligible=AT + 120), nodes=THREE)
    [(_, update)] = made.updates
    assert update.tres_per_node == "gres/gpu:5"
    kept = GateRecord.read_from(update.admin_comment or "")
    assert (kept.state, kept.get("loan"), kept.get("remote")) == ("gated", "", "1")
