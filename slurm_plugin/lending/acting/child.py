"""Runs one of Slurm's commands as a user, without any of our own rights.

setpriv (util-linux) takes all five sets of capabilities away, for good: neither a setuid program
nor being root brings one back.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.runner import run_bounded

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: The most that it may print.
MAX_BYTES = 8192
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
