"""The engine in a container of its own beside slurmctld's, as in a pod (docs/controllers.md)."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from live_harness import CONFIG, got_by

from slurm_cluster.cluster import Cluster, image
from slurm_cluster.hosts import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.enforced,
    pytest.mark.long("a container of its own, and slurmctld restarts"),
]

#: On the volume that both have; munge's socket there is of a second munged.
SHARED = "/cluster/pod"
SOCKET = f"{SHARED}/engine.sock"
MUNGED = (
    f"munged -f -S {SHARED}/munge/munge.socket.2 --pid-file=/tmp/pod.pid"
    " --log-file=/tmp/pod.log --seed-file=/tmp/pod.seed"
)
PREPARE = f"""\
set -e
install -d -o slurm -g slurm -m 755 {SHARED} && install -d -o munge -m 755 {SHARED}/munge
runuser -u munge -- {MUNGED}
sed 's#^socket: .*#socket: {SOCKET}#; s#/var/log/gputopo#/tmp#' {CONFIG} >{SHARED}/gputopo.yaml
for file in select bridge; do echo 'socket={SOCKET}' >>/etc/slurm/gputopo-$file.conf; done
clusterctl slurmctld restart
"""
UNDO = f"""\
kill $(cat /tmp/pod.pid); rm -rf {SHARED}
sed -i '/^socket=/d' /etc/slurm/gputopo-select.conf /etc/slurm/gputopo-bridge.conf
clusterctl slurmctld restart
"""
SERVE = f"/opt/gputopo/bin/gputopo serve --config {SHARED}/gputopo.yaml"


def docker(*args: str) -> str:
    done = subprocess.run(["docker", *args], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def cluster(session_cluster: Cluster) -> Iterator[Cluster]:
    """No engine beside slurmctld."""
    with session_cluster.at_home(engine=False):
        session_cluster.engine("stop")
        with session_cluster.temporarily(PREPARE, UNDO):
            yield session_cluster


@contextmanager
def side_car(cluster: Cluster) -> Iterator[str]:
    """Its name: in slurmctld's network, as SlurmUser, with no rights and a disk to read only."""
    name, shared = f"{cluster.project}-side-car", f"{cluster.project}_cluster"
    folder = docker("volume", "inspect", "-f", "{{.Mountpoint}}", shared)
    user = cluster.run("ctl", "echo $(id -u slurm):$(id -g slurm)").out.strip()
    limits = ["--cap-drop=ALL", "--security-opt=no-new-privileges", "--read-only"]
    places = ["--tmpfs=/tmp:mode=1777", f"--volume={shared}:/cluster"]
    places.append(f"--volume={folder}/pod/munge:/run/munge")
    of_pod = f"--network=container:{cluster.container('ctl').id}"
    argv = [*limits, *places, of_pod, f"--user={user}", "--entrypoint=sh"]
    docker("run", "-d", "--name", name, *argv, image("controller", cluster.suite), "-c", SERVE)
    try:
        yield name
    finally:
        docker("rm", "-f", name)


def wait_answers(name: str) -> None:
    """Until the engine answers in that container."""
    ask = ["docker", "exec", name, "/opt/gputopo/bin/gputopo", "status"]
    ask += ["--config", f"{SHARED}/gputopo.yaml"]
    until(
        lambda: not subprocess.run(ask, capture_output=True, check=False).returncode,
        lambda: f"an answer: {docker('logs', name)}",
        60,
    )


def test_jobs_are_placed_by_an_engine_in_another_container(cluster):
    """Slurm's own choice before it runs and when it was killed; ours as soon as it is there."""
    pair = ("-w", "dgx1", "--gres=gpu:2")
    assert got_by(cluster, *pair) == {"dgx1": (0, 1)}
    with side_car(cluster) as name:
        wait_answers(name)
        until(lambda: got_by(cluster, *pair) == {"dgx1": (0, 3)}, "the engine's choice")
        docker("kill", "-s", "KILL", name)
        assert got_by(cluster, *pair) == {"dgx1": (0, 1)}
        # The socket that it left is no hindrance.
        docker("start", name)
        wait_answers(name)
        until(lambda: got_by(cluster, *pair) == {"dgx1": (0, 3)}, "the engine's choice, again")
        cluster.restart_slurmctld()
        assert got_by(cluster, *pair) == {"dgx1": (0, 3)}
