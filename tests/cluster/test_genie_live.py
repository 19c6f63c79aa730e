"""policy=genie on a live Slurm: shapes at submit and while waiting, order, deadlines, bad input.

Time is scaled: the models' steps are so short that jobs take seconds, and a job sleeps for as long
as the model says its shape takes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from cluster import RECORD, Cluster
from live_harness import asking, by_policy, configure_engine
from select_harness import until
from slurm_text import Job

from policies.genie.dynamic import Genie
from policies.genie.submit import candidates
from policies.genie.tasks import TaskMaker, Wish
from policies.performance import TRAINING, Run, Shape, Work, fit
from policies.scheduling import Platform, Task
from simulation.shaping import Replay

pytestmark = [pytest.mark.cluster, pytest.mark.enforced]

PLATFORM = Platform(2, 8)
FOLDER = "/etc/slurm/genie"
DATABASE = f"{FOLDER}/performance.db"
GENIE = f"""
genie:
  database: {DATABASE}
  poll_s: 2
  partitions:
    dgx: {{nodes: "dgx[1-2]"}}
  accounts:
    guests: {{classes: {{normal: 2}}}}
"""


def runs(loss: float) -> list[Run]:
    """A model that loses so much of its speed on every further GPU."""
    one = [Run(1, 1, batch, 0.1 * batch / 16) for batch in (8, 16, 32, 64)]
    more = [Run(1, gpus, 16, 0.1 * (1 + loss * (gpus - 1) / 8)) for gpus in (2, 4, 8)]
    far = [Run(2, 2, 16, 0.1 * (1 + 0.4 * loss)), Run(2, 16, 16, 0.1 * (1 + 1.2 * loss))]
    return [*one, *more, *far]


RUNS = {"wide": runs(0.15), "narrow": runs(1.5)}
MAKER = TaskMaker(
    PLATFORM, {(name, TRAINING): fit("calibrated", some) for name, some in RUNS.items()}
)


@pytest.fixture
def shaping(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster whose engine shapes the jobs of partition dgx."""
    for name, some in RUNS.items():
        rows = [f"{run.nodes},{run.gpus},{run.local_batch},{run.step_s}" for run in some]
        text = "\n".join(["nodes,gpus,local_batch,step_s", *rows])
        file = f"{FOLDER}/{name}.csv"
        cluster.run("ctl", ["sh", "-c", f'mkdir -p {FOLDER}; printf "%s" "$1" >{file}', "sh", text])
        cluster.run("ctl", ["gputopo", "profile", "fit", file, "--database", DATABASE])
    # A start that the engine is too late for is Slurm's own: no plan could be kept then.
    with asking(cluster, 1000):
        configure_engine(cluster, GENIE)
        looked(cluster)
        yield cluster
    cluster.run("ctl", f"rm -rf {FOLDER}")


def looked(cluster: Cluster) -> None:
    """The engine knows what Slurm's books say."""
    until(lambda: cluster.status()["genie"]["domains"], "the engine has looked at the queue", 20)
    cluster.look()


def hint(work: Work, service: str = "normal", **more: object) -> str:
    """The option of a job of this work."""
    keys = {"policy": "genie", "profile": work.profile, "batch": work.batch,
            "iterations": work.iterations, "class": service, **more}  # fmt: skip
    return "--comment=gpu-topo: " + ",".join(f"{key}={value}" for key, value in keys.items())


def task_of(job_id: int, work: Work, service: str = "normal", at_s: float = 0.0) -> Task:
    """The job as the simulator sees it."""
    return MAKER.task(job_id, work, at_s, Wish(service))


def as_predicted(work: Work) -> str:
    """A script that notes when it began and with which shape, and takes as long as predicted."""
    latencies = MAKER.latencies_s(work)
    cases = " ".join(
        f"{shape}) s={latencies[at]:.2f};;"
        for at, shape in enumerate(PLATFORM.shapes)
        if latencies[at] < float("inf")
    )
    return (
        "at=$(date +%s.%N); shape=${SLURM_JOB_NUM_NODES}x$SLURM_GPUS_ON_NODE;"
        " echo $at $shape >$HOME/began.$SLURM_JOB_ID;"
        f" case $shape in {cases} *) s=1;; esac; sleep $s"
    )


def shape_of(job: Job) -> str:
    """The shape a running job has, from Slurm's books."""
    counts = {len(gpus) for gpus in job.gpus.values()}
    assert len(counts) == 1, job.gpus
    return f"{len(job.gpus)}x{counts.pop()}"


def refused(cluster: Cluster, *args: str) -> str:
    """The one line with which a submit is refused."""
    argv = ["sbatch", "-p", "dgx", *args, "--wrap", "true"]
    done = cluster.run("ctl", argv, user="alice", check=False)
    assert done.code, done.out
    lines = [line for line in done.err.splitlines() if "gpu-topo" in line]
    assert len(lines) == 1, done.err
    return lines[0]


def told(cluster: Cluster, jobid: int) -> dict[str, Any]:
    """`gputopo explain`."""
    found = json.loads(cluster.run("ctl", ["gputopo", "explain", str(jobid), "--json"]).out)
    assert isinstance(found, dict)
    return found


# -- a queue ------------------------------------------------------------------

#: Work and class. Chosen so that the simulator gives the same shapes and order whatever the node a
#: job lands on and whether Slurm takes tenths of a second or almost two to start the next one.
QUEUE = [
    (Work("narrow", 64, 30), "normal"), (Work("wide", 64, 22), "prior"),
    (Work("wide", 16, 60), "urgent"), (Work("narrow", 64, 30), "prior"),
    (Work("narrow", 32, 60), "normal"), (Work("wide", 32, 80), "urgent"),
    (Work("wide", 16, 90), "normal"), (Work("narrow", 16, 60), "prior"),
    (Work("narrow", 16, 120), "prior"), (Work("narrow", 32, 45), "normal"),
    (Work("narrow", 32, 60), "normal"), (Work("wide", 64, 15), "urgent"),
]  # fmt: skip
BLOCKED_S = 8.0
#: From the end of a job to the start of the next, about.
BETWEEN_S = 0.6
#: Within this the whole queue is submitted.
ALL_CAME_S = 2.5
#: Starts that lie nearer to each other have no order.
SAME_S = 0.01


def simulated(at_s: dict[int, float], blocked_s: float) -> dict[int, tuple[str, float]]:
    """Shape and start of every job by its place in QUEUE from 1 on; `at_s` is when they came.

    The first, 0, holds all GPUs from 0 to `blocked_s`.
    """
    first = MAKER.task(0, Work("wide", 64, 300), 0.0, Wish(shapes=(Shape(2, 8),)))
    tasks = [first, *(task_of(at, *QUEUE[at - 1], at_s=at_s[at]) for at in sorted(at_s))]

    def truth(task: Task, shape: Shape) -> float:
        latency = float(task.latency_s[PLATFORM.index(shape)])
        return latency + BETWEEN_S if task.job_id else blocked_s

    done = Replay(PLATFORM, Genie(), truth).run(tasks)
    return {one.task.job_id: (str(one.shape), one.start_s) for one in done if one.task.job_id}


def submitted_queue(cluster: Cluster) -> tuple[int, list[int], list[float]]:
    """A job that holds all GPUs, those of QUEUE behind it, and when each of them came."""
    script = f"date +%s.%N >$HOME/began.$SLURM_JOB_ID; sleep {BLOCKED_S}"
    first = cluster.sbatch("-p", "dgx", "-N2", "--gres=gpu:8", script=script)
    cluster.wait_running(first)
    lines = [
        ["sbatch", "--parsable", "-o", "/dev/null", "-p", "dgx", hint(*one),
         "--wrap", as_predicted(one[0])]
        for one in QUEUE
    ]  # fmt: skip
    each = "; date +%s.%N; ".join(map(shlex.join, lines))
    told = cluster.run("ctl", f"{each}; date +%s.%N", user="alice", timeout_s=120).out.split()
    return first, [int(word) for word in told[::2]], [float(word) for word in told[1::2]]


@pytest.mark.select_plugin
def test_a_queue_gets_the_shapes_and_starts_in_the_order_of_the_simulator(
    shaping: Cluster,
) -> None:
    """Three classes, a dozen jobs; urgent ones overtake normal ones that came before."""
    for _ in range(3):
        first, ids, came = submitted_queue(shaping)
        if came[-1] - came[0] < ALL_CAME_S:
            break
        shaping.cancel(first, *ids)  # a machine so busy is another queue than the one chosen
        shaping.wait_idle()
    for jobid in ids:
        shaping.wait_finished(jobid, timeout_s=90)
    zero = float(shaping.run("ctl", f"cat /home/alice/began.{first}").out)
    began = {}
    for at, jobid in enumerate(ids, 1):
        when, shape = shaping.run("ctl", f"cat /home/alice/began.{jobid}").out.split()
        began[at] = (shape, float(when) - zero)
    at_s = {at: when - zero for at, when in enumerate(came, 1)}
    wanted = simulated(at_s, min(when for _, when in began.values()) - 0.2)
    assert {at: shape for at, (shape, _) in began.items()} == {
        at: shape for at, (shape, _) in wanted.items()
    }, f"came {at_s}, began {began}, wanted {wanted}"
    inverted = [
        (a, b)
        for a in wanted
        for b in wanted
        if wanted[a][1] + SAME_S < wanted[b][1] and began[a][1] > began[b][1]
    ]
    assert inverted == []
    urgent = [at for at, (_, service) in enumerate(QUEUE, 1) if service == "urgent"]
    assert all(began[at][1] < began[1][1] for at in urgent)


def test_urgent_overtakes_normal_and_nobody_else_loses(shaping: Cluster) -> None:
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


# -- shapes -------------------------------------------------------------------

WIDE = Work("wide", 64, 2000)
#: What it gets on empty nodes, and with -N 2 (a test holds that against the models).
BEST, BEST_OF_TWO = "1x5", "2x3"
STEP = "srun sh -c 'echo $SLURM_PROCID' | wc -l"
VARIABLES = (
    *("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_GPUS_ON_NODE"),
    "SLURM_TASKS_PER_NODE",
)


def test_the_expected_shapes_are_those_of_the_models() -> None:
    """Needs no cluster."""
    two = tuple(shape for shape in PLATFORM.shapes if shape.nodes == 2)
    for shapes, wanted in (((), BEST), (two, BEST_OF_TWO)):
        task = MAKER.task(1, WIDE, 0.0, Wish(shapes=shapes))
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
    path = f"/home/alice/tasks.{jobid}"
    until(lambda: cluster.run("ctl", f"cat {path}", check=False).out.strip(), f"{path} is written")
    return int(cluster.run("ctl", f"cat {path}").out)


def test_a_job_that_asks_for_no_gpus_gets_its_shape_and_the_policys_gpus(
    shaping: Cluster,
) -> None:
    """And `explain` shows what it could have had."""
    jobid = submitted(shaping, hint(WIDE))
    job = shaping.wait_running(jobid)
    (node,) = job.gpus
    each = len(job.gpus[node])
    assert shape_of(job) == BEST
    assert job.gpus == by_policy({}, [each], [node])
    assert variables(shaping, jobid) == ("1", "1", "5", "5", "5")
    assert tasks_of(shaping, jobid) == 5
    found = told(shaping, jobid)
    shaped = found.get("shaping") or found
    assert shaped["shape"] == BEST
    assert len(shaped["shapes"]) == 16
    words = shaping.run("ctl", ["gputopo", "explain", str(jobid)]).out
    assert "cost 0.512, ratio" in words
    assert "highest cost-effective ratio of those in time" in words


#: Given beside the hint, the shape while nothing is free, and what the job's script reads.
RESHAPED = [
    ((), BEST, ("1", "1", "2", "2", "2")),
    (("-N", "2"), BEST_OF_TWO, ("2", "2", "4", "2", "2(x2)")),
    (("-N", "2", "--ntasks-per-node=1"), BEST_OF_TWO, ("2", "2", "2", "2", "1(x2)")),
]


@pytest.mark.select_plugin
def test_a_job_that_waits_starts_with_another_shape_and_right_variables(shaping: Cluster) -> None:
    """What comes free is less than its shape; its environment was written at submit."""
    full = {node: shaping.occupy(node, range(8)) for node in ("dgx1", "dgx2")}
    for given, before, wanted in RESHAPED:
        nodes = ("dgx1", "dgx2")[: int(wanted[0])]
        jobid = submitted(shaping, *given, hint(WIDE))
        until(lambda: f"[gpu-shape: {before}" in comment(shaping, jobid), f"shaped {before}")  # noqa: B023
        shaping.cancel(*(full[node].pop() for node in nodes for _ in range(2)))
        job = shaping.wait_running(jobid, timeout_s=60)
        assert shape_of(job) == f"{wanted[0]}x2"
        assert variables(shaping, jobid) == wanted
        assert tasks_of(shaping, jobid) == int(wanted[2])
        per_node = shaping.env_of(jobid).get("SLURM_NTASKS_PER_NODE", "")
        assert per_node == ("1" if "--ntasks-per-node=1" in given else "")


def comment(cluster: Cluster, jobid: int) -> str:
    """The AdminComment."""
    return cluster.job(jobid).fields.get("AdminComment", "")


FIXED = [
    (("--gpus=2",), "1x2"),
    (("--gres=gpu:3",), "1x3"),
    (("-N2", "--gpus-per-node=1"), "2x1"),
    (("-N2",), BEST_OF_TWO),
    (("-n", "2"), "1x2"),
]


def test_what_the_user_fixed_is_kept(shaping: Cluster) -> None:
    """GPUs as asked for; nodes or tasks as asked for and the rest chosen."""
    for given, shape in FIXED:
        jobid = submitted(shaping, *given, hint(WIDE))
        assert shape_of(shaping.wait_running(jobid)) == shape, given
        assert f"[gpu-shape: {shape}" in comment(shaping, jobid)
        shaping.cancel(jobid)
        shaping.wait_idle()
        shaping.look()


def told_late(cluster: Cluster) -> str:
    """The line told to a job that cannot be in time; it runs all the same."""
    argv = ["sbatch", "--parsable", "-p", "dgx", hint(WIDE, deadline="5s"), "--wrap", "sleep 60"]
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


def test_bad_input_is_refused_with_one_line(shaping: Cluster) -> None:
    """So are classes and partitions that the site does not allow, and srun without GPUs; a job that
    cannot be in time is let in and told."""
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
    assert "cannot be done in time" in told_late(shaping)


def test_without_an_engine_the_job_is_held_and_shaped_when_it_is_back(shaping: Cluster) -> None:
    """It never runs without the GPUs that were to be chosen for it."""
    shaping.engine("kill")
    argv = ["sbatch", "--parsable", "-p", "dgx", hint(WIDE), "--wrap", f"{RECORD}; sleep 300"]
    done = shaping.run("ctl", argv, user="alice")
    assert "the job is held until it does" in done.err
    jobid = int(done.out)
    held = shaping.job(jobid)
    assert (held.state, held.fields["Priority"]) == ("PENDING", "0")
    shaping.engine("start")
    job = shaping.wait_running(jobid)
    assert shape_of(job) == BEST
    assert variables(shaping, jobid) == ("1", "1", "5", "5", "5")
