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
from slurm_plugin.base.rows_file import decoded
from slurm_plugin.errors import PluginError

logger = logging.getLogger(__name__)

#: The file in the state directory, and the most it may have: some 100,000 names.
NAME, MAX_BYTES = "nodes-by-feature.json", 16 << 20

#: What `features` of a set says -> the names of its nodes.
Found = Mapping[str, tuple[str, ...]]


def read(state_dir: Path) -> Found:
    """What was kept last; nothing where nothing was. PluginError for what cannot be read."""
    advice = "remove it: the engine writes it anew"
    try:
        return decoded(state_dir / NAME, dict[str, tuple[str, ...]], MAX_BYTES, advice)
    except FileNotFoundError:
        return {}


def keep(state_dir: Path, found: Found) -> bool:
    """Keep what was found; whether it is not what was kept before. PluginError where it cannot."""
    try:
        if read(state_dir) == found:
            return False
    except PluginError as error:
        logger.warning("%s", error)
    whole_file.replace(state_dir / NAME, msgspec.json.encode(found) + b"\n", 0o644)
    return True
