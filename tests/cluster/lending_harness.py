"""A live site that lends GPUs: two free ones on each of two nodes, and jobs of four."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from live_harness import CONFIG, configure_engine, watched

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.slurm_text import Job

FOLDER = "/cluster/remote"
PROGRAM = f"{FOLDER}/gputopo-node"
#: Where the image of the controller has what is compiled.
BUILT = "/usr/local/share/cluster/launch"
#: A dead node holds up the pings of all for twelve seconds: shorter, and others count as dead.
SLURM_CONF = f"TaskProlog={FOLDER}/task-prolog\nSlurmdTimeout=25"
REMOTE = f"allow: yes, program: {PROGRAM}, donor_memory_mb: 64"
#: Two GPUs of each node are free; the others hold nobody back, and nothing ends by itself.
BUSY = {"dgx1": (0, 1, 2, 3, 4, 5), "dgx2": (2, 3, 4, 5, 6, 7)}
FOUR = ("-p", "dgx", "--gres=gpu:4", "--mem=200")
ASKS = "--comment=gpu-topo: remote=allow"
#: Writes what echo printed and its exit status; the file is there when it is complete.
ECHO = (
    f"f=$HOME/echo.$SLURM_JOB_ID; {PROGRAM} echo >$f.tmp 2>&1; echo exit $? >>$f.tmp; mv $f.tmp $f"
)
MISSING = "name: missing\nserver: [rkudad, '{bind}:{port}']\nenvironment: {X: '{servers}'}"
#: Holds two ports for as long as it runs.
TAKES_PORTS = (
    "python3 -c \"import socket, time; s = [socket.create_server(('', p)) for p in (50000, 50001)];"
    ' time.sleep(300)"'
)
HOLD = f"env >$HOME/job.$SLURM_JOB_ID.env; {ECHO}; sleep 600"


@contextmanager
def taken_away_after(cluster: Cluster) -> Iterator[None]:
    """The site is prepared once for most tests of a file, and taken away after the last."""
    yield
    cluster.run("ctl", f"rm -rf {FOLDER}")
    cluster.reset()


def prepare(cluster: Cluster, busy: Mapping[str, Iterable[int]] = BUSY) -> None:
    """The program and the TaskProlog on every node, the section in gputopo.yaml."""
    cluster.reset()
    cluster.run("ctl", f"rm -rf {FOLDER}; mkdir -p {FOLDER}; gputopo remote program {PROGRAM}")
    cluster.run("ctl", f"cp /src/slurm_plugin/node/task-prolog {FOLDER}/task-prolog")
    cluster.run("ctl", f"cd {BUILT} && cp gputopo-carry gputopo-wire.so {FOLDER}")
    cluster.run("ctl", "rm -f /home/alice/echo.* /home/alice/job.*")
    cluster.configure_extra(SLURM_CONF)
    cluster.reconfigure()
    start_lending(cluster, busy)


@contextmanager
def lending_site(cluster: Cluster) -> Iterator[Cluster]:
    """A block in which the site lends. At the end no donor, no server, no GPU more in use."""
    if not is_prepared(cluster):
        prepare(cluster)
    # The test before may have started the engine in its last line. A job that is submitted before
    # the queue was read once is Slurm's own for good, and borrows nothing (docs/slots.md).
    cluster.wait_reconciled()
    with watched(cluster):
        yield cluster
        users = {job.id: job.fields["UserId"] for job in cluster.jobs()}
        cluster.cancel(*(jobid for jobid, user in users.items() if not user.startswith("bob(")))
        nothing_is_left(cluster)


def start_lending(cluster: Cluster, busy: Mapping[str, Iterable[int]] = BUSY) -> None:
    """The site lends, and these GPUs are taken: but for four, all of the two nodes."""
    configure_engine(cluster, f"{remote('')}\nslots: {{poll_s: 1}}")
    cluster.wait_reconciled()
    used = cluster.gres_used()
    occupy(cluster, {node: gpus for node, gpus in busy.items() if used[node] != tuple(gpus)})


def occupy(cluster: Cluster, busy: Mapping[str, Iterable[int]]) -> None:
    """GPUs are taken for good: a loan delays nobody who waits for them."""
    held = cluster.occupy_nodes(busy) if busy else {}
    for ids in held.values():
        words = f"jobid={','.join(map(str, ids))} TimeLimit=UNLIMITED"
        cluster.run("ctl", f"scontrol update {words}")


def remote(settings: str) -> str:
    """The section of gputopo.yaml."""
    asked = dict(part.split(": ", 1) for part in f"{REMOTE}, {settings}".split(", ") if part)
    return f"remote: {{{', '.join(f'{key}: {value}' for key, value in asked.items())}}}"


def is_prepared(cluster: Cluster) -> bool:
    """Has the test before left all as `lending` made it?"""
    line = cluster.run("ctl", f"grep ^remote: {CONFIG}", check=False).out.strip()
    output = cluster.run("ctl", f"test -x {PROGRAM}", check=False)
    return (
        line == remote("")
        and not output.code
        and cluster.engine_pid() is not None
        and cluster.uses_exactly(BUSY)
        and not donors(cluster)
    )


@contextmanager
def settings_of(cluster: Cluster, settings: str, lines: str = "") -> Iterator[None]:
    """The engine with these settings of `remote` and these lines besides, while the block lasts."""
    before = cluster.read("ctl", CONFIG)
    cluster.put("ctl", CONFIG, before.replace(remote(""), remote(settings)) + lines)
    try:
        cluster.engine("restart")
        cluster.wait_reconciled()
        yield
    finally:
        cluster.put("ctl", CONFIG, before)
        cluster.engine("restart")
        cluster.wait_reconciled()


def nothing_is_left(cluster: Cluster, busy: Mapping[str, Iterable[int]] = BUSY) -> None:
    """No donor in Slurm, no GPU but the occupied ones in use, no process of ours on any node."""
    until(lambda: cluster.uses_exactly(busy), "the lent GPUs are free again", 60)
    until(lambda: not donors(cluster), "no donor is left", 30)
    for node in busy:
        until(lambda node=node: not processes(cluster, node), f"no process is left on {node}", 30)


def processes(cluster: Cluster, node: str) -> str:
    return cluster.run(node, "pgrep -u alice -af 'gputopo-(node|carry)'", check=False).out


def donors(cluster: Cluster) -> list[Job]:
    alive = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED")
    jobs = [job for job in cluster.jobs() if job.fields["JobName"] == "gpu-donor"]
    return [job for job in jobs if job.state in alive]


def echoed(cluster: Cluster, jobid: int, timeout_s: float = 30) -> list[str]:
    """What gputopo-echo told inside the job."""
    return cluster.read("ctl", f"/home/alice/echo.{jobid}", timeout_s=timeout_s).splitlines()


def borrower(cluster: Cluster, *args: str, script: str = HOLD) -> Job:
    """A job of four GPUs that runs on two of its own and two lent ones."""
    jobid = cluster.started(*FOUR, ASKS, *args, script=script, timeout_s=60).id
    echoed(cluster, jobid)
    return cluster.job(jobid)
