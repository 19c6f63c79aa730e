"""A site whose jobs are shaped, and jobs of its queue, for the tests of that."""

from pathlib import Path

from jobs_in_tests import node
from machines_in_tests import BASIC, a_submit, basic_config, basic_decider
from slots_in_tests import Counting

from policies.performance import Run, fit
from policies.performance.similarity import Traits
from slurm_plugin.act.enforcement import Enforcement, Select
from slurm_plugin.act.genie.shaping import Shaping
from slurm_plugin.act.genie.site import site_of
from slurm_plugin.act.lending.at_start.reservations import LoanReservations
from slurm_plugin.base.protocol import Submit
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.rules import Rules
from slurm_plugin.learn.speed_models.database import Database, Profile
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode

NOW = 1_795_000_000.0
GENIE = """
genie:
  database: {folder}/performance.db
  partitions:
    dl: {{nodes: "dgx[1-2]", classes: {{urgent: 0, prior: 1, normal: 2}}}}
    plain: {{nodes: "dgx[1-2]"}}
    tight: {{nodes: "dgx[1-2]", late: refuse, classes: {{urgent: 0}}}}
    strict: {{nodes: "dgx[1-2]", late: refuse, classes: {{normal: 2}}, max_gpus_per_node: 4}}
  accounts: {{guests: {{classes: {{normal: 10}}}}}}
"""
#: For the engine that `a_shaping` has.
LENDS = "remote: {{allow: yes}}\n"
RUNS = [
    Run(nodes, gpus, local, step)
    for nodes, gpus, local, step in (
        (1, 1, 16, 0.1), (1, 1, 32, 0.2), (1, 1, 64, 0.4), (1, 2, 32, 0.205), (1, 4, 32, 0.21),
        (1, 8, 32, 0.22), (2, 16, 32, 0.24), (2, 2, 32, 0.21),
    )
]  # fmt: skip
#: 400 s on one GPU.
HINT = "policy=genie,profile=resnet50,batch=64,iterations=1000"


def a_shaping(folder: Path, inner: Enforcement | None = None) -> Shaping:
    """That configuration at `NOW`, with one profile known."""
    settings = basic_config(folder, BASIC + GENIE + LENDS)
    model = fit("calibrated", RUNS)
    Database(folder / "performance.db").put(
        Profile(Traits("resnet50"), "training", model, tuple(RUNS))
    )
    assert settings.genie is not None
    site = site_of(settings.genie, load_machines(settings), str(settings.path))
    inner = inner or Select(basic_decider(folder), LoanReservations())
    return Shaping(inner, site, Rules(settings), clock=lambda: NOW)


def submit(hint: str = HINT, **more: object) -> Submit:
    """A batch job without GPUs in the partition that is shaped."""
    return a_submit(**{"partition": "dl", "hint": hint, "shape": 1, **more})


def queued(job_id: int, shape: str = "1x1", hint: str = HINT, **more: object) -> QueuedJob:
    """A waiting job that has this shape."""
    nodes, each = map(int, shape.split("x"))
    words = str(more.pop("words", ""))
    values = {
        "name": str(job_id), "uid": 1000, "partition": "dl", "state": "PENDING",
        "reason": "Resources", "priority": 1, "submit": int(NOW), "min_nodes": nodes,
        "max_nodes": nodes, "tres_per_node": f"gres/gpu:{each}",
        "admin_comment": f"[gpu-topo: {hint} | shape {shape}] [gpu-shape: {shape}{words}]", **more,
    }  # fmt: skip
    return QueuedJob(job_id, **values)


def running(job_id: int, gpus: dict[str, tuple[int, ...]], **more: object) -> QueuedJob:
    """A job that runs on these GPUs."""
    each = len(next(iter(gpus.values())))
    return queued(
        job_id,
        f"{len(gpus)}x{each}",
        state="RUNNING",
        reason="",
        nodes=tuple(gpus),
        gpus=gpus,
        start=int(NOW),
        **more,
    )


class TwoNodes(Counting):
    """A Slurm that remembers and counts, with two empty nodes whose jobs may be shaped."""

    def nodes(self) -> list[SlurmNode]:
        super().nodes()
        return [a_node("dgx1"), a_node("dgx2")]


def a_node(name: str, used: int = 0, *state: str) -> SlurmNode:
    """A node of eight GPUs, the first ones in use."""
    return node(name, range(used), state=state or ("IDLE",), partitions=("dl",))
