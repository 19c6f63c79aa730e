"""The queue read from squeue's table and, where that changed, from JSON."""

import json
from typing import Any

import pytest
from fake_slurm import FakeRunner

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.clients.queue_reader import FEW


class Queue:
    """A queue that squeue and scontrol tell of; `asked` are the ids scontrol was asked for."""

    def __init__(self, jobs: dict[int, dict[str, Any]]) -> None:
        self.jobs = jobs
        self.asked: list[str] = []
        self.run = FakeRunner(
            {
                "scontrol --version": "slurm 24.11.5",
                "squeue -h": self.squeue,
                "scontrol -d show jobs --json": self.all,
                "scontrol -d --json show job": self.one,
            }
        )
        self.client = SlurmClient(self.run)

    def squeue(self, argv: list[str], _stdin: str) -> str:
        assert "-r" in argv
        columns = [word.partition(":0") for word in argv[argv.index("-O") + 1].split(",")]
        lines = []
        for job_id, job in self.jobs.items():
            for task in job.get("tasks") or ["N/A"]:
                told = {"JobId": job_id, "ArrayTaskId": task, **self.columns(job)}
                lines.append("".join(f"{told.get(name, 'N/A')}{end}" for name, _, end in columns))
        return "".join(f"{line}\n" for line in lines)

    def columns(self, job: dict[str, Any]) -> dict[str, Any]:
        return {
            "State": job["job_state"],
            "Reason": job.get("state_reason", "None"),
            "PriorityLong": job.get("priority", 1),
            "StartTime": job.get("start_time") or "N/A",
            "EndTime": job.get("end_time") or "N/A",
            "SubmitTime": job.get("submit_time") or "N/A",
            "TimeLimit": job.get("time_limit") or "N/A",
            "Comment": job.get("comment") or "(null)",
            "QOS": job.get("qos") or "(null)",
            "Licenses": job.get("licenses") or "(null)",
            "admin_comment": job.get("admin_comment") or "(null)",
            "NodeList": job.get("nodes", ""),
            "Name": job.get("name", ""),
            "Command": job.get("command", ""),
        }

    def all(self, _argv: list[str], _stdin: str) -> str:
        self.asked.append("all")
        return self.told(list(self.jobs))

    def one(self, argv: list[str], _stdin: str) -> str:
        self.asked.append(argv[-1])
        told = json.loads(self.told([int(argv[-1])] if int(argv[-1]) in self.jobs else []))
        # 24.11's answer about one job never has a date.
        return json.dumps(told | {"last_update": {"set": True, "number": 0}})

    def told(self, ids: list[int]) -> str:
        if not ids:
            return json.dumps({"jobs": [], "last_update": {"set": True, "number": 0}})
        fields = [{"job_id": job_id} | self.jobs[job_id] for job_id in ids]
        for row in fields:
            row["array_task_string"] = ",".join(row.pop("tasks", ()))
        return json.dumps({"jobs": fields})


def waiting(**more: Any) -> dict[str, Any]:
    return {"job_state": "PENDING", "state_reason": "Priority", "priority": 5, **more}


def test_equal_jobs_of_several_qos_and_licences_are_read_by_themselves():
    more = [{"qos": "normal"}, {"qos": "debug"}, {"qos": "normal", "licenses": "matlab:1"}]
    queue = Queue({i: waiting(**one) for i, one in enumerate(more, 1)})
    found = [(job.qos, job.licenses) for job in queue.client.queue()]
    assert found == [("normal", ""), ("debug", ""), ("normal", "matlab:1")]
    queue.jobs[1]["qos"] = "debug"
    assert queue.client.queue()[0].qos == "debug"


def test_a_job_is_read_once_and_again_only_when_it_changed():
    queue = Queue({1: waiting(), 2: waiting(comment="first")})
    assert [job.comment for job in queue.client.queue()] == ["", "first"]
    assert queue.asked == ["1", "2"]
    assert [job.comment for job in queue.client.queue()] == ["", "first"]
    queue.jobs[2]["comment"] = "second"
    assert [job.comment for job in queue.client.queue()] == ["", "second"]
    assert queue.asked == ["1", "2", "2"]


def test_state_reason_priority_and_start_are_always_those_of_the_table():
    queue = Queue({1: waiting()})
    queue.client.queue()
    queue.jobs[1] |= {"state_reason": "Resources", "priority": 9, "start_time": 1795229124}
    (job,) = queue.client.queue()
    assert (job.reason, job.priority, job.start) == ("Resources", 9, 1795229124)
    assert queue.asked == ["1"]


def test_when_a_job_might_end_is_news_only_once_it_runs():
    queue = Queue({1: waiting(end_time=1795229124)})
    queue.client.queue()
    queue.jobs[1]["end_time"] = 1795229184
    assert [job.end for job in queue.client.queue()] == [0]
    assert queue.asked == ["1"]
    queue.jobs[1]["job_state"] = "RUNNING"
    assert [job.end for job in queue.client.queue()] == [1795229184]
    queue.jobs[1]["end_time"] = 1795229999
    assert [job.end for job in queue.client.queue()] == [1795229999]


def test_many_changed_jobs_are_read_at_once():
    queue = Queue({job_id: waiting(time_limit=job_id) for job_id in range(1, FEW + 2)})
    assert len(queue.client.queue()) == FEW + 1
    assert queue.asked == ["all"]


def test_of_new_jobs_that_ask_for_the_same_one_is_read_and_the_others_have_their_own():
    of_each = {i: {"submit_time": 100 + i, "admin_comment": f"token {i}"} for i in (1, 2, 3)}
    texts = {i: {"name": f"sweep\n{i}", "command": f"/home/ann/{i}.sh"} for i in (1, 2, 3)}
    queue = Queue({i: waiting(**of_each[i], **texts[i]) for i in (1, 2, 3)})
    jobs = queue.client.queue()
    assert [{"name": job.job_name, "command": job.command} for job in jobs] == [*texts.values()]
    assert queue.asked == ["1"]
    assert [(job.job_id, job.name, job.submit) for job in jobs] == [
        (1, "1", 101),
        (2, "2", 102),
        (3, "3", 103),
    ]
    assert [job.admin_comment for job in jobs] == ["token 1", "token 2", "token 3"]
    # No column says it: they may differ in it.
    assert [job.tasks_per_gpu for job in jobs] == [0, -1, -1]
    queue.jobs[4] = waiting(submit_time=104, priority=9)
    assert [job.priority for job in queue.client.queue()] == [5, 5, 5, 9]
    assert queue.asked == ["1"]


@pytest.mark.parametrize(
    ("sentence", "other"),
    [
        ("another request", {"time_limit": 7}),
        ("it runs", {"job_state": "RUNNING"}),
        ("an array", {"array_job_id": 2, "tasks": ["1", "2"]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_job_unlike_the_others_is_read_by_itself(sentence, other):
    queue = Queue({1: waiting(), 2: waiting(**other)})
    queue.client.queue()
    assert queue.asked == ["1", "2"]


def test_who_was_read_as_a_job_that_changed_just_before_is_read_anew():
    queue = Queue({1: waiting(time_limit=5), 2: waiting(time_limit=5)})
    one = queue.one

    def changes(argv: list[str], stdin: str) -> str:
        queue.jobs[1]["time_limit"] = 9
        return one(argv, stdin)

    queue.run.replies["scontrol -d --json show job"] = changes
    queue.client.queue()
    queue.run.replies["scontrol -d --json show job"] = one
    assert [job.time_limit_s for job in queue.client.queue()] == [540, 300]
    assert queue.asked == ["1", "1", "2"]


def test_the_next_one_is_read_where_the_first_of_its_kind_just_started():
    queue = Queue({i: waiting(admin_comment=f"token {i}") for i in (1, 2, 3)})
    one = queue.one

    def starts(argv: list[str], stdin: str) -> str:
        queue.jobs[1] |= {"job_state": "RUNNING", "nodes": "n1"}
        return one(argv, stdin)

    queue.run.replies["scontrol -d --json show job"] = starts
    jobs = queue.client.queue()
    assert [job.state for job in jobs] == ["RUNNING", "PENDING", "PENDING"]
    assert [job.admin_comment for job in jobs] == ["token 1", "token 2", "token 3"]
    assert queue.asked == ["1", "2"]


def test_a_job_that_started_is_read_anew_with_its_gpus():
    queue = Queue({1: waiting()})
    queue.client.queue()
    held = ["gpu:a:1(IDX:3)", "gpu:a:1(IDX:0),shard:a:1(0/4,1/4)"]
    queue.jobs[1] |= {"job_state": "RUNNING", "nodes": "n[1-2]", "gres_detail": held}
    (job,) = queue.client.queue()
    assert job.gpus == {"n1": (3,), "n2": (0,)}
    assert job.shared_gpus == {"n2": (1,)}


def test_a_job_that_ended_is_gone_and_the_others_stay():
    queue = Queue({1: waiting(), 2: waiting()})
    queue.client.queue()
    del queue.jobs[1]
    assert [job.job_id for job in queue.client.queue()] == [2]


def test_a_job_that_ended_between_the_two_questions_is_no_error():
    queue = Queue({1: waiting(), 2: waiting(comment="another")})
    one = queue.one

    def ends(argv: list[str], stdin: str) -> str:
        queue.jobs.pop(2, None)
        return one(argv, stdin)

    queue.run.replies["scontrol -d --json show job"] = ends
    assert [job.job_id for job in queue.client.queue()] == [1]
    assert queue.asked == ["1", "2"]


def test_a_slurm_that_is_down_by_then_does_not_pass_for_a_job_that_ended():
    queue = Queue({1: waiting()})
    nothing = json.dumps({"jobs": [], "last_update": {"set": True, "number": 0}})
    queue.run.replies |= dict.fromkeys(
        ("scontrol -d --json show job", "scontrol -d show jobs --json"), nothing
    )
    with pytest.raises(SlurmError, match="is slurmctld up"):
        queue.client.queue()


def test_an_array_that_lost_a_task_is_read_anew():
    queue = Queue({7: waiting(array_job_id=7, tasks=["1", "2", "3"])})
    assert queue.client.queue()[0].name == "7_[1-3]"
    queue.jobs[7]["tasks"] = ["1", "3"]
    assert queue.client.queue()[0].name == "7_[1,3]"


@pytest.mark.parametrize("comment", ["two\nlines", "a,b|c", "\x1f", "(null)", "1\x1fPENDING\x1f"])
def test_no_text_of_a_user_can_pass_for_another_column(comment):
    queue = Queue({1: waiting(comment=comment), 2: waiting()})
    told = [(job.job_id, job.reason) for job in queue.client.queue()]
    assert told == [(1, "Priority"), (2, "Priority")]
    assert queue.client.queue()[0].comment == comment


def test_a_table_that_is_cut_short_is_an_error():
    queue = Queue({1: waiting()})
    whole = queue.squeue
    queue.run.replies["squeue -h"] = lambda argv, stdin: whole(argv, stdin)[:-30]
    with pytest.raises(SlurmError, match="ends within a job"):
        queue.client.queue()
