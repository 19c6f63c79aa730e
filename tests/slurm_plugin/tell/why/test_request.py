"""sbatch's options, a script's lines and variables, as the job that Slurm would make of them."""

from dataclasses import replace

import pytest

from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import JobDefaults, QueuedJob, SlurmPartition
from slurm_plugin.tell.why.request import (
    NotJudged,
    NotTried,
    options_of,
    parsed,
    tried_job,
)
from tests.slurm_plugin.tell.why.test_answer import JOB, node, state
from tests.slurm_plugin.tell.why.test_trial import SETTINGS, asked, tried


def job_of(*argv: str) -> QueuedJob:
    return asked(*argv).state.job


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        ("--gpus 4", {"tres_per_job": "gres/gpu:4", "min_nodes": 1, "max_nodes": 0}),
        ("-G v100:4", {"tres_per_job": "gres/gpu:v100:4"}),
        ("--gres=gpu:2 -N2", {"tres_per_node": "gres/gpu:2", "min_nodes": 2, "max_nodes": 2}),
        ("--gres=gpu", {"tres_per_node": "gres/gpu:1"}),
        ("--gpus-per-node=2 -N 1-3", {"tres_per_node": "gres/gpu:2", "max_nodes": 3}),
        ("--gpus-per-task=1 -n4", {"tres_per_task": "gres/gpu:1", "ntasks": 4, "cpus": 4}),
        ("-c4 -n2 --gpus=1", {"cpus": 8, "memory_per_cpu_mb": 50}),
        ("--mem=2G", {"memory_per_node_mb": 2048, "memory_per_cpu_mb": 0}),
        ("--mem 500", {"memory_per_node_mb": 500}),
        ("", {"time_limit_s": 600, "partition": "gpu", "cpus": 1}),
        ("-L matlab:2 --requeue -Q --gpu-bind=closest", {"licenses": "matlab:2"}),
        ("-t 1:00:00 -C a&b -w dgx1 -x dgx2 --exclusive",
         {"time_limit_s": 3600, "features": "a&b", "req_nodes": "dgx1", "exclusive": True}),
    ],
)  # fmt: skip
def test_options_become_the_job_that_slurm_would_make(argv, fields):
    job = job_of(*argv.split())
    assert {key: getattr(job, key) for key in fields} == fields


@pytest.mark.parametrize("text", ["0", "00:00", "0-0", "-1", "unlimited", "INFINITE"])
def test_a_job_may_ask_for_no_time_limit(text):
    assert job_of("-t", text).time_limit_s == 0


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        ("--gpus=3", {"cpus_per_tres": "gres/gpu:6", "memory_per_tres": "gres/gpu:700"}),
        ("--gpus=3 -c2", {"cpus_per_tres": "", "memory_per_tres": "gres/gpu:700"}),
        ("--gpus=3 --cpus-per-gpu=1", {"cpus_per_tres": "gres/gpu:1"}),
        ("--gpus=3 --mem=9", {"memory_per_tres": ""}),
        ("-n2", {"cpus_per_tres": "", "memory_per_tres": ""}),
    ],
)  # fmt: skip
def test_what_a_partition_gives_beside_each_gpu_counts(argv, fields):
    gives = JobDefaults(cpus_per_gpu=6, mem_gpu_mb=700)
    partition = SlurmPartition("gpu", ("dgx1", "dgx2"), True, defaults=gives)
    site = state(JOB)
    site = replace(site, snapshot=replace(site.snapshot, settings=Settings((partition,))))
    job = tried_job(parsed(argv.split())[0], site).state.job
    assert {key: getattr(job, key) for key in fields} == fields


def test_what_partitions_give_counts_where_the_job_does_not_say_it():
    gives = [JobDefaults(cpus_per_gpu=n, mem_cpu_mb=100 * n) for n in (1, 2)]
    names = ("a", "b")
    partitions = [
        SlurmPartition(name, ("dgx1",), False, defaults=one)
        for name, one in zip(names, gives, strict=True)
    ]
    site = state(JOB)
    site = replace(site, snapshot=replace(site.snapshot, settings=Settings(tuple(partitions))))
    for argv in ("--mem=1G -c2 --gres=gpu:1", "--mem-per-cpu=9 -c2 --gpus=1", "--mem=1G -c2"):
        assert tried_job(parsed(["-p", "a,b", *argv.split()])[0], site)
    for argv in ("-c2 --gres=gpu:1", "--mem=1G --gres=gpu:1"):
        with pytest.raises(NotTried, match="its partitions differ"):
            tried_job(parsed(["-p", "a,b", *argv.split()])[0], site)


@pytest.mark.parametrize(
    "argv",
    [
        *("--gp 4", "--gpus=x", "-n x", "--burst-buffer=1", "--requeue=1"),
        *("-N two", "-t soon", "-t 0x", "--mem=lots", "--mem=1 --mem-per-cpu=1"),
    ],
)
def test_what_is_not_understood_is_refused(argv):
    with pytest.raises(NotTried) as error:
        job_of(*argv.split())
    assert not isinstance(error.value, NotJudged)


@pytest.mark.parametrize(
    ("text", "beyond"),
    [
        ("#PBS -h\n#SBATCH --gpus=1\n", ("#PBS",)),
        ("#SBATCH --ignore-pbs --gpus=1\n#PBS -h\n", ()),
        ("#SBATCH --gpus=1\n#BSUB -n 4\n", ("#BSUB",)),
        ("#SLURM --gpus=1\n", ()),
        ("#SBATCH --gpus=1\n#SBATCH hetjob\n#SBATCH -N9\n", ("#SBATCH hetjob",)),
    ],
)
def test_lines_of_a_script_that_sbatch_obeys_too(tmp_path, text, beyond):
    (tmp_path / "job.sh").write_text(f"#!/bin/sh\n{text}echo\n")
    options, _ = options_of([str(tmp_path / "job.sh")], {})
    job = tried_job(options, asked().state)
    assert job.beyond == beyond
    assert (job.state.job.tres_per_job, job.state.job.min_nodes) == ("gres/gpu:1", 1)


@pytest.mark.parametrize("shares", [(0,), (0, 1)])
def test_a_partition_may_give_whole_nodes(shares):
    names = ("gpu", "other")[: len(shares)]
    parts = tuple(
        SlurmPartition(name, ("dgx1",), name == "gpu", share=share)
        for name, share in zip(names, shares, strict=True)
    )
    site = state(JOB, [node("dgx1", 2)])
    settings = replace(SETTINGS, partitions=parts)
    site = replace(site, snapshot=replace(site.snapshot, jobs=(), settings=settings))
    options = {"gpus": "1", "partition": ",".join(names)}
    if len(shares) > 1:
        with pytest.raises(NotJudged, match="OverSubscribe=EXCLUSIVE"):
            tried_job(options, site)
        return
    assert tried_job(options, site).state.job.exclusive


@pytest.mark.parametrize(
    "argv", ["--exclusive=exclusive", "--propagate=ALL", "--signal=R:9@60", "--no-kill=off -k"]
)
def test_what_changes_nothing_about_a_start_is_taken(argv):
    assert tried(f"--gpus=1 {argv}", (node("dgx1", 0),)).starts_now


@pytest.mark.parametrize(
    ("script", "environ", "given", "wanted"),
    [
        ("-p a -t 5", {"SBATCH_PARTITION": "b"}, "", {"partition": "b", "time": "5"}),
        ("-p a", {"SBATCH_PARTITION": "b"}, "-p c", {"partition": "c"}),
        ("", {"SBATCH_GPUS": "2", "SBATCH_COMMENT": "gpu-topo: off", "SLURM_GRES": "gpu:8"}, "",
         {"gpus": "2"}),
        ("", {"SBATCH_EXCLUSIVE": "", "SBATCH_ACCOUNT": ""}, "", {"exclusive": ""}),
        ("", {"SBATCH_EXCLUSIVE": "exclusive"}, "", {"exclusive": "exclusive"}),
        ("", {"SBATCH_MEM_PER_NODE": "9G"}, "--mem-per-gpu=1G", {"mem-per-gpu": "1G"}),
        ("--mem=1G", {"SBATCH_MEM_PER_CPU": "9G"}, "", {"mem": "1G"}),
        ("", {"SBATCH_JOB_NAME": "x", "SBATCH_OUTPUT": "y", "SBATCH_NO_REQUEUE": "1"}, "", {}),
    ],
)  # fmt: skip
def test_sbatchs_variables_count_more_than_a_script_and_less_than_options(
    tmp_path, script, environ, given, wanted
):
    """sbatch.1: input environment variables."""
    path = tmp_path / "job.sh"
    path.write_text(f"#!/bin/sh\n#SBATCH {script}\n")
    assert options_of([*given.split(), str(path)], environ) == (wanted, True)


@pytest.mark.parametrize(
    ("environ", "option"),
    [
        ({"SBATCH_ARRAY_INX": "1-3"}, "--array"),
        ({"SBATCH_EXCLUSIVE": "user"}, "--exclusive=user"),
        ({"SBATCH_HINT": "x"}, "--hint"),
        ({"SBATCH_REQ_SWITCH": "1"}, "--switches"),
        ({"SBATCH_SEGMENT_SIZE": "2"}, "--segment"),
    ],
)
def test_a_variable_that_is_not_judged_counts_like_its_option(environ, option):
    options, _ = options_of(["--gpus=1"], environ)
    job = tried_job(options, asked().state)
    assert (*job.beyond, *job.by_slurm) == (option,)


def test_what_stands_behind_the_script_is_the_scripts():
    assert parsed(["-N2", "job.sh", "-N9", "--x"]) == ({"nodes": "2"}, "job.sh")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("--gp=4", "option --gp is not known, or begins several names"),
        ("--container-image=x", "option --container-image is not known"),
        ("-z", "option -z is not known"),
        ("-V", "option --version is not known"),
        ("--hold=1", "option --hold takes no argument"),
        ("-N2 --gpus", "option --gpus requires an argument"),
        ("-HN", "option --nodes requires an argument"),
    ],
)
def test_what_sbatch_would_not_take_is_named(argv, says):
    with pytest.raises(NotTried, match=says):
        parsed(argv.split())


def test_a_name_may_be_cut_short_where_no_other_begins_so():
    argv = ["--part=a", "--exclus=user", "--gpus", "2", "--contig"]
    wanted = {"partition": "a", "exclusive": "user", "gpus": "2", "contiguous": ""}
    assert parsed(argv) == (wanted, "")
