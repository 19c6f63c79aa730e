"""Drives the containerised Slurm: runs commands in its hosts and reads what Slurm says.

What a job got always comes from Slurm (`scontrol show job -d`) or from the job's own
environment, never from the engine's log.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from modes import enforcement
from shells import Shells
from slurm_text import Job, parse_gres, parse_indices, parse_jobs

import docker
from slurm_plugin.wire import split, unquote

ROOT = Path(__file__).resolve().parents[2]
CLUSTER_SH = ROOT / "docker" / "cluster.sh"
NO_ENGINE_EXIT = 3
GPUS = {"amd1": 8, "bridged1": 8, "dgx1": 8, "dgx2": 8, "minsky1": 4}
FINISHED = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
POLL_S = 0.1
#: The engine may rightly miss its 50 ms on a busy machine, and a job then gets Slurm's own choice.
PATIENT_MS = 1000
ENGINE_SOCKET = "/run/gputopo/engine.sock"

# A job notes its environment where every host sees it: complete, or not at all.
RECORD = 'f=$HOME/job.$SLURM_JOB_ID; env >"$f.tmp" && mv "$f.tmp" "$f.env"'
RECORD_EACH_NODE = (
    "srun --ntasks-per-node=1 --ntasks=$SLURM_NNODES sh -c "
    "'f=$HOME/job.$SLURM_JOB_ID.$SLURMD_NODENAME; env >$f.tmp && mv $f.tmp $f.env'"
)


class ClusterError(Exception):
    """A command failed or a state was not reached; the message has the command and its output."""


class NoEngineError(ClusterError):
    """No container engine answers and none could be started."""


@dataclass(frozen=True)
class Result:
    """What a command in a container left."""

    code: int
    out: str
    err: str


class Cluster:
    """A running cluster of one compose project."""

    def __init__(self, project: str, suite: str = "trixie") -> None:
        self.project = project
        self.suite = suite
        self._docker = docker.from_env()
        self._containers: dict[str, Any] = {}
        self._shells = Shells(lambda host: str(self.container(host).id))
        self._home: dict[str, str] = {}
        #: Whether nothing was run in it since the last reset.
        self.is_fresh = False
        self._expected = ""

    # -- life ---------------------------------------------------------------

    @classmethod
    def up(cls, project: str | None = None, suite: str | None = None) -> Cluster:
        """Starts or reuses the cluster.

        NoEngineError where no engine can run; ClusterError with the last lines of a failed build.
        """
        project = project or default_project()
        suite = suite or os.environ.get("SUITE") or "trixie"
        done = _cluster_sh(project, suite, "up")
        if done.returncode == NO_ENGINE_EXIT:
            raise NoEngineError(done.stderr.strip().splitlines()[-1])
        if done.returncode:
            raise ClusterError(f"docker/cluster.sh up failed:\n{done.stdout}{done.stderr}")
        return cls(project, suite)

    @cached_property
    def release(self) -> tuple[int, int]:
        """Slurm's release: (24, 11)."""
        year, month = self.run("ctl", "sinfo -V").out.split()[1].split(".")[:2]
        return int(year), int(month)

    @cached_property
    def has_select_plugin(self) -> bool:
        """Whether the image could build it: not without this Slurm's source."""
        return not self.run("ctl", "test -e /usr/local/lib/select_cons_tres.so", check=False).code

    def down(self) -> None:
        """Removes containers, network and volumes; images stay."""
        _cluster_sh(self.project, self.suite, "down")

    @contextmanager
    def backup_host(self) -> Iterator[None]:
        """A block with a second controller host, its slurmctld on standby, known to the nodes."""
        if _cluster_sh(self.project, self.suite, "backup", "up").returncode:
            raise ClusterError("docker/cluster.sh backup up failed")
        try:
            self.switch(self.variant(), backup=True)
            self.reconfigure()
            self.slurmctld("start", host="ctl2")
            yield
        finally:
            self.slurmctld("stop", host="ctl2")
            self.switch(self.variant())
            self.reconfigure()
            _cluster_sh(self.project, self.suite, "backup", "down")
            self._containers.pop("ctl2", None)

    def reset(self) -> None:
        """No jobs, nodes idle, no GPU in use, our variant, the engine running as configured.

        ClusterError where a daemon had ended by itself or a log tells of a crash.
        """
        how = {"GPUTOPO_EXPECTED": self._expected, **self._home}
        if enforcement() == "slots":
            how.setdefault("GPUTOPO_VARIANT", "gputopo-slots")
        self._expected = ""
        done = self.run("ctl", ["clusterctl", "reset"], timeout_s=150, env=how)
        if "restarted" in done.out:
            self.wait_accepted()
        self.look()
        self.is_fresh = True

    @contextmanager
    def at_home(
        self,
        *,
        variant: str = "",
        yaml: str = "",
        slurm_conf: str = "",
        engine: bool = True,
        deadline_ms: int | None = PATIENT_MS,
    ) -> Iterator[None]:
        """A block in which a reset leads elsewhere: another variant, more lines in the two files.

        engine=False: the tests bring one of their own. deadline_ms is how long plugin and bridge
        wait for it; None: the tests write their files.
        """
        former = self._home
        self._home = {
            "GPUTOPO_YAML": yaml,
            "GPUTOPO_SLURM_CONF": slurm_conf,
            "GPUTOPO_WITHOUT_ENGINE": "" if engine else "yes",
            "GPUTOPO_DEADLINE_MS": "" if deadline_ms is None else str(deadline_ms),
            **({"GPUTOPO_VARIANT": variant} if variant else {}),
        }
        try:
            self.reset()
            if slurm_conf:
                self.wait_registered()
            yield
        finally:
            self._home = former
            self.reset()

    def expects(self, crash: str) -> None:
        """The test itself provokes log lines that match; they are no fault at the next reset."""
        self._expected = "|".join(filter(None, (self._expected, crash)))

    # -- commands -----------------------------------------------------------

    def container(self, host: str) -> Any:
        """The docker SDK's container of a host."""
        if host not in self._containers:
            labels = [
                f"com.docker.compose.project={self.project}",
                f"com.docker.compose.service={host}",
            ]
            found = self._docker.containers.list(all=True, filters={"label": labels})
            if not found:
                raise ClusterError(f"no container of {host} in project {self.project}")
            self._containers[host] = found[0]
        return self._containers[host]

    def run(
        self,
        host: str,
        command: str | Sequence[str],
        *,
        user: str = "root",
        check: bool = True,
        timeout_s: float = 60,
        env: dict[str, str] | None = None,
    ) -> Result:
        """Runs a shell line (str) or an argument list in a host.

        ClusterError on a non-zero exit when `check`.
        """
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        self.is_fresh = False
        home = "/root" if user == "root" else f"/home/{user}"
        result = Result(
            *self._shells.run(
                host,
                ["timeout", str(timeout_s), *argv],
                user,
                home,
                {"HOME": home, "USER": user, **(env or {})},
            )
        )
        if check and result.code:
            raise ClusterError(
                f"{user}@{host}: {shlex.join(argv)} exited {result.code}:\n{result.out}{result.err}"
            )
        return result

    def sbatch(
        self,
        *args: str,
        user: str = "alice",
        sleep_s: float = 0,
        script: str | None = None,
        host: str = "ctl",
    ) -> int:
        """Submits a job that records its environment and then sleeps (or runs `script`); its id.

        ClusterError with Slurm's words when the submit is refused.
        """
        wrap = f"{RECORD}; sleep {sleep_s}" if script is None else script
        done = self.run(
            host, ["sbatch", "--parsable", "-o", "/dev/null", *args, "--wrap", wrap], user=user
        )
        return int(done.out.strip().split(";")[0])

    def job(self, jobid: int) -> Job:
        """The job's record (an array's or heterogeneous job's first)."""
        return self.jobs(jobid)[0]

    def jobs(self, jobid: int) -> list[Job]:
        """All records of a job id: one, or one per array task or component."""
        return parse_jobs(self.run("ctl", ["scontrol", "show", "job", "-d", str(jobid)]).out)

    def gres_used(self) -> dict[str, tuple[int, ...]]:
        """GPU indices in use per node."""
        told = self.run("ctl", "sinfo -h -N -O NodeHost:64,GresUsed:1000").out
        return {
            node: parse_gres(gres)
            for node, gres in (line.split(None, 1) for line in told.splitlines())
        }

    def cancel(self, *jobids: int) -> None:
        """Cancels jobs; finished ones are no error."""
        self.run("ctl", ["scancel", *map(str, jobids)], check=False)

    # -- waiting ------------------------------------------------------------

    def wait_state(self, jobid: int, *states: str, timeout_s: float = 30) -> Job:
        """Polls until the job is in one of the states; else ClusterError with its last record."""
        deadline = time.monotonic() + timeout_s
        while (job := self.job(jobid)).state not in states:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"job {jobid} is {job.state} ({job.reason}), not {states}: {job.fields}"
                )
            time.sleep(POLL_S)
        return job

    def wait_running(self, jobid: int, timeout_s: float = 30) -> Job:
        """The record of the job once it runs; ClusterError if it does not."""
        return self.wait_state(jobid, "RUNNING", timeout_s=timeout_s)

    def wait_finished(self, jobid: int, timeout_s: float = 60) -> Job:
        """The record of the job once it ended, however it ended."""
        return self.wait_state(jobid, *FINISHED, timeout_s=timeout_s)

    def wait_idle(self, timeout_s: float = 60) -> None:
        """Polls until no job is left and no GPU in use; else ClusterError says what is left."""
        deadline = time.monotonic() + timeout_s
        while True:
            queue = self.run("ctl", "squeue -h -o '%A %T %r'").out.strip()
            used = {node: gpus for node, gpus in self.gres_used().items() if gpus}
            if not queue and not used:
                return
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"not idle after {timeout_s:g} s: queue [{queue}], GPUs in use {used}"
                )
            time.sleep(POLL_S)

    def env_of(
        self, jobid: int, *, node: str | None = None, user: str = "alice", timeout_s: float = 20
    ) -> dict[str, str]:
        """The environment the job recorded (RECORD), or its task on `node` (RECORD_EACH_NODE)."""
        path = f"/home/{user}/job.{jobid}{'.' + node if node else ''}.env"
        deadline = time.monotonic() + timeout_s
        while (found := self.run("ctl", ["cat", path], check=False)).code:
            if time.monotonic() > deadline:
                raise ClusterError(f"job {jobid} did not write {path}: {self.job(jobid).fields}")
            time.sleep(POLL_S)
        return dict(line.split("=", 1) for line in found.out.splitlines() if "=" in line)

    def visible_gpus(
        self, jobid: int, *, node: str | None = None, user: str = "alice"
    ) -> tuple[int, ...]:
        """CUDA_VISIBLE_DEVICES inside the job, in its order."""
        return parse_indices(
            self.env_of(jobid, node=node, user=user).get("CUDA_VISIBLE_DEVICES", "")
        )

    def occupy(self, node: str, gpus: Iterable[int], *, user: str = "bob") -> list[int]:
        """Leaves exactly `gpus` of an idle node in use by one-GPU jobs; their ids, by GPU.

        Works in any variant without asking for particular GPUs: fills the node, then
        cancels what holds the others.
        """
        wanted = set(gpus)
        args = ["-w", node, "--gres=gpu:1", "-p", "off"]
        ids = [self.sbatch(*args, user=user, script="sleep 3600") for _ in range(GPUS[node])]
        holders = {self.wait_running(jobid).gpus[node][0]: jobid for jobid in ids}
        self.cancel(*(jobid for gpu, jobid in holders.items() if gpu not in wanted))
        deadline = time.monotonic() + 20
        while set(used := self.gres_used()[node]) != wanted:
            if time.monotonic() > deadline:
                raise ClusterError(f"{node} has {used} in use, wanted {sorted(wanted)}")
            time.sleep(POLL_S)
        self.look()
        return [holders[gpu] for gpu in sorted(wanted)]

    # -- the controller -----------------------------------------------------

    def switch(self, variant: str, *, backup: bool = False) -> None:
        """Writes slurm.conf for stock, noop or gputopo and restarts slurmctld only."""
        self.run("ctl", ["clusterctl", "switch", variant, *(["backup"] if backup else [])])

    def variant(self) -> str:
        """The variant in force."""
        return self.run("ctl", ["clusterctl", "variant"]).out.strip()

    @contextmanager
    def variant_as(self, variant: str) -> Iterator[None]:
        """The variant for the length of a block; the former one afterwards."""
        former = self.variant()
        self.switch(variant)
        try:
            yield
        finally:
            self.switch(former)

    def configure_extra(self, lines: str) -> None:
        """Adds lines to slurm.conf until the next reset, and restarts slurmctld."""
        self.run("ctl", ["sh", "-c", 'printf "%s\\n" "$1" >/cluster/extra.conf', "sh", lines])
        self.switch(self.variant())
        self.wait_registered()

    def wait_accepted(self) -> None:
        """With a GRES type per GPU slurmctld refuses GPUs of no type until nodes register."""
        if not self.variant().startswith("gputopo-slots"):
            return
        # A node that slurmctld knows nothing of yet ("unknown") is waited for, too.
        found = "sinfo -h -N -p off -o '%N %T' | grep -Ev ' (down|drain|fail)' | cut -d' ' -f1"
        one = "sbatch --test-only -p off -w $node --gres=gpu:1 --wrap true"
        probe = f'up=$({found}); [ -n "$up" ] && for node in $up; do {one} || exit 1; done'
        deadline = time.monotonic() + 30
        while self.run("ctl", probe, check=False).code:
            if time.monotonic() > deadline:
                raise ClusterError("not every node has registered its GPUs within 30 s")
            time.sleep(POLL_S)

    def wait_registered(self) -> None:
        """The same, and in the slots mode the engine has read what Slurm is now."""
        if not self.variant().startswith("gputopo-slots"):
            return
        self.wait_accepted()
        if self.engine_pid() is None:  # a test that brings a scripted one, or wants none
            return
        self.engine("restart")  # it reads partitions and Slurm's settings now and then only
        self.look()

    def slurmctld(self, action: str, *, host: str = "ctl") -> str:
        """start, stop, kill, restart or pid of slurmctld; a start returns when it answers."""
        return self.run(host, ["clusterctl", "slurmctld", action]).out.strip()

    def restart_slurmctld(self) -> None:
        """Stops slurmctld and starts it again; returns when it answers."""
        self.slurmctld("restart")

    def reconfigure(self) -> None:
        """`scontrol reconfigure`."""
        self.run("ctl", ["scontrol", "reconfigure"])

    def slurmctld_log(self, lines: int = 200, *, host: str = "ctl") -> str:
        """The last lines of slurmctld's log."""
        return self.run(host, ["tail", "-n", str(lines), "/var/log/slurm/slurmctld.log"]).out

    @contextmanager
    def slurmctld_log_of(self) -> Iterator[list[str]]:
        """Collects what slurmctld logs during a block; the list is filled at its end."""
        size = self.slurmctld_log_size()
        lines: list[str] = []
        yield lines
        lines += self.slurmctld_log_from(size)

    def slurmctld_log_size(self) -> int:
        """Bytes in slurmctld's log."""
        return int(self.run("ctl", "stat -c %s /var/log/slurm/slurmctld.log").out)

    def slurmctld_log_from(self, since: int) -> list[str]:
        """Its lines from that byte on."""
        return self.run(
            "ctl", f"tail -c +{since + 1} /var/log/slurm/slurmctld.log"
        ).out.splitlines()

    # -- the engine ---------------------------------------------------------

    def engine_pid(self) -> int | None:
        """The engine's process id in ctl; None when it does not run."""
        found = self.run("ctl", ["clusterctl", "engine", "pid"], check=False)
        return int(found.out) if not found.code else None

    def engine(self, action: str) -> None:
        """start, stop, kill, restart, pause (SIGSTOP) or resume (SIGCONT)."""
        self.run("ctl", ["clusterctl", "engine", action])

    def look(self) -> None:
        """In the slots mode: the engine has seen what Slurm's books say now.

        It looks by itself soon after a job ended; a test that asks at once would race it.
        """
        if not self.variant().startswith("gputopo-slots") or self.engine_pid() is None:
            return
        asked = time.monotonic()
        notice = f"echo ended job=0 array=0 | socat - UNIX-CONNECT:{ENGINE_SOCKET}"
        self.run("ctl", notice)
        while True:
            passed = time.monotonic() - asked
            told = self.status()["slots"]
            age = told["looked_s_ago"]
            # A job that ended before a look could see it leaves its promise behind for a moment.
            if age is not None and age < passed and not told["promised"]:
                return
            if passed > 20:
                raise ClusterError(f"the engine has not looked at the queue for {age} s")
            time.sleep(POLL_S)

    def status(self) -> dict[str, Any]:
        """What `gputopo status --json` tells, asked without the command: it is asked often."""
        asked = f"echo status id=1 | socat -t5 - UNIX-CONNECT:{ENGINE_SOCKET}"
        verb, pairs = split(self.run("ctl", asked).out.encode())
        values = {key: unquote(value) for key, value in pairs}
        if verb != "ok":
            raise ClusterError(f"the engine was asked for its status and said {verb} {values}")
        found: dict[str, Any] = json.loads(values["json"])
        return found

    def engine_log(self, lines: int = 200) -> str:
        """The last lines the engine printed."""
        return self.run(
            "ctl", ["tail", "-n", str(lines), "/var/log/gputopo/engine.log"], check=False
        ).out

    # -- fake tools ---------------------------------------------------------

    @contextmanager
    def fake_tools_of(self, node: str) -> Iterator[str]:
        """A block in which the files behind a node's fake tools may be edited; their folder."""
        self.run(node, "rm -rf /etc/fakegpu.kept && cp -r /etc/fakegpu /etc/fakegpu.kept")
        try:
            yield "/etc/fakegpu"
        finally:
            self.run(node, "rm -rf /etc/fakegpu && mv /etc/fakegpu.kept /etc/fakegpu")


def default_project(purpose: str = "") -> str:
    """GPUTOPO_PROJECT, or this checkout's own name with what the cluster is for behind it."""
    named = os.environ.get("GPUTOPO_PROJECT")
    return named or subprocess.check_output([CLUSTER_SH, "project"], text=True).strip() + purpose


def image(name: str, suite: str) -> str:
    """This checkout's image of that name (builder, ...) for a release."""
    environ = {**os.environ, "SUITE": suite}
    return subprocess.check_output([CLUSTER_SH, "image", name], env=environ, text=True).strip()


def is_running(project: str) -> bool:
    """Whether the project has a container that runs (False where no engine answers)."""
    command = ["docker", "ps", "-q", "--filter", f"label=com.docker.compose.project={project}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return bool(done.stdout.strip())


def _cluster_sh(project: str, suite: str, *args: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "GPUTOPO_PROJECT": project, "SUITE": suite}
    return subprocess.run(
        [CLUSTER_SH, *args], env=environ, capture_output=True, text=True, check=False
    )
