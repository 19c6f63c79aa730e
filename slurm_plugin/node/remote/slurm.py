"""What programs on a node ask Slurm, as the job's user."""

from __future__ import annotations

import re
import subprocess

from slurm_plugin.base.job_states import queue_state

CALL_S = 30.0


def _run(*argv: str) -> tuple[int, str, str]:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=CALL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, "", str(error)
    return done.returncode, done.stdout, done.stderr


def say(job_id: int, text: str) -> bool:
    """Put one line into the comment of the user's own job; whether Slurm took it."""
    return _run("scontrol", "update", f"JobId={job_id}", f"Comment={text}")[0] == 0


def job_state(job_id: int) -> tuple[str, str] | None:
    """A job's state, and the engine's record of it. The last task of an array has the array's id.

    The state is one of QUEUE_STATES, '' for a job that is over; None where Slurm does not answer.
    """
    code, out, err = _run("scontrol", "show", "job", str(job_id))
    if code:
        return ("", "") if "Invalid job id" in err + out else None
    out = next((one for one in out.split("\n\n") if one.startswith(f"JobId={job_id} ")), out)
    state = re.search(r"^\s*JobState=(\w+)", out, re.MULTILINE)
    comment = re.search(r"^\s*AdminComment=(.*)$", out, re.MULTILINE)
    word = queue_state((state[1],)) if state else ""
    return word, comment[1].strip() if comment else ""


def comments() -> list[str]:
    """The comments of the user's own jobs that wait or run."""
    return _run("squeue", "--me", "-h", "-o", "%k")[1].splitlines()


def requeue(job_id: int) -> bool:
    """Put the user's own job or array task back into the queue; whether Slurm did."""
    record = rf"^JobId={job_id} ArrayJobId=(\d+) ArrayTaskId=(\d+) "
    task = re.search(record, _run("scontrol", "show", "job", str(job_id))[1], re.MULTILINE)
    name = f"{task[1]}_{task[2]}" if task else str(job_id)
    return _run("scontrol", "requeue", name)[0] == 0
