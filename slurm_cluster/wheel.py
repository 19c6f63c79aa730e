"""The installed project as a wheel again, for the controller's own Python."""

from __future__ import annotations

import os
import stat
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

#: What pip writes beside the files of a wheel.
_PIPS_OWN = ("INSTALLER", "REQUESTED", "direct_url.json")


def pack(folder: Path) -> Path:
    """Writes the wheel that this installation came from; its path."""
    project = distribution("slurm-gputopo")
    inside = [file for file in project.files or () if ".." not in file.parts]
    packed = [file for file in inside if file.suffix != ".pyc" and file.name not in _PIPS_OWN]
    target = folder / f"slurm_gputopo-{project.version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in sorted(packed):
            path = Path(str(file.locate()))
            # Always the same bytes for the same files, so that no image is built twice.
            entry = zipfile.ZipInfo(str(file))
            # pip looks at the bits of regular files alone.
            mode = stat.S_IFREG | (0o755 if os.access(path, os.X_OK) else 0o644)
            entry.external_attr = mode << 16
            wheel.writestr(entry, path.read_bytes())
    return target


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
