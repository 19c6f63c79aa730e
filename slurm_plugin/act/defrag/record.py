"""The moves that were begun, on disk before anything is done: none is repeated, none forgotten."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from slurm_plugin.base import whole_file
from slurm_plugin.base.rows_file import decoded

#: The file in the state directory.
NAME = "moves.json"
#: Moves that are over and kept, the last ones; a larger file is none of ours.
MOST_PAST, MAX_BYTES = 2000, 8 << 20
#: What becomes of a move: put back by Slurm (asked to be), let go to its new place, over.
ASKED, LET_GO, DONE, UNDONE = "asked", "let go", "done", "undone"


class Moved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One move. Times are epochs."""

    job: int
    #: As an update calls it.
    name: str
    user: str
    gpus: int
    source: str
    target: str
    #: Its start before the move: a later one is another run.
    start: int
    cost_gpu_s: int
    #: The waiting job that it makes room for.
    waiting: int
    state: str
    at: int
    #: When it is let go wherever there is room; 0 before that is known.
    until: int = 0
    #: Its GPUs at the new place (mask), and the note of the policy that chose them.
    mask: int = 0
    note: str = ""
    #: How it ended.
    why: str = ""


class MovesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The move that is under way, and those before, oldest first."""

    open: Moved | None = None
    past: tuple[Moved, ...] = ()

    @property
    def jobs(self) -> set[int]:
        """Every job that was moved, or is being moved."""
        return {one.job for one in self.past} | ({self.open.job} if self.open else set())


def path_in(state_dir: Path) -> Path:
    """Where an engine's moves are."""
    return state_dir / NAME


def read(path: Path) -> MovesFile:
    """What is there; nothing where there is no file. PluginError for one that cannot be read."""
    advice = (
        "no job is moved. A job that it was about may be held (scontrol release); then remove the"
        " file"
    )
    try:
        return decoded(path, MovesFile, MAX_BYTES, advice)
    except FileNotFoundError:
        return MovesFile()


def write(path: Path, moves: MovesFile) -> None:
    """Replace the file; it is on the disk when this returns, else PluginError."""
    kept = msgspec.structs.replace(moves, past=moves.past[-MOST_PAST:])
    whole_file.replace(path, msgspec.json.encode(kept), 0o600, os.fsync)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
