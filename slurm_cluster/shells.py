"""Runs commands in containers through one process in each, cheaper than a `docker exec` each."""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

#: Runs inside: a line of JSON is a command, its answer a line with exit code and both streams.
INSIDE = """
import json, os, pwd, subprocess, sys
for line in sys.stdin:
    argv, user, folder, env = json.loads(line)
    try:
        who = pwd.getpwnam(user)
        groups = os.getgrouplist(user, who.pw_gid)
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, cwd=folder,
            env={**os.environ, **env}, start_new_session=True,
            user=who.pw_uid, group=who.pw_gid, extra_groups=groups,
        )
        code, streams = done.returncode, (done.stdout, done.stderr)
    except (OSError, KeyError) as error:
        code, streams = 126, (b"", str(error).encode())
    # As a shell has it: 137 for one that was killed.
    code = code if code >= 0 else 128 - code
    print(json.dumps([code, *(stream.decode(errors="replace") for stream in streams)]), flush=True)
"""


class Shells:
    """One process per host and thread; a host that was away gets a new one."""

    def __init__(self, container_id: Callable[[str], str]) -> None:
        """`container_id` tells the container of a host."""
        self._container_id = container_id
        self._of_thread = threading.local()

    def run(
        self,
        host: str,
        argv: Sequence[str],
        user: str,
        folder: str,
        env: Mapping[str, str],
        limit_s: float,
    ) -> tuple[int, str, str]:
        """Exit code and both streams to their ends; 137 where the host goes away meanwhile.

        TimeoutError where the host does not answer within the limit, because it is paused, say.
        """
        asked = json.dumps([list(argv), user, folder, dict(env)]).encode() + b"\n"
        shell = self._shell(host)
        assert shell.stdin is not None
        try:
            shell.stdin.write(asked)
            shell.stdin.flush()
            reply = _line(shell, time.monotonic() + limit_s)
        except BrokenPipeError:
            reply = b""
        except BaseException:
            # A test whose time is over, too: the next command would get this one's reply.
            shell.kill()
            shell.wait()
            raise
        if not reply.endswith(b"\n"):
            code = shell.wait()
            return code or 137, "", f"{host} runs no commands (docker exec ended with {code})"
        code, out, err = json.loads(reply)
        return code, out, err

    def _shell(self, host: str) -> subprocess.Popen[bytes]:
        shells: dict[str, subprocess.Popen[bytes]] = self._of_thread.__dict__
        shell = shells.get(host)
        if shell is None or shell.poll() is not None:
            command = ["docker", "exec", "-i", self._container_id(host), "python3", "-c", INSIDE]
            shell = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Ctrl-C is for pytest, which then still has to tidy up in here.
                start_new_session=True,
            )
            shells[host] = shell
        return shell


def _line(shell: subprocess.Popen[bytes], deadline: float) -> bytes:
    """One line of its output, or what came before the end of it; TimeoutError after `deadline`."""
    assert shell.stdout is not None
    line = bytearray()  # a log may have many MB
    while not line.endswith(b"\n"):
        if not select.select([shell.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        part = os.read(shell.stdout.fileno(), 1 << 16)
        if not part:
            break
        line += part
    return bytes(line)
