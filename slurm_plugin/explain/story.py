"""What is told about one job: its last decision, what came before, where it started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Record = dict[str, Any]
#: The decision log's word for a donor that ended (`lending.record`), and what is told of it.
GIVEN_BACK = "given back"
LENT_KEYS = ("time", "donor", "node", "gpus", "seconds", "bytes_in", "bytes_out", "packets_in")

#: Array tasks, and earlier decisions, named one by one.
MAX_TASKS = 50
MAX_EARLIER = 50
#: The keys about a job's shape that its story has.
SHAPING = (
    *("time", "shape", "why", "note", "service", "deadline", "allowance_s", "starts"),
    *("shapes", "shapes_left_out"),
)


def story_of(job: int, records: Sequence[Record], source: str) -> Record:
    """The last decision's keys, and `source`, `earlier`, `started`, `tasks` beside them.

    `records` are one job's or one array's, oldest first, and not empty. Of an array the last task
    is told in full, the others under `tasks`.
    """
    given_back, shapes, passing, records = _by_kind(records)
    last = max(
        (i for i, record in enumerate(records) if record.get("decision") != "started"),
        default=len(records) - 1,
    )
    chosen = records[last]
    own = [record for record in records if record.get("job") == chosen.get("job")]
    at = next(i for i, record in enumerate(own) if record is chosen)
    story = dict(chosen) | {"source": source, "asked_for": job}
    before = [_brief(record) for record in own[:at] if record.get("decision") != "started"]
    story["earlier"] = before[-MAX_EARLIER:]
    story["earlier_left_out"] = max(0, len(before) - MAX_EARLIER)
    # A start before the last decision belongs to an earlier run of a requeued job.
    starts = [record for record in own[at + 1 :] if record.get("decision") == "started"]
    if starts:
        story["started"] = {"time": starts[0].get("time"), "gpus": starts[0].get("gpus", {})}
    if shapes and chosen.get("decision") != "shape":
        story["shaping"] = {key: shapes[-1][key] for key in SHAPING if key in shapes[-1]}
    if passing and chosen.get("decision") != "order":
        story["order"] = str(passing[-1].get("why", ""))
    if shapes[1:]:
        keys = ("time", "shape", "why")
        story["shaped_before"] = [{k: s[k] for k in keys if k in s} for s in shapes[:-1]]
    if lent := [record for record in given_back if record.get("job") == chosen.get("job")]:
        story["given_back"] = [
            {key: one.get(key) for key in LENT_KEYS} for one in lent[-MAX_TASKS:]
        ]
    others = _tasks(records, int(chosen.get("job", 0)))
    if others:
        story["tasks"] = others[-MAX_TASKS:]
        story["tasks_left_out"] = max(0, len(others) - MAX_TASKS)
    return story


def _by_kind(records: Sequence[Record]) -> tuple[list[Record], ...]:
    """Ends of loans, shapes, who passed, and what tells of the job's place, never empty."""
    given_back = [one for one in records if one.get("decision") == GIVEN_BACK]
    others = [one for one in records if one.get("decision") != GIVEN_BACK] or list(records)
    shapes = [one for one in others if one.get("decision") == "shape"]
    passing = [one for one in others if one.get("decision") == "order"]
    placing = [one for one in others if one.get("decision") not in ("shape", "order")]
    if not any(one.get("decision") != "started" for one in placing):
        # Nothing was placed yet: its shape, or who passed whom, is all there is to tell.
        placing = [*(shapes[-1:] or passing[-1:]), *placing]
    return given_back, shapes, passing, placing


def _brief(record: Record) -> Record:
    keys = ("time", "job", "decision", "why", "note", "wait_s", "postponed", "waited_s")
    choice: Record = record.get("chosen") or record.get("slurm") or {}
    return {key: record[key] for key in keys if key in record} | {"gpus": choice.get("gpus", {})}


def _tasks(records: Sequence[Record], but: int) -> list[Record]:
    """The last decision of every task but one."""
    last: dict[int, Record] = {}
    for record in records:
        if record.get("decision") != "started" and record.get("job") != but:
            last[int(record.get("job", 0))] = record
    return [_brief(record) for _, record in sorted(last.items())]


def may_see(records: Sequence[Record], uid: int) -> list[Record]:
    """This user's records of a job or array; a start counts with the decision it belongs to."""
    jobs = {record.get("job") for record in records if record.get("uid") == uid}
    return [r for r in records if r.get("job") in jobs and r.get("uid", uid) == uid]


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


def loan_of(story: Mapping[str, Any]) -> Record:
    """The job's loan or why it has none, as Slurm has it now, else as it was decided."""
    loan: Record = story.get("loan") or (dict(story) if story.get("decision") == "lent" else {})
    return loan


def loan_places(story: Mapping[str, Any]) -> list[tuple[str, str, list[int]]]:
    """What the GPUs of a borrower are to it, on which node, and which: its own first."""
    loan = loan_of(story)
    if not loan.get("donors"):
        return []
    lent = [(f"lent by job {one['job']}", one["node"], one["gpus"]) for one in loan["donors"]]
    return [("its own GPUs", loan["host"], loan["gpus"]), *lent]
