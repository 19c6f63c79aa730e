"""What was lent, to whom, how long, and what passed."""

from collections.abc import Sequence
from dataclasses import replace

from at_start_in_tests import donor
from msgspec import structs

from slurm_plugin.act.lending import record
from slurm_plugin.act.lending.ledger import LAST_WORD_S, Ledger
from slurm_plugin.base.job_notes.donor import Passed
from slurm_plugin.base.log_lines import UseLine
from slurm_plugin.errors import SlurmError
from slurm_plugin.tell.explain.gains import Gains
from slurm_plugin.tell.explain.story import story_of
from slurm_plugin.tell.explain.text import in_words

RECORD = """JobId=71 JobName=gpu-donor
   RunTime=1-00:01:05 TimeLimit=02:00:00
   Comment=gpu-donor ready of=7 port=50001 in=1000 out=2000 packets=30
"""
RUNS = donor(admin_comment="[gpu-donor: of=7]", nodes=("dgx2",))


def ledger(said: str | SlurmError) -> Ledger:
    def run(argv: Sequence[str]) -> str:
        assert argv == ["scontrol", "show", "job", "71"]
        if isinstance(said, SlurmError):
            raise said
        return said

    return Ledger(run)


def test_a_donor_that_left_the_queue_is_told_of_once():
    book = ledger(RECORD)
    book.see([RUNS])
    assert list(book.ended()) == []
    book.see([])
    [lent] = book.ended()
    assert (lent.borrower, lent.node, lent.gpus, lent.seconds) == (7, "dgx2", 2, 86465)
    assert lent.passed == Passed(1000, 2000, 30)
    assert lent.counts() == {
        "gpu_s": 172930, "bytes_in": 1000, "bytes_out": 2000, "packets_in": 30
    }  # fmt: skip
    book.see([])
    assert list(book.ended()) == []


def test_a_donor_that_is_completing_has_lent_what_it_held():
    """Slurm shows no GPUs of it any more."""
    book = ledger(RECORD)
    book.see([RUNS])
    book.see([replace(RUNS, state="COMPLETING", gpus={})])
    book.see([])
    [lent] = book.ended()
    assert (lent.node, lent.gpus) == ("dgx2", 2)


def test_a_donor_that_never_ran_lent_nothing():
    book = ledger(RECORD)
    book.see([replace(RUNS, state="PENDING")])
    book.see([])
    assert list(book.ended()) == []


def test_the_words_of_another_job_do_not_count():
    """Its user can write a donor's comment."""
    book = ledger(RECORD.replace("of=7 ", "of=8 "))
    book.see([RUNS])
    book.see([])
    [lent] = book.ended()
    assert (lent.borrower, lent.passed) == (7, Passed())


def test_where_slurm_has_forgotten_it_nothing_is_told():
    book = ledger(SlurmError("Invalid job id specified"))
    book.see([RUNS])
    book.see([])
    assert list(book.ended()) == []


def test_a_donor_has_some_seconds_for_its_last_word():
    now = [0.0]
    book = Ledger(lambda argv: "", clock=lambda: now[0])
    assert book.asks(RUNS)
    now[0] = LAST_WORD_S
    assert not book.asks(RUNS)


def test_explain_and_the_gain_report_have_it():
    book = ledger(RECORD)
    book.see([RUNS])
    book.see([])
    [lent] = book.ended()
    line = structs.replace(record.ended(lent)(), time="2026-11-23T10:00:00")
    started = UseLine(job=7, uid=1000, time="2026-11-23")
    story = story_of(7, [started, line], "decision log")
    assert story["decision"] == "use"
    told = in_words(story)
    assert "2 GPUs of dgx2 by job 71 for 86465 s; 1,000 bytes to it in 30 packets" in told
    assert "given back" in in_words(story_of(7, [line], "decision log"))
    gains = Gains()
    gains.add(line)
    assert gains.summary()["lent"] == {
        "donors": 1, "gpu_s": 172930, "bytes_in": 1000, "bytes_out": 2000
    }  # fmt: skip
