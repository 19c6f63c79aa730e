"""What the engine knows of our entries in each job's AdminComment, whoever else writes that field.

Others may replace, empty or extend the field at any moment. So the engine goes by what it read
first and wrote since, and has it put back where it is gone. Kept in the state directory, too: for
an engine that starts anew, and for `gputopo explain` after a job's end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.brackets import (
    MAX_COMMENT_BYTES,
    SLOTS,
    TOPO,
    bracket,
    joined,
    split,
)
from slurm_plugin.base.rows_file import RowsFile
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob
from slurm_plugin.slurm.job_entries.issued import IssuedEntries
from slurm_plugin.slurm.job_entries.known import KnownEntries, Unnamed, UnnamedUpdates, fingerprint
from slurm_plugin.slurm.job_entries.rules import (
    RECORDS,
    Repair,
    is_marked,
    is_over,
    is_undone,
    needed_at_slurm,
    one_line,
    records,
    tasks_to_name,
)
from slurm_plugin.slurm.job_entries.saved import MOST_SAVED, JobEntries, entries_in, entry_file
from slurm_plugin.slurm.job_entries.start_notes import StartNotes

#: Jobs that ended and are still remembered: those that ended last.
MOST_ENDED = 10_000
#: Seconds between two writings of the file, which take at most a twentieth of the time.
SAVE_S, SAVE_SHARE = 2.0, 20.0


class EntryStore:
    """Not for two threads at once: its client holds a lock."""

    def __init__(
        self,
        *,
        notes_at_slurm: bool = True,
        notes_by_plugin: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.notes_at_slurm = notes_at_slurm
        #: Does the select plugin write them, inside slurmctld? Then no update does.
        self.notes_by_plugin = notes_by_plugin
        self.clock, self.wall_clock = clock, wall_clock
        self._jobs: dict[int, KnownEntries] = {}
        self._ended: dict[int, JobEntries] = {}
        self._names: dict[str, int] = {}  # job ids by what updates call them
        self._unnamed = UnnamedUpdates()
        self.issued = IssuedEntries(wall_clock())
        self.start_notes = StartNotes(clock)
        self._is_dirty, self._save_at = False, float("-inf")
        self._file: RowsFile[JobEntries] | None = None
        self._read: Callable[[], dict[int, JobEntries]] = dict
        #: What a former engine knew of jobs that no reading has shown yet.
        self._saved: dict[int, JobEntries] = {}

    def open(self, path: Path, foreign: str = "") -> None:
        """Keep the jobs in this file, once; `foreign` entries in it are the other way's."""
        if self._file is None:
            self._file = entry_file(path)
            self._read = partial(entries_in, self._file, foreign)
            self.reopen()

    def reopen(self) -> None:
        """Know of the queue what the file says, and no more: another engine may have written it."""
        self._jobs, self._ended, self._is_dirty = {}, {}, False
        self._unnamed = UnnamedUpdates()
        self._saved, self.issued.since = self._read(), self.wall_clock()

    def show_notes(self, at_slurm: bool) -> None:
        """Are notes to stand in AdminComment from now on?"""
        if at_slurm != self.notes_at_slurm:
            self.notes_at_slurm = at_slurm
            for known in list(self._jobs.values()):
                known.fingerprint = None

    # ------------------------------------------------------------------ readings

    def take(self, jobs: Iterable[QueuedJob], began: float) -> tuple[list[QueuedJob], list[Repair]]:
        """A reading that began then, with our entries as known; the comments to be repaired."""
        seen, repairs = [], []
        notes, now = self.start_notes.take(began), self.wall_clock()
        there: dict[int, KnownEntries] = {}
        self._names = {}
        jobs = list(jobs)
        self.issued.seen(job.admin_comment for job in jobs if job.job_id not in self._jobs)
        for job in jobs:
            known, note = self._jobs.get(job.job_id), notes.get(job.job_id, "")
            waits = self.start_notes.seen_in(job) if job.eligible > now else ""
            note = waits or note
            is_same = known is not None and known.fingerprint == fingerprint(job)
            if known is None or note or not is_same or self._unnamed.of(job):
                known = self._known(job, began)
                if repair := self._updated(job, known, note, began, is_shown=bool(waits)):
                    repairs.append(repair)
            known.tasks = tasks_to_name(job)
            there[job.job_id] = known
            self._names[job.name] = job.job_id
            is_shown = known.shown == job.admin_comment
            seen.append(job if is_shown else replace(job, admin_comment=known.shown))
        gone = [self._jobs[job_id].entries for job_id in self._jobs.keys() - there.keys()]
        for entries in (*self._saved.values(), *gone):
            self._end(entries)
        self._saved = {}
        self._jobs = there
        self._unnamed.forget(began)
        self.issued.gone(began)
        return seen, self._with_components(repairs, seen)

    def _updated(
        self, job: QueuedJob, known: KnownEntries, note: str, began: float, *, is_shown: bool
    ) -> Repair | None:
        """Bring what is known of the job up to date; the repair of its comment, if one is due.

        `is_shown`: what the note says is true by Slurm's record. Else the plugin's own, which it
        takes away once a wait is over, tells more.
        """
        text, rest = split(job.admin_comment)
        has_note = TOPO in text and ("|" in text[TOPO] or not is_shown)
        if note and not (self.notes_at_slurm and has_note):
            self._set(known.entries, TOPO, note)
        repair = self._repair(job, known, began, text, rest)
        is_readable = len(rest) <= MAX_COMMENT_BYTES // 2
        known.shown = joined(known.entries.ours, rest if is_readable else "")
        is_known = bool(records(known.entries.ours)) or not self.issued.may_show(job)
        is_settled = repair is None and known.written_at < began and is_known
        # What is needed of a job that runs changes with time.
        is_lasting = job.state == "PENDING" or self.notes_at_slurm
        known.fingerprint = fingerprint(job) if is_settled and is_lasting else None
        return repair

    def _known(self, job: QueuedJob, began: float) -> KnownEntries:
        """What is known of the job after this reading of it."""
        known = self._jobs.get(job.job_id)
        is_new = known is None or not (known.entries.is_of(job) or self._is_requeued(job, known))
        if known is None or is_new:
            known = self._first_seen(job, began)
        entries = known.entries
        unnamed = self._unnamed.of(job)
        if unnamed is not None and unnamed.at > known.written_at:
            self._is_dirty = True
            known.take(unnamed.ours, unnamed.comment, unnamed.at)
        elif is_new:
            return known
        if not records(entries.ours) and (ours := self.issued.replaced(job, began)):
            self._is_dirty, entries.ours = True, entries.ours | ours
        if known.written_at < began:
            shown, _ = split(job.admin_comment)
            known.comment = job.admin_comment
            self._compare(job, known, shown)
        if (entries.state, entries.submit) != (job.state, job.submit):
            entries.state, entries.submit = job.state, job.submit
            self._is_dirty = True
        return known

    def _is_requeued(self, job: QueuedJob, known: KnownEntries) -> bool:
        """Is it the job that ran, and no new one after Slurm's state was lost?

        It may have run between two readings: then Slurm shows the record that let it start.
        """
        entries = known.entries
        if not entries.is_like(job) or self.issued.has_other(job, entries.ours):
            return False
        shown, _ = split(job.admin_comment)
        has_ours = {} != records(shown) == records(self._needed(entries.ours, job))
        return entries.state != "PENDING" or has_ours

    def _compare(self, job: QueuedJob, known: KnownEntries, shown: Mapping[str, str]) -> None:
        """Take over what Slurm shows where that is not somebody else's doing."""
        entries = known.entries
        former = known.past if is_undone(job, known.asked) else []
        for one in (*known.tried, *former):
            if records(self._needed(one, job)) == records(shown) != {}:
                entries.ours = one
        known.tried = []
        if TOPO in shown:
            self._set(entries, TOPO, self._with_note(shown[TOPO], entries.ours.get(TOPO, "")))
        slots = entries.ours.get(SLOTS)
        if slots is not None and is_marked(slots, shown.get(SLOTS, "")):
            entries.ours[SLOTS] = shown[SLOTS]
            self._is_dirty = True
            return
        if slots is None or shown.get(SLOTS) == self._needed(entries.ours, job).get(SLOTS):
            return
        if is_over(job, slots, self.wall_clock()):
            del entries.ours[SLOTS]
            self._is_dirty = True

    def _with_note(self, shown: str, kept: str) -> str:
        """The hint that Slurm shows, with the note that it may not show."""
        # That a wait is over the plugin says by a bracket without a note.
        is_plugins = hints.postponed_until(bracket(TOPO, kept)) is not None
        is_shown = self.notes_at_slurm and (is_plugins or not self.notes_by_plugin)
        if is_shown or "|" in shown or "|" not in kept:
            return shown
        return f"{shown} | {kept.partition('|')[2].strip()}".strip()

    def _first_seen(self, job: QueuedJob, began: float) -> KnownEntries:
        """A job that no reading has shown yet, or that is another one than before."""
        shown, _ = split(job.admin_comment)
        before = self._saved.pop(job.job_id, None) or self._ended.pop(job.job_id, None)
        parent = self._jobs.get(job.array_id) if job.array_id != job.job_id else None
        written_at = float("-inf")
        if before is not None and before.is_of(job):
            # While there was no engine somebody else may have emptied the field.
            slots = before.ours.get(SLOTS, "")
            if SLOTS not in shown and slots and is_over(job, slots, self.wall_clock()):
                del before.ours[SLOTS]
            first = self.issued.first(job, shown, began)
            ours = before.ours | {kind: text for kind, text in first.items() if kind != TOPO}
        elif parent is not None:
            ours, written_at = self._unnamed.inherited(parent)
        else:
            ours = self.issued.first(job, shown, began)
        if TOPO in shown and written_at < began:
            ours[TOPO] = self._with_note(shown[TOPO], ours.get(TOPO, ""))
        entries = JobEntries(
            job.job_id, job.uid, job.array_id, job.het_id, job.submit, job.state, ours
        )
        self._is_dirty |= bool(ours)
        return KnownEntries(entries, job.admin_comment, written_at)

    def _end(self, entries: JobEntries) -> None:
        """A job is no more in the queue."""
        if not entries.ours:
            return
        entries.state = "ENDED"
        self._ended.pop(entries.job, None)
        self._ended[entries.job] = entries
        self._is_dirty = True
        while len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    # ------------------------------------------------------------------- repairs

    def _needed(
        self, ours: Mapping[str, str], job: QueuedJob, notes_at_slurm: bool | None = None
    ) -> dict[str, str]:
        shows = self.notes_at_slurm if notes_at_slurm is None else notes_at_slurm
        ran_s = self.wall_clock() - job.start if job.start else 0.0
        return needed_at_slurm(ours, job.state, ran_s, shows)

    def _repair(
        self, job: QueuedJob, known: KnownEntries, began: float, shown: Mapping[str, str], rest: str
    ) -> Repair | None:
        """The comment that the job is to have; None where it has it, or cannot be changed."""
        if known.written_at >= began or job.state not in ("PENDING", "RUNNING", "SUSPENDED"):
            return None
        ours = known.entries.ours
        needed = self._needed(ours, job)
        if shown == needed or len(rest) > MAX_COMMENT_BYTES // 2:
            return None
        changed = {kind for kind in (*RECORDS, TOPO) if shown.get(kind) != needed.get(kind)}
        if job.state == "PENDING" and self.notes_by_plugin and changed == {TOPO}:
            # An update may change a job that waits, and the plugin has its waits in mind.
            return None
        if job.state != "PENDING" and self.notes_at_slurm:
            # What is only for people is not put back once the job runs.
            forged = {kind for kind in RECORDS if kind in shown and kind not in ours}
            changed &= self._needed(ours, job, notes_at_slurm=False).keys() | forged
            if not changed:
                return None
        log = ""
        # Our own entries that go when the job starts are no news.
        if not known.is_logged and any(kind in needed or kind not in ours for kind in changed):
            known.is_logged = True
            log = f"job {job.name}: others wrote its AdminComment; our entries are put back"
        return Repair(job.name, one_line(joined(needed, rest)), job.het_offset, log)

    def _with_components(
        self, repairs: Sequence[Repair], seen: Sequence[QueuedJob]
    ) -> list[Repair]:
        """Slurm writes a first component's comment to all others, which get theirs back."""
        names = {repair.name for repair in repairs}
        leaders = {job.het_id for job in seen if job.job_id == job.het_id and job.name in names}
        more = []
        for job in seen if leaders else ():
            if job.het_id in leaders and job.het_id != job.job_id and job.name not in names:
                ours, rest = split(job.admin_comment)
                text = one_line(joined(self._needed(ours, job), rest))
                more.append(Repair(job.name, text, job.het_offset))
        return sorted((*repairs, *more), key=lambda repair: repair.order)

    # ------------------------------------------------------------------- updates

    def to_send(
        self, name: str, comment: str, others: Mapping[int, str], read_at: float
    ) -> str | None:
        """The AdminComment to send for one that holds our entries; None where it is there.

        `others` are the comments, by job, of a reading that began then, a moment ago.
        """
        known = self._find(name)
        ours, rest = split(comment)
        is_alone = known is not None and not known.entries.het
        if known is not None and is_alone and known.entries.job in others:
            rest = split(others[known.entries.job])[1]
            if known.written_at < read_at:
                known.comment = others[known.entries.job]
        if len(rest) > MAX_COMMENT_BYTES // 2:
            return None
        needed = needed_at_slurm(ours, "PENDING", 0, self.notes_at_slurm)
        text = one_line(joined(needed, rest))
        if known is None:
            return text
        # An update that failed may have been taken all the same.
        is_there = is_alone and text == known.comment and not known.tried
        return None if is_there or self._is_plugins(known, needed) else text

    def _is_plugins(self, known: KnownEntries, needed: Mapping[str, str]) -> bool:
        """Does the waiting job's AdminComment hold what the select plugin writes, and no more?"""
        if not self.notes_by_plugin or known.entries.state != "PENDING":
            return False
        return not records(needed) and not records(split(known.comment)[0])

    def with_wait(self, name: str, comment: str) -> str:
        """The comment, with the note on a wait that began since it was read: who wakes reads it."""
        known = self._find(name)
        if known is None or known.entries.state != "PENDING":
            return comment
        note = self.start_notes.wait_of(known.entries.job, self.wall_clock())
        return hints.with_note(comment, note) if note else comment

    def written(self, name: str, comment: str, sent: str | None, is_taken: bool) -> None:
        """An update with these entries ended; `is_taken` False: Slurm refused it, or may have."""
        ours, _ = split(comment)
        known, at = self._find(name), self.clock()
        if known is None:
            if is_taken:
                self._unnamed.add(name, Unnamed(ours, sent, at))
            return
        if not is_taken:
            known.wrote(None, at)
            known.tried.append(ours)
            return
        known.take(ours, sent, at)
        self._is_dirty = True

    def repaired(self, repair: Repair) -> None:
        """Slurm took the repair: readings that began before do not show it."""
        if known := self._find(repair.name):
            known.wrote(repair.text, self.clock())

    def hint_of(self, job: int, array: int, uid: int) -> str:
        """The hint of a user's job as far as a reading showed it; '' where none did.

        What slurmctld says of it at a start is wrong where others have just overwritten the field.
        """
        found = (self._jobs.get(one) for one in (job, array))
        known = next((one for one in found if one is not None and one.entries.uid == uid), None)
        return known.entries.ours.get(TOPO, "").partition("|")[0].strip() if known else ""

    def woken(self, name: str) -> None:
        """An update is about to give the job another begin time."""
        if known := self._find(name):
            self.start_notes.woken(known.entries.job)

    def asked(self, name: str, change: JobUpdate) -> None:
        """Slurm took an update that may change which GPUs the job asks for."""
        known = self._find(name)
        if known is not None and (change.tres_per_node, change.tres_per_job) != (None, None):
            known.asked = (change.tres_per_node, change.tres_per_job)

    def by_tasks(self, names: Sequence[str]) -> list[tuple[int | None, list[str]]]:
        """The jobs, together with those whose updates are to name the same number of tasks."""
        groups: dict[int | None, list[str]] = {}
        for name in names:
            known = self._find(name) or self._find(name.partition("_")[0])
            groups.setdefault(known.tasks if known else None, []).append(name)
        return list(groups.items())

    def _find(self, name: str) -> KnownEntries | None:
        job_id = self._names.get(name) or (int(name) if name.isdecimal() else 0)
        return self._jobs.get(job_id)

    def _set(self, entries: JobEntries, kind: str, text: str) -> None:
        if entries.ours.get(kind) != text:
            entries.ours[kind] = text
            self._is_dirty = True

    # --------------------------------------------- what no AdminComment is to show

    def submitted(self, comment: str, uid: int = -1, gate: int = 0, is_kept: bool = False) -> str:
        """Keep a submit's AdminComment for the job that will show; what of it goes to Slurm."""
        text = self.issued.add(comment, uid, self.wall_clock(), self.clock(), gate, is_kept)
        return comment if self.notes_at_slurm else text

    def hidden(self, job_id: int) -> JobEntries | None:
        """What is known of a job, be it over, and does not stand in its AdminComment."""
        known = self._jobs.get(job_id)
        is_shown = self.notes_at_slurm and known is not None and split(known.comment)[0]
        return None if is_shown else self.entries_of(job_id)

    def entries_of(self, job_id: int) -> JobEntries | None:
        """What is known of a job, be it over."""
        known = self._jobs.get(job_id)
        entries = known.entries if known else self._ended.get(job_id) or self._saved.get(job_id)
        return entries if entries is not None and entries.ours else None

    # ---------------------------------------------------------------------- disk

    def save(self, is_last: bool = False) -> None:
        """Write what is new, every few seconds; a disk that is full costs a line in the log."""
        began = self.clock()
        if self._file is None or not self._is_dirty or (began < self._save_at and not is_last):
            return
        live = (known.entries for known in self._jobs.values() if known.entries.ours)
        rows = [*self._saved.values(), *self._ended.values(), *live]
        self._is_dirty = not self._file.write(rows[-MOST_SAVED:])
        self._save_at = began + max(SAVE_S, SAVE_SHARE * (self.clock() - began))
