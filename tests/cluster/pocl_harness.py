"""A live site of four nodes that lends OpenCL devices by PoCL-Remote.

A fake GPU is an OpenCL device of PoCL on the processor.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from lending_harness import ASKS, FOLDER, donors, nothing_is_left, prepare, remote
from live_harness import CONFIG

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.pytest_plugin import Factory
from slurm_cluster.slurm_text import Job

Busy = Mapping[str, Iterable[int]]

#: Two GPUs are free on the first two nodes, none on the others.
TWO_AND_TWO = {"dgx1": range(6), "dgx2": range(2, 8), **dict.fromkeys(("dgx3", "dgx4"), range(8))}
FOUR = ("-p", "dgx", "--gres=gpu:4", "--mem=200")
#: The shipped preset; only that a fake GPU is a device of the processor is ours.
PRESET = """\
name: pocl-fake
server:
  - sh
  - -c
  - >-
    POCL_DEVICES=$(echo $CUDA_VISIBLE_DEVICES | sed 's/[0-9]*/basic/g;s/,/ /g')
    exec pocld -a {bind} -p {port}
loopback: no
ports: 2
environment: {OCL_ICD_VENDORS: /etc/OpenCL/borrowed}
each_word: {POCL_DEVICES: remote}
each_gpu: {"POCL_REMOTE{i}_PARAMETERS": "{host}:{port}/{gpu}"}
"""
PRESET_KEY = "preset: pocl-fake.yaml"


def job_with(local: int, lines: str) -> str:
    """A job that runs these lines; its own GPUs are devices of PoCL's, before the lent ones."""
    own = f'export PYTHONWARNINGS=ignore POCL_DEVICES="{"basic " * local}$POCL_DEVICES"'
    return f"{own}; out=$HOME/pocl.$SLURM_JOB_ID; mkdir -p $out; {lines}; sleep 600"


def writes(command: str, name: str) -> str:
    """The command's output and its exit status in a file of the job's, when it is complete."""
    file = f"$out/{name}"
    return f"{command} >{file}.part 2>&1; echo exit $? >>{file}.part; mv {file}.part {file}"


@contextmanager
def pocl_nodes(factory: Factory) -> Iterator[Cluster]:
    """Four nodes with PoCL-Remote; skips where its image was not built."""
    partition = "PartitionName=dgx Nodes=dgx[1-4] DefaultTime=10 MaxTime=INFINITE State=UP\n"
    cluster = factory({"dgx[1-4]": "dgx1v"}, slurm_conf=partition, pocl=True)
    with cluster.at_home():
        yield cluster


@contextmanager
def pocl_site(lenders: Cluster, busy: Busy, preset: str) -> Iterator[None]:
    """A block in which the site lends all GPUs but the busy ones; at the end nothing is left."""
    prepare(lenders, busy)
    lenders.put("ctl", "/etc/slurm/pocl-fake.yaml", preset)
    for name in ("pocl_several.py", "opencl_probe.py", "slow_proxy.py"):
        text = (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8")
        lenders.put("ctl", f"{FOLDER}/{name}", text)
    lenders.run("ctl", f"rm -rf /home/*/pocl.*; mkdir {FOLDER}/profiles; chmod -R a+rX {FOLDER}")
    text = lenders.read("ctl", CONFIG)
    lenders.put("ctl", CONFIG, text.replace(remote(""), remote(PRESET_KEY)))
    lenders.engine("restart")
    lenders.wait_reconciled()
    yield
    users = {job.id: job.fields["UserId"] for job in lenders.jobs()}
    lenders.cancel(*(jobid for jobid, user in users.items() if not user.startswith("bob(")))
    nothing_is_left(lenders, busy)
    until(lambda: not servers(lenders), "no server is left", 30)


class Server(NamedTuple):
    """A pocld: where, whose, and the processor seconds that it used."""

    node: str
    user: str
    used_s: float


def servers(cluster: Cluster) -> list[Server]:
    """Every pocld that runs."""
    each = "pgrep -x pocld | while read p; do echo $(stat -c %U /proc/$p; cat /proc/$p/stat); done"
    found = list[Server]()
    for node in cluster.gpus:
        for line in cluster.run(node, each, check=False).out.splitlines():
            user, *stat = line.split()
            found.append(Server(node, user, sum(map(int, stat[13:15])) / 100))
    return found


def lines_of(cluster: Cluster, job: Job, name: str, user: str = "alice") -> list[str]:
    """What the job wrote into this file of its folder; its program said that all is well."""
    path = f"/home/{user}/pocl.{job.id}/{name}"
    *lines, last = cluster.read("ctl", path, timeout_s=90).splitlines()
    assert last == "exit 0", lines
    return lines


def borrower(cluster: Cluster, script: str) -> tuple[Job, str]:
    """A job of four GPUs that runs, and the node that lends it two."""
    job = cluster.started(*FOUR, ASKS, script=script, timeout_s=90)
    [donor] = donors(cluster)
    [node] = donor.gpus
    assert node not in job.gpus
    return job, node


def let_go(cluster: Cluster, job: Job, mark: str) -> None:
    """The script goes on that waits for this mark; its folder is there once it has begun."""
    folder = f"/home/alice/pocl.{job.id}"
    begun = f"[ -d {folder} ]"
    until(lambda: not cluster.run("ctl", begun, check=False).code, "the script has begun", 60)
    cluster.run("ctl", f"touch {folder}/{mark}")


def restarts(cluster: Cluster, job: Job) -> int:
    return int(cluster.job(job.id).fields["Restarts"])
