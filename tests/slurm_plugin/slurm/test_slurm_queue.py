"""The queue and updates of the command-line client, on replies recorded from each release."""

import pytest
from fake_slurm import RELEASES, REPLIES, FakeRunner, RecordedRunner

from slurm_plugin.base.job_states import queue_state
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm import array_tasks, releases
from slurm_plugin.slurm.clients import rows, update_text
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob


@pytest.fixture(params=RELEASES)
def queue(request: pytest.FixtureRequest) -> list[QueuedJob]:
    run = RecordedRunner(REPLIES / request.param)
    argv = list(releases.commands(releases.parse_version(request.param)).jobs)
    return rows.queue(run(argv), " ".join(argv))


@pytest.mark.parametrize(
    ("release", "separator", "exclusive"),
    [("22.05.8", ":", False), ("23.11.11", "/", False), ("24.05.8", "/", False),
     ("25.11.7", "/", False), ("26.05.3", "/", True)],
)  # fmt: skip
def test_each_release_has_its_way_to_write_gpus_and_to_say_exclusive(release, separator, exclusive):
    asked = releases.commands(releases.parse_version(release))
    assert (asked.gres_separator, asked.exclusive) == (separator, exclusive)


def test_the_queue_has_what_waits_or_runs_and_nothing_finished(queue):
    states = sorted(job.state for job in queue)
    assert states == ["PENDING"] * 4 + ["RUNNING"] * 5
    assert [job.job_id for job in queue] == sorted(job.job_id for job in queue)


def test_the_tasks_of_an_array_that_wait_are_one_job(queue):
    (waiting,) = (job for job in queue if job.tasks > 1)
    assert waiting.name == f"{waiting.array_id}_[1-3]"
    assert (waiting.task, waiting.tasks, waiting.throttle) == ("1-3", 3, 1)
    (running,) = (job for job in queue if job.array_id and job.state == "RUNNING")
    assert running.name == f"{running.array_id}_0"
    assert (running.task, running.tasks, running.gpus) == ("0", 1, {"minsky1": (0,)})


def test_a_waiting_job_says_what_it_asked_for(queue):
    (held,) = (job for job in queue if job.held)
    assert held.reason == "JobHeldUser"
    assert held.tres_per_task in ("gres/gpu=2", "gres:gpu:2")
    assert (held.ntasks, held.cpus, held.memory_per_cpu_mb) == (2, 2, 50)
    (later,) = (job for job in queue if job.reason == "BeginTime")
    assert later.tres_per_node in ("gres/gpu:v100:4", "gres:gpu:v100:4")
    assert later.start - later.submit == pytest.approx(3600, abs=5)
    assert (later.user, later.account, later.partition) == ("alice", "research", "gpu")
    assert later.uid == 2001
    assert not later.exclusive
    assert later.time_limit_s == 600


def test_a_running_job_says_what_it_holds_and_until_when(queue):
    running = [job for job in queue if job.state == "RUNNING"]
    counts = [{node: len(gpus) for node, gpus in job.gpus.items()} for job in running]
    assert sorted(counts, key=str) == [
        {"bridged1": 8}, {"dgx1": 2}, {"dgx1": 3, "dgx2": 3}, {"minsky1": 1}, {},
    ]  # fmt: skip
    (job,) = (job for job in queue if len(job.nodes) == 2)
    assert (job.nodes, job.partition, job.end - job.start) == (("dgx1", "dgx2"), "dgx", 600)
    (pair,) = (job for job in running if {n: len(g) for n, g in job.gpus.items()} == {"dgx1": 2})
    assert (pair.user, pair.comment) == ("alice", "gpu-topo: pattern=ring")
    assert not set(pair.gpus["dgx1"]) & set(job.gpus["dgx1"])


@pytest.mark.parametrize("release", RELEASES)
def test_a_node_says_what_is_in_use_by_type(release):
    run = RecordedRunner(REPLIES / release)
    nodes = {node.name: node for node in SlurmClient(run).nodes()}
    queue = rows.queue(run(list(releases.commands(releases.parse_version(release)).jobs)), "jobs")
    for name, node in nodes.items():
        assert set(node.used) == {gpu for job in queue for gpu in job.gpus.get(name, ())}
    assert nodes["dgx1"].used_by_type == {"v100": 5}
    assert nodes["amd1"].used_by_type == {"mi250x": 0}
    assert (nodes["dgx1"].alloc_cpus, nodes["dgx1"].alloc_memory_mb) == (2, 100)


@pytest.mark.parametrize("release", RELEASES)
def test_cpus_that_jobs_do_not_get_are_none_of_a_nodes(release):
    """CoreSpecCount: 22.05 tells it in scontrol's text alone, later releases in JSON, too."""
    recorded = RecordedRunner(REPLIES / release)

    def run(argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        text = recorded(argv).replace("CPUEfctv=16", "CPUEfctv=14")
        return text.replace('"effective_cpus": 16', '"effective_cpus": 14')

    nodes = SlurmClient(run).nodes()
    assert {(node.cpus, node.cpus_by_gpu) for node in nodes} == {(14, 0), (8, 0)}
    assert {node.sockets for node in nodes} >= {2, 4}


@pytest.mark.parametrize(
    ("owner", "label", "is_owned"),
    [("", "", False), (None, None, False), ("alice", "", True), ("", "physics", True)],
)
def test_a_node_that_one_user_or_label_has_alone(owner, label, is_owned):
    row = rows.NodeRow("n1", owner=owner, mcs_label=label)
    assert row.noun().is_owned == is_owned


def test_cores_beside_gpus_are_told_in_threads():
    row = rows.NodeRow("n1", cpus=32, res_cores_per_gpu=2, threads=2, sockets=2)
    assert (row.noun().cpus_by_gpu, row.noun().cpus) == (4, 32)


@pytest.mark.parametrize(
    ("state", "is_told_as"),
    [
        (("PENDING",), "PENDING"),
        (("RUNNING", "CONFIGURING"), "CONFIGURING"),
        (("COMPLETED", "COMPLETING"), "COMPLETING"),
        (("RUNNING", "SIGNALING"), "RUNNING"),
        (("SUSPENDED", "STOPPED"), "SUSPENDED"),
        (("PENDING", "REQUEUED"), "PENDING"),
        (("EXPEDITING",), "PENDING"),
        (("CANCELLED",), ""),
        (("LAUNCH_FAILED",), ""),
        (("A_WORD_OF_A_LATER_RELEASE",), "RUNNING"),
        ((), ""),
    ],
)
def test_a_state_with_flags_is_one_word(state, is_told_as):
    assert queue_state(state) == is_told_as


@pytest.mark.parametrize(
    ("code", "told", "reason"),
    [
        ("JobHeldUser", "launch failed requeued held", "launch failed requeued held"),
        ("JobHeldUser", "", "JobHeldUser"),
        ("JobHeldUser", None, "JobHeldUser"),
        ("ReqNodeNotAvail", "ReqNodeNotAvail, UnavailableNodes:dgx1", "ReqNodeNotAvail"),
    ],
)
def test_a_job_that_slurm_held_itself_has_slurms_words_for_it(code, told, reason):
    row = rows.JobRow(7, states="PENDING", reason=code, told=told)
    assert row.queued().reason == reason


@pytest.mark.parametrize(
    ("state", "asked", "nodes"),
    [
        ("PENDING", "cpu=1,mem=50M,node=1,billing=1,gres/gpu=16", 1),
        ("PENDING", "node=2", 2),
        ("PENDING", "", 3),
        ("RUNNING", "cpu=1,node=1", 3),
    ],
)
def test_a_job_says_how_many_nodes_it_asks_for_at_least(state, asked, nodes):
    """Slurm shows a guess of those that it will have: two for `--gpus=16`."""
    row = rows.JobRow(7, states=state, min_nodes=3, tres_asked=asked)
    assert row.queued().min_nodes == nodes


@pytest.mark.parametrize(
    ("name", "whole", "expected"),
    [
        ("4_2", "4_[1-3]", True),
        ("4_[1-2]", "4_[1-3,7]", True),
        ("4_[3,7]", "4_[1-3,7]", True),
        ("4_[3-7]", "4_[1-3,7]", False),
        ("4_[1-3]", "4_2", False),
        ("5_2", "4_[1-3]", False),
        ("4", "4_[1-3]", False),
        ("4_2", "4", False),
    ],
)
def test_which_tasks_an_update_of_an_array_was_for(name, whole, expected):
    assert array_tasks.is_part(name, whole) == expected


def test_a_job_says_by_what_slurm_counts_its_tasks(queue):
    assert {(job.tasks_per_node, job.tasks_per_gpu) for job in queue} == {(0, 0)}
    reply = '{"jobs": [{"job_id": 1, "job_state": ["PENDING"], "tasks_per_node": %s, %s}]}'
    of_24 = reply % ('{"set": true, "number": 4}', '"tasks_per_tres": {"set": true, "number": 2}')
    of_22 = reply % ("4", '"tasks": 3')
    [job], [older] = rows.queue(of_24, "squeue"), rows.queue(of_22, "squeue")
    assert (job.tasks_per_node, job.tasks_per_gpu) == (4, 2)
    assert (older.tasks_per_node, older.tasks_per_gpu) == (4, 0)


def test_task_lists_are_read_whole_or_refused():
    assert array_tasks.ranges(array_tasks.task_runs("1-3,7%2")) == "1-3,7"
    assert array_tasks.ranges(array_tasks.task_runs("[0-8:4]")) == "0,4,8"
    assert array_tasks.task_runs("") == ()
    with pytest.raises(ValueError, match="no array tasks"):
        array_tasks.task_runs("1,3,...")


def words(change: JobUpdate, separator: str = "/") -> list[str]:
    return update_text.words(["7", "8_2"], change, separator)


def test_an_update_names_all_jobs_once_and_only_what_changes():
    assert words(JobUpdate(begin_time=1795229124)) == ["JobId=7,8_2", "StartTime=uts1795229124"]
    assert words(JobUpdate(begin_time=NOW, req_nodes="")) == [
        "JobId=7,8_2", "ReqNodeList=", "StartTime=now",
    ]  # fmt: skip


def test_other_kinds_of_request_are_cleared_before_the_nodes_gres_is_set():
    told = words(JobUpdate(tres_per_node="gres/gpu:s1:1,gpu:s3:1", tres_per_job=""))
    assert told == ["JobId=7,8_2", "TresPerJob=", "TresPerNode=gres/gpu:s1:1,gres/gpu:s3:1"]


@pytest.mark.parametrize(("separator", "written"), [("/", "gres/gpu:2"), (":", "gres:gpu:2")])
def test_tres_are_written_as_the_release_writes_them(separator, written):
    for text in ("gpu:2", "gres/gpu:2", "gres:gpu:2"):
        assert words(JobUpdate(tres_per_job=text), separator)[1] == f"TresPerJob={written}"


def test_the_later_form_of_a_tasks_tres_is_left_as_it_is():
    told = words(JobUpdate(tres_per_task="cpu=2,gres/gpu:v100=1"))
    assert told[1] == "TresPerTask=cpu=2,gres/gpu:v100=1"


def test_a_value_with_a_line_break_is_refused():
    with pytest.raises(SlurmError, match="line break"):
        words(JobUpdate(admin_comment="a\nb"))


def test_a_reply_that_scontrol_prints_without_slurmctld_is_an_error():
    # Exit 0, no error, no jobs; only the time of the last update gives it away.
    reply = '{"jobs": [], "last_update": {"set": true, "infinite": false, "number": 0}}'
    with pytest.raises(SlurmError, match="is slurmctld up"):
        rows.queue(reply, "scontrol show jobs --json")
    with pytest.raises(SlurmError, match="is slurmctld up"):
        rows.jobs(reply, "scontrol show jobs --json")


def test_errors_in_a_reply_are_errors_whatever_the_exit_status_was():
    fault = '{"description": "Failed while looking for jobs", "error": "Unspecified error"}'
    with pytest.raises(SlurmError, match=r"Failed while looking for jobs.*is slurmctld up"):
        rows.queue(f'{{"jobs": [], "errors": [{fault}]}}', "squeue --json")


def test_many_jobs_are_changed_a_few_hundred_at_a_time_and_a_refusal_stops_none():
    def refuse(argv: list[str], _stdin: str) -> str:
        if "1" in argv[2].removeprefix("JobId=").split(","):
            raise SlurmError("scontrol update: exit 1: Invalid job id specified for job 1")
        return ""

    runner = FakeRunner({"scontrol --version": "slurm 24.11.5", "scontrol update": refuse})
    names = [str(job) for job in range(1, 1102)]
    with pytest.raises(SlurmError, match="Invalid job id"):
        SlurmClient(runner).update(names, JobUpdate(begin_time=NOW))
    told = [argv[2].removeprefix("JobId=").split(",") for argv, _ in runner.calls[1:]]
    assert [len(some) for some in told] == [500, 500, 101]
    assert [name for some in told for name in some] == names


def test_nothing_is_run_for_no_change_or_no_job():
    runner = FakeRunner({"scontrol --version": "slurm 24.11.5"})
    client = SlurmClient(runner)
    client.update(["7"], JobUpdate())
    client.update([], JobUpdate(begin_time=NOW))
    assert runner.calls == []
