"""One reading of Slurm's queue for all who are due, and none for nobody."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import pytest
from slots_in_tests import Counting

from slurm_plugin.queue.snapshot import Detail, Snapshot
from slurm_plugin.queue.watcher import LONG, SETTINGS_S, Watcher
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode, SlurmPartition


class Site:
    """A watcher over a Slurm, and the time."""

    def __init__(self) -> None:
        self.slurm, self.now = Counting(QueuedJob(1)), 100.0
        self.watcher = Watcher(self.slurm, lambda: self.now)

    def at(self, now: float, *wishes: tuple[float, Detail]) -> list[Snapshot]:
        """All ask at once."""
        self.now = now
        asked = (self.watcher.snapshot(*wish) for wish in wishes)
        return asyncio.run(_all(asked))


async def _all(asked: Iterable[Awaitable[Snapshot]]) -> list[Snapshot]:
    return list(await asyncio.gather(*asked))


@pytest.fixture
def site() -> Site:
    return Site()


def test_all_who_are_due_together_get_the_same_snapshot_of_one_reading(site):
    wishes = (100.0, Detail.JOBS), (99.9, Detail.SETTINGS), (99.0, Detail.NODES)
    first, second, third = site.at(100.0, *wishes)
    assert first is second is third
    assert site.slurm.asked == {"queue": 1, "nodes": 1, "partitions": 1}
    assert second.settings.tiers == {"batch": 3}


def test_the_first_snapshot_may_be_of_any_age(site):
    assert site.at(100.0, (float("-inf"), Detail.JOBS))[0].began == 100.0


def test_what_nobody_wants_is_not_read(site):
    [snapshot] = site.at(100.0, (100.0, Detail.JOBS))
    assert site.slurm.asked == {"queue": 1}
    assert snapshot.nodes == ()


@pytest.mark.parametrize(
    ("sentence", "since", "detail", "readings"),
    [
        ("a look that is content with its age", 99.5, Detail.JOBS, 1),
        ("something happened since", 100.5, Detail.JOBS, 2),
        ("it does not show the nodes", 99.5, Detail.NODES, 2),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_snapshot_is_used_again_where_it_is_enough(site, sentence, since, detail, readings):
    site.at(100.0, (100.0, Detail.JOBS))
    site.at(101.0, (since, detail))
    assert site.slurm.asked["queue"] == readings


def test_once_the_queue_was_changed_nobody_gets_a_snapshot_from_before(site):
    site.at(100.0, (100.0, Detail.JOBS))
    site.now = 100.2
    site.watcher.outdate()
    [snapshot] = site.at(100.3, (99.0, Detail.JOBS))
    assert (snapshot.began, site.slurm.asked["queue"]) == (100.3, 2)


def test_partitions_and_settings_are_read_once_a_minute(site):
    for second in range(0, 3 * int(SETTINGS_S), 5):
        site.at(100.0 + second, (100.0 + second, Detail.SETTINGS))
    assert site.slurm.asked["partitions"] == 3


def test_while_a_partition_is_down_they_are_read_each_time(site):
    """Who waits for it starts as soon as it is up."""
    down = SlurmPartition("batch", ("dgx1",), True, state="DOWN")
    partitions, site.slurm.partitions = site.slurm.partitions, lambda: [down]
    [seen] = site.at(100.0, (100.0, Detail.SETTINGS))
    assert not seen.settings.is_up
    site.slurm.partitions = partitions
    [seen] = site.at(105.0, (105.0, Detail.SETTINGS))
    assert seen.settings.is_up
    site.at(110.0, (110.0, Detail.SETTINGS))
    assert site.slurm.asked["partitions"] == 1


def test_a_slurm_that_is_down_is_not_asked_by_each_in_turn(site):
    site.slurm.is_down = True

    async def ask(watch: Callable[[float], Awaitable[Snapshot]]) -> list[object]:
        asked = (watch(100.0), watch(100.0))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    answers = asyncio.run(ask(site.watcher.snapshot))
    assert [str(answer) for answer in answers] == ["squeue: no answer"] * 2
    assert site.slurm.asked["queue"] == 1
    site.slurm.is_down = False
    assert site.at(105.0, (105.0, Detail.JOBS))[0].jobs


class Slow(Counting):
    """A Slurm whose queue takes a fifth of a second to read, and whose nodes change by the word."""

    def __init__(self, site: Site, *jobs: QueuedJob) -> None:
        super().__init__(*jobs)
        self.site, self.state = site, "IDLE"

    def queue(self) -> list[QueuedJob]:
        self.site.now += 0.2
        return super().queue()

    def nodes(self) -> list[SlurmNode]:
        return [replace(node, state=(self.state,)) for node in super().nodes()]


@pytest.fixture
def slow() -> Site:
    site = Site()
    site.slurm = site.watcher.client = Slow(site, *map(QueuedJob, range(1, LONG + 1)))
    return site


def changes(site: Site, now: float) -> Snapshot:
    site.now = now
    return asyncio.run(site.watcher.changes(now))


def test_a_long_queue_is_not_read_again_while_the_nodes_are_as_they_were(slow):
    first = changes(slow, 100.0)
    again = changes(slow, 105.0)
    assert (slow.slurm.asked["queue"], slow.slurm.asked["nodes"]) == (1, 2)
    assert (again.jobs, again.began) == (first.jobs, 105.0)
    # Who looks for a job that was just submitted needs the queue as it is now.
    slow.at(105.0, (105.0, Detail.JOBS))
    assert slow.slurm.asked["queue"] == 2


@pytest.mark.parametrize(
    ("sentence", "happens", "at"),
    [
        ("a node changed", lambda site: setattr(site.slurm, "state", "MIXED"), 101.0),
        ("the queue was changed", lambda site: site.watcher.outdate(), 101.0),
        ("reading it takes little of the time since", lambda _: None, 110.1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_long_queue_is_read_again_where_something_may_have_come(slow, sentence, happens, at):
    changes(slow, 100.0)
    slow.now = 100.5
    happens(slow)
    changes(slow, at)
    assert slow.slurm.asked["queue"] == 2


def test_a_short_queue_is_read_again_at_every_regular_look(site):
    changes(site, 100.0)
    changes(site, 105.0)
    assert site.slurm.asked["queue"] == 2


def test_renewed_gates_show_without_another_reading(slow):
    changes(slow, 100.0)
    slow.watcher.renewed({2: 1795229124})
    assert [job.eligible for job in changes(slow, 101.0).jobs[:3]] == [0, 1795229124, 0]
    assert slow.slurm.asked["queue"] == 1


def test_settings_are_read_anew_once_slurmctld_has_read_slurm_conf(site, tmp_path):
    """By a file of its own; until the new process answers what it says may be of before."""
    written = tmp_path / "last_config_lite"
    written.touch()
    site.slurm.config = lambda: {"StateSaveLocation": str(tmp_path)}
    site.watcher.wall_clock = lambda: 1000.0 + site.now
    asked = []
    for now, configured in (
        (100, 50),
        (101, 50),
        (102, 1101),
        (104, 1101),
        (108, 1101),
        (109, 1101),
    ):
        os.utime(written, (configured, configured))
        site.at(float(now), (float(now), Detail.SETTINGS))
        asked.append(site.slurm.asked["partitions"])
    assert asked == [1, 1, 2, 3, 3, 3]


def test_no_file_of_slurms_is_needed(site, tmp_path):
    site.slurm.config = lambda: {"StateSaveLocation": str(tmp_path / "\0")}
    for now in (100.0, 101.0):
        site.at(now, (now, Detail.SETTINGS))
    assert site.slurm.asked["partitions"] == 1
