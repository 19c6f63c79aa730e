"""Our entries in AdminComment while others write that field: kept, put back, never doubled."""

import random
from dataclasses import replace

import pytest
from entries_in_tests import GATE, HOSTILE, ISSUED, JS1, LOAN, NOW, PLACED, Site, gated

from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.brackets import joined, split
from slurm_plugin.base.job_notes.records import GateRecord, LoanRecord
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.interface import JobUpdate

#: What others may do to the field, and what of theirs stands there afterwards.
WRITERS = {
    "empties it": (lambda _: "", ""),
    "replaces it": (lambda _: JS1, JS1),
    "appends": (lambda old: f"{old} mine", "mine"),
    "prepends": (lambda old: f"mine {old}", "mine"),
    "leaves a bracket open": (lambda _: "see [1", "see [1"),
    "closes none": (lambda _: "]] done", "]] done"),
    "writes a record like ours": (lambda _: f"x {HOSTILE}", "x"),
    "wraps ours": (lambda old: f"[{old}]", f"[{GATE}]"),
    "writes lines": (lambda _: "one\ntwo", "one two"),
}


@pytest.mark.parametrize(("change", "theirs"), WRITERS.values(), ids=list(WRITERS))
def test_a_record_outlives_whatever_others_write(change, theirs):
    site = Site().looked()
    site.slurm.write(7, change(GATE))
    kept = GateRecord.read_from(site.seen())
    assert kept is not None
    assert (kept.state, kept.requests.tres_per_node) == ("gated", "gres/gpu:2")
    after = site.slurm.of(7)
    assert GateRecord.read_from(after) == kept
    assert after.count("[gpu-slots: gated") == (2 if theirs.startswith("[") else 1)
    assert all(word in after for word in theirs.split())
    assert HOSTILE not in after


def test_the_log_has_one_line_per_job_however_often_others_write(caplog):
    site = Site().looked()
    for text in ("a", "b", "c"):
        site.slurm.write(7, text)
        site.seen()
    assert site.slurm.of(7) == f"c {GATE}"
    assert [record.message for record in caplog.records] == [
        "job 7: others wrote its AdminComment; our entries are put back"
    ]


def test_an_update_keeps_what_others_wrote_since_the_last_reading():
    site = Site().looked()
    site.slurm.write(7, f"theirs {GATE}")
    site.clock.s += 1
    site.client.update(["7"], JobUpdate(admin_comment=hints.with_note(GATE, "waits")))
    assert site.slurm.of(7) == f"theirs [gpu-topo: | waits] {GATE}"


def test_what_stands_there_already_is_not_written_again():
    site = Site().looked()
    site.client.update(["7"], JobUpdate(admin_comment=GATE))
    site.client.update(["7"], JobUpdate(begin_time=9, admin_comment=GATE))
    assert site.slurm.sent == [("7", JobUpdate(begin_time=9))]


def test_what_stands_there_twice_is_written_once():
    site = Site().looked()
    site.slurm.write(7, f"{GATE} theirs {GATE}")
    site.clock.s += 1
    site.client.update(["7"], JobUpdate(admin_comment=f"{GATE} theirs {GATE}"))
    assert site.slurm.of(7) == f"theirs {GATE}"


@pytest.mark.parametrize("takes", [True, False], ids=["taken all the same", "not taken"])
def test_an_update_that_failed_counts_if_slurm_shows_it(takes):
    """A command that ran into our time limit may have done its work."""
    site = Site().looked()
    site.slurm.fails, site.slurm.takes = True, takes
    with pytest.raises(SlurmError):
        site.client.update(["7"], JobUpdate(admin_comment=PLACED))
    site.slurm.fails = False
    site.slurm.write(7, site.slurm.of(7), tres_per_node="gres/gpu:v100.s1:1")
    assert site.seen() == (PLACED if takes else GATE)


@pytest.mark.parametrize("is_back", [True, False], ids=["as it was saved", "only the text"])
def test_a_slurmctld_that_lost_an_update_is_believed(is_back):
    """It was killed; whoever writes an older text back without that is not."""
    site = Site().looked()
    slots = "gres/gpu:v100.s1:1,gres/gpu:v100.s2:1"
    site.client.update(["7"], JobUpdate(tres_per_node=slots, admin_comment=PLACED))
    site.slurm.write(7, PLACED, tres_per_node=slots)
    assert site.seen() == PLACED
    site.slurm.write(7, GATE, tres_per_node="gres/gpu:2" if is_back else slots)
    assert site.seen() == (GATE if is_back else PLACED)


def test_a_job_that_was_given_back_is_left_alone():
    """As `gputopo slots give-back` does from a process of its own."""
    site = Site().looked()
    site.slurm.write(7, "", eligible=NOW - 1, reason="Priority")
    assert site.seen() == ""
    assert site.slurm.sent == []


def test_a_record_for_a_job_that_never_had_one_is_taken_away():
    site = Site(gated(comment="theirs")).looked()
    site.slurm.write(7, f"theirs {HOSTILE}")
    assert site.seen() == "theirs"
    assert site.slurm.of(7) == "theirs"


def test_a_hint_may_be_changed_by_an_administrator():
    site = Site(gated(comment=f"[gpu-topo: off] {GATE}")).looked()
    site.slurm.write(7, f"[gpu-topo: pattern=ring] {GATE}")
    assert hints.hint_in(site.seen()) == "pattern=ring"
    assert site.slurm.sent == []


def test_notes_of_a_job_that_runs_are_not_put_back_but_its_loan_is():
    running = gated(comment="[gpu-topo: | dgx1:0,3]", state="RUNNING", start=NOW - 5)
    borrower = gated(8, comment=LOAN, state="RUNNING", start=NOW - 5)
    site = Site(running, borrower).looked()
    site.slurm.write(7, JS1)
    site.slurm.write(8, JS1)
    assert LoanRecord.read_from(site.seen(8)) is not None
    assert site.slurm.of(7) == JS1
    assert site.slurm.of(8) == f"{JS1} {LOAN}"
    assert hints.note_in(site.seen(7)) == "dgx1:0,3"


def test_a_text_too_long_to_be_read_is_left_alone():
    site = Site().looked()
    site.slurm.write(7, "x" * 40_000)
    assert GateRecord.read_from(site.seen()) is not None
    site.client.update(["7"], JobUpdate(begin_time=3, admin_comment=GATE))
    assert site.slurm.sent == [("7", JobUpdate(begin_time=3))]


def test_a_task_of_an_array_has_its_arrays_record_or_what_was_written_for_it():
    whole = gated(10, name="10_[1-3]", array_id=10, task="1-3", tasks=3)
    site = Site(whole).looked()
    task = gated(11, comment="", name="10_1", array_id=10, task="1")
    site.slurm.jobs[11] = task
    assert GateRecord.read_from(site.seen(11)) is not None
    site.slurm.jobs[12] = gated(12, comment=JS1, name="10_2", array_id=10, task="2")
    site.client.update(["10_2"], JobUpdate(admin_comment=PLACED))
    site.slurm.write(12, JS1, tres_per_node="gres/gpu:v100.s1:1,gres/gpu:v100.s2:1")
    assert site.seen(12) == f"{JS1} {PLACED}"


def test_a_tasks_own_note_counts_and_not_its_arrays():
    """The select plugin writes one when the task starts."""
    site = Site(gated(10, "[gpu-topo: off | later]", name="10_[1-3]", array_id=10)).looked()
    task = gated(11, "[gpu-topo: off | dgx1:0,3]", name="10_1", array_id=10, state="RUNNING")
    site.slurm.jobs[11] = task
    assert site.seen(11) == "[gpu-topo: off | dgx1:0,3]"
    assert site.slurm.sent == []


def test_all_components_get_their_own_back_when_the_first_one_is_repaired():
    """Slurm writes a first component's comment to every component."""
    own = GATE.replace("token=a", "token=b")
    first = gated(20, name="20+0", het_id=20)
    second = gated(21, own, name="20+1", het_id=20, het_offset=1)
    site = Site(first, second).looked()
    site.slurm.write(20, JS1)
    site.client.queue()
    assert [name for name, _ in site.slurm.sent] == ["20+0", "20+1"]
    assert (site.slurm.of(20), site.slurm.of(21)) == (f"{JS1} {GATE}", own)


def test_a_requeued_job_is_the_same_and_a_later_one_with_its_number_is_not():
    site = Site(gated(state="RUNNING")).looked()
    site.slurm.write(7, "", state="PENDING", submit=50)
    assert site.seen() == GATE
    site.slurm.write(7, "", state="PENDING", submit=90, eligible=NOW + 60)
    assert site.seen() == ""


def test_a_job_that_ran_and_was_requeued_between_two_readings_keeps_its_record():
    """No token ties it to a reply, and it was never seen running: its own record is there."""
    site = Site(gated(comment="[gpu-loan: may remote=1]", submit=NOW + 60)).looked()
    site.client.update(["7"], JobUpdate(admin_comment=LOAN))
    site.slurm.write(7, LOAN, submit=NOW + 90)
    assert (site.seen(), site.slurm.of(7)) == (LOAN, LOAN)


def test_a_new_job_with_the_number_of_one_that_ran_has_its_own_record(tmp_path):
    """Slurm's state was lost: it numbers jobs anew, and the engine goes on."""
    later = gated(comment=ISSUED, submit=90)
    site = Site(gated(state="RUNNING"), path=tmp_path / "e").looked()
    site.store.submitted(ISSUED)
    site.slurm.jobs[7] = later
    assert site.seen() == ISSUED
    site.slurm.jobs.clear()
    site.client.queue()
    site.store.save(is_last=True)
    after = Site(gated(comment="", submit=NOW), path=tmp_path / "e")
    assert after.seen() == ""


# ------------------------------------------- what stands there in a job's first reading


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (ISSUED, ISSUED),
        (ISSUED.replace("5f0a", "5f0a-12"), ISSUED.replace("5f0a", "5f0a-12")),
        (f"{ISSUED} {HOSTILE}", ISSUED),
        (f"[wrapped {ISSUED}]", ISSUED),
        (ISSUED.replace("gpu:2", "gpu:8"), ISSUED),
        (f"[gpu-topo: off | a wait] {ISSUED}", f"[gpu-topo: off | a wait] {ISSUED}"),
        (HOSTILE, ""),
        ("[gpu-donor: of=3]", ""),
        ("[gpu-loan: starts remote=1 loan=dgx1/1,dgx2/1/5/6]", ""),
        ("[gpu-loan: may remote=1]", "[gpu-loan: may remote=1]"),
        ("[gpu-shape: 2x8 fixed]", ""),
        ("[gpu-shape: none nodes=2]", "[gpu-shape: none nodes=2]"),
    ],
)
def test_a_record_that_nobody_issued_does_not_count(shown, expected):
    site = Site(gated(3)).looked()
    site.store.submitted(ISSUED)
    site.slurm.jobs[9] = gated(9, shown, submit=NOW + 60)
    entries = joined(split(site.seen(9))[0], "")
    assert entries == expected
    assert joined(split(site.slurm.of(9))[0], "") == expected


HINTED = f"[gpu-topo: pattern=tree] {ISSUED}"
SHAPED = "[gpu-shape: 2x8 t=5f0a]"


@pytest.mark.parametrize(
    ("issued", "more", "is_found"),
    [
        (ISSUED, {}, True),
        (ISSUED, {"submit": NOW + 2}, True),
        (ISSUED, {"submit": NOW + 3}, False),
        (ISSUED, {"uid": 1001}, False),
        (ISSUED, {"state": "RUNNING"}, False),
        (ISSUED, {"tres_per_node": "gres/gpu:4"}, False),
        (ISSUED.replace("gated", "placed"), {}, False),
        (ISSUED, {"comment": "gpu-topo: pattern=tree"}, False),
        (HINTED, {"comment": "gpu-topo: pattern=tree"}, True),
        (HINTED, {"comment": "gpu-topo: pattern=ring"}, False),
        (SHAPED, {"min_nodes": 2}, True),
        (SHAPED, {"min_nodes": 1}, False),
    ],
)
def test_a_record_replaced_before_the_first_reading_is_its_jobs_where_no_other_fits(
    issued, more, is_found
):
    site = Site(gated(3)).looked()
    site.store.submitted(issued, uid=1000)
    site.slurm.jobs[9] = replace(gated(9, JS1, submit=NOW), **more)
    assert split(site.seen(9)) == (split(issued)[0] if is_found else {}, JS1)


def test_of_several_records_that_fit_a_job_gets_one_only_if_they_are_alike():
    """And none that another job shows."""
    other = ISSUED.replace("5f0a", "77")
    for second, shown, entries in (
        (other, other, ISSUED),
        (other, JS1, ISSUED),
        (other.replace("by=node", "by=job"), JS1, ""),
    ):
        site = Site(gated(3)).looked()
        site.store.submitted(ISSUED, uid=1000)
        site.store.submitted(second, uid=1000)
        site.slurm.jobs[8] = gated(8, HOSTILE, submit=NOW)
        site.slurm.jobs[9] = gated(9, shown, submit=NOW)
        assert site.seen(8) == entries
        assert joined(split(site.seen(9))[0], "") == (entries and other)


@pytest.mark.parametrize("shown", ["", HOSTILE])
def test_a_reply_after_the_reading_began_is_its_jobs_in_the_next(shown):
    """However young the engine is: what stands there meanwhile is no former engine's record."""
    site = Site(gated(3)).looked()
    site.slurm.jobs[9] = gated(9, shown, submit=NOW)
    queue = site.slurm.queue
    site.slurm.queue = lambda: site.store.submitted(ISSUED, uid=1000) and queue()
    assert site.seen(9) == ""
    site.slurm.queue = queue
    site.clock.s += 1
    assert site.seen(9) == ISSUED


def test_of_two_replies_that_fit_a_job_the_one_with_its_hint_is_its():
    """A note that differs is nothing to go by."""
    site = Site(gated(3)).looked()
    tree, noted = HINTED.replace("5f0a", "77"), f"[gpu-topo: | waits] {ISSUED}"
    for issued in (tree, noted, noted.replace("5f0a", "78").replace("waits", "stands")):
        site.store.submitted(issued, uid=1000)
    site.slurm.jobs[8] = gated(8, "", submit=NOW)
    site.slurm.jobs[9] = replace(gated(9, "", submit=NOW), comment="gpu-topo: pattern=tree")
    assert (site.seen(8), site.seen(9)) == (noted, tree)


def test_a_reply_that_the_bridge_used_again_is_every_equal_jobs_that_waits_behind_its_gate():
    site = Site(gated(3)).looked()
    site.store.submitted(ISSUED, uid=1000, gate=NOW + 60, is_kept=True)
    site.slurm.jobs |= {
        7: gated(7, ISSUED, submit=NOW),
        8: gated(8, JS1, submit=NOW),
        9: gated(9, JS1, submit=NOW, eligible=NOW),
        10: gated(10, "", submit=NOW),
    }
    shown = [site.seen(job) for job in (7, 8, 9, 10)]
    assert shown[0] == ISSUED
    assert shown[2] == JS1
    tokens = [GateRecord.read_from(shown[one]).token for one in (0, 1, 3)]
    assert len(set(tokens)) == 3
    assert {token.partition("-")[0] for token in tokens} == {"5f0a"}
    once = Site(gated(3)).looked()
    once.store.submitted(ISSUED, uid=1000, gate=NOW + 60)
    once.slurm.jobs |= {7: gated(7, ISSUED, submit=NOW), 8: gated(8, JS1, submit=NOW)}
    assert once.seen(8) == JS1


def test_a_reply_to_a_submit_that_slurm_refused_is_forgotten():
    site = Site(gated(3)).looked()
    site.store.submitted(ISSUED, uid=1000)
    site.clock.s += 11
    site.looked().slurm.jobs[9] = gated(9, "", submit=NOW)
    assert site.seen(9) == ""


def test_a_mark_that_somebody_left_makes_no_donor_for_the_next_engine(tmp_path):
    """It would be ended as one that nobody borrows from."""
    job = gated(9, "[gpu-donor: of=3]", state="RUNNING", submit=1)
    assert Site(job, path=tmp_path / "e").seen(9) == ""


def test_a_record_that_somebody_gave_a_running_job_is_taken_out():
    site = Site(gated(comment="[gpu-topo: | why]", state="RUNNING")).looked()
    site.slurm.write(7, f"[gpu-topo: | why] theirs {LOAN}")
    assert LoanRecord.read_from(site.seen()) is None
    assert site.slurm.of(7) == "theirs [gpu-topo: | why]"


def test_a_donor_is_one_that_says_so_itself():
    donor = gated(9, "[gpu-donor: of=3]", submit=NOW + 60)
    site = Site(replace(donor, comment="gpu-donor of=3")).looked()
    site.slurm.write(9, JS1, comment="mine")
    assert site.seen(9) == f"{JS1} [gpu-donor: of=3]"


# ------------------------------------------------------------------- a random writer


@pytest.mark.parametrize("seed", range(20))
def test_no_record_is_lost_whatever_a_random_writer_does(seed):
    """The engine renames its records while somebody writes at random; theirs is kept, too."""
    chance = random.Random(seed)
    site = Site(gated(1), gated(2), gated(3)).looked()
    texts = [write for write, _ in WRITERS.values()]
    wanted = dict.fromkeys((1, 2, 3), GATE)
    for step in range(200):
        job_id = chance.choice((1, 2, 3))
        doing = chance.random()
        if doing < 0.5:
            site.slurm.write(job_id, chance.choice(texts)(site.slurm.of(job_id)))
            site.clock.s += 1
        elif doing < 0.7:
            wanted[job_id] = GATE.replace("by=node", f"by=node since={step}")
            site.client.update([str(job_id)], JobUpdate(admin_comment=wanted[job_id]))
        elif doing < 0.8:
            # Nothing else may stand where ours is wrapped again and again.
            site.slurm.write(job_id, "mine")
        else:
            site.client.queue()
        for job in site.client.queue():
            kept = GateRecord.read_from(job.admin_comment)
            assert kept == GateRecord.read_from(wanted[job.job_id]), (step, job)
    for job_id in wanted:
        site.slurm.write(job_id, "last")
    site.client.queue()
    assert {site.slurm.of(job_id) for job_id in wanted} == {
        f"last {one}" for one in wanted.values()
    }
