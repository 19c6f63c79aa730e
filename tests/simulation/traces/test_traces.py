"""Logs of every format become the same jobs, and what cannot be used is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gres_topology.catalog import load
from simulation import SimJob, SimulationError
from simulation.core.jobs import at_load, offered_load
from simulation.traces import prepare, read, sacct

ASSETS = Path(__file__).parent / "assets"
CLUSTER = {"d1": load("dgx1v"), "d2": load("dgx1v")}
GOOD = "job_id,submit_s,duration_s,gpus,nodes,walltime_s,user,hint\n"


@pytest.fixture
def log(tmp_path):
    """Writes a text to a file and reads it as a log."""

    def reads(text, name="log"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(path)

    return reads


def reasons(trace):
    return [f"{row.where}: {row.reason}" for row in trace.rejected]


def test_a_csv_row_is_a_job(log):
    (job,) = log(GOOD + "7,10,3600,8,2,7200,eve,pattern=ring\n").jobs
    assert job == SimJob(7, (4, 4), 3600.0, 10.0, "pattern=ring", 7200.0, "eve")


@pytest.mark.parametrize("column", ["where", "self", "source", "None", "job id", ""])
def test_a_column_of_any_name_is_passed_over(log, column):
    assert log(f"job_id,submit_s,duration_s,gpus,{column}\n7,10,3600,8,x\n").jobs == [
        SimJob(7, (8,), 3600.0, 10.0)
    ]


def test_how_long_a_job_waited_in_the_log_is_known_where_it_says_when_it_started(log):
    rows = "1,10,,5,1\n2,10,70,5,1\n3,10,4,5,1\n"
    trace = log(f"job_id,submit_s,start_s,duration_s,gpus\n{rows}")
    assert [job.waited_s for job in trace.jobs] == [None, 60.0, None]


def test_what_slurm_conf_counts_is_read_by_node(log):
    head = "job_id,submit_s,duration_s,gpus,nodes,cpus,mem_gb,partition,priority\n"
    trace = log(head + "1,0,1,4,2,9,3,day,70000000\n2,0,1,1,1,,,,\n3,0,1,1,1,few,,,\n")
    first, second = trace.jobs
    assert (first.cpus, first.memory_mb, first.partition, first.priority) == (
        5, 1536, "day", 70_000_000)  # fmt: skip
    assert (second.cpus, second.memory_mb, second.partition, second.priority) == (0, 0, "", 0)
    assert reasons(trace) == ["line 4: cpus is 'few'; expected a number, 0 or more"]


def test_sacct_tells_cpus_memory_and_partition(log):
    head = "JobID|Submit|Start|End|State|NNodes|AllocTRES|Partition\n"
    row = "5|10|20|30|COMPLETED|2|billing=8,cpu=8,gres/gpu=4,mem=64G,node=2|long\n"
    (job,) = log(head + row).jobs
    assert (job.cpus, job.memory_mb, job.partition) == (4, 32_768, "long")


RAW = "JobIDRaw|State|Partition|Submit|Start|End|ElapsedRaw|Timelimit|AllocTRES\n"
RAW_ROW = "12345678|COMPLETED|gpu|2026-01-05T08:00:00|10|20|3600|{}|gres/gpu:a100=4,gres/gpu=4\n"


@pytest.mark.parametrize(
    "above",
    [
        "",
        "$ sacct -a -X -P --format=JobIDRaw,State\n",
        "# from the archive\n\n",
        "[u@n1 ~]$ sacct -P\n",
    ],
    ids=["header", "prompt", "comment", "another prompt"],
)
def test_sacct_with_raw_numbers_alone_and_lines_above_the_header(log, above):
    (job,) = log(above + RAW + RAW_ROW.format("1-00:30:00")).jobs
    assert (job.job_id, job.gpus_per_node, job.duration_s) == (12345678, (4,), 3600)
    assert job.walltime_s == 88_200


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ("02:00:00", 7200),
        ("30:00", 1800),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("", None),
    ],
)
def test_time_limits_are_read_as_sacct_prints_them(log, limit, seconds):
    assert log(RAW + RAW_ROW.format(limit)).jobs[0].walltime_s == seconds


def test_lines_above_saccts_header_count(log):
    trace = log("$ sacct -P\n" + RAW + "7|short\n")
    assert reasons(trace) == ["line 3: 2 fields; the header has 9"]


def test_gpus_that_do_not_divide_are_spread_largest_first(log):
    assert log(GOOD + "1,0,1,7,3,,,\n").jobs[0].gpus_per_node == (3, 2, 2)


def test_a_packed_file_is_unpacked(log):
    assert len(log(gzip.compress((GOOD + "1,0,1,1,1,,,\n").encode())).jobs) == 1


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1,x,1,1,1,,,", "line 2: submit_s is 'x'; expected seconds, 0 or more"),
        ("1,0,-5,1,1,,,", "line 2: duration_s is '-5'; expected seconds, 0 or more"),
        ("1,0,,1,1,,,", "line 2: duration_s is ''; expected seconds, 0 or more"),
        ("1,0,inf,1,1,,,", "line 2: duration_s is 'inf'; expected seconds, 0 or more"),
        ("1,0,1,0.5,1,,,", "line 2: gpus is '0.5'; parts of a GPU are not simulated"),
        ("1,0,1,many,1,,,", "line 2: gpus is 'many'; expected a whole number from 1 on"),
        ("1,0,1,1,2,,,", "line 2: 2 nodes for 1 GPUs; expected a GPU on every node"),
        ("1,0,1,1,1,soon,,", "line 2: walltime_s is 'soon'; expected seconds, 0 or more"),
        ("1,0", "line 2: gpus is ''; expected a whole number from 1 on"),
        ("1,0,1,1,1,,,,,", "line 2: more fields than the header has"),
    ],
)
def test_a_broken_row_says_what_was_read_and_what_was_expected(log, row, said):
    trace = log(GOOD + row + "\n2,0,1,1,1,,,\n")
    assert reasons(trace) == [said]
    assert [job.job_id for job in trace.jobs] == [2]


def test_swf_reads_processors_as_gpus_and_asked_ones_where_used_are_unknown(log):
    tail = "-1 -1 {} 900 -1 1 5 -1 -1 -1 -1 -1 -1"
    trace = log(
        "; UnixStartTime: 0\n"
        f"1 0 5 300 4 {tail.format(4)}\n"
        f"2 60 5 300 -1 {tail.format(2)}\n"
        f"3 90 5 -1 1 {tail.format(1)}\n"
        "4 too short\n"
    )
    assert trace.format == "swf"
    assert [(job.job_id, job.gpus_per_node, job.walltime_s) for job in trace.jobs] == [
        (1, (4,), 900.0),
        (2, (2,), 900.0),
    ]
    assert reasons(trace) == [
        "line 4: duration_s is '-1'; expected seconds, 0 or more",
        "line 5: 3 fields; expected 18",
    ]


def test_topo_awares_workload_becomes_hints(log):
    job = {"arrival": 0.5, "gpus": 2, "id": 3, "size": "4", "type": "bvlc_alexnet",
           "minimal_utility": 0.5, "time": 0}  # fmt: skip
    (found,) = log(json.dumps({"3": job})).jobs
    assert found.hint == "profile=bvlc_alexnet,batch=4,min-utility=0.500000000"
    assert (found.job_id, found.gpus_per_node, found.submit_s) == (3, (2,), 0.5)


@pytest.mark.parametrize("name", ["sacct-24.11.json.gz", "sacct-24.11.parsable2"])
def test_what_slurm_24_11_exported_is_read_whole(name):
    """18 jobs on GPUs: an array of four, one of two nodes; one still ran, one had no GPU."""
    trace = read(ASSETS / name)
    assert not trace.rejected
    assert len(trace.jobs) == 18
    assert trace.left_out["jobs without GPUs"] == trace.left_out["still running"] == 1
    two_nodes = [job for job in trace.jobs if len(job.gpus_per_node) == 2]
    assert [(job.gpus_per_node, job.duration_s, job.walltime_s) for job in two_nodes] == [
        ((2, 2), 5.0, 600.0)
    ]
    assert {job.user for job in trace.jobs} == {"alice"}


def test_both_exports_of_one_slurm_agree(log):
    """But for when jobs could have started, which the second one was not asked for."""
    content = json.loads(gzip.decompress((ASSETS / "sacct-24.11.json.gz").read_bytes()))
    for job in content["jobs"]:
        del job["time"]["eligible"]
    exports = [log(json.dumps(content)), read(ASSETS / "sacct-24.11.parsable2")]
    shapes = [
        sorted((job.gpus_per_node, job.duration_s, job.submit_s, job.walltime_s) for job in e.jobs)
        for e in exports
    ]
    assert shapes[0] == shapes[1]


def test_older_releases_write_plain_numbers_and_words(log):
    """22.05: `limit` is a number of minutes, `current` one word."""
    tres = {"allocated": [{"type": "gres", "name": "gpu", "id": 1001, "count": 2}]}
    times = {"submission": 5, "start": 6, "end": 9, "elapsed": 3, "limit": 10}
    job = {"job_id": 1, "time": times, "state": {"current": "COMPLETED"}, "tres": tres}
    (found,) = log(json.dumps({"jobs": [job]})).jobs
    assert (found.gpus_per_node, found.duration_s, found.walltime_s) == ((2,), 3.0, 600.0)


def test_tasks_of_an_array_keep_their_names():
    ready = prepare(read(ASSETS / "sacct-24.11.parsable2"), CLUSTER)
    assert [job.name for job in ready.jobs if job.name] == ["4_1", "4_2", "4_3", "4_4"]
    assert len({job.job_id for job in ready.jobs}) == 18


def test_the_hint_is_read_from_the_admin_comment():
    hints = {job.job_id: job.hint for job in read(ASSETS / "sacct-24.11.json.gz").jobs}
    assert hints[2] == "pattern=ring"
    assert hints[22] == "min-utility=0.5"


HEAD = "JobID|State|Submit|Start|End|ElapsedRaw|NNodes|AllocTRES\n"
T = "2026-01-01T00:00:00"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"1|COMPLETED|{T}|{T}|{T}|x|1|gres/gpu=1", "duration_s is 'x'; expected seconds"),
        (f"1|COMPLETED|noon|{T}|{T}|1|1|gres/gpu=1", "'noon' is no time; expected 2026"),
        ("1|COMPLETED", "2 fields; the header has 8"),
    ],
)
def test_a_broken_line_of_sacct_is_named(log, line, said):
    trace = log(f"{HEAD}{line}\n2|COMPLETED|{T}|{T}|{T}|5|1|gres/gpu=1\n")
    assert [job.job_id for job in trace.jobs] == [2]
    assert reasons(trace)[0].startswith("line 2")
    assert said in reasons(trace)[0]


def test_typed_gpus_are_not_counted_twice(log):
    tres = "cpu=1,gres/gpu:v100=3,gres/gpu=3"
    assert log(f"{HEAD}1|COMPLETED|{T}|{T}|{T}|5|1|{tres}\n").jobs[0].gpus_per_node == (3,)
    tres = "cpu=1,gres/gpu:a100=1,gres/gpu:v100=3"
    assert log(f"{HEAD}1|COMPLETED|{T}|{T}|{T}|5|1|{tres}\n").jobs[0].gpus_per_node == (4,)


def test_a_job_that_never_started_is_counted_by_its_state(log):
    trace = log(f"{HEAD}1|CANCELLED by 1000|{T}|None|{T}|0|1|gres/gpu=1\n")
    assert trace.left_out == {"never started (cancelled)": 1}


def test_a_broken_job_of_json_is_named(log):
    trace = log(json.dumps({"jobs": [{"job_id": 5}, 17]}))
    assert [row.where for row in trace.rejected] == ["jobs[0]", "jobs[1]"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; expected one of a CSV with a header"),
        ("hello there", "starts with 'hello there'; expected one of"),
        ("{broken", "not JSON"),
        ('{"a": 1}', "JSON, but neither"),
        ("submit_s,gpus\n1,1\n", "no column 'job_id'; expected a header with"),
        ("JobID|State\n", "no column Submit; expected the output of: sacct -a -X --parsable2"),
    ],
)
def test_what_is_no_log_is_refused_with_the_formats_there_are(log, text, said):
    with pytest.raises(SimulationError) as error:
        log(text)
    assert said in str(error.value)


def test_a_file_that_is_not_there_is_an_error_of_one_line(tmp_path):
    with pytest.raises(SimulationError, match="No such file"):
        read(tmp_path / "none")


@given(st.text(max_size=300))
def test_no_text_makes_a_reader_crash(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "fuzz"
    for start in ("", "job_id,submit_s,duration_s,gpus\n", HEAD, "; swf\n"):
        path.write_text(start + text, encoding="utf-8", errors="replace")
        try:
            trace = read(path)
        except SimulationError:
            continue
        assert all(row.where and row.reason for row in trace.rejected)


def test_jobs_that_fit_no_empty_cluster_are_rejected_by_name(log):
    ready = prepare(log(GOOD + "1,5,1,9,1,,,\n2,6,1,4,4,,,\n3,7,1,16,2,,,\n"), CLUSTER)
    assert [job.job_id for job in ready.jobs] == [3]
    assert ready.jobs[0].submit_s == 0.0
    assert reasons(ready) == [
        "job 1: 9 GPUs on 1 nodes: not on this cluster",
        "job 2: 4 GPUs on 4 nodes: not on this cluster",
    ]


def test_a_hint_that_is_wrong_is_rejected_by_name(log):
    ready = prepare(log(GOOD + "1,0,1,1,1,,,patern=ring\n2,0,1,1,1,,,min-utility=3\n"), CLUSTER)
    assert not ready.jobs
    assert "hint patern='ring'; expected one of policy, pattern" in reasons(ready)[0]
    assert "hint min-utility='3'; expected a number from 0 to 1" in reasons(ready)[1]


def test_the_beginning_can_be_skipped_and_is_counted(log):
    rows = "".join(f"{n},{n * 43200},1,1,1,,,\n" for n in range(6))
    ready = prepare(log(GOOD + rows), CLUSTER, skip_days=1, most=3)
    assert [(job.job_id, job.submit_s) for job in ready.jobs] == [(2, 0), (3, 43200), (4, 86400)]
    assert ready.left_out == {"submitted in the first 1 days": 2, "after the first 3 jobs": 1}


def test_equal_ids_are_told_apart(log):
    ready = prepare(log(GOOD + "1,0,1,1,1,,,\n1,0,1,1,1,,,\n"), CLUSTER)
    assert len({job.job_id for job in ready.jobs}) == 2
    assert [job.name or str(job.job_id) for job in ready.jobs] == ["1", "1"]


@pytest.mark.parametrize("load", [0.3, 0.8, 0.95, 1.4])
def test_arrivals_are_scaled_to_the_load_asked_for(load):
    jobs = [SimJob(n, (1 + n % 4,), 60.0 + n, submit_s=100.0 * n) for n in range(200)]
    scaled = at_load(jobs, 8, load)
    assert offered_load(scaled, 8) == pytest.approx(load)
    assert [job.duration_s for job in scaled] == [job.duration_s for job in jobs]
    gaps = {
        round((b.submit_s - a.submit_s) / (d.submit_s - c.submit_s), 9)
        for a, b, c, d in zip(scaled, scaled[1:], jobs, jobs[1:], strict=False)
    }
    assert len(gaps) == 1


def test_a_load_that_the_jobs_cannot_bring_is_refused():
    with pytest.raises(SimulationError, match="can be made to offer a load from"):
        at_load([SimJob(1, (1,), 1.0), SimJob(2, (1,), 1.0, submit_s=5.0)], 8, 0.9)


def test_jobs_that_come_all_at_once_offer_no_load():
    assert offered_load([SimJob(1, (1,), 1.0), SimJob(2, (1,), 1.0)], 8) == 0.0


def test_a_comment_with_bars_is_one_field(tmp_path):
    """As the engine writes it: `[gpu-topo: HINT | NOTE]`."""
    path = tmp_path / "log"
    path.write_text(
        "JobID|AdminComment|Submit|End|Start|AllocTRES\n"
        "7|[gpu-topo: pattern=ring | d1:0,1 | more]|100|260|200|gres/gpu=2\n"
        "8||100|260|200|gres/gpu=2\n"
        "9|100|260|200|gres/gpu=2\n"
    )
    trace = read(path)
    assert [(job.job_id, job.hint, job.duration_s) for job in trace.jobs] == [
        (7, "pattern=ring", 60), (8, "", 60),
    ]  # fmt: skip
    assert [row.reason for row in trace.rejected] == ["5 fields; the header has 6"]


def test_a_job_waits_from_when_it_could_have_started(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        "JobID|Submit|Eligible|Start|End|AllocTRES\n"
        "7|100|500|600|700|gres/gpu=2\n8|100|Unknown|600|700|gres/gpu=2\n9|100|50|600|700|gres/gpu=2\n"
    )
    assert [(job.submit_s, job.waited_s) for job in read(path).jobs] == [
        (500, 100), (100, 500), (100, 500),
    ]  # fmt: skip


def test_a_job_that_our_engine_held_waits_from_its_submit(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        "JobID|Submit|Eligible|Start|End|AllocTRES|AdminComment\n"
        "7|100|500|600|700|gres/gpu=2|[gpu-topo: | x] [gpu-slots: placed token=a]\n"
    )
    assert [(job.submit_s, job.waited_s) for job in read(path).jobs] == [(100, 500)]


def test_jobs_on_slices_are_left_out(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        "JobID|Submit|Start|End|AllocTRES\n"
        "7|100|600|700|gres/gpu:a100_1g.5gb=1,gres/gpu=1\n8|100|600|700|gres/gpu:a100=2,gres/gpu=2\n"
    )
    trace = read(path)
    assert [job.job_id for job in trace.jobs] == [8]
    assert trace.left_out == {"jobs on slices of GPUs": 1}


def test_an_empty_log_of_sacct_is_said():
    with pytest.raises(SimulationError, match="no column JobID"):
        sacct.from_parsable("sacct", "")
