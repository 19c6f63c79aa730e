"""A live site whose engine shapes the jobs of partition dgx, and the simulator's queue on it."""

from collections.abc import Callable

from policies.performance import Work
from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import ClusterError, until
from slurm_cluster.slurm_text import Job
from tests.cluster.shaping.genie_queue import QUEUE, Step, simulated

FOLDER = "/etc/slurm/genie"
DATABASE = f"{FOLDER}/performance.db"
GENIE = f"""
genie:
  database: {DATABASE}
  poll_s: 2
  partitions:
    dgx: {{nodes: "dgx[1-2]", classes: {{urgent: 0, prior: 1, normal: 2}}}}
  accounts:
    guests: {{classes: {{normal: 2}}}}
"""


def hint(work: Work, service: str = "normal", **more: object) -> str:
    """The option of a job of this work."""
    keys = {"policy": "genie", "profile": work.profile, "batch": work.batch,
            "iterations": work.iterations, "task": work.task, "class": service, **more}  # fmt: skip
    return "--comment=gpu-topo: " + ",".join(f"{key}={value}" for key, value in keys.items())


def shape_of(job: Job) -> str:
    """The shape a running job has, from Slurm's books."""
    counts = {len(gpus) for gpus in job.gpus.values()}
    assert len(counts) == 1, job.gpus
    return f"{len(job.gpus)}x{counts.pop()}"


def submitted_queue(cluster: Cluster) -> list[int]:
    """A job that holds all GPUs, and those of QUEUE behind it."""
    first = cluster.started("-p", "dgx", "-N2", "--gres=gpu:8", script="sleep 3600").id
    lines = []
    for job in QUEUE:
        more = {"deadline": f"{job.deadline_s}s"} if job.deadline_s else {}
        lines.append(["-p", "dgx", hint(job.work, job.service, **more)])
    return [first, *cluster.submit_many(lines, script="sleep 3600")]


def reached(
    cluster: Cluster, ids: list[int], running: dict[int, str], waiting: int, host: str
) -> None:
    """These jobs run, with these shapes, and the engine of `host` knows; fails where others do."""

    def now() -> tuple[dict[int, str], int | None]:
        result = {job.id: shape_of(job) for job in cluster.jobs() if job.state == "RUNNING"}
        # An engine that has just taken over knows of none before its first look.
        dgx = cluster.status(host)["genie"]["domains"].get("dgx")
        return {ids.index(job): shape for job, shape in result.items()}, dgx and dgx["waiting"]

    try:
        until(lambda: now() == (running, waiting), "the simulator's jobs run", 90)
    except ClusterError:
        assert now() == (running, waiting)


def goes_as_simulated(
    shaping: Cluster,
    steps: list[Step] | None = None,
    before: Callable[[int], str] = lambda ended: "ctl",
) -> None:
    """The queue's jobs start as in the simulator, and with the same shapes.

    `before` is called before each end, with how many were; it returns the host in charge then.
    """
    ids = submitted_queue(shaping)
    running, waiting = {0: "2x8"}, len(QUEUE)
    reached(shaping, ids, running, waiting, "ctl")
    for ended, step in enumerate(simulated() if steps is None else steps):
        host = before(ended)
        reached(shaping, ids, running, waiting, host)
        del running[step.ends]
        running |= step.starts
        waiting -= len(step.starts)
        shaping.cancel(ids[step.ends])
        reached(shaping, ids, running, waiting, host)
        if not waiting:
            break
