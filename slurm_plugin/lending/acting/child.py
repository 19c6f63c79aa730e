"""Runs one of Slurm's commands as a user, without any of our own rights.

setpriv (util-linux) takes the rights away: whatever it then becomes has no capability in any of
the five sets, and can gain none, neither by a setuid program nor by being root.
"""

from __future__ import annotations

import os
import pwd
import selectors
import subprocess
import time
from pathlib import Path

from slurm_plugin.errors import SlurmError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: The most that is read of either of its streams.
MAX_BYTES = 8192
_NOTHING = (
    *("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs"),
    "--securebits=+noroot,+noroot_locked,+no_setuid_fixup_locked,+keep_caps_locked",
)


class Commands:
    """Slurm's commands in `bin_dir` (None: found by PATH); each may take `timeout_s`."""

    def __init__(self, bin_dir: Path | None, timeout_s: float) -> None:
        self._bin_dir = bin_dir
        self._timeout_s = timeout_s

    def run(self, uid: int, argv: list[str]) -> str:
        """What a command printed that ran as this user, with only the user's own group."""
        try:
            user = pwd.getpwuid(uid)
        except KeyError as error:
            raise SlurmError(f"uid {uid}: no such user on this host") from error
        if user.pw_uid < 1 or user.pw_gid < 1:
            raise SlurmError(f"{user.pw_name}: root, or in root's group; expected another user")
        who = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        program = str(self._bin_dir / argv[0]) if self._bin_dir else argv[0]
        command = ["setpriv", *who, *_NOTHING, "--", program, *argv[1:]]
        try:
            code, out, err = _ran(command, _environment(user), self._timeout_s)
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise SlurmError(f"{argv[0]}: no answer within {self._timeout_s:g} s") from error
        except OSError as error:
            raise SlurmError(f"{argv[0]}: {error}") from error
        if code:
            lines = (err.strip() or out.strip() or "no message").splitlines()
            raise SlurmError(f"{argv[0]} as {user.pw_name}: {'; '.join(lines[:3])}")
        return out


def _environment(user: pwd.struct_passwd) -> dict[str, str]:
    """The user's environment; of ours only where slurm.conf is. sbatch carries it into the job."""
    environment = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "PATH": PATH}
    return environment | {key: os.environ[key] for key in ("SLURM_CONF",) if key in os.environ}


def _ran(command: list[str], env: dict[str, str], timeout_s: float) -> tuple[int, str, str]:
    """A command's exit status and its two streams. A command that takes too long is ended."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env=env,
        umask=0o077,
        start_new_session=True,
    ) as child:
        try:
            out, err = _streams(child, timeout_s)
        finally:
            child.kill()
    return child.returncode, out, err


def _streams(child: subprocess.Popen[bytes], timeout_s: float) -> tuple[str, str]:
    """What a command prints to both of its streams until it ends.

    TimeoutError where that takes too long, OSError where it says more than anybody wants to hear.
    """
    assert child.stdout is not None
    assert child.stderr is not None
    end = time.monotonic() + timeout_s
    output = {child.stdout.fileno(): b"", child.stderr.fileno(): b""}
    with selectors.DefaultSelector() as still:
        for stream in output:
            still.register(stream, selectors.EVENT_READ)
        while still.get_map():
            ready = still.select(max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                part = os.read(key.fd, MAX_BYTES)
                output[key.fd] += part
                if not part:
                    still.unregister(key.fd)
                if len(output[key.fd]) > MAX_BYTES:
                    raise OSError(f"it printed more than {MAX_BYTES} bytes")
    child.wait(max(0.0, end - time.monotonic()))
    out, err = (text.decode(errors="replace") for text in output.values())
    return out, err
