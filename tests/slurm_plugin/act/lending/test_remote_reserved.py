"""GPUs reserved for a loan: what other jobs see while its donors start."""

from pathlib import Path

import pytest
from machines_in_tests import BASIC, basic_decider, mask, node, question

from slurm_plugin.act.enforcement import Select
from slurm_plugin.act.lending.at_start.reservations import LoanReservation, LoanReservations
from slurm_plugin.base.protocol import Pass, Refuse, Submit, Use, WaitFor

AT = 1000.0
#: Job 7 is to have GPUs 0 and 1 of dgx1, its donor 71 GPUs 2 and 3 of dgx2.
SHARES = {
    7: Use({"dgx1": mask(0, 1)}, note="borrows"),
    71: Use({"dgx2": mask(2, 3)}, note="lends"),
}


def reserved(until: float = AT + 60) -> LoanReservations:
    return LoanReservations(lambda: AT, {7: LoanReservation(SHARES, until)})


def own(answer: object) -> dict[str, int]:
    return {one.name: one.own for one in answer.candidates if one.own}


def test_others_do_not_see_what_is_kept():
    asked = question(node("dgx1", mask(0, 1, 4, 5), mask(0, 1)), job=8)
    seen = reserved().answer(asked)
    assert seen.candidates[0].free == mask(4, 5)
    assert seen.candidates[0].own == mask(4, 5)


def test_what_slurm_chose_stays_where_nothing_is_kept():
    asked = question(node("dgx1", mask(0, 1, 4, 5, 6), mask(5, 6)), job=8)
    assert own(reserved().answer(asked)) == {"dgx1": mask(5, 6)}


def test_another_node_stands_in():
    asked = question(
        node("dgx1", mask(0, 1, 4), mask(0, 4)),
        node("dgx2", mask(2, 3, 6, 7)),
        node("dgx3", mask(0, 1), weight=9),
        job=8,
    )
    assert own(reserved().answer(asked)) == {"dgx2": mask(6, 7)}


def test_a_job_that_could_start_on_nothing_else_waits_a_little():
    asked = question(node("dgx1", mask(0, 1), mask(0, 1)), node("dgx2", mask(2, 3, 4)), job=8)
    wait = reserved().answer(asked)
    assert (wait.seconds, wait.note) == (10, "GPUs are kept for job 7, which meets its donors")
    late = reserved(AT + 2.5).answer(asked)
    assert late.seconds == 3


def test_what_is_kept_has_an_end():
    asked = question(node("dgx1", mask(0, 1), mask(0, 1)), job=8)
    assert reserved(AT).answer(asked) == asked


@pytest.mark.parametrize(("job", "name", "gpus"), [(7, "dgx1", (0, 1)), (71, "dgx2", (2, 3))])
def test_the_loans_own_jobs_get_exactly_their_share(job, name, gpus):
    asked = question(node(name, mask(*gpus, 6, 7), mask(6, 7)), job=job)
    use = reserved().answer(asked)
    assert (dict(use.nodes), use.note) == ({name: mask(*gpus)}, SHARES[job].note)


@pytest.mark.parametrize(
    "asked",
    [
        question(node("dgx1", mask(1, 6, 7), mask(6, 7)), job=7),
        question(node("dgx1", mask(0, 1, 6, 7), mask(0, 1, 6, 7)), job=7),
        question(node("dgx1", mask(0, 1)), node("dgx3", mask(0, 1), mask(0, 1)), job=7),
    ],
    ids=["it is not free any more", "the job starts whole", "the job starts elsewhere"],
)
def test_else_they_are_like_any_other(asked):
    assert reserved().answer(asked) == asked


# -- in the engine ------------------------------------------------------------


def select(tmp_path: Path, kept: LoanReservations) -> Select:
    text = BASIC + "remote: {{allow: yes, r_queues: [rq]}}\n"
    return Select(basic_decider(tmp_path, text), kept)


def test_a_policy_places_others_on_the_rest(tmp_path):
    asked = question(node("dgx1", 0xFF, mask(0, 1)), job=8, partition="batch")
    reply = select(tmp_path, reserved()).on_place(asked).reply
    assert not reply.nodes["dgx1"] & mask(0, 1)


def test_slurms_own_choice_is_put_off_where_it_takes_what_is_kept(tmp_path):
    asked = question(node("strange", 0xFF, mask(0, 1)), job=8, partition="batch")
    kept = reserved()
    ours = select(tmp_path, kept)
    assert isinstance(ours.on_place(asked).reply, Pass)
    kept.by_borrower = {7: LoanReservation({7: Use({"strange": mask(1)})}, AT + 60)}
    decision = ours.on_place(asked)
    assert isinstance(decision.reply, WaitFor)
    assert decision.record().decision == "wait"


@pytest.mark.parametrize("partition", ["watched", "quiet"])
def test_where_nothing_is_enforced_nothing_is_kept(tmp_path, partition):
    asked = question(node("dgx1", mask(0, 1), mask(0, 1)), job=8, partition=partition)
    assert isinstance(select(tmp_path, reserved()).on_place(asked).reply, Pass)


def submitted(tmp_path: Path, hint: str, partition: str = "batch", **fields: int) -> object:
    values = {"gpus": 4, "nodes": 1, "per_node": 4, "tasks": 1, **fields}
    asked = Submit(1, 1000, partition=partition, hint=hint, **values)
    return select(tmp_path, LoanReservations()).on_submit(asked)


@pytest.mark.parametrize(
    ("hint", "partition", "fields", "comment"),
    [
        ("remote=allow", "batch", {}, "[gpu-topo: remote=allow] [gpu-loan: may remote=1]"),
        ("", "rq", {}, "[gpu-loan: may remote=1]"),
        ("remote=no", "rq", {}, "[gpu-topo: remote=no]"),
        ("pattern=ring", "batch", {}, "[gpu-topo: pattern=ring]"),
        *(("remote=allow", "batch", fields, "[gpu-topo: remote=allow]") for fields in (
            {"per_node": 0, "gpus": 0}, {"nodes": 2}, {"max_nodes": 2}, {"per_node": 1, "gpus": 1},
        )),
    ],
)  # fmt: skip
def test_a_submit_that_may_borrow_is_marked(tmp_path, hint, partition, fields, comment):
    marked = {"env.GPUTOPO_REMOTE": "allow"} if "gpu-loan" in comment else {}
    values = dict(submitted(tmp_path, hint, partition, **fields).values)
    is_told = hint == "remote=allow" and not marked
    assert ("are not lent to this job" in values.pop("message", "")) is is_told
    assert values == {"keep_s": "1", "set.admin_comment": comment, **marked}


def test_submits_without_a_hint_are_left_alone(tmp_path):
    assert isinstance(submitted(tmp_path, ""), Pass)
    assert isinstance(submitted(tmp_path, "", "rq", per_node=1, gpus=1), Pass)
    assert isinstance(submitted(tmp_path, "remote=allow", "quiet"), Pass)
    assert isinstance(submitted(tmp_path, "remote=perhaps"), Refuse)
