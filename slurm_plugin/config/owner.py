"""Who may write a file that says what is run."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from slurm_plugin.base import whole_file
from slurm_plugin.errors import ConfigError, PluginError


def check_owner(path: Path, danger: str) -> None:
    """Raise ConfigError where others than root may write a file, or a folder on the way to it.

    `danger` says why that matters. A process that is not root trusts its own files, too.
    """
    path = path.absolute()
    try:
        real = whole_file.resolved(path)
    except PluginError as error:
        raise ConfigError(f"{error}; {danger}") from error
    for one in {path, *path.parents, real, *real.parents}:
        try:
            status = one.stat()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        is_shared = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()) or (status.st_mode & 0o022 and not is_shared):
            raise ConfigError(
                f"{path}: others than root may write {one}, and {danger};"
                f" chown root {one}; chmod go-w {one}"
            )
