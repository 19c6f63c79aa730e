"""The runs of a profile against a Slurm that is played: what is measured, fails, and gives way."""

from dataclasses import replace

import pytest
from fake_cluster import FORGOTTEN_S
from fake_cluster import Asked as Job
from profiling_in_tests import Bench, of, trains

from papers.experiments.pollux import runs_of
from policies.performance import Shape, fit
from slurm_plugin.act.profiling import plan, submission
from slurm_plugin.act.profiling.loop import RunLimits
from slurm_plugin.act.profiling.plan import ProfileRequest
from slurm_plugin.act.profiling.sweep import DONE, FAILED, SKIPPED
from slurm_plugin.errors import PluginError

# -- the runs ---------------------------------------------------------------------


def test_the_batches_on_one_gpu_then_one_batch_over_gpus_and_nodes(bench):
    assert of(bench.profile()) == [
        ("1x1", 8, DONE), ("1x1", 16, DONE), ("1x1", 32, DONE),
        ("1x2", 16, DONE), ("1x4", 16, DONE), ("2x1", 16, DONE),
    ]  # fmt: skip
    assert [(job.nodes, job.gpus, job.local_batch) for job in bench.slurm.submitted][-2:] == [
        (1, 4, 16),
        (2, 1, 16),
    ]


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
    bench.terms = RunLimits(at_once=2)
    bench.profile()
    assert max(most) == 2
    bench.path.joinpath("work", "progress.json").unlink()
    most.clear()
    bench.terms = RunLimits()
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
    bench.terms = RunLimits(startup_s=20)
    progress = bench.profile(batches=(8,), nodes=(1,), gpus_per_node=(1,))
    assert [run.step_s for run in progress.runs] == [0.3]


def test_a_run_stopped_by_its_limit_counts_if_it_had_printed_its_line(bench):
    bench.slurm.script = lambda job: (600, "TIMEOUT", "gputopo: step_s=0.25\n")
    progress = bench.profile(batches=(8,), nodes=(1,), gpus_per_node=(1,))
    assert [(run.step_s, run.startup_s) for run in progress.runs] == [(0.25, 0.0)]


def test_inference_needs_no_shapes(bench):
    words = submission.read_submission(["sbatch", str(bench.path / "train.sh")], {})
    begun = plan.begin(bench.slurm, words, ProfileRequest("train", "inference"), bench.path, 0)
    assert {str(run.shape) for run in plan.expected(begun)} == {"1x1"}


# -- failures -----------------------------------------------------------------------


def test_where_one_gpu_holds_no_more_the_sweep_ends_and_the_rest_goes_on(bench):
    full = (5, "FAILED", "CUDA out of memory\n")
    bench.slurm.script = lambda job: full if job.local_batch >= 32 else trains(job)
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
    bench.slurm.script = lambda job: (5, "NODE_FAIL", "") if job.nodes == 2 else trains(job)
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


def test_a_job_that_only_the_accounting_knows_is_over_whatever_that_says(bench):
    """No end may have reached it: then the job would be waited for without end."""
    bench.slurm.script = lambda job: (50, "REQUEUED", "") if job.job == 1 else trains(job)

    def waits_for_ever() -> None:
        raise AssertionError("job 1 is waited for still")

    bench.slurm.events.append((bench.slurm.at + 5000, waits_for_ever))
    progress = bench.profile(batches=(8,), nodes=(1,), gpus_per_node=(1,))
    assert [(run.state, run.tries) for run in progress.runs] == [(DONE, 2)]
    assert any("job 1: REQUEUED" in said and "it is run again" in said for said in bench.said)
    # As long as the controller knew it, it went by that.
    assert bench.slurm.held[2].start >= 1050 + FORGOTTEN_S


def test_a_refusal_of_a_shape_leaves_that_out(bench):
    bench.slurm.refuse = lambda job: "QOSMaxGRESPerUser" if job.gpus == 4 else ""
    assert ("1x4", 16, FAILED) in of(bench.profile())


def test_a_job_that_gets_another_shape_is_not_measured(bench):
    bench.slurm.script = lambda job: (600, "COMPLETED", "gputopo: step_s=1\n")
    wide = {"n1": (0, 1, 2, 3)}
    bench.slurm.events.append((1001, lambda: setattr(bench.slurm.held[1], "on", wide)))
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
        ("after another job", {"dependency": "afterok:9(unfulfilled)"}),
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
