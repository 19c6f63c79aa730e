"""Two clusters on one host: each slurmctld asks its own engine, which asks its own slurmctld."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from live_harness import CONFIG, IN_BOTH_MODES, by_policy, got_by
from modes import enforcement

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import CommandResult, until
from slurm_cluster.slurm_text import Job, parse_jobs

pytestmark = [
    *IN_BOTH_MODES,
    pytest.mark.long("a second slurmctld and its slurmds are started"),
    pytest.mark.timeout(600),
]

#: Where every host sees it; its controller's own directories end in the same letter.
HOME = "/cluster/b"
CONF, YAML = f"{HOME}/slurm.conf", f"{HOME}/gputopo.yaml"
SOCKET, STATE, LOGS = "/run/gputopo-b/engine.sock", "/var/lib/gputopo-b", "/var/log/gputopo-b"
SWITCH = f"{HOME}/gputopo.disable"
#: Both clusters have them, each by a slurmd of its own, as it were different machines.
NODES = ("minsky1", "bridged1")
FOLDERS = f"{STATE} {LOGS} /run/gputopo-b /var/spool/slurmctld-b"
SLURMCTLD = f"setsid slurmctld -f {CONF}"
ENGINE = (
    "setsid setpriv --reuid slurm --regid slurm --clear-groups --inh-caps=-all --bounding-set=-all"
    f" --no-new-privs env SLURM_CONF={CONF} /opt/gputopo/bin/gputopo serve --config {YAML}"
    f" >>{LOGS}/engine.log 2>&1 </dev/null & echo $! >/run/gputopo-b/engine.pid"
)
ANSWERS = f"socat -u OPEN:/dev/null UNIX-CONNECT:{SOCKET}"


def slurm_conf(cluster: Cluster) -> str:
    """Another cluster of two of the nodes, in the same way of enforcing."""
    text = cluster.read("ctl", "/cluster/slurm.conf")
    for key, value in {
        "ClusterName": "b",
        "StateSaveLocation": "/var/spool/slurmctld-b",
        "SlurmdSpoolDir": "/var/spool/slurmd-b",
        "SlurmctldPidFile": "/run/slurm/slurmctld-b.pid",
        "SlurmdPidFile": "/run/slurmd-b.pid",
        "SlurmctldLogFile": "/var/log/slurm/slurmctld-b.log",
        "SlurmdLogFile": "/home/slurmd-b.%n.log",
    }.items():
        text = re.sub(f"^{key}=.*", f"{key}={value}", text, flags=re.MULTILINE)
    others = "dgx|amd"
    text = re.sub(f"^(NodeName|PartitionName)=({others}).*\n", "", text, flags=re.MULTILINE)
    return f"{text}SlurmctldPort=6827\nSlurmdPort=6828\n"


def gres_conf(cluster: Cluster) -> str:
    lines = cluster.read("ctl", "/cluster/gres.conf").splitlines(keepends=True)
    return "".join(line for line in lines if any(node in line for node in NODES))


def gputopo_yaml(cluster: Cluster) -> str:
    text = cluster.read("ctl", CONFIG).replace("/run/gputopo/engine.sock", SOCKET)
    text = re.sub(r"^  - \{nodes: \"(dgx|amd).*\n", "", text, flags=re.MULTILINE)
    log = f"decision_log: {{path: {LOGS}/decisions.jsonl}}"
    text = re.sub("^decision_log:.*", log, text, flags=re.MULTILINE)
    return f"state_dir: {STATE}\nkill_switch: {SWITCH}\n{text}"


@contextmanager
def cluster_b(cluster: Cluster) -> Iterator[Cluster]:
    """The second cluster, as docs/controllers.md says."""
    cluster.run("ctl", f"mkdir -p {HOME}; install -d -o slurm -g slurm {FOLDERS}")
    bridge = f"socket = {SOCKET}\ndeadline_ms = 1000\nlocked_deadline_ms = 1000\nbudget_ms = 1000\n"
    bridge += f"enforcement = {enforcement()}\n"
    select = f"socket={SOCKET}\nkill_switch={SWITCH}\ndeadline_ms=1000\nbreaker_s=1\n"
    for path, text in {
        CONF: slurm_conf(cluster),
        f"{HOME}/gres.conf": gres_conf(cluster),
        f"{HOME}/cgroup.conf": cluster.run("ctl", "cat /cluster/cgroup.conf").out,
        YAML: gputopo_yaml(cluster),
        f"{HOME}/gputopo-bridge.conf": bridge,
        f"{HOME}/gputopo-select.conf": select,
    }.items():
        cluster.put("ctl", path, text)
    cluster.run("ctl", f"ln -s $(readlink -f /etc/slurm/job_submit.lua) {HOME}/")
    # slurmdbd knows both: -M asks it where the other slurmctld is.
    cluster.run("ctl", "sacctmgr -iQ add cluster b")
    try:
        start_engine(cluster)
        cluster.run("ctl", SLURMCTLD)
        for node in NODES:
            cluster.run(node, f"mkdir -p /var/spool/slurmd-b; slurmd -f {CONF}")
        until(
            lambda: states_in_b(cluster) == ["idle", "idle"],
            lambda: f"the nodes of b are idle: {states_in_b(cluster)}",
            60,
        )
        yield cluster
    finally:
        for host, pid in (
            *((node, "/run/slurmd-b.pid") for node in NODES),
            ("ctl", "/run/slurm/slurmctld-b.pid"),
            ("ctl", "/run/gputopo-b/engine.pid"),
        ):
            cluster.run(host, f"kill $(cat {pid})", check=False)
            gone = f"kill -0 $(cat {pid})"
            until(lambda host=host, gone=gone: cluster.run(host, gone, check=False).code, gone)
        cluster.run("ctl", f"rm -rf {HOME} {FOLDERS}; sacctmgr -iQ delete cluster b")


def start_engine(cluster: Cluster) -> None:
    cluster.run("ctl", ENGINE)
    until(lambda: not cluster.run("ctl", ANSWERS, check=False).code, "the engine of b answers", 60)


def in_b(
    cluster: Cluster, command: str, *, user: str = "root", check: bool = True
) -> CommandResult:
    """A command that is about the second cluster."""
    env = {"SLURM_CONF": CONF, "GPUTOPO_CONFIG": YAML}
    return cluster.run("ctl", command, user=user, env=env, check=check)


def states_in_b(cluster: Cluster) -> list[str]:
    """What b's slurmctld says of NODES; nothing while it does not answer."""
    return in_b(cluster, "sinfo -h -N -p gpu -o %T", check=False).out.split()


def job_of_b(cluster: Cluster, job: int) -> Job:
    return parse_jobs(in_b(cluster, f"scontrol show job -d {job}").out)[0]


def runs_in_b(cluster: Cluster, job: int) -> Job:
    until(
        lambda: job_of_b(cluster, job).state == "RUNNING",
        lambda: f"job {job} of b runs: {job_of_b(cluster, job).fields}",
        60,
    )
    return job_of_b(cluster, job)


def submitted_to_b(cluster: Cluster, *args: str) -> int:
    """By somebody whose commands are about the first cluster."""
    words = ["sbatch", "--parsable", "-M", "b", "-o", "/dev/null", *args, "--wrap", "sleep 300"]
    return int(cluster.run("ctl", shlex.join(words), user="alice").out.split(";")[0])


def placed(cluster: Cluster, folder: str) -> int:
    """How many jobs were given GPUs, by the log of one engine."""
    lines = cluster.run("ctl", f"cat {folder}/decisions.jsonl", check=False).out.splitlines()
    return sum(json.loads(line)["decision"] == "use" for line in lines)


PAIR = ("-w", "bridged1", "--gres=gpu:2")
OURS = {"bridged1": (0, 2)}


def test_each_cluster_has_its_engine_and_they_know_nothing_of_each_other(cluster):
    assert by_policy({}, (2,), ("bridged1",)) == OURS
    with cluster_b(cluster):
        before = placed(cluster, "/var/log/gputopo")
        told = in_b(cluster, "gputopo doctor").out
        assert "nothing to fix" in told
        # The same GPUs of the same node, as the two know nothing of each other.
        assert got_by(cluster, *PAIR) == OURS
        first = submitted_to_b(cluster, *PAIR)
        assert runs_in_b(cluster, first).gpus == OURS
        until(lambda: placed(cluster, LOGS) == 1, "b's decision is in b's log")
        until(lambda: placed(cluster, "/var/log/gputopo") == before + 1, "a's in a's, and no other")
        refused = "sbatch -M b --gres=gpu:2 --comment='gpu-topo: pattern=none' --wrap true"
        assert "pattern" in cluster.run("ctl", refused, user="alice", check=False).err

        cluster.engine("kill")
        second = submitted_to_b(cluster, *PAIR)
        got = runs_in_b(cluster, second).gpus
        assert got == by_policy(OURS, (2,), ("bridged1",))
        until(lambda: placed(cluster, LOGS) == 2, "b's engine goes on alone")
        cluster.engine("start")
        cluster.wait_reconciled()

        in_b(cluster, f"scancel {first} {second}")
        cluster.run("ctl", f"touch {SWITCH}")
        third = submitted_to_b(cluster, *PAIR)
        runs_in_b(cluster, third)
        assert placed(cluster, LOGS) == 2
        assert got_by(cluster, *PAIR) == OURS
        assert placed(cluster, "/var/log/gputopo") >= before + 2
        in_b(cluster, f"scancel {third}")
