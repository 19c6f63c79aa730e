"""Of a user whose releases come to nothing one job is tried at a time, and others go first."""

from dataclasses import replace

import pytest
from limits_in_tests import NEIGHBOUR, USER, LimitingSlurm, Rounds
from slots_in_tests import NOW, Remembering, gated, look, placed, planned, reconciler

from slurm_plugin.act.gates.limits import Limits, Tries
from slurm_plugin.queue.demand import Asked
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import QueuedJob

TWO = gated(1, 2, uid=USER, time_limit_s=60)


def unlike(count: int, **more: object) -> list[QueuedJob]:
    """Jobs of one GPU of the user with the limit, of which none asks for as much as another."""
    return [
        gated(
            i,
            1,
            uid=USER,
            priority=1000 - i,
            time_limit_s=60 * (count - i + 1),
            memory_per_node_mb=i,
            **more,
        )
        for i in range(1, count + 1)
    ]


@pytest.mark.parametrize("count", [17, 60])
def test_a_neighbour_waits_for_one_try_however_unlike_the_jobs_are(tmp_path, count):
    rounds = Rounds(tmp_path, LimitingSlurm(*unlike(count), NEIGHBOUR))
    assert len(rounds.look()) == 8
    assert rounds.look(2) == []
    assert rounds.running() == [999]


def test_of_a_user_in_doubt_one_job_is_tried_at_a_time_until_one_starts(tmp_path):
    slurm = LimitingSlurm(*unlike(20))
    rounds = Rounds(tmp_path, slurm)
    rounds.look()
    rounds.look(2)
    tried = {at: len(rounds.look(1)) for at in range(1, 120)}
    assert max(tried.values()) == 1
    assert sum(tried.values()) < 10
    slurm.most = 3
    while not rounds.running():
        rounds.look(1)
    assert len(rounds.look(1)) > 1


def test_an_end_shortens_the_pause_of_a_user_in_doubt_once():
    """Else short jobs that end one after the other would make it none."""
    limits, runs = Limits(), [replace(TWO, job_id=i, state="RUNNING") for i in (8, 9)]
    limits.follow([TWO, *runs], {})
    for _ in range(5):
        limits.learn(Tries(NOW, failed={USER}))
    length_s = limits.known.doubts[USER].length_s
    assert limits.known.doubts[USER].until == NOW + length_s > NOW + 10
    limits.follow([TWO, runs[0]], {})
    assert limits.known.doubts[USER].until == 0
    limits.learn(Tries(NOW, failed={USER}))
    limits.follow([TWO], {})
    assert limits.known.doubts[USER].until == 0
    limits.follow([TWO, runs[0]], {})
    limits.follow([TWO], {})
    assert limits.known.doubts[USER].until == 0


def test_a_limit_of_each_node_holds_for_jobs_with_as_much_on_a_node():
    """Eight GPUs of one node are too many; four of each of two are not."""
    full = Asked(1, 8, 1, 0, 60, 8, 1)
    assert full.covers(Asked(1, 4, 1, 0, 60, 4, 1))
    assert not Asked(2, 8, 2, 0, 60, 4, 1).covers(full)


def test_jobs_that_start_in_vain_keep_others_waiting_for_one_time():
    """Slurm will not start them on their slots, and only says that it lacks room."""
    vain = [placed(i, NOW - 40, (2 * i, 2 * i + 1), uid=USER, reason="Resources") for i in (1, 2)]
    more = [gated(i, 2, uid=USER) for i in (3, 4, 5, 6)]
    made = planned(*vain, *more, gated(7, 8, uid=8))
    assert made.released == ["7"]
    assert made.tries.failed == {USER}


@pytest.mark.parametrize(
    ("parameters", "age", "is_gated_again"),
    [
        *(("", 44, False), ("", 46, True)),
        *(("bf_interval=60", 89, False), ("bf_interval=60", 91, True)),
        ("bf_interval=5", 31, True), ("x=1,bf_interval=600,bf_max_time=9", 899, False),
        ("bf_interval=-1", 46, True),
    ],
)  # fmt: skip
def test_a_released_job_has_as_long_as_backfill_takes(tmp_path, parameters, age, is_gated_again):
    """Behind an earlier job of its partition that waits, backfill alone starts it."""

    class Configured(Remembering):
        def config(self) -> dict[str, str]:
            return {"PreemptType": "preempt/none", "SchedulerParameters": parameters}

    slurm = Configured(placed(1, NOW - age, (0, 1), reason="Priority", min_nodes=1))
    look(reconciler(tmp_path, slurm), slurm)
    assert bool(slurm.updates) is is_gated_again


@pytest.mark.parametrize(
    ("parameters", "look_s", "window_s"),
    [
        ("", 150, 86400), ("bf_interval=600,bf_window=2880", 1290, 172800),
        ("bf_max_time=300,bf_resolution=10", 370, 86400), ("bf_window=", 150, 86400),
    ],
)  # fmt: skip
def test_how_long_slurm_takes_to_look_at_a_job(parameters, look_s, window_s):
    settings = Settings(config={"SchedulerParameters": parameters})
    assert (settings.look_s, settings.window_s) == (look_s, window_s)
