"""The engine's own notes: what of them stays at Slurm, and the file that outlives the engine."""

from dataclasses import replace

import pytest
from entries_in_tests import GATE, JS1, LOAN, NOW, PLACED, Site, gated

from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.brackets import split
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.slurm.interface import JobUpdate


@pytest.mark.parametrize(
    ("entries", "waits", "starts", "runs"),
    [
        (f"[gpu-topo: off | why] {GATE}", f"[gpu-topo: off] {GATE}", "", ""),
        (f"[gpu-topo: | dgx1:0,3] {PLACED}", "", "", ""),
        ("[gpu-topo: pattern=ring | dgx1:0,3]", "", "", ""),
        ("[gpu-topo: a=b | n] [gpu-shape: 2x4]", "[gpu-topo: a=b] [gpu-shape: 2x4]", "", ""),
        (f"[gpu-topo: remote=allow] {LOAN}", f"[gpu-topo: remote=allow] {LOAN}", LOAN, ""),
        (PLACED.replace("at=", "remote=1 at="), None, None, ""),
        ("[gpu-donor: of=4]", "[gpu-donor: of=4]", "[gpu-donor: of=4]", "[gpu-donor: of=4]"),
    ],
    ids=["gated", "released", "select", "shaped", "borrows", "may borrow", "a donor"],
)
def test_what_stands_at_slurm_where_the_engine_keeps_the_notes(entries, waits, starts, runs):
    """While a job waits, in its first minute, and later."""
    for state, ran_s, expected in (
        ("PENDING", 0, waits),
        ("RUNNING", 5, starts),
        ("RUNNING", 100, runs),
    ):
        start = NOW - ran_s if state == "RUNNING" else 0
        job = gated(comment=f"{JS1} {entries}", state=state, start=start)
        site = Site(replace(job, comment="gpu-donor of=4"), notes=False)
        assert split(site.seen())[0] == split(entries)[0]
        if expected is not None:
            assert site.slurm.of(7) == f"{JS1} {expected}".strip()


def test_a_release_takes_the_record_away_in_the_update_that_lets_the_job_start():
    site = Site(gated(comment=f"theirs [gpu-topo: off] {GATE}"), notes=False).looked()
    comment = hints.with_note(f"theirs [gpu-topo: off] {PLACED}", "dgx1:0,3 by mapa")
    site.client.update(["7"], JobUpdate(begin_time=0, admin_comment=comment))
    assert site.slurm.sent == [("7", JobUpdate(begin_time=0, admin_comment="theirs"))]
    assert GateRecord.read_from(site.seen()) == GateRecord.read_from(PLACED)
    assert hints.note_in(site.seen()) == "dgx1:0,3 by mapa"
    assert site.store.entries_of(7).text() == f"[gpu-topo: off | dgx1:0,3 by mapa] {PLACED}"


def test_a_note_that_only_people_read_causes_no_update():
    site = Site(notes=False).looked()
    site.client.update(["7"], JobUpdate(admin_comment=hints.with_note(GATE, "waits")))
    assert site.slurm.sent == []
    assert hints.note_in(site.seen()) == "waits"


def test_the_notes_of_a_submit_and_of_a_start_are_those_of_the_job_that_shows(tmp_path):
    site = Site(path=tmp_path / "e", notes=False).looked()
    assert site.store.submitted(f"[gpu-topo: a=b | waits] {GATE}") == f"[gpu-topo: a=b] {GATE}"
    assert site.store.submitted("[gpu-topo: a=b | Slurm's own choice]") == ""
    site.slurm.jobs[8] = gated(8, f"[gpu-topo: a=b] {GATE}")
    assert hints.note_in(site.seen(8)) == "waits"
    site.store.start_notes.add(8, "a=b", "dgx1:0,3 by mapa")
    assert hints.note_in(site.seen(8)) == "dgx1:0,3 by mapa"
    site.slurm.jobs.clear()
    site.client.queue()
    site.store.save(is_last=True)
    later = Site(path=tmp_path / "e", notes=False).store.entries_of(8)
    assert later is not None
    assert later.text() == f"[gpu-topo: a=b | dgx1:0,3 by mapa] {GATE}"


def test_nothing_is_said_in_the_log_when_our_own_entries_are_taken_away(caplog):
    site = Site(gated(comment="[gpu-topo: a=b] [gpu-shape: 1x2]"), notes=False).looked()
    site.slurm.write(7, site.slurm.of(7), state="RUNNING", start=NOW)
    site.client.queue()
    assert site.slurm.of(7) == ""
    assert caplog.records == []


def test_the_mode_may_change_while_the_engine_runs():
    site = Site(gated(comment=f"[gpu-topo: | waits] {GATE}")).looked()
    site.store.show_notes(False)
    site.client.queue()
    assert site.slurm.of(7) == GATE
    site.store.show_notes(True)
    site.client.queue()
    assert site.slurm.of(7) == f"[gpu-topo: | waits] {GATE}"


# ---------------------------------------------------------------------------- the disk


def test_entries_outlive_the_engine_and_are_put_back(tmp_path):
    first = Site(path=tmp_path / "entries.json").looked()
    first.store.save(is_last=True)
    later = Site(gated(comment=JS1), path=tmp_path / "entries.json")
    assert later.seen() == f"{JS1} {GATE}"
    assert later.slurm.of(7) == f"{JS1} {GATE}"


def test_a_job_that_was_given_back_while_there_was_no_engine_stays_slurms(tmp_path):
    Site(path=tmp_path / "e").looked().store.save(is_last=True)
    later = Site(gated(comment="", eligible=NOW - 1, reason="Priority"), path=tmp_path / "e")
    assert later.seen() == ""
    assert later.slurm.sent == []


def test_records_of_the_other_way_of_enforcing_are_not_taken_over(tmp_path):
    Site(path=tmp_path / "e").looked().store.save(is_last=True)
    later = Site(gated(comment=""))
    later.store.open(tmp_path / "e", foreign="gpu-slots")
    assert later.seen() == ""


def test_what_slurm_shows_counts_more_than_what_a_former_engine_wrote_down(tmp_path):
    Site(path=tmp_path / "e").looked().store.save(is_last=True)
    later = Site(gated(comment=PLACED), path=tmp_path / "e")
    assert later.seen() == PLACED


@pytest.mark.parametrize("content", [b"", b"{", b'[{"job": "x"}]', b"\xff\xfe", b"[[]]"])
def test_a_broken_file_costs_one_line(tmp_path, caplog, content):
    path = tmp_path / "entries.json"
    path.write_bytes(content)
    site = Site(path=path).looked()
    assert [record.message.partition(":")[2][:15] for record in caplog.records] == [
        " cannot be read"
    ]
    site.store.save(is_last=True)
    assert Site(path=path).store.entries_of(7) is not None


def test_a_disk_that_cannot_be_written_costs_one_line_and_is_tried_again(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    site = Site(path=blocked / "entries.json").looked()
    for _ in range(3):
        site.store.save(is_last=True)
    blocked.unlink()
    site.store.save(is_last=True)
    said = [record.message.rpartition("entries.json")[2][:17] for record in caplog.records]
    assert said == [": cannot be read:", ": cannot be writt", " is written again"]
    assert (blocked / "entries.json").stat().st_mode & 0o777 == 0o600


def test_only_the_last_jobs_that_ended_are_remembered(monkeypatch):
    monkeypatch.setattr("slurm_plugin.slurm.job_entries.store.MOST_ENDED", 3)
    site = Site(*(gated(number) for number in range(1, 8))).looked()
    site.slurm.jobs = {}
    site.client.queue()
    assert [n for n in range(1, 8) if site.store.entries_of(n)] == [5, 6, 7]


def test_jobs_that_ended_without_an_engine_count_as_ended(tmp_path):
    Site(path=tmp_path / "e").looked().store.save(is_last=True)
    later = Site(gated(8), path=tmp_path / "e").looked()
    assert later.store.entries_of(7).state == "ENDED"


def test_who_takes_charge_again_knows_what_the_other_engine_wrote_and_no_more(tmp_path):
    """Of what it knew itself it would put back records that the other one has ended."""
    first = Site(path=tmp_path / "e").looked()
    first.client.keeper.close()
    second = Site(path=tmp_path / "e").looked()
    second.client.update(["7"], JobUpdate(admin_comment=""))
    second.client.keeper.close()
    first.slurm.write(7, "")
    first.client.keeper.reopen()
    assert first.seen() == first.slurm.of(7) == ""


def test_an_engine_that_stands_by_writes_nothing(tmp_path):
    site = Site(path=tmp_path / "e")
    site.client.keeper.is_in_charge = lambda: False
    site.slurm.write(7, "theirs")
    site.looked()
    site.client.keeper.close()
    assert not (tmp_path / "e").exists()
    assert not site.slurm.sent


def test_gates_of_the_moments_before_a_takeover_count_though_no_file_tells_of_them(tmp_path):
    """The engine that stood by was there already, but it was not the one that was asked."""
    site = Site(gated(submit=NOW + 100), path=tmp_path / "e")
    assert GateRecord.read_from(site.seen()) is None
    site = Site(gated(submit=NOW + 100), path=tmp_path / "e")
    site.store.wall_clock = lambda: NOW + 110.0
    site.client.keeper.reopen()
    assert GateRecord.read_from(site.seen()) == GateRecord.read_from(GATE)
    site.slurm.jobs[8] = gated(8, submit=NOW + 120)
    assert GateRecord.read_from(site.seen(8)) is None
