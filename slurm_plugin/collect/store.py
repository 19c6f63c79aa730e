"""What was collected, kept under `state_dir`/topologies.

kinds/FINGERPRINT.json   one file per kind of hardware
nodes.json               node -> the accepted and the latest fingerprint, and when

The first collection of a node is accepted; a later one that differs makes the node a
mismatch until it is accepted (`collect --accept`) or the hardware is as before.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from gres_topology import NodeTopology, TopologyError
from slurm_plugin.collect.topology_json import from_json, to_json
from slurm_plugin.errors import PluginError

_FINGERPRINT = re.compile(r"[A-Za-z0-9_\-]{4,128}\Z")


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node's fingerprints; `collected` is an ISO 8601 time."""

    accepted: str
    latest: str
    collected: str


class Store:
    """Reads and writes one state directory; writes are atomic."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / "topologies"
        self._topologies: dict[str, NodeTopology] = {}

    def nodes(self) -> dict[str, NodeRecord]:
        """Every collected node; empty when nothing was collected yet.

        Raises PluginError when the file is damaged.
        """
        path = self.folder / "nodes.json"
        try:
            rows = json.loads(path.read_text())
            return {str(name): NodeRecord(**row) for name, row in rows.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise PluginError(
                f"{path}: {error}; repair it, or remove it and run gputopo topology collect"
            ) from error

    def topology(self, fingerprint: str) -> NodeTopology:
        """The hardware behind a fingerprint; raises PluginError when it is not kept."""
        if fingerprint not in self._topologies:
            if not _FINGERPRINT.match(fingerprint):
                raise PluginError(f"{fingerprint[:60]!r} is no fingerprint")
            path = self.folder / "kinds" / f"{fingerprint}.json"
            try:
                self._topologies[fingerprint] = from_json(path.read_text())
            except (OSError, ValueError, KeyError, TypeError, TopologyError) as error:
                raise PluginError(
                    f"{path}: {error}; run gputopo topology collect again"
                ) from error
        return self._topologies[fingerprint]

    def keep(self, fingerprint: str, topology: NodeTopology) -> None:
        """Write a kind's file, once."""
        path = self.folder / "kinds" / f"{fingerprint}.json"
        if not path.exists():
            _write(path, to_json(topology))

    def save(self, nodes: dict[str, NodeRecord]) -> None:
        """Replace nodes.json."""
        rows = {name: asdict(record) for name, record in sorted(nodes.items())}
        _write(self.folder / "nodes.json", json.dumps(rows, indent=1) + "\n")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise PluginError(f"{path}: cannot be written: {error.strerror}") from error
