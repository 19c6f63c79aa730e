"""A loan in Slurm: what stands there of it, how its donors are submitted, watched and ended."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from loans_in_tests import (
    AT,
    LOAN,
    SETTINGS,
    THREE,
    LendingSlurm,
    a_donor,
    gated_with,
    kept_of,
    placed_with,
    queued,
    ready,
)

from slurm_plugin.act.gates.slot_loans import SlotLoans
from slurm_plugin.act.lending import donors
from slurm_plugin.act.lending.acting.question import Question
from slurm_plugin.act.lending.choice.offer import NO_CPUS, Offer
from slurm_plugin.act.lending.donors import SlurmLoans
from slurm_plugin.act.lending.ledger import LAST_WORD_S
from slurm_plugin.act.lending.plan import LoanContext
from slurm_plugin.act.lending.standing import Standing, standing
from slurm_plugin.base.job_notes.loan import Loan
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.slow_users import SlowUsers
from slurm_plugin.slurm.interface import NOW, QueuedJob

# -- what stands in Slurm -----------------------------------------------------

#: A donor is asked to end before it is ended.
LAST_WORD = "scancel --batch --signal=TERM"


def test_a_loan_is_read_from_its_own_text():
    assert Loan.parsed(LOAN.text()) == LOAN
    ready = LOAN.with_ports({71: 5000, 72: 5001})
    assert ready.text() == "dgx1/3,dgx2/6/71/5000,dgx3/1/72/5001"
    assert Loan.parsed(ready.text()) == ready
    for bad in ("", "dgx1/3", "dgx1", "dgx1/3,dgx2/6", "dgx1/3,dgx2/x/71", "a/1,b/1/2/3/4"):
        assert GateRecord("gated", {"loan": bad}).loan is None


def test_a_loan_stands_when_every_donor_runs_and_says_where():
    assert stands(ready(71), ready(72, 5001)).ports == {71: 5000, 72: 5001}
    for other in (a_donor(72), ready(72, state="PENDING"), ready(72, port=500000)):
        assert stands(ready(71), other) == Standing({})
    strange = a_donor(72, "gpu-donor ready of=8 port=5001")
    assert stands(ready(71), strange) == Standing({})
    for rest in ([], [ready(72, state="COMPLETING")]):
        assert stands(ready(71), *rest).trouble == "the donor on dgx3 is gone"
    failed = a_donor(72, "gpu-donor failed of=7 dgx3: no free port in 1-2")
    assert stands(ready(71), failed).trouble == "dgx3: no free port in 1-2"


@pytest.mark.parametrize(
    ("sentence", "changes"),
    [
        ("of another user", {"uid": 1001}),
        ("that says it is another's", {"admin_comment": "[gpu-donor: of=8]"}),
        ("that no engine submitted", {"admin_comment": "", "comment": "a job of mine"}),
    ],
)
def test_no_other_job_is_a_loans_donor(sentence, changes):
    """Whatever a loan's record names: such a job is never waited for, nor ended."""
    other = replace(ready(72), **changes)
    told = "job 72 on dgx3 is no donor of this job"
    assert stands(ready(71), other).trouble == told, sentence
    slurm, job = LendingSlurm(), gated_with(LOAN)
    queue = {one.job_id: one for one in (job, ready(71), other)}
    lender(slurm).give_up(job, kept_of(job), told, queue)
    assert slurm.words[-1] == "scancel 71"


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": ("dgx3", "dgx4")},
        {"gpus": {"dgx3": (0, 1)}},
        {"nodes": ("dgx4",), "gpus": {"dgx4": (0,)}},
        {"state": "PENDING", "min_nodes": 8},
        {"state": "PENDING", "req_nodes": "dgx4"},
    ],
)
def test_a_donor_that_is_more_than_what_is_lent_ends_the_loan(changes):
    assert stands(ready(71), ready(72, **changes)).trouble == "the donor on dgx3 was changed"


def stands(*queue: QueuedJob) -> Standing:
    """How the loan of job 7 stands with these jobs in the queue."""
    job = gated_with(LOAN)
    return standing(job, kept_of(job), None, {one.job_id: one for one in queue}, LoanContext(AT))


def lender(slurm: LendingSlurm, settings: RemoteConfig = SETTINGS) -> SlurmLoans:
    mode = SlotLoans()
    return SlurmLoans(settings, slurm, slurm, slurm, mode, lambda: float(AT))


OFFER = Offer("dgx1", 0b11, {"dgx2": 0b110, "dgx3": 0b1})


def test_donors_are_submitted_then_written_down_then_let_go():
    """Killed after any of these, what is left either starts nothing or is named by its borrower."""
    slurm, job = LendingSlurm(), queued()
    assert lender(slurm).lend(job, kept_of(job), OFFER, THREE) == LOAN
    assert slurm.words == [
        *("donor 7 1000 dgx2 2", "donor 7 1000 dgx3 1"),
        *("update 7", "update 71", "update 72"),
    ]
    written, first = slurm.told[2][1], slurm.told[3][1]
    kept = GateRecord.read_from(written.admin_comment or "")
    assert (kept.state, kept.get("loan")) == ("gated", LOAN.text())
    assert written.begin_time is None
    assert first.begin_time == NOW
    assert first.tres_per_node == "gpu:v100.s1:1,gpu:v100.s2:1"
    assert first.admin_comment == "[gpu-donor: of=7]"


def test_an_engine_that_stands_by_lends_and_ends_nothing():
    """Its poll may have begun while it was in charge."""

    def check() -> None:
        raise SlurmError("not in charge")

    slurm, job = LendingSlurm(), gated_with(LOAN)
    stood_by = replace(lender(slurm), check=check)
    stood_by.lend(job, kept_of(job), OFFER, THREE)
    stood_by.cancel([71])
    running = replace(job, state="RUNNING")
    for _ in range(5):
        stood_by.tidy([running])
    assert not slurm.words


class Stopped(LendingSlurm):
    """Slurm where job 7's user stops (SIGSTOP) what the submitter runs: 11 s each."""

    now = 50.0

    def donor(self, asked: Question) -> int:
        if asked.uid == 1000:
            self.now += 11
            self._hear(asked.line().decode())
            raise SlurmError("sbatch: no answer within 5 s")
        return super().donor(asked)


@pytest.fixture
def stopped(monkeypatch) -> tuple[Stopped, SlurmLoans]:
    slurm = Stopped()
    monkeypatch.setattr(donors, "time", SimpleNamespace(monotonic=lambda: slurm.now))
    lending = lender(slurm)
    lending.slow = SlowUsers("donors for jobs", "nothing is lent to them", lambda: slurm.now)
    return slurm, lending


def test_who_stops_the_submitters_programs_keeps_others_waiting_a_twentieth_of_the_time(stopped):
    slurm, lending = stopped
    began, stood_s = slurm.now, 0.0
    for _ in range(3600):
        before, job = slurm.now, queued()
        assert lending.lend(job, kept_of(job), OFFER, THREE) is None
        stood_s += slurm.now - before
        slurm.now += 1
    assert 0.04 < stood_s / (slurm.now - began) < 0.06
    assert lending.slow.is_one(1000)
    assert not lending.slow.is_one(1001)


def test_where_one_donor_is_refused_all_are_ended():
    slurm, job = LendingSlurm(refuses="donor 7 1000 dgx3"), queued()
    assert lender(slurm).lend(job, kept_of(job), OFFER, THREE) is None
    assert slurm.words[-1] == "scancel 71"
    assert not any(words.startswith("update") for words in slurm.words)


@pytest.mark.parametrize(
    "other",
    [
        {"uid": 1001},
        {"admin_comment": "[gpu-donor: of=8]"},
        {"admin_comment": "", "comment": "gpu-donor of=8"},
        {"job_id": 99},
        {"req_nodes": "dgx3"},
        {"min_nodes": 2},
    ],
)
def test_a_job_that_is_no_donor_of_the_borrowers_user_is_left_alone(other):
    """Its id is what sbatch printed, which is the user's own process."""
    slurm, job = LendingSlurm(), queued()
    slurm.donor_is = other
    assert lender(slurm).lend(job, kept_of(job), OFFER, THREE) is None
    assert slurm.words == ["donor 7 1000 dgx2 2"]


def test_donors_that_no_job_names_are_ended():
    slurm = LendingSlurm()
    marked = a_donor(74, "anything", admin_comment="[gpu-donor: of=7]")
    unmarked = a_donor(73, admin_comment="")
    others = [
        QueuedJob(80 + i, comment=text, state="RUNNING")
        for i, text in enumerate(("my gpu-donor", "gpu-donor of mine", "gpu-donor of=7 too"))
    ]
    queue = [gated_with(LOAN), ready(71), a_donor(72, state="PENDING"), unmarked, marked, *others]
    lender(slurm).tidy(queue)
    assert slurm.words == [f"{LAST_WORD} 73 74"]


@pytest.mark.parametrize(
    ("comment", "is_ended"), [("JS1:abc", False), ("", False), ("[gpu-slots: placed]", True)]
)
def test_running_donors_stay_where_nobody_knows_their_borrowers_record(comment, is_ended):
    """Somebody overwrote it; a job that has a record and names no donors needs none."""
    slurm = LendingSlurm()
    borrower = replace(placed_with(AT, state="RUNNING"), admin_comment=comment)
    lender(slurm).tidy([borrower, replace(ready(71), state="RUNNING")])
    assert (slurm.words == [f"{LAST_WORD} 71"]) is is_ended
    assert bool(slurm.words) is is_ended


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "SUSPENDED", "CONFIGURING"])
def test_donors_of_a_job_that_may_still_run_stay(state):
    slurm = LendingSlurm()
    lender(slurm).tidy([placed_with(AT, state=state), ready(71), ready(72)])
    assert slurm.words == []


def test_donors_end_with_their_borrower():
    slurm = LendingSlurm()
    lender(slurm).tidy([placed_with(AT, state="COMPLETING"), ready(71), ready(72)])
    lender(slurm).tidy([ready(71), ready(72)])
    assert slurm.words == [f"{LAST_WORD} 71 72"] * 2


def test_a_donor_that_does_not_end_by_itself_is_ended():
    slurm, now = LendingSlurm(), [0.0]
    ours = lender(slurm)
    ours.ledger.clock = lambda: now[0]
    for now[0] in (0.0, 1.0, LAST_WORD_S):
        ours.tidy([ready(71)])
    assert slurm.words == [f"{LAST_WORD} 71", f"{LAST_WORD} 71", "scancel 71"]


def test_a_donor_that_is_ending_already_is_not_ended_again():
    slurm = LendingSlurm()
    lender(slurm).tidy([replace(ready(71), state="COMPLETING"), ready(72)])
    assert slurm.words == [f"{LAST_WORD} 72"]


def test_a_job_that_lost_a_donor_is_put_back_after_a_second_look():
    slurm = LendingSlurm()
    ours = lender(slurm)
    queue = [placed_with(AT, state="RUNNING"), ready(71)]
    ours.tidy(queue)
    assert slurm.words == []
    ours.tidy([*queue, ready(72)])
    ours.tidy(queue)
    assert slurm.words == []
    ours.tidy(queue)
    assert slurm.words == ["scontrol requeue 7"]


def test_one_that_cannot_be_put_back_is_cancelled():
    slurm = LendingSlurm(refuses="scontrol requeue")
    ours = lender(slurm)
    for _ in range(2):
        ours.tidy([placed_with(AT, state="RUNNING"), ready(71)])
    assert slurm.words == ["scontrol requeue 7", "scancel 7"]


def test_a_loan_that_came_to_nothing_leaves_the_job_waiting_for_local_gpus():
    slurm, job = LendingSlurm(), gated_with(LOAN)
    queue = {71: a_donor(71), 72: a_donor(72)}
    lender(slurm).give_up(job, kept_of(job), "dgx2: rCUDAd: no such program", queue)
    [(_, update), (words, _)] = slurm.told
    assert words == "scancel 71 72"
    told = update.admin_comment or ""
    assert "remote GPUs: dgx2: rCUDAd: no such program; waits for GPUs of one node" in told
    kept = GateRecord.read_from(told)
    assert (kept.get("loan"), kept.get("loan_tries"), kept.get("loan_next")) == ("", "1", "1030")


def test_where_the_site_says_so_it_is_refused():
    slurm, job = LendingSlurm(), gated_with(LOAN)
    refuses = replace(SETTINGS, unservable="refuse")
    queue = {71: a_donor(71), 72: a_donor(72)}
    lender(slurm, refuses).give_up(job, kept_of(job), "no free port in 1-2", queue)
    assert slurm.words[1:] == ["scancel 71 72", "scancel 7"]
    update = slurm.told[0][1]
    assert "no free port in 1-2; refused" in (update.admin_comment or "")


@pytest.mark.parametrize(("refuses", "is_new"), [("", True), ("update 7", False)])
def test_a_reason_is_new_once_it_stands_in_the_job(refuses, is_new):
    """Slurm may refuse for hours, and the engine finds the same reason at each look."""
    slurm, job = LendingSlurm(refuses=refuses), queued()
    assert lender(slurm).refuse(job, kept_of(job), NO_CPUS) is is_new
    [(_, update)] = slurm.told
    noted = replace(job, admin_comment=update.admin_comment)
    assert not lender(slurm).refuse(noted, kept_of(noted), NO_CPUS)
    assert len(slurm.told) == 1


def test_nothing_is_lent_where_it_could_not_work():
    slurm = LendingSlurm()
    ours = lender(slurm)
    assert ours.obstacle({"TaskProlog": "/x/task-prolog"}) == ""
    assert "no TaskProlog" in ours.obstacle({"TaskProlog": ""})
    slurm.away = "/run/x: No such file or directory"
    assert ours.obstacle({"TaskProlog": "/x"}) == slurm.away
