"""Runs one Slurm command: bounded in time, never through a shell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from slurm_plugin.errors import SlurmError

#: How much of a command line an error repeats.
SHOWN_CHARS = 60

# A long list of array tasks comes whole (it would be cut at 64 characters), times as epochs.
_ENVIRONMENT = {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "%s"}
# What a person's shell may hold to see less of the queue: the engine must see all.
_PERSONAL = ("SQUEUE_", "SINFO_")


def _environment() -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_PERSONAL)}
    return kept | _ENVIRONMENT


class Runner(Protocol):
    """Runs a command and returns what it printed; raises SlurmError when it fails."""

    def __call__(self, argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        """Run `argv`, feeding it `stdin`."""
        ...


class ProcessRunner:
    """The real one; `bin_dir` None finds the commands by PATH.

    `environment` takes the place of ours, which is for reading: sbatch carries it into the job.
    """

    def __init__(
        self,
        bin_dir: Path | None = None,
        timeout_s: float = 10.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.bin_dir = bin_dir
        self.timeout_s = timeout_s
        self.environment = environment

    def __call__(self, argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        """Run `argv` and return its standard output."""
        command = [str(self.bin_dir / argv[0]) if self.bin_dir else argv[0], *argv[1:]]
        limit = timeout_s or self.timeout_s
        shown = " ".join(argv)
        shown = shown if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}..."
        try:
            done = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit,
                check=False,
                env=self.environment or _environment(),
            )
        except FileNotFoundError as error:
            raise SlurmError(
                f"{argv[0]}: no such command; install Slurm's client tools or set slurm.bin_dir"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise SlurmError(f"{shown}: no answer within {limit:g} s; is slurmctld up?") from error
        except OSError as error:
            raise SlurmError(f"{shown}: {error}") from error
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no message"]
            # The reason comes first, what follows from it after.
            raise SlurmError(f"{shown}: exit {done.returncode}: {'; '.join(lines[:3])}")
        return done.stdout
