"""The real process that acts for users, over scripts in place of Slurm's commands."""

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import pytest

from slurm_cluster.hosts import until

NOBODY = pwd.getpwnam("nobody")
ASKED = f"donor 7 {NOBODY.pw_uid} dgx2 2"
#: Seconds that one of Slurm's commands may take.
COMMAND_S = 8
#: What a user could try from inside one of Slurm's commands, and how it ended.
ATTEMPTS = """#!/bin/sh
try() { "$@" >/dev/null 2>&1 && echo "$1: done" || echo "$1: refused"; }
become() { python3 -c 'import os; os.setresuid(1, 1, 1)'; }
root() { python3 -c 'import os; os.setresuid(0, 0, 0); open("/etc/shadow")'; }
groups() { python3 -c 'import os; os.setgroups([42])'; }
suid() { test "$(FOLDER/id -u)" = 0; }
{ grep -E '^(Cap|NoNewPrivs|Groups|Uid|Gid)' /proc/self/status; env
  echo "sockets $(ls -l /proc/$$/fd | grep -c socket:)"
  try become; try root; try groups; try suid; echo "core $(ulimit -c)"; } >FOLDER/told/NAME 2>&1
"""


def rights() -> list[str]:
    """What gives a process of root's the capabilities that the unit leaves it."""
    unit = (
        resources.files("slurm_plugin").joinpath("serve/systemd/gputopo-donors.service").read_text()
    )
    [result] = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    sets = ",".join(f"+{one.removeprefix('CAP_').lower()}" for one in result.split())
    return ["setpriv", f"--bounding-set=-all,{sets}", "--inh-caps=-all", "--no-new-privs", "--"]


class Part:
    """The real process in a folder of its own, over scripts for Slurm's commands.

    It acts for `user`: how many processes one user may have counts those of all workers' tests.
    """

    def __init__(self, folder: Path, user: pwd.struct_passwd = NOBODY) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "told").mkdir()
        (folder / "told").chmod(0o777)
        shutil.copy("/usr/bin/id", folder / "id")
        (folder / "id").chmod(0o4755)
        asked = f'case $word in --jobs=*) cat "{folder}/record.${{word#--jobs=}}";; esac'
        self.script("squeue", f"for word; do {asked}; done")
        self.script("sbatch", f'printf "%s\\n" "$@" >{folder}/told/words; echo 71')
        self.record(7, f"7|{user.pw_uid}|PENDING|batch|5:00|research")
        first_uid = min(user.pw_uid, 1000)
        (folder / "gputopo.yaml").write_text(
            f"remote: {{allow: yes, first_uid: {first_uid}, submitter: {folder}/socket}}\n"
            f"slurm: {{bin_dir: {folder}/bin, timeout_s: {COMMAND_S}}}\n"
        )
        serve = [sys.executable, "-c", "from slurm_plugin.cli import main; main()"]
        named = ["serve-donors", "--config", str(folder / "gputopo.yaml"), "--user", "daemon"]
        environment = {**os.environ, "SECRET": "not for users"}
        self.process = subprocess.Popen([*rights(), *serve, *named], env=environment)
        until(lambda: self.ask("ready") == "ok ", "the process answers", 20)

    def script(self, name: str, line: str) -> None:
        """One of Slurm's commands: tries to regain rights, then does what it is for."""
        path = self.folder / "bin" / name
        attempts = ATTEMPTS.replace("FOLDER", str(self.folder)).replace("NAME", name)
        path.write_text(f"{attempts}{line}\n")
        path.chmod(0o755)

    def record(self, job_id: int, text: str) -> None:
        """What squeue tells of a job."""
        (self.folder / f"record.{job_id}").write_text(f"{text}\n")

    def noted(self, name: str) -> list[str]:
        """What a command found out about itself; [] where it did not run."""
        path = self.folder / "told" / name
        return path.read_text().splitlines() if path.exists() else []

    def ask(self, line: str | bytes, uid: int = 0, gid: int = 0) -> str:
        """Its answer to a line of this user; the kernel's word where nobody is let in."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(60)
            groups = os.getgroups()
            os.setgroups([])
            os.setegid(gid)
            os.seteuid(uid)
            try:
                peer.connect(str(self.folder / "socket"))
            except OSError as error:
                return error.strerror or ""
            finally:
                os.seteuid(0)
                os.setegid(0)
                os.setgroups(groups)
            peer.sendall(f"{line}\n".encode() if isinstance(line, str) else line)
            return peer.recv(1000).decode().rstrip("\n")


@contextmanager
def part_for(user: pwd.struct_passwd) -> Iterator[Part]:
    """The process, and a user for whom it may act, for as long as a block runs."""
    if os.geteuid() != 0:
        pytest.skip("only root can act for users")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        running = Part(Path(folder), user)
        try:
            yield running
        finally:
            running.process.kill()
            running.process.wait()


@pytest.fixture
def part() -> Iterator[Part]:
    with part_for(NOBODY) as running:
        yield running
