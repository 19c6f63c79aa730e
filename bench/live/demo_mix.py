"""The demo's jobs: what a user writes, and what is busy when it is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_cluster import description

#: Which machine of the catalog each node of the cluster is.
MACHINES = description.read(description.DEFAULT).machines


@dataclass(frozen=True)
class DemoJob:
    """One job of the mix."""

    command: str
    request: str
    #: The nodes it must run on, so that both answers are given in the same state.
    where: tuple[str, ...]
    #: What the request amounts to.
    gpus_per_node: tuple[int, ...]
    #: The GPUs that others hold meanwhile.
    busy: dict[str, tuple[int, ...]] = field(default_factory=dict)
    hint: str = ""
    tasks: int = 1


MIX = (
    DemoJob("sbatch", "--gres=gpu:2", ("dgx1",), (2,)),
    DemoJob("sbatch", "--gpus=3", ("dgx1",), (3,)),
    DemoJob("sbatch", "--gpus-per-task=2 -n1", ("bridged1",), (2,)),
    DemoJob("sbatch", "--gpus-per-node=4 -N2", ("dgx1", "dgx2"), (4, 4), {"dgx2": (0, 5)}),
    DemoJob("srun", "--gres=gpu:2", ("dgx2",), (2,), {"dgx2": (0, 3, 5)}),
    DemoJob("salloc", "--gpus=2", ("minsky1",), (2,), {"minsky1": (0,)}),
    DemoJob("sbatch", "--gres=gpu:2 --array=0-2", ("dgx2",), (2,), {"dgx2": (1,)}, tasks=3),
    DemoJob("sbatch", "--gres=gpu:4", ("bridged1",), (4,), {"bridged1": (1, 6)}),
    DemoJob("sbatch", "--gres=gpu:2", ("amd1",), (2,), {"amd1": (0,)}),
    DemoJob("sbatch", "--gres=gpu:1", ("bridged1",), (1,), {"bridged1": (2,)}),
    DemoJob("sbatch", "--gres=gpu:4", ("dgx1",), (4,), {"dgx1": (3,)}, hint="pattern=all-to-all"),
)
