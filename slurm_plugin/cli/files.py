"""Files that a command leaves where its user said."""

from __future__ import annotations

import signal
from pathlib import Path

import click


def write(path: Path, text: str) -> None:
    """Write it and say so on standard error; a Fault where that cannot be.

    Ctrl-C waits until the file is whole.
    """
    from slurm_plugin.cli import Fault

    require_folder(path)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Fault(f"{path}: {error.strerror}") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    click.echo(f"wrote {path}", err=True)


def require_folder(path: Path | None) -> None:
    """A Fault where the folder of a file that is to be written is not there: before the work."""
    from slurm_plugin.cli import Fault

    if path is not None and not path.parent.is_dir():
        raise Fault(f"{path}: the folder {path.parent} is not there")
