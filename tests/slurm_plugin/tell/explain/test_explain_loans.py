"""What `gputopo explain` tells of loans: from the decision log, and from AdminComment alone."""

import os
from collections.abc import Sequence

from msgspec.structs import replace

from slurm_plugin.act.lending import record
from slurm_plugin.act.lending.choice.offer import Refusal
from slurm_plugin.base.job_notes import donor, hints
from slurm_plugin.base.job_notes.loan import Loan, LoanDonor
from slurm_plugin.base.job_notes.records import GateRecord, LoanRecord
from slurm_plugin.base.log_lines import Line
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.explain import slurm_says
from slurm_plugin.tell.explain.slurm_says import loan_in
from slurm_plugin.tell.explain.story import story_of
from slurm_plugin.tell.explain.text import in_words

LOAN = Loan("dgx1", 0b11, (LoanDonor("dgx2", 0b110, 71), LoanDonor("dgx3", 0b1, 72)))
WHY = "r-queue-auto: 0 whole nodes, 3 remote GPUs, ends in 412 s instead of 900"
KEPT = GateRecord("gated", {"token": "t", "tpn": "gres/gpu:5", "nodes": "1-", "remote": "1"})
JOB = QueuedJob(
    7,
    uid=1000,
    account="research",
    partition="batch",
    admin_comment="[gpu-topo: remote=auto,profile=md] " + KEPT.text(),
)


def comment(state: str, note: str = "", **more: str) -> str:
    kept = GateRecord(state, {**KEPT.values, **more})
    return f"{hints.entry('remote=auto', note)} {kept.text()}"


def told(*lines: Line) -> str:
    """The story of these lines of the log, in words."""
    return in_words(story_of(7, [replace(line, time="T") for line in lines], "decision log"))


def test_a_loan_is_told_with_its_donors_and_both_predictions():
    found = loan_in(comment("placed", loan=LOAN.text(), loan_why=WHY))
    words = in_words({"job": 7, "source": "Slurm", "loan": found})
    for line in (
        "runs on       dgx1: 0,1, its own GPUs",
        "lent          dgx2: 1,2, by job 71",
        "lent          dgx3: 0, by job 72",
        f"lent because  {WHY}",
    ):
        assert line in words
    assert found["asked"] == "gres/gpu:5"


def test_a_donor_whose_server_does_not_answer_is_told_of():
    """Slurm is asked for the donors' comments; without an answer of its nothing is told."""
    kept = comment("placed", loan=LOAN.text(), loan_why=WHY)
    silent = donor.ready(7, 50001, donor.Passed(9, 9, 9), 1767225600)

    def run(words: Sequence[str], *_: object) -> str:
        if words[-1] == "72":
            raise SlurmError("no answer")
        own = f"Comment={silent} AdminComment=x" if words[-1] == "71" else f"AdminComment={kept}"
        return f"JobId={words[-1]} UserId=root(0) JobState=RUNNING {own} WorkDir=/\n"

    story = slurm_says.story_of_slurm(run, 7, frozenset({os.getuid()}))
    assert "comment" not in story
    words = in_words(story)
    since = "2026-01-01T00:00:00+00:00"
    assert f"dgx2: 1,2, by job 71; nothing passed since {since}: the job" in words
    assert "dgx3: 0, by job 72\n" in words


def test_the_log_tells_the_same_after_the_jobs_end():
    lent = record.lent(JOB, KEPT, LOAN, WHY)()
    words = told(lent)
    assert "job 7  T  lent GPUs of other nodes" in words
    assert "asked         gres/gpu:5 in partition batch; hint: remote=auto,profile=md" in words
    assert words.count(WHY) == 1
    assert "lent          dgx2: 1,2, by job 71" in words
    assert lent.uid == 1000


def test_a_job_that_waits_tells_why_nothing_was_lent_and_when_it_is_tried_again():
    note = "remote GPUs: dgx2: rCUDAd: no such program; waits for GPUs of one node"
    found = loan_in(comment("gated", note, loan_tries="2", loan_next="1767225600"))
    words = in_words({"job": 7, "source": "Slurm", "loan": found})
    assert f"not lent      {note}; loans that came to nothing: 2" in words
    assert "next try at 2026-01-01T00:00:00+00:00" in words


def test_refusals_and_loans_that_came_to_nothing_stand_before_the_loan():
    refused = record.refused(JOB, KEPT, Refusal("ends in 900 s, waiting in 412", True))()
    broken = record.over(JOB, KEPT, "the donor on dgx3 is gone", 30)()
    words = told(refused, broken, record.lent(JOB, KEPT, LOAN, WHY)())
    assert "before        T  not lent: ends in 900 s, waiting in 412" in words
    assert "before        T  loan over: the donor on dgx3 is gone" in words
    assert "lent nothing" in told(refused)
    assert "because       the donor on dgx3 is gone" in told(broken)


def test_a_donor_tells_whom_it_lends_to():
    found = loan_in("[gpu-donor: of=7]")
    words = in_words({"job": 71, "source": "Slurm", "loan": found})
    assert "lends to      job 7, and ends with it" in words


def test_of_jobs_without_loans_nothing_is_told():
    for text in ("", "[gpu-topo: off]", "[gpu-slots: gated tpn=gpu:2]", comment("placed")):
        assert loan_in(text) == {}


def test_what_the_note_says_cannot_move_the_cursor():
    found = loan_in(comment("placed", loan=LOAN.text(), loan_why="a\x1b[2Jb"))
    assert "\x1b" not in in_words({"job": 7, "source": "Slurm", "loan": found})


def test_where_gpus_are_chosen_at_the_start_a_loan_is_told_in_the_same_way():
    kept = LoanRecord("starts", {**KEPT.values, "loan": LOAN.text()})
    assert loan_in(kept.text())["host"] == "dgx1"
    may = LoanRecord("may", {"remote": "1", "loan_tries": "2"})
    text = f"{hints.entry('remote=allow', 'remote GPUs: x: no')} {may.text()}"
    assert loan_in(text)["tries"] == 2
    assert loan_in(text)["waits"] == "remote GPUs: x: no"
    assert loan_in(text, is_waiting=False) == {}
