"""What `gputopo try` says of jobs of drawn forms, and what becomes of them.

In drawn states of the cluster, and in partitions whose limits and defaults differ: `try` is asked,
then the job is submitted. GPUTOPO_FORMS_STATES and GPUTOPO_FORMS_JOBS draw more of them.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter

import pytest
from live_harness import at_home, becomes

from slurm_cluster.cluster import Cluster
from tests.cluster.users import test_try_live

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.both_modes,
    pytest.mark.enforced,
    pytest.mark.long("two minutes for each state"),
    pytest.mark.timeout(1800),
]

STATES = range(int(os.environ.get("GPUTOPO_FORMS_STATES", "4")))
JOBS = int(os.environ.get("GPUTOPO_FORMS_JOBS", "12"))
PARTITIONS = (
    f"{test_try_live.PARTITIONS}"
    "PartitionName=socket Nodes=dgx[1-2] MaxCPUsPerSocket=3 DefaultTime=10 State=UP\n"
    "PartitionName=single Nodes=dgx[1-2] MaxNodes=1 DefaultTime=10 State=UP\n"
    "PartitionName=given Nodes=dgx[1-2] DefMemPerCPU=700 DefaultTime=10 State=UP\n"
)
IN = (
    *("dgx", "dgx", "dgx", "fed", "whole", "narrow", "socket", "single", "given", "dgx,single"),
    "gpu",
)
#: What a form is drawn from. GPUs, then some of the others.
GPUS = (
    "", "--gres=gpu:1", "--gres=gpu:2", "--gres=gpu:4", "--gres=gpu:v100:3", "--gpus=2", "--gpus=3",
    "--gpus=5", "--gpus=9", "--gpus=12", "--gpus=17", "--gpus-per-node=2", "--gpus-per-node=8",
    "--gpus-per-task=1 -n2", "--gpus-per-task=1 -n6", "--gpus-per-task=2 -n3", "--gpus=v100:6",
    "--gpus-per-socket=1 --sockets-per-node=2",
)  # fmt: skip
MORE = (
    ("-n2", "-n4", "-n7", "-n12", "-n20", "--ntasks-per-node=2", "-n6 --ntasks-per-node=3",
     "--ntasks-per-gpu=1", "--ntasks-per-socket=1"),
    ("-c2", "-c3", "-c5", "-c9", "-c17", "--cpus-per-gpu=2", "--cpus-per-gpu=5"),
    ("--mem=500", "--mem=3000", "--mem=5000", "--mem-per-cpu=200", "--mem-per-cpu=900",
     "--mem-per-gpu=400", "--mem-per-gpu=1500", "--mem=0"),
    ("-N1", "-N2", "-N2", "-N3", "-N1-2", "-w dgx1", "-w dgx2", "-w dgx1,dgx2", "-x dgx1"),
    ("--exclusive", "--exclusive", "--exclusive=user", "-s", "--gres-flags=enforce-binding",
     "--hint=nomultithread", "--contiguous", "--mincpus=6", "-C nothing",
     "--switches=1", "--requeue", "--signal=9@30", "-O", "-m cyclic", "--use-min-nodes"),
)  # fmt: skip
# Without --spread-job: with --gpus-per-task slurmctld 24.11.5 dies of it, with or without us.
#: How often a form has an option of each of MORE.
SHARES = (0.35, 0.3, 0.3, 0.4, 0.25)


def form(rng: random.Random) -> list[str]:
    """A job's options."""
    parts = [rng.choice(GPUS)]
    for share, some in zip(SHARES, MORE, strict=True):
        parts += [rng.choice(some)] if rng.random() < share else []
    return ["-p", rng.choice(IN), *" ".join(parts).split()]


partitions = at_home(slurm_conf=PARTITIONS)


def a_state(cluster: Cluster, rng: random.Random) -> None:
    """GPUs in use, and cores and memory in use beside them; a node may take no jobs."""
    sizes = {node: rng.choice((0, 0, 2, 5, 8)) for node in ("dgx1", "dgx2")}
    cluster.occupy_nodes({node: rng.sample(range(8), size) for node, size in sizes.items()})
    for node in ("dgx1", "dgx2"):
        if cores := rng.choice((0, 0, 2, 5)):
            beside = ["-p", "off", "-w", node, f"-n{cores}", "--mem=700"]
            cluster.started(*beside, sleep_s=3600, user="bob")
    # Nothing could start beside a full node.
    if rng.random() < 0.2 and sizes["dgx1"] < 8:
        cluster.run("ctl", "scontrol update nodename=dgx2 state=drain reason=drawn")


@pytest.mark.parametrize("number", STATES)
@pytest.mark.usefixtures("partitions")
def test_what_is_said_of_a_job_of_any_form_comes_true(cluster: Cluster, number: int) -> None:
    """No false "now", no false "never"; at most one that starts though it was said to wait."""
    rng = random.Random(f"forms {number}")
    a_state(cluster, rng)
    wrong, missed, counts = [], [], Counter[str]()
    try:
        for _ in range(JOBS):
            options = form(rng)
            argv = ["gputopo", "try", "--json", "-t", "5", *options]
            said = json.loads(cluster.run("ctl", argv, user="alice").out)
            found = becomes(cluster, options)
            now = said["starts_now"]
            told = (" ".join(options), found, said["sentence"], said["slurm_says"])
            print(*told, sep=" | ")
            counts[found] += 1
            if now is None:
                counts["not judged"] += 1
            elif (now and found != "starts") or (said["never"] and found == "starts"):
                wrong.append(told)
            elif now != (found == "starts"):
                missed.append(told)
    finally:
        cluster.run("ctl", "scontrol update nodename=dgx2 state=resume", check=False)
    print(dict(counts), f"{len(wrong)} wrong, {len(missed)} missed of {JOBS}")
    assert not wrong
    assert len(missed) <= 1, missed
    assert counts["not judged"] <= 0.25 * JOBS
    assert counts["starts"] < JOBS
