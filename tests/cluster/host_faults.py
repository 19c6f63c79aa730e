"""Faults of hosts, disks, clocks and daemons: each is a block, and undone at its end.

They need no right beyond those of Docker: the hosts stay unprivileged containers.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import Cluster
from live_harness import saved
from select_harness import until

LINK = Path(__file__).with_name("assets") / "link.py"
#: A file system of 4 MiB in ctl (docker-compose.yml).
SMALL_DISK = "/mnt/small"
STATE = "/var/spool/slurmctld"
CLOCK = "/run/clock"
#: A process that starts with these takes its wall clock from the file, again at every call; its
#: monotonic clock stays the machine's.
FAKED_CLOCK = {
    "LD_PRELOAD": "/usr/$LIB/faketime/libfaketimeMT.so.1",
    "FAKETIME_TIMESTAMP_FILE": CLOCK,
    "FAKETIME_NO_CACHE": "1",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
}
#: What is written before a daemon's own command line to start it again, and when it is there.
DAEMONS = {
    "munged": ("rm -f /run/munge/munge.socket.2*; runuser -u munge --", "munge -n"),
    "slurmdbd": ("", "sacctmgr -n list cluster"),
    "mariadbd": ("setsid", "mariadb -e 'select 1'"),
}


# -- hosts --------------------------------------------------------------------


@contextmanager
def disconnected(cluster: Cluster, *hosts: str) -> Iterator[None]:
    """No packet reaches these hosts or leaves them; their processes go on, with their addresses."""
    for host in hosts:
        _link(cluster, host, "down")
    try:
        yield
    finally:
        for host in hosts:
            _link(cluster, host, "up")


def _link(cluster: Cluster, host: str, state: str) -> None:
    """Puts a host's network link up or down, from a container that lives for that alone."""
    container = cluster.container(host)
    cluster._docker.containers.run(
        container.image.id,
        ["-c", LINK.read_text(), state],
        entrypoint="python3",
        network_mode=f"container:{container.id}",
        cap_add=["NET_ADMIN"],
        remove=True,
    )


@contextmanager
def paused(cluster: Cluster, *hosts: str) -> Iterator[None]:
    """Every process of these hosts stands still; the hosts answer no one, and lose nothing."""
    for host in hosts:
        cluster.container(host).pause()
    try:
        yield
    finally:
        for host in hosts:
            cluster.container(host).unpause()


@contextmanager
def killed_host(cluster: Cluster, host: str) -> Iterator[None]:
    """The host is gone with everything that ran there, as without power; it boots at the end."""
    container = cluster.container(host)
    container.kill()
    try:
        yield
    finally:
        container.start()


# -- disks --------------------------------------------------------------------


@contextmanager
def full_disk(cluster: Cluster, path: str = SMALL_DISK) -> Iterator[None]:
    """Not a byte is left on the small file system of ctl that the path is on."""
    filler = f"{path}/filler"
    cluster.run("ctl", f"dd if=/dev/zero of={filler} bs=4k 2>/dev/null", check=False)
    cluster.run("ctl", f"[ $(df --output=avail {path} | tail -1) = 0 ]")
    try:
        yield
    finally:
        cluster.run("ctl", f"rm {filler}")


@contextmanager
def forgotten(cluster: Cluster) -> Iterator[None]:
    """slurmctld is killed at the end of the block, and nothing of the block was saved."""
    saved(cluster)
    cluster.run("ctl", f"rm -rf /tmp/saved && cp -a {STATE} /tmp/saved")
    yield
    cluster.slurmctld("kill")
    cluster.run("ctl", f"cp -a /tmp/saved/. {STATE}/")
    cluster.slurmctld("start")
    cluster.look()


# -- clocks -------------------------------------------------------------------


@contextmanager
def clock_of(cluster: Cluster, *processes: str) -> Iterator[Callable[[float], None]]:
    """A block in which processes of ctl can have their clock set while they run.

    `processes` are of engine, slurmctld and DAEMONS; all are started anew before the block and
    after it. The block gets a function that sets the clock forward, or back, by so many hours.
    """

    def set_to(hours: float) -> None:
        # libfaketime ends a process that finds the file empty.
        line = f"printf '%+.0f\\n' {3600 * hours} >{CLOCK}.new && mv {CLOCK}.new {CLOCK}"
        cluster.run("ctl", line)

    set_to(0)
    for process in processes:
        restart(cluster, process, FAKED_CLOCK)
    try:
        yield set_to
    finally:
        set_to(0)
        for process in processes:
            restart(cluster, process)


@contextmanager
def clock_shifted(cluster: Cluster, *processes: str, hours: float) -> Iterator[None]:
    """A block in which the clock of processes of ctl is so many hours wrong."""
    with clock_of(cluster, *processes) as set_to:
        set_to(hours)
        yield


# -- daemons ------------------------------------------------------------------


@contextmanager
def without(cluster: Cluster, daemon: str, host: str = "ctl") -> Iterator[None]:
    """A host without one of DAEMONS: killed, and started again at the end."""
    start = _kill(cluster, daemon, host)
    try:
        yield
    finally:
        _start(cluster, daemon, start, host)


@contextmanager
def few_descriptors(cluster: Cluster, process: str, spare: int = 0) -> Iterator[None]:
    """The engine or slurmctld can open so many files more than it has open now."""
    pid = cluster.engine_pid() if process == "engine" else int(cluster.slurmctld("pid"))
    limit = f"runuser -u slurm -- prlimit --pid {pid} --nofile"
    former = cluster.run("ctl", f"{limit} --raw --noheadings --output SOFT").out.strip()
    # The limit is on the highest number, whatever gaps are below it.
    highest = int(cluster.run("ctl", f"ls /proc/{pid}/fd | sort -n | tail -1").out)
    cluster.run("ctl", f"{limit}={highest + 1 + spare}:")
    try:
        yield
    finally:
        cluster.run("ctl", f"{limit}={former}:")


def restart(cluster: Cluster, process: str, env: dict[str, str] | None = None) -> None:
    """Ends the engine, slurmctld or one of DAEMONS, and starts it with this environment."""
    if process in DAEMONS:
        _start(cluster, process, _kill(cluster, process), env=env)
    else:
        cluster.run("ctl", ["clusterctl", process, "restart"], env=env, timeout_s=150)
    unknown = "sinfo -h -N -o %T | grep unknown"
    until(lambda: cluster.run("ctl", unknown, check=False).code, "all nodes have registered", 60)


def _kill(cluster: Cluster, daemon: str, host: str = "ctl") -> str:
    """Its command line, once it is gone."""
    # One that nobody has waited for yet (a zombie) is gone, too.
    alive = ["pgrep", "--runstates", "R,S,D", "-x", daemon]
    pid = cluster.run(host, alive).out.strip()
    words = cluster.run(host, f"cat /proc/{pid}/cmdline").out.split("\0")[:-1]
    cluster.run(host, ["kill", "-KILL", pid])
    until(lambda: cluster.run(host, alive, check=False).code, f"no {daemon}")
    return shlex.join(words)


def _start(
    cluster: Cluster,
    daemon: str,
    command: str,
    host: str = "ctl",
    env: dict[str, str] | None = None,
) -> None:
    before, probe = DAEMONS[daemon]
    cluster.run(host, f"{before} {command} >/dev/null 2>&1 </dev/null &", env=env)
    until(lambda: not cluster.run(host, probe, check=False).code, f"{daemon} answers", 60)
