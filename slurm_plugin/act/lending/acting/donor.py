"""How a donor is submitted, by root's own configuration and Slurm's record of the borrower."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict

from slurm_plugin.act.lending.acting.question import Question
from slurm_plugin.base.job_notes import donor
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.errors import SlurmError

#: A donor's begin time at its submit. By then the engine, or the next one, has given it its GPUs.
BEGIN = "now+3600"

# The account comes last: where a site does not enforce accounts a user may write anything there.
_FIELDS = "%A|%U|%T|%P|%l|%a"
_RECORD = re.compile(
    r"(\d+)\|(\d+)\|([A-Z_]+)\|([\w.,+-]{1,1000})\|([0-9:-]+|UNLIMITED|NOT_SET)\|(.*)\n"
)
_ACCOUNT = re.compile(r"[\w.,:@+-]{1,255}")


def question(job_id: int) -> list[str]:
    """The command that shows a job. It is run as the job's user, who always sees it."""
    # With an array's id squeue shows all tasks: those that run are left out, others stand alone.
    only = ("--states=PENDING", "--array", f"--jobs={job_id}")
    return ["squeue", "--noheader", *only, f"--format={_FIELDS}"]


def inherited(job_id: int, uid: int, output: str) -> list[str]:
    """A donor's partition, time limit and account, which are its borrower's in squeue's output.

    Raises SlurmError where that job does not wait, or is not this user's.
    """
    lines = output.splitlines(keepends=True)
    own = [line for line in lines if line.startswith(f"{job_id}|")]
    match = _RECORD.fullmatch(own[0]) if len(own) == 1 else None
    if match is None or int(match[1]) != job_id:
        raise SlurmError(f"job {job_id}: squeue said {output[:80]!r}; expected one job that waits")
    state, partition, time_limit, account = match.group(3, 4, 5, 6)
    if int(match[2]) != uid:
        raise SlurmError(f"job {job_id}: it is of uid {match[2]}; expected {uid}, as asked for")
    if state != "PENDING":
        raise SlurmError(f"job {job_id}: it is {state}; expected one that waits")
    words = [f"--partition={partition}"]
    if time_limit != "NOT_SET":
        words.append(f"--time={time_limit}")
    if account not in ("", "(null)", "N/A"):
        if not _ACCOUNT.fullmatch(account):
            raise SlurmError(f"job {job_id}: account {account[:60]!r} cannot be asked for again")
        words.append(f"--account={account}")
    return words


def words(asked: Question, inherited: list[str], settings: RemoteConfig) -> list[str]:
    """The command line that submits a donor; `inherited` options are its borrower's."""
    return [
        *("sbatch", "--parsable", f"--job-name={donor.NAME}", "--nodes=1", "--ntasks=1"),
        f"--comment={donor.submitted(asked.borrower)}",
        f"--cpus-per-task={settings.donor_cpus * asked.gpus}",
        f"--mem={settings.donor_memory_mb * asked.gpus}M",
        f"--nodelist={asked.node}",
        *inherited,
        *(f"--begin={BEGIN}", "--no-requeue", "--chdir=/"),
        # This process's resource limits are not the user's: none are passed on.
        *("--propagate=NONE", "--output=/dev/null", "--error=/dev/null"),
        f"--wrap={script(asked, settings)}",
    ]


def script(asked: Question, settings: RemoteConfig) -> str:
    """The line of a donor's script: the nodes' program, and its task."""
    low, high = settings.ports
    task = {
        "parent": asked.borrower,
        "gpus": asked.gpus,
        "low": low,
        "high": high,
        "trust_network": settings.trust_network,
        "preset": asdict(settings.preset),
    }
    return f"exec {shlex.join([str(settings.program), 'donor', json.dumps(task)])}"
