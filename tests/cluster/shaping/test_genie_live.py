"""policy=genie on a live Slurm: shapes at submit and while waiting, order, deadlines, bad input.

To the models jobs take hours; the tests end them.
"""

import json
from typing import Any

import pytest
from comment_writer import overwriting
from live_harness import CONFIG, by_policy, configure_engine, explained

from policies.genie.algorithm import GeniePaper
from policies.genie.submit import candidates
from policies.genie.tasks import TaskConstraints
from policies.performance import Work
from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.slurm import RECORD
from tests.cluster.shaping.genie_queue import MAKER, PLATFORM, QUEUE, simulated
from tests.cluster.shaping.genie_site import goes_as_simulated, hint, shape_of

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]

reshaping = pytest.mark.usefixtures("reshapes")

#: After so many ends it hangs on seconds what Algorithm 1 as printed starts.
PAPER, PAPER_STEPS = GeniePaper(), 6


def refused(cluster: Cluster, *args: str) -> str:
    """The one line with which a submit is refused."""
    argv = ["sbatch", "-p", "dgx", *args, "--wrap", "true"]
    done = cluster.run("ctl", argv, user="alice", check=False)
    assert done.code, done.out
    lines = [line for line in done.err.splitlines() if "gpu-topo" in line]
    assert len(lines) == 1, done.err
    return lines[0]


def test_the_queue_is_one_whose_outcome_hangs_neither_on_seconds_nor_on_nodes():
    """Needs no cluster."""
    wanted, first = simulated(), simulated(0, PAPER)[:PAPER_STEPS]
    assert all(simulated(seed) == wanted for seed in range(1, 21))
    assert all(simulated(seed, PAPER)[:PAPER_STEPS] == first for seed in range(1, 21))
    starts = {job: at for at, step in enumerate(wanted) for job in step.starts}
    assert starts.keys() == set(range(1, len(QUEUE) + 1))
    urgent = [at for at, job in enumerate(QUEUE, 1) if job.service == "urgent"]
    assert all(starts[job] == 0 for job in urgent)
    assert len(set(starts.values())) >= 8


@reshaping
def test_a_queue_gets_the_shapes_and_starts_in_the_order_of_the_simulator(shaping):
    """Three classes, a dozen jobs; each end waits until what the one before led to has happened."""
    goes_as_simulated(shaping)


@reshaping
def test_deadlines_hold_as_ever_where_horizon_is_the_policy_of_the_others(shaping):
    """Job by job as in the simulator; the job that holds all GPUs before is horizon's."""
    configure_engine(shaping, "users: {alice: {policy: horizon}}")
    until(lambda: shaping.status()["genie"]["domains"], "the engine has read the queue", 20)
    log = "cat /var/log/gputopo/decisions.jsonl"
    before = len(shaping.run("ctl", log, check=False).out.splitlines())
    goes_as_simulated(shaping)
    said = shaping.run("ctl", log).out.splitlines()[before:]
    policies = {line["policy"] for line in map(json.loads, said) if "policy" in line}
    assert {"horizon", "genie"} <= policies


@reshaping
@pytest.mark.long("half a minute")
def test_the_same_while_others_overwrite_admin_comment(shaping):
    with overwriting(shaping):
        goes_as_simulated(shaping)


@reshaping
@pytest.mark.long("half a minute")
def test_the_same_where_the_engine_keeps_the_notes(shaping):
    """Shapes of jobs that run are known to the engine alone."""
    configure_engine(shaping, "notes: engine")
    until(lambda: shaping.status()["genie"]["domains"], "the engine has read the queue", 20)
    goes_as_simulated(shaping)

    def shown() -> set[str]:
        return {job.admin_comment for job in shaping.jobs() if job.state == "RUNNING"}

    # A shape stands there until a reading of the queue has shown that the job runs.
    until(lambda: shown() == {""}, lambda: f"no job that runs has an AdminComment: {shown()}", 20)


@reshaping
@pytest.mark.long("half a minute")
def test_the_papers_algorithm_starts_the_queue_as_in_the_simulator(shaping):
    """Nobody passes its head; as far as that hangs on no second."""
    text = shaping.read("ctl", CONFIG)
    shaping.put("ctl", CONFIG, text.replace("genie:\n", "genie:\n  algorithm: genie-paper\n"))
    shaping.engine("restart")
    until(lambda: shaping.status()["genie"]["domains"], "the engine has read the queue", 20)
    goes_as_simulated(shaping, simulated(0, PAPER)[:PAPER_STEPS])


@pytest.mark.long("a detail; the line is tested without a cluster")
def test_a_job_whose_shape_is_chosen_borrows_nothing_and_its_user_reads_why(shaping):
    configure_engine(shaping, "remote: {allow: yes, program: /cluster/remote/gputopo-node}")
    until(lambda: shaping.status()["genie"]["domains"], "the engine has read the queue", 20)
    for node in ("dgx1", "dgx2"):
        shaping.occupy(node, range(8))
    asks = hint(Work("wide", 64, 2000), remote="allow")
    argv = ["sbatch", "--parsable", "-p", "dgx", asks, "--wrap", "true"]
    done = shaping.run("ctl", argv, user="alice")
    line = "GPUs of other nodes are not lent to this job: policy=genie plans shapes"
    assert line in " ".join(done.err.split()), done
    assert "loan" not in shaping.job(int(done.out)).admin_comment


@pytest.mark.long("half a minute")
def test_urgent_overtakes_normal_and_nobody_else_loses(shaping):
    """Only the shaped jobs exchange their priorities; a priority is not frozen by it."""
    full = {node: shaping.occupy(node, range(8)) for node in ("dgx1", "dgx2")}
    other = shaping.sbatch("-p", "dgx", "--gpus=16", "-N2", script="true")
    work = Work("wide", 64, 2000)
    normal = [shaping.sbatch("-p", "dgx", "--gpus=4", hint(work), sleep_s=300) for _ in range(2)]
    urgent = shaping.sbatch("-p", "dgx", "--gpus=4", hint(work, "urgent"), sleep_s=300)

    def priority(jobid: int) -> int:
        return int(shaping.job(jobid).fields["Priority"])

    before = priority(other)
    until(
        lambda: (
            priority(urgent) > max(map(priority, normal))
            and priority(normal[0]) > priority(normal[1])
        ),
        "the urgent job stands in front, the others in the order they came",
    )
    assert priority(other) == before
    shaping.cancel(*full["dgx1"][:4])
    assert shape_of(shaping.wait_running(urgent, timeout_s=60)) == "1x4"
    assert {shaping.job(jobid).state for jobid in normal} == {"PENDING"}
    shaping.cancel(*full["dgx1"][4:])
    shaping.wait_running(normal[0], timeout_s=60)
    assert shaping.job(normal[1]).state == "PENDING"


@pytest.mark.long("half a minute")
def test_an_engine_that_starts_anew_knows_the_jobs_own_priorities(shaping):
    """Of two of which one was put in front, that one is left and stands where Slurm has it."""
    for node in ("dgx1", "dgx2"):
        shaping.occupy(node, range(8))
    work = Work("wide", 64, 2000)
    normal = shaping.sbatch("-p", "dgx", "--gpus=4", hint(work), sleep_s=300)
    urgent = shaping.sbatch("-p", "dgx", "--gpus=4", hint(work, "urgent"), sleep_s=300)

    def factor(jobid: int) -> int:
        said = shaping.run("ctl", ["sprio", "--noheader", "--format=%S", f"--jobs={jobid}"])
        return int(said.out or 0)

    until(lambda: factor(urgent) > factor(normal), "the urgent job stands in front")
    shaping.engine("restart")
    shaping.cancel(normal)
    until(lambda: factor(urgent) == 0, "it has its own place again")


WIDE = Work("wide", 64, 2000)
#: What it gets on empty nodes, and with -N 2 (a test holds that against the models).
BEST, BEST_OF_TWO = "1x5", "2x3"
STEP = "srun sh -c 'echo $SLURM_PROCID' | wc -l"
VARIABLES = (
    *("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_GPUS_ON_NODE"),
    "SLURM_TASKS_PER_NODE",
)


def test_the_expected_shapes_are_those_of_the_models():
    """Needs no cluster."""
    two = tuple(shape for shape in PLATFORM.shapes if shape.nodes == 2)
    for shapes, wanted in (((), BEST), (two, BEST_OF_TWO)):
        task = MAKER.task(1, WIDE, 0.0, TaskConstraints(shapes=shapes))
        assert str(candidates(task, PLATFORM, 0.0)[0].shape) == wanted


def submitted(cluster: Cluster, *args: str) -> int:
    """A job that notes its environment and how many tasks a plain srun has, and waits."""
    script = f"{RECORD}; {STEP} >$HOME/tasks.$SLURM_JOB_ID; sleep 300"
    return cluster.sbatch("-p", "dgx", *args, script=script)


def variables(cluster: Cluster, jobid: int) -> tuple[str, ...]:
    """What its script reads: VARIABLES."""
    env = cluster.env_of(jobid)
    return tuple(env.get(name, "") for name in VARIABLES)


def tasks_of(cluster: Cluster, jobid: int) -> int:
    """The tasks of a plain srun inside the job."""
    return int(cluster.read("ctl", f"/home/alice/tasks.{jobid}", timeout_s=20))


def test_a_job_that_asks_for_no_gpus_gets_its_shape_and_the_policys_gpus(shaping):
    """And `explain` shows what it could have had."""
    jobid = submitted(shaping, hint(WIDE))
    job = shaping.wait_running(jobid)
    (node,) = job.gpus
    each = len(job.gpus[node])
    assert shape_of(job) == BEST
    assert job.gpus == by_policy({}, [each], [node])
    assert variables(shaping, jobid) == ("1", "1", "5", "5", "5")
    assert tasks_of(shaping, jobid) == 5
    until(lambda: "shape" in shape_told(shaping, jobid), "the shape is written down")
    shaped = shape_told(shaping, jobid)
    assert shaped["shape"] == BEST
    assert len(shaped["shapes"]) == 16
    words = shaping.run("ctl", ["gputopo", "explain", str(jobid)]).out
    assert "cost 0.512, ratio" in words
    assert "highest cost-effective ratio of those in time" in words


def shape_told(cluster: Cluster, jobid: int) -> dict[str, Any]:
    """What `gputopo explain` says of the shape; empty before it was written down."""
    result = explained(cluster, jobid)
    shaped: dict[str, Any] = result.get("shaping") or result
    return shaped


#: Given beside the hint, the shape while nothing is free, and what the job's script reads.
RESHAPED = [
    ((), BEST, ("1", "1", "2", "2", "2")),
    (("-N", "2"), BEST_OF_TWO, ("2", "2", "4", "2", "2(x2)")),
    (("-N", "2", "--ntasks-per-node=1"), BEST_OF_TWO, ("2", "2", "2", "2", "1(x2)")),
]


@reshaping
@pytest.mark.long("a detail of what a shorter test shows", "select")
@pytest.mark.both_modes("short")
def test_a_job_that_waits_starts_with_another_shape_and_right_variables(shaping):
    """What comes free is less than its shape; its environment was written at submit."""
    # A pair is one job's: of two jobs one would end first, and a shape be chosen for its GPU alone.
    pair = ("-p", "off", "--gres=gpu:2")
    full = {
        node: [shaping.started(*pair, "-w", node, sleep_s=3600, user="bob").id for _ in range(4)]
        for node in ("dgx1", "dgx2")
    }
    shaping.wait_reconciled()
    for given, before, wanted in RESHAPED:
        nodes = ("dgx1", "dgx2")[: int(wanted[0])]
        jobid = submitted(shaping, *given, hint(WIDE))
        shaped = f"[gpu-shape: {before}"
        until(lambda: shaped in shaping.job(jobid).admin_comment, shaped)  # noqa: B023
        shaping.cancel(*(full[node].pop() for node in nodes))
        job = shaping.wait_running(jobid, timeout_s=60)
        assert shape_of(job) == f"{wanted[0]}x2"
        assert variables(shaping, jobid) == wanted
        assert tasks_of(shaping, jobid) == int(wanted[2])
        per_node = shaping.env_of(jobid).get("SLURM_NTASKS_PER_NODE", "")
        assert per_node == ("1" if "--ntasks-per-node=1" in given else "")


FIXED = [
    (("--gpus=2",), "1x2"),
    (("--gres=gpu:3",), "1x3"),
    (("-N2", "--gpus-per-node=1"), "2x1"),
    (("-N2",), BEST_OF_TWO),
    (("-n", "2"), "1x2"),
]


@pytest.mark.long("a detail of what a shorter test shows")
def test_what_the_user_fixed_is_kept(shaping):
    """GPUs as asked for; nodes or tasks as asked for and the rest chosen."""
    for given, shape in FIXED:
        jobid = submitted(shaping, *given, hint(WIDE))
        assert shape_of(shaping.wait_running(jobid)) == shape, given
        assert f"[gpu-shape: {shape}" in shaping.job(jobid).admin_comment
        shaping.cancel(jobid)
        shaping.wait_idle()
        shaping.wait_reconciled()


def let_in(cluster: Cluster, work: Work, **more: object) -> str:
    """The warning that a job gets which is accepted and runs."""
    argv = ["sbatch", "--parsable", "-p", "dgx", hint(work, **more), "--wrap", "sleep 60"]
    done = cluster.run("ctl", argv, user="alice")
    (line,) = [line for line in done.err.splitlines() if "gpu-topo" in line]
    cluster.wait_running(int(done.out))
    return line


BAD = [
    ("batch", 0, "batch: '0'; expected a whole number from 1"),
    ("iterations", -5, "iterations: '-5'; expected a whole number from 1"),
    ("profile", "zzz", "profile: no profile 'zzz' for training; expected one of narrow, wide"),
    ("class", "vip", "class: 'vip'; expected urgent, prior, normal"),
    ("deadline", "2020-01-01T00:00Z", "deadline: 2020-01-01T00:00Z has passed"),
]


def test_bad_input_is_refused_with_one_line(shaping):
    """Late jobs, and those of a stand-in's profile, are let in and told; or refused (`late:`)."""
    for key, value, says in BAD:
        assert says in refused(shaping, hint(WIDE, **{key: value}))
    assert "class: 'prior' is not for this job" in refused(
        shaping, "-A", "guests", hint(WIDE, "prior")
    )
    assert "does not shape the jobs of partition gpu" in refused(shaping, "-p", "gpu", hint(WIDE))
    assert "shape: none has 3 nodes" in refused(shaping, "-N3", hint(WIDE))
    done = shaping.run("ctl", ["srun", "-p", "dgx", hint(WIDE), "true"], user="alice", check=False)
    assert done.code
    assert "chooses the shape of batch jobs" in done.err
    assert "cannot be done in time" in let_in(shaping, WIDE, deadline="5s")
    assert "wide2 was never profiled; wide stands in" in let_in(shaping, Work("wide2", 64, 2000))
    shaping.run("ctl", f"sed -i 's/^genie:/genie:\\n  late: refuse/' {CONFIG}")
    shaping.engine("restart")
    assert "cannot be done in time" in refused(shaping, hint(WIDE, deadline="5s"))


@pytest.mark.long("a detail of what a shorter test shows")
def test_without_an_engine_the_job_is_held_and_shaped_when_it_is_back(shaping):
    """It never runs without the GPUs that were to be chosen for it."""
    shaping.engine("kill")
    argv = ["sbatch", "--parsable", "-p", "dgx", hint(WIDE), "--wrap", f"{RECORD}; sleep 300"]
    done = shaping.run("ctl", argv, user="alice")
    assert "the job is held until it does" in done.err
    jobid = int(done.out)
    held = shaping.job(jobid)
    assert (held.state, held.fields["Priority"]) == ("PENDING", "0")
    why = shaping.run("ctl", f"gputopo why {jobid}", user="alice").out
    assert f"Job {jobid} waits until the engine has chosen its nodes and GPUs." in why
    shaping.engine("start")
    job = shaping.wait_running(jobid)
    assert shape_of(job) == BEST
    assert variables(shaping, jobid) == ("1", "1", "5", "5", "5")
