"""The nodes that gputopo.yaml declares by their features, as Slurm had them last.

Dynamic and cloud nodes come and go. The engine asks slurmctld who has which features and keeps what
the sets mean in the state directory, where commands read it, too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from slurm_plugin.base import whole_file
from slurm_plugin.base.rows_file import NO_JSON
from slurm_plugin.errors import PluginError

logger = logging.getLogger(__name__)

#: The file in the state directory, and the most it may have: some 100,000 names.
NAME, MAX_BYTES = "nodes-by-feature.json", 16 << 20

_DECODE = msgspec.json.Decoder(dict[str, tuple[str, ...]])

#: What `features` of a set says -> the names of its nodes.
Found = Mapping[str, tuple[str, ...]]


def read(state_dir: Path) -> Found:
    """What was kept last; nothing where nothing was. PluginError for what cannot be read."""
    path = state_dir / NAME
    try:
        content = whole_file.read(path, MAX_BYTES)
    except FileNotFoundError:
        return {}
    try:
        if len(content) <= MAX_BYTES:
            return _DECODE.decode(content)
        said = f"more than {MAX_BYTES >> 20} MiB"
    except NO_JSON as error:
        said = " ".join(str(error).split())[:300]
    raise PluginError(f"{path}: {said}; remove it: the engine writes it anew")


def keep(state_dir: Path, found: Found) -> bool:
    """Keep what was found; whether it is not what was kept before. PluginError where it cannot."""
    try:
        if read(state_dir) == found:
            return False
    except PluginError as error:
        logger.warning("%s", error)
    whole_file.replace(state_dir / NAME, msgspec.json.encode(found) + b"\n", 0o644)
    return True
