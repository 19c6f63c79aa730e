"""Which forms of jobs may borrow, and the line for the user of one that may not."""

from __future__ import annotations

from slurm_plugin.queue.demand import Demand

HET = "the components of a heterogeneous job start together, each on its own request alone"
INTERACTIVE = "the batch step meets the donors, and jobs of srun and salloc have none; use sbatch"
SEVERAL_NODES = "donors are met on one node, and this job may run on several (-N1)"
SPREAD = "without -N1 Slurm spreads the GPUs of --gpus over nodes"
PER_TASK = "each of its tasks wants GPUs of its own (--gpus-per-task), and lent ones are the job's"
PER_GPU = "Slurm counts its tasks by its GPUs (--ntasks-per-gpu), and would by the local ones alone"
PER_SOCKET = "with --gpus-per-socket its GPUs are to be beside its cores"
EXCLUSIVE = "an exclusive job gets all GPUs of a node, and Slurm lets none ask for more than that"
NODE_LIST = "--nodelist has to name the one node on which the job runs"
TOO_SMALL = "at least one of its GPUs is local, so it has to ask for two"
SHAPED = "policy=genie plans shapes of nodes' own GPUs, and a loan would change the one it planned"
OLD_SLURM = "Slurm 22.05 takes no GPU out of a request"


def obstacle(asked: Demand, *, is_batch: bool = True, is_het: bool = False) -> str:
    """Why a job that asks for this can borrow nothing, '' where it can."""
    several = asked.nodes > 1 or asked.max_nodes > 1
    gpus = asked.per_node if asked.form == "node" else asked.gpus
    forms = (
        (is_het, HET),
        (not is_batch, INTERACTIVE),
        (asked.is_22_05, OLD_SLURM),
        (several, SEVERAL_NODES),
        (asked.form == "job" and asked.max_nodes != 1, SPREAD),
        (asked.is_by_gpu, PER_GPU),
        (asked.form == "socket", PER_SOCKET),
        (asked.form == "task" and asked.tasks > 1, PER_TASK),
        (asked.exclusive, EXCLUSIVE),
        ("," in asked.req_nodes or "[" in asked.req_nodes, NODE_LIST),
        (gpus < 2, TOO_SMALL),
    )
    return next((why for is_so, why in forms if is_so), "")


def line(why: str) -> str:
    """What stands in AdminComment, in `gputopo explain`, and in sbatch's answer."""
    return f"GPUs of other nodes are not lent to this job: {why}"
