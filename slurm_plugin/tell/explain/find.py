"""Where an explanation comes from: the log where it may be read, the engine, else Slurm."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from slurm_plugin.base.log_lines import LineReader, plain
from slurm_plugin.base.munge import MungeError
from slurm_plugin.config.settings import Config
from slurm_plugin.errors import EngineDown, SlurmError
from slurm_plugin.slurm.job_entries.saved import NAME, readable
from slurm_plugin.slurm.runner import Runner
from slurm_plugin.tell.explain import machines, remote, search, slurm_says
from slurm_plugin.tell.explain.answer import NotShown
from slurm_plugin.tell.explain.story import story_of


@dataclass(slots=True)
class Explained:
    """A story, all records behind it (where they may be read), and the nodes to draw."""

    story: dict[str, Any]
    records: list[dict[str, Any]] = field(default_factory=list)
    machines: dict[str, Any] = field(default_factory=dict)


def explained(
    text: str, config: Config | None, address: tuple[str, int] | None, run: Runner
) -> Explained:
    """What is known of job `text` (an id, or ARRAY_TASK).

    Raises NotShown when there is nothing for this user, SlurmError when nobody answers.
    """
    job = slurm_says.job_number(run, text)
    if config is not None and os.access(config.decision_log.path, os.R_OK):
        return _from_log(job, config, run)
    operators = slurm_says.operators(run)
    address = address or (config.explain_listen if config else None)
    if address is None:
        return Explained(_from_slurm(job, run, operators, "the engine is not asked from here"))
    try:
        reply = remote.ask(address, job, operators)
    except (EngineDown, MungeError) as error:
        return Explained(_from_slurm(job, run, operators, f"the engine is not reached: {error}"))
    except NotShown:
        # A job of one's own that has not come up for a start yet is known to Slurm alone.
        return Explained(_from_slurm(job, run, operators, "nothing was decided yet"))
    story = dict(reply["told"])
    _with_state(story, run)
    return Explained(story, machines=reply.get("machines", {}))


def _from_log(job: int, config: Config, run: Runner) -> Explained:
    from slurm_plugin.decide.load_machines import load_machines

    reader = LineReader()
    records = search.LogIndex(config.decision_log).find(job, reader)
    if not records:
        return Explained(_without_records(job, config, run, reader.unread))
    known = load_machines(config)
    story = story_of(job, records, "decision log", reader.unread, known)
    _with_state(story, run)
    return Explained(story, [plain(record) for record in records], machines.shown(known, story))


def _without_records(job: int, config: Config, run: Runner, unread: int) -> dict[str, Any]:
    """What AdminComment tells, or the engine's own notes where it tells nothing of ours."""
    entries = readable(config.state_dir / NAME).get(job)
    try:
        story = _from_slurm(job, run, slurm_says.operators(run), "nothing was decided yet")
    except (NotShown, SlurmError) as error:
        if entries is None:
            nothing = f"job {job}: no decision in {config.decision_log.path}"
            why = f"{unread} lines cannot be read" if unread else "older ones are rotated away"
            raise NotShown(f"{nothing}; {why}") from error
        return slurm_says.story_of_engine(job, entries)
    if entries is None or (config.notes == "admin-comment" and "note" in story):
        return story
    return slurm_says.story_of_engine(job, entries) | {"state": story["state"]}


def _from_slurm(job: int, run: Runner, operators: frozenset[int], remark: str) -> dict[str, Any]:
    story = slurm_says.story_of_slurm(run, job, operators)
    return story | {"remark": remark}


def _with_state(story: dict[str, Any], run: Runner) -> None:
    """Whether the job runs, waits, or ended, and its loan; left out where Slurm is silent."""
    try:
        state, loan = slurm_says.now_of(run, int(story["job"]))
    except SlurmError:
        return
    story["state"] = state or "ended, no longer in the controller"
    if loan:
        story["loan"] = loan
