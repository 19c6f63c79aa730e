"""What is learned of the jobs that are gone from one reading of the queue to the next."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from engine_in_tests import an_engine
from machines_in_tests import BASIC
from slots_in_tests import Counting

from policies.order.durations import ENOUGH
from slurm_plugin.act.order.learned_durations import LONGEST_GAP_S, NAME, LearnedDurations, known_of
from slurm_plugin.queue.snapshot import Snapshot
from slurm_plugin.serve import setup
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.why.state import hidden

NOW = 1_795_000_000
WAITS = QueuedJob(
    1,
    user="ann",
    account="lab",
    job_name="sweep",
    command="/home/ann/sweep.sh",
    state="PENDING",
    partition="gpu",
    priority=9,
    min_nodes=1,
    tres_per_node="gres/gpu:2",
    time_limit_s=600,
)


def runs(job_id: int, since: int = NOW, **more: object) -> QueuedJob:
    return replace(WAITS, job_id=job_id, state="RUNNING", start=since, **more)


def learned_from(*readings: tuple[int, list[QueuedJob]]) -> LearnedDurations:
    learned = LearnedDurations()
    for at, jobs in readings:
        learned.look(jobs, at)
    return learned


@pytest.mark.parametrize(
    ("sentence", "readings", "seconds"),
    [
        ("it ran", [(NOW, [runs(1)]), (NOW + 30, [])], 15),
        ("it waited before", [(NOW, [WAITS]), (NOW + 9, [runs(1)]), (NOW + 40, [])], 24.5),
        ("it never began", [(NOW, [WAITS]), (NOW + 30, [])], None),
        ("it was requeued", [(NOW, [runs(1)]), (NOW + 9, [WAITS]), (NOW + 30, [])], None),
        ("nobody read for long", [(NOW, [runs(1)]), (NOW + LONGEST_GAP_S + 1, [])], None),
        ("but it ran for longer", [(NOW, [runs(1, NOW - 400)]), (NOW + 100, [])], 450),
        ("the clock was set back", [(NOW, [runs(1)]), (NOW - 3600, [])], None),
        ("it had no GPUs", [(NOW, [runs(1, tres_per_node="")]), (NOW + 30, [])], None),
    ],
)  # fmt: skip
def test_a_job_that_is_gone_teaches_how_long_it_ran(sentence, readings, seconds):
    """It ended somewhere between two readings, so in the middle of them."""
    durations = learned_from(*readings).learning.durations
    assert (len(durations) > 0) == (seconds is not None), sentence
    if seconds is not None:
        said = durations.estimate(known_of(WAITS)).quantile(0.5)
        assert said == pytest.approx(seconds, rel=0.1), sentence


def test_jobs_of_another_name_are_told_apart():
    ended = range(10, 10 + ENOUGH)
    quick = [runs(job, job_name="test", command="/home/ann/test.sh") for job in ended]
    slow = [runs(job + 100) for job in ended]
    other = replace(WAITS, job_id=2, job_name="test", command="/home/ann/test.sh")
    learned = learned_from(
        (NOW, [WAITS, other, *quick, *slow]),
        (NOW + 20, [WAITS, other, *slow]),
        *((NOW + at, [WAITS, other, *slow]) for at in range(60, 500, 60)),
        (NOW + 500, [WAITS, other]),
    )
    assert learned.took_s(2) == pytest.approx([10] * ENOUGH, rel=0.1)
    assert learned.took_s(1) == pytest.approx([490] * ENOUGH, rel=0.1)


def test_it_is_learned_where_no_partition_has_an_order_and_no_text_of_a_user_is_kept(
    tmp_path: Path, monkeypatch
):
    slurm = Counting(runs(1))
    monkeypatch.setattr(setup.choose, "client", lambda _: slurm)
    site = an_engine(tmp_path, BASIC).setup
    asyncio.run(site.watcher.snapshot(0.0))
    [(job_id, start)] = site.durations._started.items()
    assert (job_id, start) == (1, NOW)
    assert not (site.config.state_dir / NAME).exists(), "nothing is learned yet"
    site.durations._started[1] = int(site.watcher.wall_clock()) - 30
    slurm.jobs_there = []
    site.watcher.outdate()
    site.durations._saved = float("-inf")
    asyncio.run(site.watcher.snapshot(0.0))
    assert len(site.durations.learning.durations) > 0
    text = (site.config.state_dir / NAME).read_text()
    assert text != "[]"
    assert "sweep" not in text

    # The next configuration goes on, the next engine reads the file.
    again = setup.load(site.config.path, durations=site.durations)
    assert again.durations is site.durations
    anew = setup.load(site.config.path)
    assert len(anew.durations.learning.durations) == len(site.durations.learning.durations)


def test_names_and_commands_of_others_jobs_are_hidden():
    own, other = hidden(Snapshot(0.0, 0.0, (replace(WAITS, uid=7), WAITS)), 7).jobs
    assert (own.job_name, own.command) == ("sweep", "/home/ann/sweep.sh")
    assert (other.job_name, other.command, other.user) == ("", "", "")


def test_whose_run_times_they_are_is_known_after_a_restart(tmp_path: Path):
    learned = LearnedDurations()
    learned.open(tmp_path)
    learned.look([runs(1)], NOW)
    learned.look([], NOW + 30)
    again = LearnedDurations()
    again.open(tmp_path)
    *_, user = known_of(WAITS).pooled()
    kept = again.learning.durations
    assert {kept.user_of(key) for key, _ in kept.items()} == {user}
