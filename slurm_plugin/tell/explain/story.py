"""What is told about one job: its last decision, what came before, where it started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slurm_plugin.base.log_lines import (
    GivenBackLine,
    Line,
    LoggedSet,
    OfUser,
    OrderLine,
    Placing,
    ShapeLine,
    StartedLine,
    plain,
)
from slurm_plugin.decide.machines import Machines, nvlink

Story = dict[str, Any]
#: What is told of a donor that ended.
LENT_KEYS = ("time", "donor", "node", "gpus", "seconds", "bytes_in", "bytes_out", "packets_in")

#: Array tasks, and earlier decisions, named one by one.
MAX_TASKS = 50
MAX_EARLIER = 50
#: The keys about a job's shape that its story has.
SHAPING = (
    *("time", "shape", "why", "note", "service", "deadline", "allowance_s", "starts"),
    *("shapes", "shapes_left_out"),
)


def story_of(
    job: int,
    records: Sequence[Line],
    source: str,
    unread: int = 0,
    machines: Machines | None = None,
) -> Story:
    """The last decision's keys, and `source`, `earlier`, `started`, `tasks` beside them.

    `records` are one job's or one array's, oldest first, and not empty. Of an array the last task
    is told in full, the others under `tasks`. `unread` lines about the job could not be read.
    `machines` say how its nodes are joined (`nvlink`).
    """
    given_back, shapes, passing, records = _by_kind(records)
    last = max(
        (i for i, record in enumerate(records) if not isinstance(record, StartedLine)),
        default=len(records) - 1,
    )
    chosen = records[last]
    own = [record for record in records if record.job == chosen.job]
    at = next(i for i, record in enumerate(own) if record is chosen)
    story = plain(chosen) | {"source": source, "asked_for": job}
    before = [_brief(record) for record in own[:at] if not isinstance(record, StartedLine)]
    story["earlier"] = before[-MAX_EARLIER:]
    story["earlier_left_out"] = max(0, len(before) - MAX_EARLIER)
    # A start before the last decision belongs to an earlier run of a requeued job.
    starts = [record for record in own[at + 1 :] if isinstance(record, StartedLine)]
    if starts:
        story["started"] = _some(starts[0], ("time", "gpus"))
    if shapes and not isinstance(chosen, ShapeLine):
        story["shaping"] = _some(shapes[-1], SHAPING)
    if passing and not isinstance(chosen, OrderLine):
        story["order"] = passing[-1].why
    if shapes[1:]:
        story["shaped_before"] = [_some(one, ("time", "shape", "why")) for one in shapes[:-1]]
    if lent := [record for record in given_back if record.job == chosen.job]:
        story["given_back"] = [_some(one, LENT_KEYS) for one in lent[-MAX_TASKS:]]
    if joined := nvlink(machines or {}, gpus_of(story)):
        story["nvlink"] = joined
    others = _tasks(records, chosen.job)
    if others:
        story["tasks"] = others[-MAX_TASKS:]
        story["tasks_left_out"] = max(0, len(others) - MAX_TASKS)
    return story | {"unread_lines": unread} if unread else story


def _by_kind(
    records: Sequence[Line],
) -> tuple[list[GivenBackLine], list[ShapeLine], list[OrderLine], list[Line]]:
    """Ends of loans, shapes, who passed, and what tells of the job's place, never empty."""
    given_back = [one for one in records if isinstance(one, GivenBackLine)]
    others = [one for one in records if not isinstance(one, GivenBackLine)] or list(records)
    shapes = [one for one in others if isinstance(one, ShapeLine)]
    passing = [one for one in others if isinstance(one, OrderLine)]
    placing = [one for one in others if not isinstance(one, ShapeLine | OrderLine)]
    if not any(not isinstance(one, StartedLine) for one in placing):
        # Nothing was placed yet: its shape, or who passed whom, is all there is to tell.
        placing = [*(shapes[-1:] or passing[-1:]), *placing]
    return given_back, shapes, passing, placing


def _some(record: Line, keys: Iterable[str]) -> Story:
    """The record's values of these keys, as far as it has them."""
    values = plain(record)
    return {key: values[key] for key in keys if key in values}


def _brief(record: Line) -> Story:
    keys = ("time", "job", "decision", "why", "note", "wait_s", "postponed", "waited_s")
    choice = record.choice if isinstance(record, Placing) else LoggedSet()
    gpus = {name: list(some) for name, some in choice.gpus.items()}
    return _some(record, keys) | {"gpus": gpus}


def _tasks(records: Sequence[Line], but: int) -> list[Story]:
    """The last decision of every task but one."""
    placing = (one for one in records if not isinstance(one, StartedLine) and one.job != but)
    last = {record.job: record for record in placing}
    return [_brief(record) for _, record in sorted(last.items())]


def may_see(records: Sequence[Line], uid: int) -> list[Line]:
    """This user's records of a job or array; a start counts with the decision it belongs to."""
    jobs = {record.job for record in records if isinstance(record, OfUser) and record.uid == uid}
    return [
        record
        for record in records
        if record.job in jobs and (not isinstance(record, OfUser) or record.uid == uid)
    ]


def gpus_of(story: Mapping[str, Any]) -> dict[str, list[int]]:
    """node -> GPUs by Slurm's index: the started ones, in rank order where that is known."""
    chosen: dict[str, list[int]] = story.get("chosen", {}).get("gpus", {})
    slurm: dict[str, list[int]] = story.get("slurm", {}).get("gpus", {})
    if "started" in story:
        started: dict[str, list[int]] = story["started"]["gpus"]
        same = {n: sorted(g) for n, g in chosen.items()} == {
            n: sorted(g) for n, g in started.items()
        }
        return chosen if same and chosen else started
    applied = story.get("applied", True) and story.get("decision") == "use"
    return chosen if applied or not slurm else slurm


def loan_of(story: Mapping[str, Any]) -> Story:
    """The job's loan or why it has none, as Slurm has it now, else as it was decided."""
    loan: Story = story.get("loan") or (dict(story) if story.get("decision") == "lent" else {})
    return loan


def loan_places(story: Mapping[str, Any]) -> list[tuple[str, str, list[int]]]:
    """What the GPUs of a borrower are to it, on which node, and which: its own first."""
    loan = loan_of(story)
    if not loan.get("donors"):
        return []
    lent = [(f"lent by job {one['job']}", one["node"], one["gpus"]) for one in loan["donors"]]
    return [("its own GPUs", loan["host"], loan["gpus"]), *lent]
