"""Faults of disks, clocks and daemons: each is a block, and undone at its end.

They need no right beyond those of Docker: the hosts stay unprivileged containers.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from slurm_cluster.hosts import until
from slurm_cluster.slurm import Slurm

#: A file system of 4 MiB in ctl (docker-compose.yml).
SMALL_DISK = "/mnt/small"
CLOCK = "/run/clock"
#: A process that starts with these takes its wall clock from the file, again at every call; its
#: monotonic clock stays the machine's.
FAKED_CLOCK = {
    "LD_PRELOAD": "/usr/$LIB/faketime/libfaketimeMT.so.1",
    "FAKETIME_TIMESTAMP_FILE": CLOCK,
    "FAKETIME_NO_CACHE": "1",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    # Else waits on the monotonic clock end at once, and Python's threads spin for their lock.
    "FAKETIME_FORCE_MONOTONIC_FIX": "0",
}
#: Daemon -> what stands before its command line when it is started again, and the command that
#: succeeds once it answers.
DAEMONS = {
    "munged": ("rm -f /run/munge/munge.socket.2*; runuser -u munge --", "munge -n"),
    "slurmdbd": ("", "sacctmgr -n list cluster"),
    "mariadbd": ("setsid", "mariadb -e 'select 1'"),
    "slurmd": ("", "scontrol show slurmd"),
}


class Faults(Slurm):
    """Slurm, and what may happen beside it on its controller."""

    # -- disks --------------------------------------------------------------------

    @contextmanager
    def full_disk(self, path: str = SMALL_DISK) -> Iterator[None]:
        """Not a byte is left on the small file system of ctl that the path is on."""
        filler = f"{path}/filler"
        self.run("ctl", f"dd if=/dev/zero of={filler} bs=4k 2>/dev/null", check=False)
        self.run("ctl", f"[ $(df --output=avail {path} | tail -1) = 0 ]")
        try:
            yield
        finally:
            self.run("ctl", f"rm {filler}")

    # -- clocks -------------------------------------------------------------------

    @contextmanager
    def clock_of(self, *processes: str) -> Iterator[Callable[[float], None]]:
        """A block in which processes of ctl can have their clock set while they run.

        `processes` are of engine, slurmctld and DAEMONS; all are started anew before the block and
        after it. The block gets a function that sets the clock forward, or back, by so many hours.
        """

        def set_to(hours: float) -> None:
            # libfaketime ends a process that finds the file empty.
            line = f"printf '%+.0f\\n' {3600 * hours} >{CLOCK}.new && mv {CLOCK}.new {CLOCK}"
            self.run("ctl", line)

        set_to(0)
        for process in processes:
            self.restart(process, FAKED_CLOCK)
        try:
            yield set_to
        finally:
            set_to(0)
            for process in processes:
                self.restart(process)

    @contextmanager
    def clock_shifted(self, *processes: str, hours: float) -> Iterator[None]:
        """A block in which the clock of processes of ctl is so many hours wrong."""
        with self.clock_of(*processes) as set_to:
            set_to(hours)
            yield

    # -- daemons ------------------------------------------------------------------

    @contextmanager
    def without(self, daemon: str, host: str = "ctl") -> Iterator[None]:
        """A host without one of DAEMONS: killed, and started again at the end."""
        start = self._kill(daemon, host)
        try:
            yield
        finally:
            self._start(daemon, start, host)

    @contextmanager
    def few_descriptors(self, process: str, spare: int = 0) -> Iterator[None]:
        """The engine or slurmctld can open so many files more than it has open now."""
        pid = int(self.run("ctl", ["clusterctl", process, "pid"]).out)
        limit = f"runuser -u slurm -- prlimit --pid {pid} --nofile"
        former = self.run("ctl", f"{limit} --raw --noheadings --output SOFT").out.strip()
        # The limit is on the highest number, whatever gaps are below it.
        highest = int(self.run("ctl", f"ls /proc/{pid}/fd | sort -n | tail -1").out)
        self.run("ctl", f"{limit}={highest + 1 + spare}:")
        try:
            yield
        finally:
            self.run("ctl", f"{limit}={former}:")
            if process == "slurmctld":  # It asks silent nodes SlurmdTimeout / 3 later: now instead.
                self.run("ctl", "scontrol update nodename=ALL state=undrain")

    def restart(self, process: str, env: dict[str, str] | None = None) -> None:
        """Ends the engine, slurmctld or one of DAEMONS, and starts it with this environment."""
        if process in DAEMONS:
            self._start(process, self._kill(process), env=env)
        else:
            self.run("ctl", ["clusterctl", process, "restart"], env=env, timeout_s=150)
        unknown = "sinfo -h -N -o %T | grep unknown"
        until(lambda: self.run("ctl", unknown, check=False).code, "all nodes have registered", 60)

    def _kill(self, daemon: str, host: str = "ctl") -> str:
        """Kills a daemon; its command line, once it is gone."""
        # Not a zombie, which is gone already, nor a child that has the name for a moment. A slurmd
        # that was reconfigured has the name of its file, which is slurmd-wlm on Debian.
        alive = ["pgrep", "--runstates", "R,S,D", "-o", "-x", f"{daemon}(-wlm)?"]
        pid = self.run(host, alive).out.strip()
        words = self.run(host, f"cat /proc/{pid}/cmdline").out.split("\0")[:-1]
        self.run(host, ["kill", "-KILL", pid])
        until(lambda: self.run(host, alive, check=False).code, f"no {daemon}")
        return shlex.join(words)

    def _start(
        self,
        daemon: str,
        command: str,
        host: str = "ctl",
        env: dict[str, str] | None = None,
    ) -> None:
        before, probe = DAEMONS[daemon]
        self.run(host, f"{before} {command} >/dev/null 2>&1 </dev/null &", env=env)
        until(lambda: not self.run(host, probe, check=False).code, f"{daemon} answers", 60)
