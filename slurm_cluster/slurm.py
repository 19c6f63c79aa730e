"""Slurm's own commands in a cluster: submits, waits, and what Slurm says of jobs and GPUs.

What a job got always comes from Slurm (`scontrol show job -d`) or from the job's own
environment, never from the engine's log.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from slurm_cluster.hosts import Hosts, until
from slurm_cluster.slurm_text import Job, parse_indices, parse_jobs
from slurm_plugin.slurm import gres_text

FINISHED = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
STATE = "/var/spool/slurmctld"

# A job notes its environment where every host sees it: complete, or not at all.
RECORD = 'f=$HOME/job.$SLURM_JOB_ID; env >"$f.tmp" && mv "$f.tmp" "$f.env"'
HOLD = f"{RECORD}; sleep 300"
RECORD_EACH_NODE = (
    "srun --ntasks-per-node=1 --ntasks=$SLURM_NNODES sh -c "
    "'f=$HOME/job.$SLURM_JOB_ID.$SLURMD_NODENAME; env >$f.tmp && mv $f.tmp $f.env'"
)


class Slurm(Hosts):
    """Hosts with a Slurm in them."""

    @cached_property
    def version(self) -> str:
        """Slurm's version: 24.11.5."""
        return self.run("ctl", "sinfo -V").out.split()[1]

    @property
    def release(self) -> tuple[int, int]:
        """Slurm's release: (24, 11)."""
        year, month = self.version.split(".")[:2]
        return int(year), int(month)

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

    def submit_many(
        self, requests: Iterable[Iterable[str]], *, script: str = HOLD, user: str = "alice"
    ) -> list[int]:
        """Submits a job per list of options, in one go; ClusterError if one is refused."""
        common = ["sbatch", "--parsable", "-o", "/dev/null"]
        lines = [shlex.join([*common, *args, "--wrap", script]) for args in requests]
        done = self.run("ctl", " && ".join(lines), user=user, timeout_s=120)
        return [int(word) for word in done.out.split()]

    def job(self, jobid: int) -> Job:
        """The job's record (an array's or heterogeneous job's first)."""
        return self.jobs(jobid)[0]

    def jobs(self, jobid: int | None = None) -> list[Job]:
        """All records, or those of one job id: one, or one per array task or component."""
        named = [] if jobid is None else [str(jobid)]
        return parse_jobs(self.run("ctl", ["scontrol", "show", "job", "-d", *named]).out)

    def time_of(self, jobid: int, field: str) -> int:
        """A time in the job's record (`EligibleTime`), as Unix time."""
        text = self.job(jobid).fields[field]
        return int(self.run("ctl", ["date", "-d", text, "+%s"]).out)

    def gres_used(self) -> dict[str, tuple[int, ...]]:
        """GPU indices in use per node."""
        rows = self.run("ctl", "sinfo -h -N -O NodeHost:64,GresUsed:1000").out
        return {
            node: gres_text.indices(gres)
            for node, gres in (line.split(None, 1) for line in rows.splitlines())
        }

    def cancel(self, *jobids: int) -> None:
        """Cancels jobs; finished ones are no error."""
        self.run("ctl", ["scancel", *map(str, jobids)], check=False)

    # -- waiting ------------------------------------------------------------

    def wait_state(self, jobid: int, *states: str, timeout_s: float = 30) -> Job:
        """Polls until the job is in one of the states; else ClusterError with its last record."""
        seen: list[Job] = []

        def is_so() -> bool:
            seen[:] = [self.job(jobid)]
            return seen[0].state in states

        until(is_so, lambda: f"job {jobid} is {' or '.join(states)}: {seen[0].fields}", timeout_s)
        return seen[0]

    def wait_running(self, jobid: int, timeout_s: float = 30) -> Job:
        """The record of the job once it runs; ClusterError if it does not."""
        return self.wait_state(jobid, "RUNNING", timeout_s=timeout_s)

    def started(self, *args: str, timeout_s: float = 30, **how: Any) -> Job:
        """The record of a job that `sbatch` submits with these arguments, once it runs."""
        return self.wait_running(self.sbatch(*args, **how), timeout_s)

    def running_gpus(self, jobids: Iterable[int]) -> list[dict[str, tuple[int, ...]]]:
        """The GPUs of each job once all of them run (60 s); ClusterError where one does not."""
        ids, jobs = list(jobids), dict[int, Job]()

        def late() -> list[Job | None]:
            jobs.clear()
            jobs.update((job.id, job) for job in self.jobs())
            asked = map(jobs.get, ids)
            return [job for job in asked if job is None or job.state != "RUNNING"]

        until(lambda: not late(), lambda: f"all run; these do not: {late()}", 60)
        return [jobs[jobid].gpus for jobid in ids]

    def wait_postponed(self, jobid: int) -> Job:
        """The job's record once it shows that it waits for its begin time."""
        until(lambda: self.job(jobid).reason == "BeginTime", f"job {jobid}: Reason=BeginTime")
        return self.job(jobid)

    def wait_finished(self, jobid: int, timeout_s: float = 60) -> Job:
        """The record of the job once it ended, however it ended."""
        return self.wait_state(jobid, *FINISHED, timeout_s=timeout_s)

    def wait_idle(self, timeout_s: float = 60) -> None:
        """Polls until no job is left and no GPU in use."""
        until(
            lambda: not self.run("ctl", "squeue -h").out and not any(self.gres_used().values()),
            "no job is left and no GPU in use",
            timeout_s,
        )

    def env_of(
        self, jobid: int, *, node: str | None = None, user: str = "alice", timeout_s: float = 20
    ) -> dict[str, str]:
        """The environment the job recorded (RECORD), or its task on `node` (RECORD_EACH_NODE)."""
        path = f"/home/{user}/job.{jobid}{'.' + node if node else ''}.env"
        there = ["test", "-e", path]
        until(lambda: not self.run("ctl", there, check=False).code, path, timeout_s)
        lines = self.read("ctl", path).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def visible_gpus(
        self, jobid: int, *, node: str | None = None, user: str = "alice"
    ) -> tuple[int, ...]:
        """CUDA_VISIBLE_DEVICES inside the job, in its order."""
        return parse_indices(
            self.env_of(jobid, node=node, user=user).get("CUDA_VISIBLE_DEVICES", "")
        )

    # -- the controller -----------------------------------------------------

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
        """Its lines from that byte on, without the two for each unknown node that a user names."""
        no_node = "error: _(find_node_record|single_node_name2bitmap): "
        lines = f"tail -c +{since + 1} /var/log/slurm/slurmctld.log | grep -vE '{no_node}'"
        return self.run("ctl", lines, check=False).out.splitlines()

    def saved(self) -> None:
        """Waits until slurmctld's state on disk is newer than now."""
        self.run("ctl", "touch /tmp/now")
        # slurmctld saves a few seconds after a change, and not without one.
        self.cancel(self.sbatch("-H", "-n1", script="true"))
        newer = f"[ {STATE}/job_state -nt /tmp/now ]"
        until(lambda: not self.run("ctl", newer, check=False).code, "the state is saved", 60)
