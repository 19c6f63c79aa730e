"""Moving one job: each step is on disk before it is taken, whatever dies in between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machines_in_tests import mask, node, question
from moves_in_tests import FIRST, OTHER, WAITING, Site

from slurm_plugin.act.defrag import record
from slurm_plugin.act.defrag.mover import ASKED_S
from slurm_plugin.act.enforcement.select import Select
from slurm_plugin.base.protocol import Use, WaitFor
from slurm_plugin.errors import PluginError, SlurmError
from slurm_plugin.slurm import requeue


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_a_job_is_put_back_let_go_and_seen_at_its_new_place(site):
    assert site.step()
    assert site.requeued == ["1"]
    assert site.step()
    (update,) = site.updates
    assert (update.is_released, update.begin_time) == (True, 0)
    share = site.reservations.moved[FIRST].shares[FIRST]
    assert share.nodes["dgx2"].bit_count() == 4
    assert not share.nodes["dgx2"] & mask(0, 1, 2, 3)
    assert share.note.endswith("; moved from dgx1 for job 3")
    site.starts(FIRST, "dgx2", [4, 5, 6, 7])
    assert not site.step()
    assert site.ended() == [(1, "done", "it runs on dgx2")]
    assert site.reservations.moved == {}
    # It has been moved: not again, though the job that waits still does.
    site.jobs[OTHER] = site.running(OTHER, "dgx1", "")
    assert not site.step()
    assert site.requeued == ["1"]


def test_its_start_gets_the_place_and_nobody_else_does(site):
    site.step()
    site.step()
    place = site.reservations.moved[FIRST].shares[FIRST].nodes["dgx2"]
    select = Select(site.decider, site.reservations)
    free = node("dgx2", mask(4, 5, 6, 7))
    own = node("dgx1", 0xFF, mask(0, 1, 2, 3))
    # Slurm would take the node that it came from.
    reply = select.on_place(question(own, free, job=FIRST)).reply
    assert isinstance(reply, Use)
    assert reply.nodes == {"dgx2": place}
    # Another job waits, or goes elsewhere.
    other = select.on_place(question(node("dgx2", mask(4, 5, 6, 7), mask(4, 5)), job=9)).reply
    assert isinstance(other, WaitFor)
    assert other.note == "GPUs are kept for job 1, which is moved there"
    # While the place is taken it waits, for a moment.
    taken = select.on_place(question(own, node("dgx2", mask(4, 5)), job=FIRST)).reply
    assert isinstance(taken, WaitFor)
    assert taken.note == "its new place on dgx2 is not free yet"


@pytest.mark.parametrize("died", ["asked", "sent", "let go", "released"])
def test_an_engine_that_starts_anew_goes_on_and_repeats_nothing(site, died):
    """It dies before or after each command; the file says how far it was."""
    if died == "asked":
        requeue_held, site.mover.requeue_held = site.requeue_held, lambda name: _die()
        with pytest.raises(RuntimeError):
            site.step()
        site.requeue_held = requeue_held
    else:
        site.step()
    if died == "let go":
        update, site.update = site.update, lambda *_: _die()
        with pytest.raises(RuntimeError):
            site.step()
        site.update = update
    elif died == "released":
        site.step()
    site.mover = site.engine()
    for _ in range(3):
        assert site.step()
    assert site.requeued == ["1"]
    assert FIRST in site.reservations.moved, "the place is kept again"
    assert not site.jobs[FIRST].held
    site.starts(FIRST, "dgx2", [4, 5, 6, 7])
    site.step()
    assert site.ended() == [(1, "done", "it runs on dgx2")]


def _die():
    raise RuntimeError("killed")


def test_what_cannot_be_written_down_is_not_done(site, monkeypatch):
    def full(path, moves):
        raise PluginError(f"{path}: cannot be written: No space left on device")

    monkeypatch.setattr(record, "write", full)
    with pytest.raises(PluginError, match="No space left"):
        site.step()
    assert site.requeued == []


FAILS = [
    ("it does not start there in time", lambda site: setattr(site, "now", site.now + 60),
     "it did not start on dgx2 within 20 s; it starts where there is room"),
    ("it starts elsewhere", lambda site: site.starts(FIRST, "dgx1", range(4)),
     "it started on dgx1 instead"),
    ("its user cancels it", lambda site: site.jobs.pop(FIRST),
     "it is over: it ended, or somebody cancelled it"),
    ("its user holds it", lambda site: site.jobs.update(
        {FIRST: replace(site.jobs[FIRST], priority=0)}), "somebody holds it"),
]  # fmt: skip


@pytest.mark.parametrize(("happens", "why"), [f[1:] for f in FAILS], ids=[f[0] for f in FAILS])
def test_a_move_that_fails_leaves_a_job_like_any_other(site, happens, why):
    site.step()
    site.step()
    happens(site)
    assert not site.step(may_begin=False)
    assert site.ended() == [(1, "undone", why)]
    assert site.reservations.moved == {}
    assert not site.step(), "and it is not tried again"
    assert site.requeued == ["1"]


def test_a_place_that_was_taken_meanwhile(site):
    site.step()
    site.jobs[9] = site.running(9, "dgx2", "", range(4, 8))
    assert not site.step()
    assert site.ended() == [(1, "undone", "dgx2 has no room left; it starts where there is")]
    assert not site.jobs[FIRST].held, "it is let go all the same"


def test_a_gpu_in_use_of_which_slurm_does_not_say_which_it_is(site, monkeypatch):
    """Any of those that look free may be the one: none of them is kept."""
    site.step()
    first, target = site.nodes()
    target = replace(target, used_by_type={"v100": 5})
    monkeypatch.setattr(site, "nodes", lambda: [first, target])
    assert not site.step()
    assert site.ended() == [(1, "undone", "dgx2 has no room left; it starts where there is")]
    assert not site.jobs[FIRST].held


def test_slurm_that_refuses_or_does_nothing(site):
    def refuse(name):
        raise SlurmError("scontrol requeuehold 1: exit 1: Job/step already completing")

    site.mover.requeue_held = refuse
    assert not site.step()
    assert site.ended()[0][2].startswith("Slurm refused: scontrol requeuehold 1")
    site.path.unlink()
    site.mover = site.engine()
    site.mover.requeue_held = lambda name: None
    assert site.step()
    site.now += ASKED_S
    assert not site.step()
    assert site.ended() == [(1, "undone", "Slurm did not put it back within 300 s")]


def test_a_release_that_slurm_refuses_is_tried_again(site):
    site.step()
    update = site.update

    def refuse(names, change):
        raise SlurmError("slurmctld is busy")

    site.update = refuse
    assert site.step()
    assert site.step()
    site.update = update
    assert site.step()
    assert not site.jobs[FIRST].held


NOT_BEGUN = [
    ("the site does not consent", lambda site: None, False),
    ("Slurm does not requeue the job", lambda site: site.not_requeueable.add(FIRST), True),
    ("the job does not allow it",
     lambda site: site.jobs.update({FIRST: site.running(FIRST, "dgx1", "")}), True),
    ("nobody waits", lambda site: site.jobs.pop(WAITING), True),
    ("it waits for a moment only", lambda site: site.jobs.update(
        {WAITING: replace(site.jobs[WAITING], submit=int(site.now) - 5)}), True),
    ("it waits in a partition that is only observed", lambda site: site.jobs.update(
        {WAITING: replace(site.jobs[WAITING], partition="watched")}), True),
    ("the other job ends in a moment", lambda site: site.jobs.update(
        {OTHER: replace(site.jobs[OTHER], end=int(site.now) + 10)}), True),
    ("it costs too much", lambda site: setattr(
        site.mover, "config", replace(site.config, max_gpu_hours=1.9)), True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "consent"), [n[1:] for n in NOT_BEGUN], ids=[n[0] for n in NOT_BEGUN]
)
def test_no_job_is_touched_where(site, change, consent):
    change(site)
    assert not site.step(may_begin=consent)
    assert (site.requeued, site.updates) == ([], [])
    assert not site.path.exists()


def test_consent_that_is_taken_back_leaves_no_job_held(site):
    site.step()
    assert site.step(may_begin=False)
    assert not site.jobs[FIRST].held


def test_one_at_a_time_and_not_too_often(site):
    site.mover.config = replace(site.config, every_s=600)
    site.step()
    site.jobs[7] = replace(site.running(7, "dgx2", "movable=5"), gpus={"dgx2": (4, 5)})
    site.step()
    assert site.requeued == ["1"]
    del site.jobs[FIRST]
    site.step()
    assert not site.step()
    assert site.requeued == ["1"], "the next one only after every_s"


DAMAGED = [
    ("no JSON", "{"),
    ("a list", "[]"),
    ("another key", '{"open": null, "past": [], "x": 1}'),
    ("half a move", '{"open": {"job": 1}, "past": []}'),
    ("nested beyond reason", "[" * 100_000),
]


@pytest.mark.parametrize("content", [d[1] for d in DAMAGED], ids=[d[0] for d in DAMAGED])
def test_a_damaged_record_moves_nobody_and_says_so_once(site, caplog, content):
    site.path.write_text(content)
    for _ in range(3):
        assert not site.step()
    assert site.requeued == []
    assert site.path.read_text() == content
    (said,) = [one.message for one in caplog.records if "no job is moved" in one.message]
    assert said.startswith(f"{site.path}: cannot be read: ")
    assert said.isprintable()


def test_which_jobs_slurm_requeues():
    """squeue's columns, in which no name of a job can pass for another one.

    BatchFlag counts the starts that failed, too.
    """

    def run(argv, stdin="", timeout_s=None):
        wanted = argv[argv.index("-O") + 1]
        names, ends = zip(*(one.split(":0") for one in wanted.split(",")), strict=True)
        assert names == ("JobId", "Requeue", "BatchFlag")
        rows = [("1", "1", "1"), ("2", "0", "1"), ("3", "1", "0"), ("4", "1", "2")]
        texts = ("".join(text + end for text, end in zip(row, ends, strict=True)) for row in rows)
        return "\n".join(texts) + "\n"

    assert requeue.requeueable(run) == {1, 4}
