"""`gputopo profile run`: its runs against a Slurm that is played, its plan, its bad input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fake_cluster import Asked as Job
from fake_cluster import FakeCluster, node

from policies.performance import Shape, fit
from simulation.experiments.pollux import runs_of
from slurm_plugin.cli import cli
from slurm_plugin.cli.profiles.run import _submit
from slurm_plugin.errors import PluginError
from slurm_plugin.profiling import plan, submission, sweep
from slurm_plugin.profiling.loop import Loop, Slurm, Terms
from slurm_plugin.profiling.plan import Asked
from slurm_plugin.profiling.progress import Folder, Progress
from slurm_plugin.profiling.sweep import DONE, FAILED, SKIPPED
from slurm_plugin.slurm import SlurmNode
from slurm_plugin.speed_models.database import Database

SCRIPT = "#!/bin/sh\n#SBATCH --gres=gpu:v100:4 --mem=8G\n#SBATCH -e err.txt\nsrun train\n"


def truth_s(shape: Shape, local_batch: int) -> float:
    """Seconds per iteration of the job that is played."""
    sync = 0.01 * math.log2(shape.gpus) + 0.02 * math.log2(shape.nodes)
    return 0.02 + 0.002 * local_batch + sync


def trains(job: Job) -> tuple[float, str, str]:
    """Prints its step from two ranks, after 7 s of start-up."""
    step_s = truth_s(Shape(job.nodes, job.gpus), job.local_batch)
    line = f"gputopo: step_s={step_s}\n"
    return 7 + step_s * job.iterations, "COMPLETED", f"0: epoch 1\n0: {line}1: {line}bye\n"


class Bench:
    """A folder with a script, and a played cluster."""

    def __init__(self, folder: Path, script: Callable[[Job], tuple[float, str, str]]) -> None:
        self.path = folder
        (folder / "train.sh").write_text(SCRIPT)
        self.slurm = FakeCluster(script)
        self.said: list[str] = []
        self.terms = Terms()

    def profile(self, again: bool = False, **asked: object) -> Progress:
        """One `profile run`, from beginning or where it was, to its end."""
        words = submission.read(["sbatch", "-A", "research", str(self.path / "train.sh")], {})
        wanted = Asked("train", "training", **{"batches": (8, 16, 32), **asked})  # type: ignore[arg-type]
        folder = Folder(self.path / "work")
        with folder.locked():
            progress = folder.read()
            if progress is None:
                progress = plan.begin(self.slurm, words, wanted, self.path, self.slurm.at)
            plan.check_same(progress, words, wanted, self.path)
            if again:
                plan.again(progress)
            folder.write(progress)
            how = plan.launch(progress.settings, 10, 10000)
            slurm = Slurm(self.slurm, self.slurm, self.slurm.submit)
            Loop(
                slurm, folder, progress, (words, how), self.terms,
                self.said.append, self.slurm.sleep, self.slurm.clock,
            ).work()  # fmt: skip
        return progress


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, trains)


def of(progress: Progress) -> list[tuple[str, int, str]]:
    return [(str(run.shape), run.local_batch, run.state) for run in progress.runs]


# -- the runs ---------------------------------------------------------------------


def test_the_batches_on_one_gpu_then_one_batch_over_gpus_and_nodes(bench):
    assert of(bench.profile()) == [
        ("1x1", 8, DONE), ("1x1", 16, DONE), ("1x1", 32, DONE),
        ("1x2", 16, DONE), ("1x4", 16, DONE), ("2x1", 16, DONE),
    ]  # fmt: skip
    assert [(job.nodes, job.gpus, job.local_batch) for job in bench.slurm.submitted][-2:] == [
        (1, 4, 16), (2, 1, 16),
    ]  # fmt: skip


def test_what_was_measured_predicts_shapes_that_never_ran(bench):
    """Bert's step times as Pollux measured them: 2x2 and 2x4 within 10 % and the error bars."""
    steps = {
        (run.nodes, run.gpus // run.nodes, run.local_batch): run.step_s
        for run in runs_of("bert")
        if run.gpus % run.nodes == 0
    }
    batches = tuple(sorted({batch for _, _, batch in steps}))

    def bert(job: Job) -> tuple[float, str, str]:
        step_s = steps[job.nodes, job.gpus, job.local_batch]
        return 40 + step_s * job.iterations, "COMPLETED", f"gputopo: step_s={step_s}\n"

    bench.slurm.script = bert
    progress = bench.profile(batches=batches)
    assert len(progress.runs) == len(batches) + 2 + 1
    model = fit("calibrated", plan.measurements(progress), plan.startup_s(progress))
    assert model.startup_s == pytest.approx(40, abs=1)
    for shape in (Shape(2, 2), Shape(2, 4)):
        for batch in batches:
            found = model.estimate(shape, batch * shape.gpus)
            wanted = steps[shape.nodes, shape.gpus_per_node, batch]
            assert found.step_s == pytest.approx(wanted, rel=0.1)
            assert found.low_s < wanted < found.high_s


def test_one_run_at_a_time_unless_more_are_allowed(bench):
    most = []
    bench.slurm.after_sbatch = lambda: most.append(
        sum(job.state == "RUNNING" for job in bench.slurm.held.values())
    )
    bench.terms = Terms(at_once=2)
    bench.profile()
    assert max(most) == 2
    bench.path.joinpath("work", "progress.json").unlink()
    most.clear()
    bench.terms = Terms()
    bench.profile()
    assert max(most) == 1


def test_the_script_is_told_its_batches_and_iterations_and_keeps_its_own_options(bench):
    bench.profile(iterations=50)
    job = bench.slurm.submitted[4]
    assert job.env == {
        "GPUTOPO_BATCH": "64", "GPUTOPO_LOCAL_BATCH": "16",
        "GPUTOPO_ITERATIONS": "50", "GPUTOPO_TASK": "training",
    }  # fmt: skip
    assert {"--gres=gpu:v100:4", "--ntasks-per-node=4", "--time=10", "--nice=10000",
            "--exclude=other", "--no-requeue"} <= set(job.argv)  # fmt: skip
    assert job.argv[-3:] == ["-A", "research", str(bench.path / "train.sh")]
    output = next(word.partition("=")[2] for word in job.argv if word.startswith("--output="))
    assert f"--error={output}" in job.argv


def test_without_a_line_the_run_time_counts_start_up_and_all(bench):
    bench.slurm.script = lambda job: (50, "COMPLETED", "no line\n")
    progress = bench.profile(batches=(8,), nodes=(1,), gpus_per_node=(1,))
    assert [(run.step_s, run.by) for run in progress.runs] == [(0.5, "run time")]
    assert "run 1 (1x1, 8 per GPU): 500.0 ms per iteration, by its run time" in bench.said[-1]
    bench.path.joinpath("work", "progress.json").unlink()
    bench.terms = Terms(startup_s=20)
    progress = bench.profile(batches=(8,), nodes=(1,), gpus_per_node=(1,))
    assert [run.step_s for run in progress.runs] == [0.3]


def test_a_run_stopped_by_its_limit_counts_if_it_had_printed_its_line(bench):
    bench.slurm.script = lambda job: (600, "TIMEOUT", "gputopo: step_s=0.25\n")
    progress = bench.profile(batches=(8,), nodes=(1,), gpus_per_node=(1,))
    assert [(run.step_s, run.startup_s) for run in progress.runs] == [(0.25, 0.0)]


def test_inference_needs_no_shapes(tmp_path):
    bench = Bench(tmp_path, trains)
    words = submission.read(["sbatch", str(tmp_path / "train.sh")], {})
    begun = plan.begin(bench.slurm, words, Asked("train", "inference"), tmp_path, 0)
    assert {str(run.shape) for run in plan.expected(begun)} == {"1x1"}


# -- failures -----------------------------------------------------------------------


def out_of_memory_from(batch: int) -> Callable[[Job], tuple[float, str, str]]:
    def script(job: Job) -> tuple[float, str, str]:
        full = job.local_batch >= batch
        return (5, "FAILED", "CUDA out of memory\n") if full else trains(job)

    return script


def test_where_one_gpu_holds_no_more_the_sweep_ends_and_the_rest_goes_on(bench):
    bench.slurm.script = out_of_memory_from(32)
    progress = bench.profile(batches=(8, 16, 32, 64, 128))
    assert of(progress) == [
        ("1x1", 8, DONE), ("1x1", 16, DONE), ("1x1", 32, FAILED), ("1x1", 64, SKIPPED),
        ("1x1", 128, SKIPPED), ("1x2", 16, DONE), ("1x4", 16, DONE), ("2x1", 16, DONE),
    ]  # fmt: skip
    assert progress.runs[2].tries == 2
    assert progress.runs[2].note == "job 4: FAILED, last line: CUDA out of memory"
    assert "skipped, being larger: 64, 128 per GPU" in bench.said
    assert progress.runs[3].note == "batch 32 failed"


def test_a_script_that_never_works_is_given_up_at_once_and_its_output_named(bench):
    bench.slurm.script = lambda job: (1, "FAILED", "train: command not found\n")
    with pytest.raises(PluginError, match=r"no run on one GPU worked.*command not found.*\.out"):
        bench.profile()
    assert len(bench.slurm.submitted) == 2
    bench.slurm.script = trains
    assert {run.state for run in bench.profile(again=True).runs} == {DONE}


def test_a_shape_that_fails_is_named_and_left_out(bench):
    bench.slurm.script = lambda job: (
        (5, "NODE_FAIL", "") if job.nodes == 2 else trains(job)
    )  # fmt: skip
    progress = bench.profile()
    assert of(progress)[-1] == ("2x1", 16, FAILED)
    assert any("failed: job 7: NODE_FAIL" in line for line in bench.said)
    assert len(plan.measurements(progress)) == 5
    bench.slurm.script = trains
    assert of(bench.profile(again=True))[-1] == ("2x1", 16, DONE)
    assert len(bench.slurm.submitted) == 5 + 2 + 1


def test_a_line_that_is_no_time_is_quoted(bench):
    bench.slurm.script = lambda job: (1, "COMPLETED", "gputopo: step_s=fast\n")
    with pytest.raises(PluginError, match="printed step_s='fast', expected seconds"):
        bench.profile()


def test_a_refusal_of_the_first_run_ends_it_in_slurms_words(bench):
    bench.slurm.refuse = lambda job: "Batch job submission failed: Invalid account"
    with pytest.raises(PluginError, match=r"first run was refused: .*Invalid account"):
        bench.profile()


def test_a_refusal_of_a_shape_leaves_that_out(bench):
    bench.slurm.refuse = lambda job: "QOSMaxGRESPerUser" if job.gpus == 4 else ""
    assert ("1x4", 16, FAILED) in of(bench.profile())


def test_a_job_that_gets_another_shape_is_not_measured(bench):
    bench.slurm.script = lambda job: (600, "COMPLETED", "gputopo: step_s=1\n")

    def widen() -> None:
        job = bench.slurm.held[1]
        job.on = {"n1": (0, 1, 2, 3)}

    bench.slurm.events.append((1001, widen))
    with pytest.raises(PluginError, match=r"Slurm gave 4 on n1 GPUs where 1x1"):
        bench.profile()
    assert bench.slurm.cancelled == [1]


def test_slurm_away_for_a_while_is_waited_for(bench):
    answers = iter(["Unable to contact slurm controller", "Socket timed out", *[""] * 99])
    bench.slurm.refuse = lambda job: next(answers)
    assert {run.state for run in bench.profile().runs} == {DONE}
    assert sum("Slurm does not answer" in line for line in bench.said) == 2


# -- idle GPUs only ---------------------------------------------------------------------


def test_nothing_is_submitted_while_somebody_waits_for_the_gpus(bench):
    blocker = bench.slurm.other(gpus=4, seconds=100)
    second = bench.slurm.other(gpus=4, seconds=100)
    waits = bench.slurm.other(gpus=4, seconds=50)
    assert {bench.slurm.held[job].state for job in (blocker, second)} == {"RUNNING"}
    bench.slurm.held[waits].nodes = 2
    bench.profile()
    assert bench.said[0] == f"waiting: job {waits} of bob waits for GPUs"
    first = bench.slurm.held[bench.slurm.submitted[0].job]
    assert first.start >= bench.slurm.held[waits].start


def test_nothing_is_submitted_until_enough_gpus_are_idle(bench):
    busy = [bench.slurm.other(gpus=4, seconds=90) for _ in range(2)]
    bench.profile()
    assert bench.said[0] == "waiting: 1x1 idle GPUs are needed on n1, n2"
    first = bench.slurm.held[bench.slurm.submitted[0].job]
    assert first.start >= bench.slurm.held[busy[0]].end


@pytest.mark.parametrize(
    ("why", "fields"),
    [
        ("held", {"priority": 0}),
        ("after another job", {"depends": True}),
        ("later", {"eligible": 10**9, "reason": "BeginTime"}),
        ("at its limit", {"reason": "QOSMaxGRESPerUser"}),
        ("without GPUs", {"tres_per_node": ""}),
        ("for another model", {"tres_per_node": "gres/gpu:a100:4"}),
        ("for another node", {"req_nodes": "other"}),
        ("elsewhere", {"partition": "cpu"}),
    ],
)
def test_who_waits_for_something_else_holds_nothing_back(bench, why, fields):
    jobid = bench.slurm.other(gpus=99, **fields)
    bench.profile()
    assert bench.slurm.held[jobid].state == "PENDING"
    assert {job.name for job in bench.slurm.submitted}
    assert not any("waits" in line for line in bench.said)


def test_a_job_behind_our_gate_waits_for_gpus_whatever_slurm_says_of_it(bench):
    note = "[gpu-slots: gated token=1 tpn=gpu:v100:4 nodes=1-]"
    jobid = bench.slurm.other(
        gpus=99, tres_per_node="", eligible=10**9, reason="BeginTime", admin_comment=note
    )
    bench.slurm.events.append((1100, lambda: bench.slurm([f"{'scancel'}", str(jobid)]) and None))
    bench.profile()
    assert bench.said[0] == f"waiting: job {jobid} of bob waits for GPUs"


def test_a_running_run_gives_way_and_is_run_again(bench):
    others: list[int] = []

    def come() -> None:
        others.extend(bench.slurm.other(gpus=4, seconds=30) for _ in range(2))

    bench.slurm.script = lambda job: (60, "COMPLETED", "gputopo: step_s=0.5\n")
    bench.slurm.events.append((1005, come))
    progress = bench.profile(batches=(8,), nodes=(1,), gpus_per_node=(1,))
    assert bench.slurm.cancelled == [1]
    assert any("job 1 is cancelled: job" in line and "of bob waits" in line for line in bench.said)
    run = progress.runs[0]
    assert (run.state, run.tries, run.failures) == (DONE, 2, 0)
    assert bench.slurm.held[run.job].start > bench.slurm.held[others[1]].start


def test_who_came_a_moment_ago_is_left_to_slurm(bench):
    """Slurm may not have looked at that job yet; nothing is cancelled for it."""
    bench.slurm.script = lambda job: (30, "COMPLETED", "gputopo: step_s=0.3\n")
    bench.slurm.events.append((1009, lambda: bench.slurm.other(gpus=99) and None))
    bench.slurm.events.append((1013, lambda: bench.slurm(["scancel", "2"]) and None))
    bench.profile(batches=(8,), nodes=(1,), gpus_per_node=(1,))
    assert bench.slurm.cancelled == [2]


def test_a_run_that_is_over_but_for_its_epilog_is_not_interrupted(bench):
    bench.slurm.script = lambda job: (12, "COMPLETED", "gputopo: step_s=0.1\n")
    bench.slurm.epilog_s = 30
    bench.slurm.events.append((1011, lambda: bench.slurm.other(gpus=99) and None))
    bench.profile(batches=(8,), nodes=(1,), gpus_per_node=(1,))
    assert bench.slurm.cancelled == []


def test_a_job_that_slurm_keeps_pending_is_told_with_slurms_reason(bench):
    """Once, however long it lasts."""
    bench.slurm.after_sbatch = lambda: keep_pending(bench)
    bench.profile(batches=(8,), nodes=(1,), gpus_per_node=(1,))
    told = [line for line in bench.said if "pending" in line]
    assert told == ["waiting: job 1 is pending (AssocGrpGRES)"]


def keep_pending(bench: Bench) -> None:
    """The first job waits for a limit of the site until something gives."""
    job = bench.slurm.held[1]
    job.state, job.gpus, job.on = "PENDING", 99, {}
    job.queued = replace(job.queued, reason="AssocGrpGRES")
    bench.slurm.events.append((1035, lambda: setattr(job, "gpus", 1)))


# -- going on --------------------------------------------------------------------------


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
    assert [run["state"] for run in state_of(bench)] == ["done", "done", "submitting"]
    bench.slurm.sleep(pause_s)
    assert {run.state for run in bench.profile().runs} == {DONE}
    assert len(names(bench)) == len(set(names(bench))) == 6
    assert "run 3 (1x1, 32 per GPU): job 3 is taken up again" in bench.said


def state_of(bench: Bench) -> list[dict[str, object]]:
    import json

    found: list[dict[str, object]] = json.loads(
        bench.path.joinpath("work", "progress.json").read_text()
    )["runs"]
    return found


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

    kept, bench.slurm.sleep = bench.slurm.sleep, sleep  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        bench.profile()
    bench.slurm.sleep = kept  # type: ignore[method-assign]
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


# -- which nodes -------------------------------------------------------------------------


def chosen(nodes: list[SlurmNode], on: str = "", gpu_type: str = "", *words: str) -> Progress:
    slurm = FakeCluster(trains, *nodes)
    read = submission.read(["sbatch", *words, "--wrap=x"], {})
    return plan.begin(slurm, read, Asked("x", "training", on=on, gpu_type=gpu_type), Path(), 0)


MIXED = [node("a1", 8, "a100"), node("v1"), node("v2"), node("v3", state=("IDLE", "DRAIN")),
         node("p1", 4, "p100", features=("ib",))]  # fmt: skip


def test_the_kind_with_most_nodes_is_taken_and_the_others_kept_out():
    settings = chosen(MIXED).settings
    assert (settings.kind, settings.names) == ("4 v100", ("v1", "v2"))
    assert settings.others == ("a1", "p1", "v3")
    assert (settings.nodes, settings.gpus_per_node) == ((1, 2), (1, 2, 4))


def test_nodes_or_a_type_may_be_asked_for():
    assert chosen(MIXED, on="p1").settings.kind == "4 p100"
    assert chosen(MIXED, gpu_type="a100").settings.gpus_per_node == (1, 2, 4, 8)
    assert chosen(MIXED, "", "", "-C", "ib").settings.names == ("p1",)


def test_slots_of_one_model_are_one_kind():
    slots = {f"v100.s{at}": 1 for at in range(4)}
    settings = chosen([node("n1", gpus=slots), node("n2", gpus=slots)]).settings
    assert (settings.kind, settings.names) == ("4 v100", ("n1", "n2"))


def test_a_sweep_ends_at_what_there_is():
    assert sweep.within(None, 6, 8, "--nodes") == (1, 2, 4, 6)
    assert sweep.within(None, 100, 8, "--nodes") == (1, 2, 4, 8)
    assert sweep.within((1, 3), 6, 8, "--nodes") == (1, 3)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"on": "v9"}, "--on v9: expected nodes with GPUs of the partition: a1: 8 a100"),
        ({"on": "v3"}, "is up and as wanted: --on v3"),
        ({"gpu_type": "h100"}, "is up and as wanted: GPU type h100"),
    ],
)
def test_nodes_that_are_not_there_are_named(how, said):
    with pytest.raises(PluginError, match=said):
        chosen(MIXED, **how)


def test_a_partition_or_constraint_that_cannot_be_followed_is_named():
    with pytest.raises(PluginError, match="cpu: no such partition; expected one of gpu"):
        chosen(MIXED, "", "", "-p", "cpu")
    with pytest.raises(PluginError, match=r"--constraint=\[a\|b\]: not judged here; add --on"):
        chosen(MIXED, "", "", "--constraint=[a|b]")


# -- the command line of sbatch -------------------------------------------------------------


def argv(text: str, words: tuple[str, ...] = (), **how: object) -> list[str]:
    path = how.pop("path")
    assert isinstance(path, Path)
    (path / "job.sh").write_text(text)
    own = ["{batch}/{gpus_per_node}", "${batch}", "{other}"]
    read = submission.read(["/opt/bin/sbatch", *words, str(path / "job.sh"), *own], {})
    launch = submission.Launch(100, 10, 5, gpu_type=read.gpu_type, **how)  # type: ignore[arg-type]
    return submission.command(read, launch, Shape(2, 4), 16, "name", Path("out.%j"))


@pytest.mark.parametrize(
    ("sentence", "asks", "given"),
    [
        ("nothing", "", ["--gres=gpu:4"]),
        ("--gres with more", "--gres=gpu:a100:8,tmp:9", ["--gres=gpu:a100:4,tmp:9"]),
        ("--gpus-per-node", "--gpus-per-node v100:2", ["--gpus-per-node=v100:4"]),
        ("-G", "-G 8", ["--gpus=8", "--gpus-per-node=4"]),
        ("per task", "--gpus-per-task=1 -n8", ["--gpus-per-task=1", "--gpus-per-node=4"]),
    ],
)
def test_gpus_are_asked_in_the_form_that_the_script_uses(tmp_path, sentence, asks, given):
    found = argv(f"#!/bin/sh\n#SBATCH {asks}\ntrue\n#SBATCH --array=1-9\n", path=tmp_path)
    assert [word for word in found if word.startswith(("--gres", "--gpus"))] == given
    assert {"--nodes=2", "--ntasks=8", "--ntasks-per-node=4"} <= set(found)
    assert found[0] == "sbatch"


def test_one_task_per_node_where_that_is_wanted(tmp_path):
    found = argv("#!/bin/sh\n#SBATCH --gpus-per-task=1\n", path=tmp_path, per_gpu=False)
    assert {"--ntasks=2", "--ntasks-per-node=1", "--gpus-per-task=4"} <= set(found)


def test_numbers_may_stand_in_the_command_itself(tmp_path):
    assert argv("#!/bin/sh\n", path=tmp_path)[-3:] == ["128/4", "${batch}", "{other}"]


@pytest.mark.parametrize(
    ("words", "script", "base"),
    [
        ((), "#SBATCH --export=NONE", ""),
        (("--export=B",), "#SBATCH --export=NONE", "B,"),
        (("--export", "A=1,B"), "", "A=1,B,"),
    ],
)
def test_our_variables_are_added_to_what_the_user_exports(tmp_path, words, script, base):
    found = argv(f"#!/bin/sh\n{script}\n", words, path=tmp_path)
    exports = [word for word in found if word.startswith("--export")]
    assert len(exports) == 1
    assert exports[0].startswith(f"--export={base}GPUTOPO_BATCH=128,GPUTOPO_LOCAL_BATCH=16,")


@pytest.mark.parametrize(
    ("words", "script"),
    [((), ""), ((), "#SBATCH --export=ALL"), (("--export=ALL,A=1",), "#SBATCH --export=NONE")],
)
def test_who_exports_all_exports_ours(tmp_path, words, script):
    found = argv(f"#!/bin/sh\n{script}\n", words, path=tmp_path)
    assert [word for word in found if word.startswith("--export")] == list(words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "'nothing' behind the `--`; expected sbatch"),
        (["srun", "x"], "'srun' behind the `--`; expected sbatch"),
        (["sbatch"], "sbatch without a script"),
        (["sbatch", "none.sh"], "none.sh: No such file or directory; expected a batch script"),
        (["sbatch", "-N2", "x"], "sbatch --nodes: each run has a shape of its own"),
        (["sbatch", "-p", "gpu", "--gres=gpu:2", "x"], "sbatch --gres: each run has a shape"),
        (["sbatch", "-t", "5", "x"], "sbatch --time: give --limit MINUTES"),
        (["sbatch", "-w", "n1", "x"], "sbatch --nodelist: give --on NODES"),
        (["sbatch", "-Hp", "gpu", "x"], "sbatch --hold: a run must start by itself"),
        (["sbatch", "--exclusive", "x"], "sbatch --exclusive: it gives a run all GPUs"),
        (["sbatch", "-n1", ":", "-n2", "x"], "sbatch --ntasks: each run"),
    ],
)
def test_what_cannot_be_profiled_is_refused(words, said):
    with pytest.raises(PluginError, match=said):
        submission.read(words, {})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("#SBATCH --array=1-3", "job.sh: #SBATCH --array: a run must start by itself"),
        ("#SBATCH --exclusive", "job.sh: #SBATCH --exclusive: it gives a run all GPUs"),
        ("#SBATCH hetjob", "job.sh:2: a heterogeneous job"),
        ("#SBATCH --comment='open", "job.sh:2: No closing quotation"),
    ],
)
def test_a_script_that_cannot_be_profiled_is_refused(tmp_path, line, said):
    with pytest.raises(PluginError, match=said):
        argv(f"#!/bin/sh\n{line}\n", path=tmp_path)


def test_a_variable_that_adds_gpus_is_refused(tmp_path):
    with pytest.raises(PluginError, match="SBATCH_GPUS is set"):
        submission.read(["sbatch", "--wrap=x"], {"SBATCH_GPUS": "2"})


# -- the command ---------------------------------------------------------------------------


@pytest.fixture
def ask(tmp_path, monkeypatch):
    (tmp_path / "resnet.sh").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    slurm = FakeCluster(lambda job: (0, *trains(job)[1:]))
    monkeypatch.setattr("slurm_plugin.slurm.CommandLine", lambda run: slurm)
    monkeypatch.setattr("slurm_plugin.slurm.runner.ProcessRunner", lambda folder: slurm)
    monkeypatch.setattr(
        "slurm_plugin.cli.profiles.run._submit",
        lambda place, argv, given: slurm.submit(argv, given),
    )
    monkeypatch.setattr(Loop.__init__, "__defaults__", (slurm.sleep, slurm.clock))

    def run(*words: str) -> Result:
        where = ["--database", str(tmp_path / "performance.db")]
        return CliRunner().invoke(cli, ["profile", "run", *where, *words], prog_name="gputopo")

    run.slurm = slurm  # type: ignore[attr-defined]
    return run


def test_the_command_measures_fits_and_stores(ask, tmp_path):
    done = ask("--family", "cnn", "--batches", "8,16", "--", "sbatch", "resnet.sh")
    assert done.exit_code == 0, done.output
    assert "resnet: 5 runs of 100 iterations on 2 nodes of 4 v100" in done.stdout
    assert "resnet (training): calibrated, from 5 runs" in done.stdout
    kept = Database(tmp_path / "performance.db").get("resnet")
    assert kept is not None
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
    monkeypatch.setattr(Loop.__init__, "__defaults__", (stop, ask.slurm.clock))
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
        (("--", "sbatch"), "sbatch without a script"),
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
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho $SQUEUE_FORMAT-$SLURM_TIME_FORMAT-$RUN-$1\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("SQUEUE_FORMAT", "mine")
    assert _submit(tmp_path, ["sbatch", "x"], {"RUN": "7"}) == "mine--7-x\n"


def test_a_database_that_cannot_be_written_is_found_before_anything_runs(ask, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    done = ask("--", "sbatch", "resnet.sh")
    assert "you may not write there; expected --database FILE" in done.stderr
    assert not ask.slurm.submitted
