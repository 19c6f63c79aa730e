"""What was done so far: one file in the profile's folder, replaced at every change.

It is written before and after each submission, so that no run is submitted twice: one that is left
in `submitting` is found in Slurm by its name, which holds the folder's token.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from slurm_plugin.act.profiling.sweep import ProfilingRun
from slurm_plugin.base import whole_file
from slurm_plugin.base.rows_file import NO_JSON
from slurm_plugin.errors import PluginError

VERSION = 1
FILE = "progress.json"


class ProfileSettings(msgspec.Struct, frozen=True):
    """What must stay the same from start to end."""

    name: str
    task: str
    words: tuple[str, ...]  # sbatch and its arguments
    cwd: str
    batches: tuple[int, ...]  # samples per GPU, swept on one GPU
    nodes: tuple[int, ...]  # swept
    gpus_per_node: tuple[int, ...]  # swept
    iterations: int
    per_gpu: bool  # a task per GPU; else a task per node
    gpu_type: str
    on: str  # the nodes that the user named
    kind: str  # of the nodes, in words
    names: tuple[str, ...]  # of the nodes that are profiled
    others: tuple[str, ...]  # the partition's other nodes with GPUs, kept out of the runs


class Progress(msgspec.Struct):
    """The plan with what came of it; `created` is an epoch, `token` is in every job's name."""

    settings: ProfileSettings
    runs: list[ProfilingRun]
    created: int
    token: str = msgspec.field(default_factory=lambda: secrets.token_hex(4))
    version: int = VERSION
    is_shaped: bool = False

    def job_name(self, run: ProfilingRun) -> str:
        """The name of a run's latest job."""
        place = next(at for at, one in enumerate(self.runs, start=1) if one is run)
        return f"gputopo-{self.settings.name}-{self.token}-{place}.{run.tries}"


class Folder:
    """The folder of one profile: progress, the jobs' output, the runs as CSV."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def read(self) -> Progress | None:
        """What is there; None where nothing was begun. PluginError for a damaged file."""
        file = self.path / FILE
        try:
            kept = msgspec.json.decode(file.read_bytes(), type=Progress)
        except FileNotFoundError:
            return None
        except (OSError, *NO_JSON) as error:
            raise PluginError(f"{file}: {error}; expected what profile run wrote there") from error
        if kept.version != VERSION:
            raise PluginError(
                f"{file}: version {kept.version}; expected {VERSION}: finish it with the release"
                " that began it, or give another --folder"
            )
        return kept

    def write(self, progress: Progress) -> None:
        """Replace the file."""
        text = msgspec.json.format(msgspec.json.encode(progress), indent=1)
        whole_file.replace(self.path / FILE, text, 0o644)

    def write_runs(self, rows: list[str]) -> Path:
        """`runs.csv`, as `gputopo profile fit` reads it."""
        path, text = self.path / "runs.csv", "\n".join(["nodes,gpus,local_batch,step_s", *rows, ""])
        whole_file.replace(path, text.encode(), 0o644)
        return path

    def output(self, progress: Progress, run: ProfilingRun) -> Path:
        """Where the run's latest job writes, with Slurm's `%j`."""
        name = progress.job_name(run).removeprefix(f"gputopo-{progress.settings.name}-")
        folder = str(self.path).replace("%", "%%")
        return Path(folder) / f"{name}.%j.out"

    def written(self, progress: Progress, run: ProfilingRun) -> Path | None:
        """The file that the run's latest job has written; None as long as there is none."""
        name = self.output(progress, run).name
        return next(iter(sorted(self.path.glob(name.replace("%j", "*")))), None)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """A block in which no other profile run works on this folder; PluginError if one does."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise PluginError(f"{self.path}: {error.strerror}; give another --folder") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise PluginError(
                f"{self.path}: another profile run works there; stop it, or give another --folder"
            ) from None
        finally:
            os.close(handle)
