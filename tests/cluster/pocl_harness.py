"""A live site whose nodes have PoCL-Remote: each fake GPU is a device of PoCL on the processor."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lending_harness import nothing_is_left, prepare, remote
from live_harness import CONFIG

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.slurm_text import Job

PARTITION = "PartitionName=dgx Nodes=dgx[1-4] DefaultTime=10 MaxTime=INFINITE State=UP\n"
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
max_donors: 1
environment: {OCL_ICD_VENDORS: /etc/OpenCL/borrowed}
each_word: {POCL_DEVICES: remote}
each_gpu: {"POCL_REMOTE{i}_PARAMETERS": "{host}:{port}/{gpu}"}
"""
SEVERAL = "/home/pocl_several.py"
#: The first lines of a job: its own two GPUs as PoCL's devices, and a folder for what it finds.
OPENCL = (
    'export POCL_DEVICES="basic basic $POCL_DEVICES" PYTHONWARNINGS=ignore;'
    " out=$HOME/pocl.$SLURM_JOB_ID.$SLURM_RESTART_COUNT; mkdir -p $out"
)


def to_file(program: str, name: str) -> str:
    """A line of a job: output and exit status in a file that appears when it is complete."""
    part = f"$out/{name}.part"
    return f"{program} >{part} 2>&1; echo exit $? >>{part}; mv {part} $out/{name}"


def waits_for(name: str) -> str:
    """A line of a job: until the test touches that file."""
    return f"until [ -e $out/{name} ]; do sleep 0.1; done"


class Lenders:
    """The site: who has which GPUs to lend, and what a job found."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @contextmanager
    def lending(
        self, busy: Mapping[str, Iterable[int]], settings: str = "", preset: str = PRESET
    ) -> Iterator[None]:
        """A block in which all GPUs but those `busy` may be lent; at its end no loan is left."""
        cluster = self.cluster
        prepare(cluster, busy)
        asset = Path(__file__).parent / "assets" / "pocl_several.py"
        cluster.put("ctl", SEVERAL, asset.read_text(encoding="utf-8"))
        cluster.put("ctl", "/etc/slurm/pocl-fake.yaml", preset)
        text = cluster.read("ctl", CONFIG)
        words = ", ".join(filter(None, ("preset: pocl-fake.yaml", settings)))
        cluster.put("ctl", CONFIG, text.replace(remote(""), remote(words)))
        cluster.engine("restart")
        cluster.wait_reconciled()
        yield
        # Those that only hold GPUs are in another partition.
        cluster.cancel(*(job.id for job in cluster.jobs() if job.fields["Partition"] == "dgx"))
        nothing_is_left(cluster, busy)
        until(lambda: not self.pocld_s(), "no server is left", 30)

    def pocld_s(self, user: str = "alice") -> dict[str, float]:
        """Processor seconds of the user's pocld on each node that has one."""
        times = f"pgrep -u {user} -x pocld | while read p; do cut -d' ' -f14,15 /proc/$p/stat; done"
        nodes = self.cluster.gpus
        used = {node: self.cluster.run(node, times, check=False).out.split() for node in nodes}
        return {node: sum(map(int, ticks)) / 100 for node, ticks in used.items() if ticks}

    def path(self, job: Job, name: str, *, user: str = "alice", restarts: int = 0) -> str:
        """A file of what the job's nth start found."""
        return f"/home/{user}/pocl.{job.id}.{restarts or ''}/{name}"

    def found(
        self, job: Job, name: str, *, user: str = "alice", restarts: int = 0, within_s: float = 90
    ) -> list[str]:
        """The lines that a program of the job printed, which ended with status 0."""
        path = self.path(job, name, user=user, restarts=restarts)
        *lines, last = self.cluster.read("ctl", path, timeout_s=within_s).splitlines()
        assert last == "exit 0", (lines, last)
        return lines

    def go(self, job: Job, name: str) -> None:
        """What the job waits for."""
        self.cluster.run("ctl", f"touch {self.path(job, name)}")
