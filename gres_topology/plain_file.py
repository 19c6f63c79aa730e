"""Reads files in whose place others may have put something else: a pipe, a device, no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

#: No file that people write is larger.
MOST_BYTES = 64 << 20


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """What is in a plain file of at most `most` bytes, wherever links lead; else OSError."""
    # Not opened by this: a device may act on being opened, a pipe would be waited for. And not
    # opened by its name afterwards, which may be another file's by then.
    place = os.open(path, getattr(os, "O_PATH", os.O_NONBLOCK) | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise OSError(errno.EINVAL, "no plain file", str(path))
        by_descriptor = Path(f"/proc/self/fd/{place}")
        with (by_descriptor if by_descriptor.exists() else path).open("rb") as file:
            data = file.read(most + 1)
    finally:
        os.close(place)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", str(path))
    return data


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The same as text; UnicodeDecodeError, too, where it is not UTF-8."""
    return read_bytes(path, most).decode("utf-8")
