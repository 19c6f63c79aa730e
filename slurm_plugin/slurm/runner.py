"""Runs one Slurm command: bounded in time, never through a shell."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from slurm_plugin.errors import SlurmError

#: How much of a command line an error repeats.
SHOWN_CHARS = 60
#: The most that a command may print: the JSON of some hundred thousand jobs.
MAX_BYTES = 512 << 20
#: Seconds that a command has to end by itself (srun ends its step) before it is killed.
END_S = 1.0

# A long list of array tasks comes whole (it would be cut at 64 characters), times as epochs.
_ENVIRONMENT = {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "%s"}
# The C library's default, said aloud: else it looks at that file's date for every time that squeue
# prints, which is two thirds of a long table's cost.
_TIME_ZONE = {"TZ": ":/etc/localtime"}
# Variables of these names may hide parts from a person, and cut lines; the engine must see all.
_PERSONAL = ("SQUEUE_", "SINFO_", "SLURM_TOPO_LEN")
# Slurm hides partitions that a user's groups may not use, and the user's own jobs in them.
_SHOW_ALL = {"SQUEUE_ALL": "1", "SCONTROL_ALL": "1", "SINFO_ALL": "1"}


_CONTROLLER = re.compile(r"SlurmctldHost\[(\d+)\]")


def _environment() -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_PERSONAL)}
    return _TIME_ZONE | kept | _ENVIRONMENT


def boot_time(values: Mapping[str, str]) -> int:
    """When slurmctld started by `scontrol show config`, as an epoch; 0 where it does not say."""
    boot = values.get("BOOT_TIME", "")
    return int(boot) if boot.isdecimal() else 0


def controllers(values: Mapping[str, str]) -> dict[int, str]:
    """The hosts that may run slurmctld by `scontrol show config`, by Slurm's order."""
    return {
        int(match[1]): value.partition("(")[0].strip()
        for key, value in values.items()
        if (match := _CONTROLLER.fullmatch(key))
    }


def short(host: str) -> str:
    """A host as Slurm compares controllers: without its domain, in any case."""
    return host.partition(".")[0].lower()


class Runner(Protocol):
    """Runs a command and returns what it printed; raises SlurmError when it fails."""

    def __call__(self, argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        """Run `argv`, feeding it `stdin`."""
        ...


@dataclass
class ProcessRunner:
    """Runs Slurm's commands as processes, each with a time limit and bounds on what it prints."""

    #: None finds the commands by PATH.
    bin_dir: Path | None = None
    timeout_s: float = 10.0
    #: In place of ours, which is for reading: sbatch carries it into the job.
    environment: Mapping[str, str] | None = None
    #: The most that a command may print.
    max_bytes: int = MAX_BYTES
    #: Show jobs in hidden partitions, too; Slurm always shows them to its own user and to root.
    shows_all: bool = False

    def __call__(self, argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        """Run `argv` and return its standard output."""
        command = [str(self.bin_dir / argv[0]) if self.bin_dir else argv[0], *argv[1:]]
        limit = timeout_s or self.timeout_s
        shown = " ".join(argv)
        shown = shown if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}..."
        try:
            env = self.environment or _environment() | (_SHOW_ALL if self.shows_all else {})
            done = run_bounded(command, limit, self.max_bytes, stdin, env=env)
        except FileNotFoundError as error:
            raise SlurmError(
                f"{argv[0]}: no such command; install Slurm's client tools or set slurm.bin_dir"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise SlurmError(f"{shown}: no answer within {limit:g} s; is slurmctld up?") from error
        except OSError as error:
            raise SlurmError(f"{shown}: {error}") from error
        if done is None:
            raise SlurmError(
                f"{shown}: ended, for it printed more than {self.max_bytes >> 20} MiB; run it by"
                " hand to see what"
            )
        if done.code != 0:
            lines = (done.err.strip() or done.out.strip()).splitlines() or ["no message"]
            # The reason comes first, what follows from it after.
            raise SlurmError(f"{shown}: exit {done.code}: {'; '.join(lines[:3])}")
        return done.out


class Done(NamedTuple):
    """A command that ended by itself."""

    code: int
    out: str
    err: str


def run_bounded(
    command: list[str], limit_s: float, max_bytes: int, stdin: str = "", **how: Any
) -> Done | None:
    """What a command printed; None where that is more than `max_bytes`. It has ended, either way.

    `how` is for Popen. Raises subprocess.TimeoutExpired, and OSError where it does not start.
    """
    ends = time.monotonic() + limit_s
    # A file in memory: a pipe would have to be fed meanwhile, and a disk may be full.
    with os.fdopen(os.memfd_create("stdin"), "w+b") as given:
        given.write(stdin.encode())
        given.seek(0)
        process = subprocess.Popen(
            command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how
        )
    with process:
        _lower(process.pid)
        try:
            texts = _read(process, ends, max_bytes)
            if texts is None:
                return None
            process.wait(max(0.0, ends - time.monotonic()))
            return Done(process.returncode, *(text.decode(errors="replace") for text in texts))
        finally:
            _end(process)


def _lower(pid: int) -> None:
    """What we start has not the priority that slurmctld's questions have (Nice= of our unit).

    Where a site's filter of system calls refuses that, the command runs as it is.
    """
    with suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, pid) < 0:
            os.setpriority(os.PRIO_PROCESS, pid, 0)


def _read(
    process: subprocess.Popen[bytes], ends: float, most: int
) -> tuple[bytearray, bytearray] | None:
    """Both outputs to their end; None where they are longer than `most` bytes together."""
    out, err = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for file, text in ((process.stdout, out), (process.stderr, err)):
            assert file is not None
            selector.register(file, selectors.EVENT_READ, text)
        while selector.get_map():
            left = ends - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, 0)
            for key, _ in selector.select(left):
                part = os.read(key.fd, 1 << 16)
                key.data.extend(part)
                if not part:
                    selector.unregister(key.fileobj)
            if len(out) + len(err) > most:
                return None
    return out, err


def _end(process: subprocess.Popen[bytes]) -> None:
    """No command outlives the call."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
