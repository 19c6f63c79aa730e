"""A stand-in for Slurm's commands that knows what it was told and refuses everything else."""

import re
from collections.abc import Callable
from pathlib import Path

from slurm_plugin.errors import SlurmError

#: What record-replies.sh wrote of each release.
REPLIES = Path(__file__).parent / "replies"
RELEASES = sorted(path.name for path in REPLIES.iterdir() if any(path.iterdir()))

Reply = str | Callable[[list[str], str], str]


class FakeRunner:
    """Replies by command line; a command nobody told it about is an error, not an empty reply.

    `calls` keeps (argv, stdin) of every call.
    """

    def __init__(self, replies: dict[str, Reply] | None = None) -> None:
        self.replies = dict(replies or {})
        self.calls: list[tuple[list[str], str]] = []

    def __call__(self, argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        self.calls.append((argv, stdin))
        shown = " ".join(argv)
        for start in sorted(self.replies, key=len, reverse=True):
            if shown == start or shown.startswith(f"{start} "):
                reply = self.replies[start]
                return reply if isinstance(reply, str) else reply(argv, stdin)
        raise SlurmError(f"{shown}: the fake knows no such command")


class RecordedRunner:
    """The replies record-replies.sh wrote for one release; refuses all else.

    A file is named by its command line: leading dashes dropped, words joined by `_`. `.err`
    is a command that the release refuses.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        words = [re.sub(r"[^A-Za-z0-9:.,-]", "", word.lstrip("-")) for word in argv]
        name = "_".join(words)
        if (out := self.folder / f"{name}.out").exists():
            return out.read_text()
        if (err := self.folder / f"{name}.err").exists():
            raise SlurmError(err.read_text())
        raise SlurmError(f"{' '.join(argv)}: not recorded in {self.folder.name}")


def tool(folder: Path, name: str, script: str) -> Path:
    """A command of that name in the folder, of these lines of shell."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
