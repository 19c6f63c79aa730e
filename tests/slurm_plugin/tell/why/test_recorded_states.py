"""Each state as a live Slurm 24.11.5 was in it: the same sentence without any Slurm."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slurm_plugin.tell.why.answer import answer, cause
from slurm_plugin.tell.why.reasons import HELD_BY_SLURM
from slurm_plugin.tell.why.site import QueueOrder, site_of
from slurm_plugin.tell.why.state import WaitingState, hidden
from slurm_plugin.tell.why.words import as_json, in_words
from tests.slurm_plugin.tell.why.sentences import SENTENCES, said

LINES = (Path(__file__).parent / "states.jsonl").read_text().splitlines()
RECORDED = [json.loads(line) for line in LINES]


def state_of(recorded: dict[str, Any]) -> WaitingState:
    return msgspec.convert(recorded["state"], type=WaitingState)


def recorded(name: str, mode: str = "select") -> WaitingState:
    [found] = [one for one in RECORDED if (one["name"], one["mode"]) == (name, mode)]
    return state_of(found)


def test_every_sentence_was_said_by_a_live_slurm():
    assert {one["name"] for one in RECORDED} == set(SENTENCES)
    assert len(SENTENCES) >= 20


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: f"{one['mode']} {one['name']}")
def test_a_recorded_state_has_its_sentence(one):
    numbers = one["numbers"]
    found = answer(state_of(one))
    assert said(in_words(found), str(numbers["job"])) == SENTENCES[one["name"]].format(**numbers)
    assert json.loads(json.dumps(as_json(found)))["cause"] == found.cause


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: f"{one['mode']} {one['name']}")
def test_the_cause_alone_is_that_of_the_whole_answer(one):
    state = state_of(one)
    found = cause(state, site_of(state), QueueOrder(state.snapshot))
    assert replace(answer(state), sooner=(), our_start=0) == found


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: f"{one['mode']} {one['name']}")
def test_other_users_jobs_are_not_told_from_one_another(one):
    """The same cause, and nothing that names a job or user of somebody else."""
    state = state_of(one)
    others = [job for job in state.snapshot.jobs if job.uid != state.job.uid]
    state = replace(state, snapshot=hidden(state.snapshot, state.job.uid))
    found = answer(state)
    assert found.cause == answer(state_of(one)).cause
    said_of = json.dumps(asdict(found))
    assert not [job for job in others if f"job {job.job_id} " in said_of or job.user in said_of]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("fragmentation", "with -N 2 --gres=gpu:2 now on dgx1, dgx2"),
        ("fragmentation", "with --gres=gpu:3 now on dgx1"),
        ("too few free GPUs", "with --gres=gpu:1 now on dgx2"),
        ("maintenance before its end", "with -t 9 now on dgx1"),
        ("backfill would delay the first", "with -t 4 now on dgx2"),
        ("features", "without --constraint now on amd1"),
        ("a whole node", "without --exclusive now on dgx1"),
        ("CPUs beside free GPUs", "with 2 CPUs per node now on dgx1"),
        ("memory beside free GPUs", "with --mem=500 now on dgx1"),
    ],
)
def test_what_would_start_now_is_told(name, change):
    assert change in answer(recorded(name)).sooner


def test_our_estimate_is_slurms_where_slurm_has_one():
    """The first job in the queue: both go by the time limits of those that run."""
    found = answer(recorded("fragmentation"))
    assert found.slurm_start
    assert abs(found.our_start - found.slurm_start) <= 1


def test_a_gate_shows_no_begin_time_as_a_plan():
    found = answer(recorded("fragmentation behind a gate", "slots"))
    assert found.slurm_start == 0
    assert "gate" in dict(found.evidence)


@pytest.mark.parametrize("mode", ["select", "slots"])
@pytest.mark.parametrize("reason", [*HELD_BY_SLURM, "launch failure limit exceeded requeued held"])
def test_of_a_job_that_slurm_held_itself_nobody_is_told_that_its_user_did(reason, mode):
    """Nor is it told to wait for GPUs, behind a gate or not."""
    state = recorded("a start that failed", mode)
    found = answer(replace(state, job=replace(state.job, reason=reason)))
    assert " is held" in found.sentence
    assert "by its user" not in found.sentence
    ends = ("until it is released.", "only an administrator can release it.")
    assert found.sentence.endswith(ends)
