"""Replaces a file as a whole: readers, and whoever comes after a crash, see the old or the new."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from slurm_plugin.errors import PluginError


def replace(path: Path, content: bytes, mode: int) -> None:
    """Write `content` beside `path` and put it in its place; else PluginError, nothing left."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), mode)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise PluginError(f"{path}: cannot be written: {error.strerror}") from error
