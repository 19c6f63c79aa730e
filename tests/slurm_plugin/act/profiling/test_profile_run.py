"""`gputopo profile run` as a command: what it prints, stores, and refuses."""

import pytest
from click.testing import CliRunner, Result
from fake_cluster import FakeCluster
from fake_slurm import tool
from profiling_in_tests import SCRIPT, trains, truth_s

from policies.performance import Shape
from slurm_plugin.act.profiling.loop import ProfilingLoop
from slurm_plugin.cli import cli
from slurm_plugin.cli.profiles.run import _submit
from slurm_plugin.learn.speed_models.database import Database


@pytest.fixture
def ask(tmp_path, monkeypatch):
    (tmp_path / "resnet.sh").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    slurm = FakeCluster(lambda job: (0, *trains(job)[1:]))
    monkeypatch.setattr("slurm_plugin.slurm.clients.command_line.SlurmClient", lambda run: slurm)
    monkeypatch.setattr("slurm_plugin.slurm.runner.ProcessRunner", lambda folder: slurm)
    monkeypatch.setattr(
        "slurm_plugin.cli.profiles.run._submit",
        lambda place, argv, given: slurm.submit(argv, given),
    )
    monkeypatch.setattr(ProfilingLoop.__init__, "__defaults__", (slurm.sleep, slurm.clock))

    def run(*words: str) -> Result:
        where = ["--database", str(tmp_path / "performance.db")]
        return CliRunner().invoke(cli, ["profile", "run", *where, *words], prog_name="gputopo")

    run.slurm = slurm
    return run


def test_the_command_measures_fits_and_stores(ask, tmp_path):
    done = ask("--family", "cnn", "--batches", "8,16", "--", "sbatch", "resnet.sh")
    assert done.exit_code == 0, done.output
    assert "resnet: 5 runs of 100 iterations on 2 nodes of 4 v100" in done.stdout
    assert "resnet (training): calibrated, from 5 runs" in done.stdout
    kept = Database(tmp_path / "performance.db").get("resnet")
    assert kept.traits.family == "cnn"
    rows = (tmp_path / "gputopo-profile-resnet" / "runs.csv").read_text().splitlines()
    assert rows[:2] == ["nodes,gpus,local_batch,step_s", f"1,1,8,{truth_s(Shape(1, 1), 8)!r}"]
    again = ask("--", "sbatch", "resnet.sh")
    assert "5 runs of 100 iterations on 2 nodes of 4 v100, 5 of them over; " in again.stdout
    assert len(ask.slurm.submitted) == 5


def test_a_dry_run_prints_the_plan_and_leaves_nothing(ask, tmp_path):
    done = ask("--dry-run", "--nodes", "2", "--", "sbatch", "-A", "x", "resnet.sh")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[1] == "run 1 (1x1, 8 per GPU): waiting"
    assert lines[9] == "run 9 (2x1, 64 per GPU): waiting"
    assert lines[10].startswith("GPUTOPO_BATCH=8 GPUTOPO_LOCAL_BATCH=8 ")
    assert not (tmp_path / "gputopo-profile-resnet").exists()
    assert not ask.slurm.submitted


def test_the_command_ends_with_status_1_where_a_shape_is_missing(ask):
    ask.slurm.refuse = lambda job: "limit" if job.nodes == 2 else ""
    done = ask("--batches", "8", "--", "sbatch", "resnet.sh")
    assert done.exit_code == 1
    assert "without 2x1, 8 per GPU: failed, sbatch: exit 1: limit" in done.stderr


def test_stopped_by_the_user_it_says_what_stays(ask, monkeypatch):
    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    ask.slurm.script = trains
    monkeypatch.setattr(ProfilingLoop.__init__, "__defaults__", (stop, ask.slurm.clock))
    done = ask("--", "sbatch", "resnet.sh")
    assert done.exit_code == 130
    assert done.stderr == "stopped; job 1 stays in Slurm; the same command goes on from here\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--batches", "0", "--", "sbatch", "resnet.sh"), "--batches '0'; expected up to 64 whole"),
        (("--nodes", "1,9", "--", "sbatch", "resnet.sh"), "--nodes: 9 asked, the machine has 2"),
        (("--iterations", "-1", "--", "sbatch", "resnet.sh"), "-1 is not in the range"),
        (("--", "sbatch", "--wrap=x"), "--wrap has no name; expected --name too"),
        (("--name", "a b", "--", "sbatch", "resnet.sh"), "--name 'a b': expected a name"),
        (("sbatch", "-N2", "resnet.sh"), "sbatch --nodes: each run has a shape of its own"),
    ],
)
def test_bad_input_is_answered_in_one_line(ask, words, said):
    done = ask(*words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not ask.slurm.submitted


def test_sbatch_has_the_users_own_environment_and_the_runs_numbers(tmp_path, monkeypatch):
    """Not the one in which we read Slurm's answers: it goes into the job."""
    tool(tmp_path, "sbatch", "echo $SQUEUE_FORMAT-$SLURM_TIME_FORMAT-$RUN-$1")
    monkeypatch.setenv("SQUEUE_FORMAT", "mine")
    assert _submit(tmp_path, ["sbatch", "x"], {"RUN": "7"}) == "mine--7-x\n"


def test_a_database_that_cannot_be_written_is_found_before_anything_runs(ask, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    done = ask("--", "sbatch", "resnet.sh")
    assert "you may not write there; expected --database FILE" in done.stderr
    assert not ask.slurm.submitted
