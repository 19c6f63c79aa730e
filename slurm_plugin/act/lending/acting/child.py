"""Runs one of Slurm's commands as a user, without any of our own rights.

setpriv (util-linux) takes all five sets of capabilities away, for good: neither a setuid program
nor being root brings one back.
"""

from __future__ import annotations

import os
import pwd
import re
import resource
import signal
import subprocess
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.runner import run_bounded

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: The most that it may print.
MAX_BYTES = 8192
#: So many processes and threads more may its user have on this host while it runs.
MORE_TASKS = 128
#: Seconds for what a command left running to end.
END_S = 2.0
#: linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
#: A process's real uid, and how many threads it has.
_STATUS = re.compile(r"^Uid:\t(\d+)\t.*^Threads:\t(\d+)$", re.DOTALL | re.MULTILINE)
_NOTHING = (
    *("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs"),
    "--securebits=+noroot,+noroot_locked,+no_setuid_fixup_locked,+keep_caps_locked",
)


def run_as(uid: int, argv: list[str], bin_dir: Path | None, timeout_s: float) -> str:
    """What a command printed that ran as this user, in the user's own group alone.

    `bin_dir` None: it is found by PATH. Raises SlurmError.
    """
    try:
        user = pwd.getpwuid(uid)
    except KeyError as error:
        raise SlurmError(f"uid {uid}: no such user on this host") from error
    if user.pw_uid < 1 or user.pw_gid < 1:
        raise SlurmError(f"{user.pw_name}: root, or in root's group; expected another user")
    who = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
    program = str(bin_dir / argv[0]) if bin_dir else argv[0]
    command = ["setpriv", *who, *_NOTHING, "--", program, *argv[1:]]
    own: dict[str, Any] = {"cwd": "/", "umask": 0o077, "start_new_session": True}
    if (tasks := _tasks_of(uid)) is not None:
        most = tasks + MORE_TASKS
        own["preexec_fn"] = partial(resource.setrlimit, resource.RLIMIT_NPROC, (most, most))
    try:
        done = run_bounded(command, timeout_s, MAX_BYTES, env=_environment(user), **own)
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{argv[0]}: no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise SlurmError(f"{argv[0]}: {error}") from error
    if done is None:
        raise SlurmError(f"{argv[0]}: it printed more than {MAX_BYTES} bytes")
    if done.code:
        lines = (done.err.strip() or done.out.strip() or "no message").splitlines()
        raise SlurmError(f"{argv[0]} as {user.pw_name}: {'; '.join(lines[:3])}")
    return done.out


def _environment(user: pwd.struct_passwd) -> dict[str, str]:
    """The user's environment, with our SLURM_CONF if there is one; sbatch passes it to the job."""
    environment = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "PATH": PATH}
    return environment | {key: os.environ[key] for key in ("SLURM_CONF",) if key in os.environ}


def _tasks_of(uid: int) -> int | None:
    """How many processes and threads a user has on this host; None where others' are hidden."""
    if not os.access("/proc/1/status", os.R_OK):
        return None
    count = 0
    for path in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            if match := _STATUS.search(path.read_text(errors="replace")):
                count += int(match[2]) if int(match[1]) == uid else 0
    return count


def adopt_orphans() -> bool:
    """Have what our commands leave running become our own children; whether Linux does that."""
    try:
        # Where no memory may be both written and executed, an old libffi cannot be loaded.
        import ctypes

        return not ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, MemoryError, OSError):
        return False


def end_orphans() -> int:
    """End all that descends from us; how many are left after END_S.

    A user may take over a command that runs as the user, and start more in it. These count as ours
    (TasksMax= of our unit), and left there they would keep others from borrowing.
    """
    until = time.monotonic() + END_S
    while found := _descendants():
        stopped: set[int] = set()
        # What is stopped starts no more, and keeps its place among those that its user may have:
        # only so this is faster than a program that starts itself again and again.
        while fresh := found.keys() - stopped:
            if time.monotonic() > until:
                return len(found)
            for pid in fresh:
                _stop(pid, found[pid])
            stopped |= fresh
            found = _descendants()
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        # What those had started is ours by now.
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > until:
            return len(_descendants())
        time.sleep(0.001)
    return 0


def _stop(pid: int, parent: int | str) -> None:
    with suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            # Since we looked it may have ended, and its number may be anybody's.
            if pid in _children(parent):
                signal.pidfd_send_signal(process, signal.SIGSTOP)
        finally:
            os.close(process)


def _descendants() -> dict[int, int | str]:
    """The process ids of all that descends from us, each with its parent's."""
    found: dict[int, int | str] = {}
    parents: list[int | str] = ["self"]
    while parents:
        parent = parents.pop()
        for pid in _children(parent):
            if pid not in found:
                found[pid] = parent
                parents.append(pid)
    return found


def _children(parent: int | str = "self") -> list[int]:
    """A process's children. Where others' folders in /proc are hidden, only our own are known."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{parent}/task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found
