"""Replaces a file as a whole: readers, and whoever comes after a crash, see the old or the new."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from slurm_plugin.errors import PluginError


def replace_contents(path: Path, content: bytes) -> None:
    """Replace a file that is there: owner, mode and extended attributes stay, a link is followed.

    It is on the disk when this returns. PluginError where that cannot be, with the old file there.
    """
    path = Path(os.path.realpath(path))
    try:
        old = path.stat()
        attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    except OSError as error:
        raise PluginError(f"{path}: cannot be read: {error.strerror}") from error

    def like_the_old(descriptor: int) -> None:
        os.fchown(descriptor, old.st_uid, old.st_gid)
        for name, value in attributes.items():
            os.setxattr(descriptor, name, value)
        os.fsync(descriptor)

    replace(path, content, stat.S_IMODE(old.st_mode), like_the_old)


def replace(
    path: Path, content: bytes, mode: int, prepare: Callable[[int], None] | None = None
) -> None:
    """Write `content` beside `path` and put it in its place; else PluginError, nothing left.

    `prepare` gets the descriptor of the new file before that.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                if prepare is not None:
                    prepare(file.fileno())
                os.fchmod(file.fileno(), mode)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise PluginError(f"{path}: cannot be written: {error.strerror}") from error
