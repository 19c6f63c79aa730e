"""A profile that was stopped goes on where it was, and not with another plan."""

from collections.abc import Callable

import pytest
from profiling_in_tests import Bench

from slurm_plugin.act.profiling.progress import Folder
from slurm_plugin.act.profiling.sweep import DONE, SUBMITTING
from slurm_plugin.errors import PluginError


def names(bench: Bench) -> list[str]:
    return [job.name for job in bench.slurm.submitted]


class Killed(BaseException):
    """The command is killed at this moment."""


def dies(at: int, bench: Bench) -> Callable[[], None]:
    def after() -> None:
        if len(bench.slurm.submitted) == at:
            bench.slurm.after_sbatch = lambda: None
            raise Killed

    return after


@pytest.mark.parametrize("pause_s", [0, 60, 1000])
@pytest.mark.parametrize("accounts", [True, False])
def test_killed_before_it_knows_the_jobs_id_it_finds_the_job_by_name(bench, pause_s, accounts):
    """In the queue, among the finished, in the accounting, or by its output alone."""
    bench.slurm.accounts = accounts
    bench.slurm.after_sbatch = dies(3, bench)
    with pytest.raises(Killed):
        bench.profile()
    left = Folder(bench.path / "work").read()
    assert [run.state for run in left.runs] == [DONE, DONE, SUBMITTING]
    bench.slurm.sleep(pause_s)
    assert {run.state for run in bench.profile().runs} == {DONE}
    assert len(names(bench)) == len(set(names(bench))) == 6
    assert "run 3 (1x1, 32 per GPU): job 3 is taken up again" in bench.said


def test_killed_before_slurm_heard_of_it_the_run_is_submitted(bench):
    bench.slurm.refuse = lambda job: (_ for _ in ()).throw(Killed)
    with pytest.raises(Killed):
        bench.profile()
    bench.slurm.refuse = lambda job: ""
    assert {run.state for run in bench.profile().runs} == {DONE}
    assert len(names(bench)) == 6


def test_killed_while_it_waits_it_collects_what_ended_meanwhile(bench):
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    kept, bench.slurm.sleep = bench.slurm.sleep, sleep
    with pytest.raises(KeyboardInterrupt):
        bench.profile()
    bench.slurm.sleep = kept
    bench.slurm.sleep(5000)
    assert {run.state for run in bench.profile().runs} == {DONE}
    assert len(names(bench)) == 6


def test_two_commands_do_not_work_on_one_folder(bench):
    with (
        Folder(bench.path / "work").locked(),
        pytest.raises(PluginError, match="another profile run works there"),
    ):
        bench.profile()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"batches": (8,)}, "--batches is 8, but this profile was begun with 8,16,32"),
        ({"iterations": 7}, "--iterations is 7, but this profile was begun with 100"),
        ({"per_gpu": False}, "--tasks is node, but this profile was begun with gpu"),
    ],
)
def test_another_plan_in_the_same_folder_is_refused(bench, asked, said):
    bench.profile()
    with pytest.raises(PluginError, match=said):
        bench.profile(**asked)


def test_a_damaged_progress_file_is_named(bench):
    bench.profile()
    bench.path.joinpath("work", "progress.json").write_text("{}")
    with pytest.raises(PluginError, match=r"progress.json: .*expected what profile run wrote"):
        bench.profile()
