"""Only what another wrote is put back: not what a reading shows from before our own writes."""

import pytest
from entries_in_tests import GATE, HOSTILE, JS1, LOAN, NOW, PLACED, Site, gated

from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.brackets import TOPO, inside
from slurm_plugin.base.job_notes.records import GateRecord, LoanRecord
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob
from slurm_plugin.slurm.job_entries.rules import tasks_to_name

WAITS = f"waiting 1/10 since 5: horizon: x (until {NOW + 60}, begin 5)"
ARRAY = {"name": "10_[1-3]", "array_id": 10, "task": "1-3", "tasks": 3}


def task(job_id: int, number: str, comment: str = GATE, **more: object) -> QueuedJob:
    """A task of the array 10 with a record of its own; the last one has the array's."""
    return gated(job_id, comment, name=f"10_{number}", array_id=10, task=number, **more)


def of_plugin(comment: str = "") -> Site:
    """The select mode, with a job that is none of the engine's but for what is noted."""
    site = Site(gated(comment=comment, eligible=5))
    site.store.notes_by_plugin = True
    return site.looked()


def test_a_wait_that_began_while_the_queue_was_read_is_nobody_elses_doing(caplog):
    """The reply was older than the question at the job's start; the plugin writes the note."""
    site = of_plugin()

    def postponed() -> None:
        site.slurm.meanwhile = lambda: None
        site.store.start_notes.add(7, "", WAITS)
        site.slurm.write(7, hints.with_note("", WAITS), eligible=NOW + 60)

    site.slurm.meanwhile = postponed
    assert site.seen() == ""
    assert site.seen() == hints.with_note("", WAITS)
    assert site.slurm.sent == []
    assert caplog.records == []


def test_a_wait_that_the_plugin_did_not_begin_is_not_written_into_the_job():
    """Its count of waits was used up, say, and the job waits for something else now."""
    site = of_plugin()
    site.store.start_notes.add(7, "", WAITS)
    assert hints.postponed_until(site.seen()) == NOW + 60
    assert site.slurm.sent == []


def test_that_root_changed_the_request_of_a_gated_job_is_kept():
    """The bridge wrote so into the record that was there."""
    site = Site().looked()
    changed = GATE.replace("by=node", "by=node changed=1")
    site.slurm.write(7, f"{JS1} {changed}", tres_per_node="gres/gpu:1")
    assert site.seen() == f"{JS1} {changed}"
    assert site.slurm.sent == []


@pytest.mark.parametrize(
    "forged",
    [
        HOSTILE.replace("at=1", "changed=1"),
        GATE.replace("gpu:2", "gpu:8").replace("by=node", "by=node changed=1"),
    ],
)
def test_no_other_record_passes_for_that(forged):
    site = Site().looked()
    site.slurm.write(7, forged)
    assert site.seen() == GATE
    assert site.slurm.of(7) == GATE


@pytest.mark.parametrize("theirs", ["", JS1, "[gpu-topo: | theirs]"])
def test_of_a_waiting_job_no_note_is_put_back_where_the_plugin_writes_them(theirs):
    site = of_plugin(f"[gpu-topo: off | {WAITS}]")
    site.slurm.write(7, theirs)
    assert (hints.postponed_until(site.seen()) is None) == ("theirs" in theirs)
    assert site.slurm.sent == []


def test_a_loans_record_is_put_back_in_that_mode_too():
    site = of_plugin(f"[gpu-topo: off | {WAITS}] {LOAN}")
    site.slurm.write(7, JS1)
    assert LoanRecord.read_from(site.seen()) is not None
    assert site.slurm.of(7) == f"{JS1} [gpu-topo: off | {WAITS}] {LOAN}"


@pytest.mark.parametrize("hint", ["", "[gpu-topo: off]"])
def test_a_note_beside_another_change_stays_with_the_engine_in_that_mode(hint):
    site = of_plugin(hint)
    noted = hints.with_note(hint, "passed job 6")
    site.client.update(["7"], JobUpdate(site_factor=5, admin_comment=noted))
    site.client.update(["7"], JobUpdate(admin_comment=noted))
    assert site.slurm.sent == [("7", JobUpdate(site_factor=5))]
    assert site.seen() == noted
    site.slurm.write(7, hints.with_note(hint, WAITS))
    assert site.seen() == hints.with_note(hint, WAITS)
    # The plugin takes its own away.
    site.slurm.write(7, hint or "[gpu-topo:]")
    assert hints.note_in(site.seen()) == ""


@pytest.mark.parametrize("named", ["10_3", "10_[2-3]"])
def test_the_last_tasks_of_an_array_are_the_arrays_own_record(named, caplog):
    """Slurm has split the others off since the reading, by updates of the same round."""
    site = Site(gated(10, **ARRAY)).looked()
    site.slurm.jobs = {10: task(10, "3"), 11: task(11, "1"), 12: task(12, "2")}
    if named != "10_3":
        site.slurm.jobs = {10: gated(10, **{**ARRAY, "name": named, "task": "2-3", "tasks": 2})}
    site.client.update([named], JobUpdate(begin_time=0, admin_comment=PLACED))
    if named != "10_3":
        # It was split further before the next reading.
        site.slurm.jobs = {10: task(10, "3", PLACED), 11: task(11, "2", PLACED)}
    tres = "gres/gpu:v100.s1:1,gres/gpu:v100.s2:1"
    for job_id in site.slurm.jobs:
        site.slurm.write(job_id, site.slurm.of(job_id), tres_per_node=tres)
    assert GateRecord.read_from(site.seen(10)) == GateRecord.read_from(PLACED)
    assert [name for name, _ in site.slurm.sent] == [named]
    assert caplog.records == []
    site.slurm.write(10, JS1)
    assert site.seen(10) == f"{JS1} {PLACED}"


def test_a_reading_from_before_an_update_of_a_task_says_nothing_about_it(caplog):
    site = Site(gated(10, **ARRAY)).looked()
    site.slurm.jobs = {10: gated(10, **ARRAY), 11: task(11, "1")}

    def released() -> None:
        site.slurm.meanwhile = lambda: None
        site.client.update(["10_1"], JobUpdate(begin_time=0, admin_comment=PLACED))

    site.slurm.meanwhile = released
    assert site.seen(11) == PLACED
    assert site.seen(11) == PLACED
    assert len(site.slurm.sent) == 1
    assert caplog.records == []


def test_a_task_split_off_an_array_was_changed_with_it(caplog):
    """A reading from before the update of all tasks shows one that Slurm had split off by then."""
    site = Site(gated(10, **ARRAY)).looked()
    later = hints.with_note(GATE, "waits")

    def noted() -> None:
        site.slurm.meanwhile = lambda: None
        site.client.update(["10_[1-3]"], JobUpdate(admin_comment=later))
        site.slurm.write(11, later)

    site.slurm.jobs[11] = task(11, "1")
    site.slurm.meanwhile = noted
    assert site.seen(11) == later
    assert site.seen(11) == later
    assert len(site.slurm.sent) == 1
    assert caplog.records == []


def test_an_update_is_sent_though_the_last_reading_showed_just_that(caplog):
    """The reading is older than the update before: Slurm has that one's text now."""
    site = Site().looked()
    site.client.update(["7"], JobUpdate(admin_comment=PLACED))
    site.client.update(["7"], JobUpdate(admin_comment=GATE))
    assert site.slurm.of(7) == GATE
    assert site.seen() == GATE
    assert caplog.records == []


def test_an_update_is_sent_though_the_one_before_seemed_to_fail():
    site = Site().looked()
    site.slurm.fails = site.slurm.takes = True
    with pytest.raises(SlurmError):
        site.client.update(["7"], JobUpdate(admin_comment=PLACED))
    site.slurm.fails = False
    site.client.update(["7"], JobUpdate(admin_comment=GATE))
    assert site.slurm.of(7) == GATE


def test_what_was_put_back_is_not_put_back_again_by_a_reading_from_before():
    """Two readers may be on their way at once."""
    site = Site().looked()
    site.slurm.write(7, JS1)

    def other_reads() -> None:
        site.slurm.meanwhile = lambda: None
        site.client.queue()

    site.slurm.meanwhile = other_reads
    assert inside(site.seen(), "gpu-slots") is not None
    assert len(site.slurm.sent) == 1


# ----------------------------------------------------------------------- numbers of tasks

FORMS = [
    ("none", {"ntasks": 4}, None),
    ("per GPU", {"ntasks": 4, "tasks_per_gpu": 2}, 4),
    ("per node", {"ntasks": 3, "tasks_per_node": 2}, 3),
    ("nobody tells", {"ntasks": 2, "tasks_per_gpu": -1}, 2),
]


@pytest.mark.parametrize(("form", "count"), [row[1:] for row in FORMS], ids=[r[0] for r in FORMS])
def test_no_update_lets_slurm_count_a_jobs_tasks_anew(form, count):
    job = gated(**form)
    assert tasks_to_name(job) == count
    site = Site(job, gated(8, name="8", ntasks=1)).looked()
    for change in (JobUpdate(begin_time=9), JobUpdate(admin_comment=hints.with_note(GATE, "x"))):
        site.client.update(["7"], change)
    site.client.update(["8", "7"], JobUpdate(begin_time=5))
    site.slurm.write(7, JS1)
    site.seen()
    assert [change.num_tasks for name, change in site.slurm.sent if name == "7"] == (
        [count] * (4 if count else 3)
    )
    assert [change.num_tasks for name, change in site.slurm.sent if name == "8"] == [None]


def test_an_update_that_sets_the_tasks_is_sent_as_it_is():
    site = Site(gated(ntasks=4, tasks_per_gpu=2)).looked()
    site.client.update(["7"], JobUpdate(num_tasks=8))
    assert site.slurm.sent == [("7", JobUpdate(num_tasks=8))]


def test_a_task_of_an_array_keeps_as_many_as_its_array_has():
    site = Site(gated(10, ntasks=4, tasks_per_gpu=2, **ARRAY)).looked()
    site.slurm.jobs[11] = task(11, "1", ntasks=4)
    site.client.update(["10_1"], JobUpdate(admin_comment=PLACED))
    assert site.slurm.sent[0][1].num_tasks == 4


def test_the_hint_of_a_lost_bracket_stays_known():
    site = of_plugin("[gpu-topo: off]")
    site.slurm.write(7, "")
    assert inside(site.seen(), TOPO) == "off"
