"""What the engine has to say of a job goes into its store, too; with `notes: engine` only there."""

from __future__ import annotations

import time
from dataclasses import replace

from slurm_plugin.base.protocol import Ok, Pass, Place, PlaceReply, Submit, SubmitReply, WaitFor
from slurm_plugin.serve.setup import Setup


def submitted(setup: Setup, asked: Submit, answered: SubmitReply) -> SubmitReply:
    """The reply to a submit; with `notes: engine` only what Slurm needs is left of its notes."""
    comment = answered.values.get("set.admin_comment") if isinstance(answered, Ok) else None
    # The question about a changed hint: the job's record has the old one.
    is_change = asked.change or (setup.cache is not None and asked.slots is None)
    if not comment or is_change:
        return answered
    assert isinstance(answered, Ok)
    gate, is_kept = int(answered.values.get("set.begin_time", 0)), "token" in answered.values
    kept = setup.keeper.store.submitted(comment, asked.uid, gate, is_kept)
    values = {**answered.values, "set.admin_comment": kept}
    if not values["set.admin_comment"]:
        del values["set.admin_comment"]
    if values.keys() <= {"keep_s"}:
        return Pass(keep_s=int(values.get("keep_s", 0)))
    return Ok(values)


def placed(setup: Setup, asked: Place, reply: PlaceReply) -> PlaceReply:
    """The reply to a placement; with `notes: engine` it tells the select plugin to write nothing.

    A wait is remembered here in any case: others may replace the plugin's note at once, and the
    job would then wait for longer than it has to.
    """
    is_quiet, start_notes = setup.config.notes == "engine", setup.keeper.store.start_notes
    note = reply.note
    if isinstance(reply, WaitFor):
        # As the select plugin would write it: the loop that shapes jobs reads it.
        now = int(time.time())
        times = f"{asked.postponed + 1}/{setup.config.waiting.max_postponements}"
        until = f"(until {now + reply.seconds}, begin {now})"
        note = f"waiting {times} since {now - asked.waited_s}: {note[:120]} {until}"
    else:
        start_notes.woken(asked.job)
    if note and (is_quiet or isinstance(reply, WaitFor)):
        start_notes.add(asked.job, asked.hint, note)
    return replace(reply, is_quiet=True) if is_quiet else reply
