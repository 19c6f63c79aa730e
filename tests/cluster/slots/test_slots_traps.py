"""What stock Slurm makes of slots, gates and the bridge's rewriting; the engine is scripted."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from live_harness import GPU, OLD, SHOW_GPUS, gpus_of_tasks, not_on_old
from select_harness import FakeEngine, clear, scripted_for_bridge

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import CommandResult, until
from slurm_cluster.slurm_text import Job

pytestmark = pytest.mark.cluster

GPU_PER_TASK = GPU if OLD else "gres/gpu="
NOTHING_OF_OURS = "TresPerJob= TresPerTask= TresPerSocket= TresBind="
SHOW_IN_STEP = f"srun sh -c '{SHOW_GPUS}'"


@pytest.fixture(scope="module")
def scripted(session_cluster: Cluster) -> Iterator[FakeEngine]:
    """The scripted engine beside stock Slurm with a GRES type per GPU."""
    settings = (
        "deadline_ms = 800\nlocked_deadline_ms = 800\nbudget_ms = 1000\nretry_first_s = 0.1\n"
    )
    with scripted_for_bridge(session_cluster, settings, "gputopo-slots") as fake:
        yield fake


@pytest.fixture
def engine(live: Cluster, scripted: FakeEngine) -> Iterator[FakeEngine]:
    """It answers `pass` until a test says otherwise; no job is left over."""
    clear(live)
    scripted.ready()
    yield scripted
    clear(live)


def gres(slots: Sequence[int], model: str = "v100", count: int = 1) -> str:
    """One item per slot."""
    return ",".join(f"{GPU}{model}.s{slot}:{count}" for slot in slots)


def answers(engine: FakeEngine, **fields: Any) -> None:
    """The engine sets these fields of every job from now on."""
    words = (f"set.{key}={str(value).replace(' ', '%20')}" for key, value in fields.items())
    engine.rule(do="pass", submit=" ".join(["ok id=%ID%", *words]))


def places(
    engine: FakeEngine, node: str, slots: Sequence[int], nodes: int = 1, **more: Any
) -> None:
    """Every job gets these slots of these nodes from now on, as a batch job does."""
    fields = {
        "tres_per_node": gres(slots),
        "tres_per_job": "",
        "tres_per_task": "",
        "tres_per_socket": "",
        "req_nodes": node,
        "min_nodes": nodes,
        "max_nodes": nodes,
        "admin_comment": "[gpu-slots: placed token=1]",
    }
    answers(engine, **{**fields, **more})


def gates(engine: FakeEngine) -> None:
    """Every job waits behind a gate that opens by itself after an hour."""
    opens = int(time.time()) + 3600
    answers(engine, begin_time=opens, admin_comment="[gpu-slots: gated token=1]")


def update(slurm: Cluster, job: int | str, words: str, user: str = "root") -> CommandResult:
    """`scontrol update`; what came of it."""
    command = ["scontrol", "update", f"JobId={job}", *words.split()]
    return slurm.run("ctl", command, user=user, check=False)


def let_go(slurm: Cluster, job: int | str, words: str) -> CommandResult:
    """An update that sets slots. On 22.05 the former request must go first, or they merge."""
    if OLD:
        update(slurm, job, f"TresPerNode= {NOTHING_OF_OURS}")
    return update(slurm, job, words)


def release(node: str, slots: Sequence[int]) -> str:
    """The one update that lets a gated batch job start with its slots."""
    return f"StartTime=now ReqNodeList={node} gres={gres(slots)} {NOTHING_OF_OURS} NumNodes=1"


def step_in(slurm: Cluster, jobid: int) -> CommandResult:
    """The output file of a batch job that ended."""
    slurm.wait_finished(jobid)
    return slurm.run("ctl", ["cat", f"/home/alice/slots.{jobid}"])


def batch(slurm: Cluster, *args: str, script: str = SHOW_IN_STEP) -> int:
    """A batch job whose output is kept for `step_in`."""
    command = ["sbatch", "--parsable", "-o", "slots.%j", *args, "--wrap", script]
    return int(slurm.run("ctl", command, user="alice").out)


ONE_NODE = {
    "--gres by model": (["--gres=gpu:v100:2"], (0, 3)),
    "--gpus by model": (["--gpus=v100:2"], (1, 6)),
    "--gpus-per-task by model": (["-n2", "--gpus-per-task=v100:1"], (2, 5)),
}


def test_whatever_the_user_wrote_the_job_gets_exactly_its_slots(engine):
    """Three jobs side by side on one node; the request by model is Slurm's no more."""
    slurm, jobs = engine.cluster, {}
    for name, (args, slots) in ONE_NODE.items():
        places(engine, "dgx1", slots)
        jobs[name] = slurm.sbatch(*args, sleep_s=60)
    for name, jobid in jobs.items():
        expected = ONE_NODE[name][1]
        job = slurm.wait_running(jobid)
        assert job.gpus == {"dgx1": expected}, name
        assert job.fields["Features"] == "v100", name
        assert slurm.visible_gpus(jobid) == expected, name


def test_steps_inside_inherit_no_model(engine):
    """sbatch leaves SLURM_GPUS=v100:2 and the like behind, which would break every srun."""
    slurm = engine.cluster
    for args in (
        ["--gpus=v100:2"],
        ["-N1", "--gpus-per-node=v100:2"],
        ["-n2", "--gpus-per-task=v100:1"],
    ):
        places(engine, "dgx1", (2, 5))
        seen = gpus_of_tasks(step_in(slurm, batch(slurm, *args)))
        assert seen in ({(2, 5)}, {(2,), (5,)}), args


def test_cpus_and_memory_per_gpu_become_the_jobs_own(engine):
    """Two GRES types and --cpus-per-gpu in one job are refused by Slurm."""
    slurm = engine.cluster
    places(engine, "dgx1", (0, 3), cpus_per_tres="", cpus_per_task=6, min_cpus=6)
    jobid = batch(slurm, "-n1", "--gpus=2", "--cpus-per-gpu=3", "--mem-per-gpu=100")
    assert gpus_of_tasks(step_in(slurm, jobid)) == {(0, 3)}
    fields = slurm.job(jobid).fields
    assert fields["NumCPUs"] == "6"
    assert "mem=200M" in fields["TRES" if OLD else "AllocTRES"]


INTERACTIVE = [
    ["-n1", "--gres=gpu:2"],
    ["-n1", "--gpus=2"],
    ["-n1", "-N1", "--gpus-per-node=2"],
    ["-n2", "--gpus-per-task=1"],
]


def interactive(slurm: Cluster, *args: str) -> CommandResult:
    """A command under srun or salloc."""
    return slurm.run("ctl", args, user="alice", check=False)


@not_on_old
def test_srun_and_salloc_run_with_their_slots(engine):
    """Slots per node would contradict what the client's step asks for; slots per job do not."""
    slurm = engine.cluster
    per_job = {"tres_per_node": "", "tres_per_job": gres((0, 3)), "tres_bind": ""}
    places(engine, "dgx1", (), **per_job)
    for args in INTERACTIVE:
        for command in (["srun", *args], ["salloc", *args, "srun"]):
            done = interactive(slurm, *command, "sh", "-c", SHOW_GPUS)
            assert gpus_of_tasks(done) in ({(0, 3)}, {(0,), (3,)}), command
    places(engine, "dgx[1-2]", (), 2, **{**per_job, "tres_per_job": gres((0, 3), count=2)})
    two = interactive(slurm, "srun", "-N2", "--gpus=4", "sh", "-c", SHOW_GPUS)
    assert gpus_of_tasks(two) == {(0, 3)}


@not_on_old
def test_srun_by_model_takes_gres_only(engine):
    """The step of --gres=gpu:v100:2 takes over the job's slots; other forms ask for v100 again."""
    slurm = engine.cluster
    places(engine, "dgx1", (0, 3))
    show = ["sh", "-c", SHOW_GPUS]
    assert gpus_of_tasks(interactive(slurm, "srun", "--gres=gpu:v100:2", *show)) == {(0, 3)}
    for args in (["--gpus=v100:2"], ["-n2", "--gpus-per-task=v100:1"]):
        for tool in ("srun", "salloc"):
            refused = interactive(slurm, tool, *args, *show)
            assert refused.code != 0
            assert "srun and salloc take a model by --gres=gpu:v100:N only" in refused.err


@not_on_old
def test_with_the_client_side_script_every_form_takes_a_model(engine):
    """cli_filter.lua rewrites what the step asks for, which no submit hook can."""
    slurm = engine.cluster
    # a configuration of the client's own: with the common one every host needs the script
    slurm.run(
        "ctl",
        "rm -rf /tmp/filtered; cp -rL /etc/slurm /tmp/filtered;"
        " cp -r /src/lua_bridge/cli_filter.lua /src/lua_bridge/gputopo /tmp/filtered;"
        " echo CliFilterPlugins=lua >>/tmp/filtered/slurm.conf; chmod -R a+rX /tmp/filtered",
    )
    places(engine, "dgx1", (), tres_per_node="", tres_per_job=gres((0, 3)), tres_bind="")
    env = ["env", "SLURM_CONF=/tmp/filtered/slurm.conf"]
    show = ["sh", "-c", SHOW_GPUS]
    for args in (["--gpus=v100:2"], ["-N1", "--gpus-per-node=v100:2"], ["--gres=gpu:v100:2"]):
        assert gpus_of_tasks(interactive(slurm, *env, "srun", *args, *show)) == {(0, 3)}, args
    assert " features=v100 " in engine.lines("submit")[-1]
    step = ["srun", "--gpus=a100:1", *show]
    assert gpus_of_tasks(interactive(slurm, *env, "salloc", "--gpus=2", *step)) == {(0,)}


def test_without_an_engine_a_request_by_model_runs_where_the_model_is(engine):
    """Slurm has no type v100 any more, so the bridge says it by the node's feature."""
    slurm = engine.cluster
    engine.stop()
    try:
        jobs = [
            slurm.sbatch("--gres=gpu:a100:2", sleep_s=60),
            slurm.sbatch("--gpus=a100:2", "-C", "a100|p100", sleep_s=60),
        ]
        for jobid in jobs:
            assert set(slurm.wait_running(jobid).gpus) == {"bridged1"}
            assert len(slurm.visible_gpus(jobid)) == 2
    finally:
        engine.start()


@contextmanager
def gated(engine: FakeEngine, *args: str) -> Iterator[int]:
    """A job behind a gate of an hour."""
    gates(engine)
    jobid = engine.cluster.sbatch(*args, sleep_s=60)
    assert engine.cluster.job(jobid).state == "PENDING"
    yield jobid
    engine.cluster.cancel(jobid)


def test_users_neither_open_the_gate_nor_pick_gpus(engine):
    """One clear line each; what is the user's own stays the user's."""
    slurm = engine.cluster
    argv = ["sbatch", "--gres=gpu:v100.s3:1", "--wrap", "true"]
    picked = slurm.run("ctl", argv, user="alice", check=False)
    assert picked.code != 0
    assert "v100.s3 is one particular GPU" in picked.err
    with gated(engine, "--gres=gpu:v100:2") as jobid:
        changes = "StartTime=now gres=gpu:1 gres=gpu:v100.s3:1 ReqNodeList=dgx1 ExcNodeList=dgx1"
        for words in (*changes.split(), "Features=a100", "NumNodes=2"):
            assert update(slurm, jobid, words, user="alice").code != 0, words
        assert slurm.job(jobid).fields["TresPerNode"] == f"{GPU}2"
        for words in ("TimeLimit=5", "JobName=mine", "Comment=mine"):
            assert update(slurm, jobid, words, user="alice").code == 0, words
        for verb in ("hold", "release"):
            slurm.run("ctl", ["scontrol", verb, str(jobid)], user="alice")
        job = slurm.job(jobid)
        assert (job.state, job.reason) != ("RUNNING", "None")
        assert "gpu-slots: gated" in job.fields["AdminComment"]


RELEASED = {
    "per node": (["--gres=gpu:2"], "gres=gpu:2"),
    "per job": (["-N1", "--gpus=2"], f"TresPerNode= TresPerJob={GPU}2"),
    "per task": (
        ["-N1", "-n2", "--gpus-per-task=1"],
        f"TresPerNode= TresPerTask={GPU_PER_TASK}1"
        + ("" if OLD else " TresBind=gres/gpu:per_task:1"),
    ),
    "per socket": (
        ["-N1", "--sockets-per-node=2", "--gpus-per-socket=1"],
        f"TresPerNode= TresPerSocket={GPU}1",
    ),
}


@pytest.mark.parametrize(("args", "original"), RELEASED.values(), ids=RELEASED)
def test_one_update_releases_and_one_restores(engine, args, original):
    """The update never merges slots with what was asked for; restored, the job runs as asked."""
    slurm = engine.cluster
    with gated(engine, *args) as jobid:
        former = slurm.job(jobid)
        there = release("dgx1", (0, 3)).replace("StartTime=now", "StartTime=now+3600")
        assert let_go(slurm, jobid, there).code == 0
        assert slurm.job(jobid).fields["TresPerNode"] == gres((0, 3))
        # 22.05 never forgets types: there a job keeps its slots until it gets others
        assert update(slurm, jobid, f"ReqNodeList= {original}").code == (1 if OLD else 0)
        assert OLD or requested(slurm.job(jobid)) == requested(former)
        assert let_go(slurm, jobid, release("dgx2", (1, 6))).code == 0
        assert slurm.wait_running(jobid).gpus == {"dgx2": (1, 6)}


def test_only_on_22_05_a_job_never_loses_slots_it_once_had(engine):
    """There it starts on no node without all of them, not even where it had them at first."""
    slurm = engine.cluster
    with gated(engine, "--gres=gpu:1") as jobid:
        later = release("dgx1", (2,)).replace("StartTime=now", "StartTime=now+3600")
        assert let_go(slurm, jobid, later).code == 0
        elsewhere = release("minsky1", (0,)).replace(gres((0,)), gres((0,), "p100"))
        assert let_go(slurm, jobid, elsewhere).code == 0
        if not OLD:
            assert slurm.wait_running(jobid).gpus == {"minsky1": (0,)}
            return
        refused = "BadConstraints"
        until(lambda: slurm.job(jobid).reason == refused, "it never starts there")
        assert slurm.job(jobid).fields["TresPerNode"] == gres((0,), "p100")
        assert let_go(slurm, jobid, later).code == 0
        until(lambda: slurm.job(jobid).reason == "BeginTime", "the gate is shut")
        assert let_go(slurm, jobid, release("dgx1", (2,))).code == 0
        until(lambda: slurm.job(jobid).reason == refused, "it never starts here either")


def requested(job: Job) -> dict[str, str]:
    """The fields of a request that are set; 23.11 writes both `gpu:1` and `gpu=1` of a task."""
    names = ("TresPerJob", "TresPerNode", "TresPerTask", "TresPerSocket", "ReqNodeList", "TresBind")
    result = {name: job.fields.get(name, "") for name in names}
    return {
        name: text.replace("gpu=", "gpu:")
        for name, text in result.items()
        if text not in ("", "(null)")
    }


@not_on_old
def test_a_gated_srun_is_released_into_slots_per_job(engine):
    """It waits with a line that says so, and its step then sees the slots."""
    slurm = engine.cluster
    gates(engine)
    start = f"srun --gpus=2 sh -c '{SHOW_GPUS}' >srun.out 2>&1 &"
    slurm.run("ctl", start, user="alice")
    until(lambda: slurm.run("ctl", "squeue -h -o %A").out.strip(), "the job is queued")
    jobid = int(slurm.run("ctl", "squeue -h -o %A").out)
    words = f"StartTime=now ReqNodeList=dgx1 TresPerNode= TresPerJob={gres((0, 3))} NumNodes=1"
    assert update(slurm, jobid, words).code == 0
    slurm.wait_finished(jobid)
    output = slurm.run("ctl", "cat /home/alice/srun.out")
    assert "queued and waiting for resources" in output.out
    assert gpus_of_tasks(output) == {(0, 3)}


def test_a_requeued_job_comes_back_with_its_slots_behind_a_begin_time(engine):
    """Slurm puts it off by two minutes, in which the engine plans it anew."""
    slurm = engine.cluster
    places(engine, "dgx1", (0, 3))
    jobid = slurm.started("--requeue", "--gres=gpu:2", sleep_s=60).id
    slurm.run("ctl", ["scontrol", "requeue", str(jobid)])
    job = slurm.wait_state(jobid, "PENDING")
    until(lambda: slurm.job(jobid).reason == "BeginTime", "it is put off")
    assert job.fields["TresPerNode"] == gres((0, 3))
    assert "gpu-slots: placed" in job.fields["AdminComment"]


def test_the_engine_hears_at_once_that_a_job_ended(engine):
    """EpilogSlurmctld tells it."""
    slurm = engine.cluster
    jobid = slurm.started("--gres=gpu:1", sleep_s=60).id
    slurm.cancel(jobid)
    until(lambda: f"ended job={jobid} array=0" in engine.lines("ended"), "a notice", 5)
