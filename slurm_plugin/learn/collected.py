"""What was collected, kept under `state_dir`/topologies.

kinds/KEY.json   one file per kind of hardware, as `gputopo topology show --json` prints it
nodes.json       node -> the keys of the accepted and the latest hardware, and when
nvlink-domains.json   node -> the NVLink domain over several nodes that it was found in

The first collection of a node is accepted; one that differs is a mismatch until it is accepted
(`collect --accept`) or the hardware is as before.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TypeVar

import msgspec

from gres_topology import NodeTopology, TopologyError, fingerprint
from gres_topology.readers import saved
from slurm_plugin.base import whole_file
from slurm_plugin.base.rows_file import decoded
from slurm_plugin.errors import PluginError

#: Larger files are none of ours: some hundred bytes for each node, some kilobytes for each kind.
_MOST_NODES, _MOST_KIND = 64 << 20, 8 << 20
_KEY = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}\Z")

Value = TypeVar("Value")


def key_of(topology: NodeTopology) -> str:
    """The fingerprint, and a digest of the device minors: index mappings depend on them."""
    minors = hashlib.sha256(repr(topology.minors).encode()).hexdigest()[:8]
    return f"{fingerprint(topology)}-{minors}"


class NodeRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node's keys; `collected` is an ISO 8601 time."""

    accepted: str
    latest: str
    collected: str


class Store:
    """Reads and writes one state directory; writes are atomic."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / "topologies"
        self._topologies: dict[str, NodeTopology] = {}

    def nodes(self) -> dict[str, NodeRecord]:
        """Every collected node, if any; raises PluginError when the file is damaged."""
        return self._by_node("nodes.json", dict[str, NodeRecord])

    def domains(self) -> dict[str, str]:
        """Node -> the NVLink domain over several nodes that it is in; '' for none.

        A node of which that was not collected is missing. PluginError for a damaged file.
        """
        return self._by_node("nvlink-domains.json", dict[str, str])

    def _by_node(self, name: str, kind: type[dict[str, Value]]) -> dict[str, Value]:
        advice = "repair it, or remove it and run gputopo topology collect"
        try:
            return decoded(self.folder / name, kind, _MOST_NODES, advice)
        except FileNotFoundError:
            return {}

    def save_domains(self, domains: dict[str, str]) -> None:
        """Replace nvlink-domains.json."""
        content = json.dumps(dict(sorted(domains.items())), indent=1) + "\n"
        whole_file.replace(self.folder / "nvlink-domains.json", content.encode(), 0o644)

    def topology(self, key: str) -> NodeTopology:
        """The hardware behind a key; raises PluginError when it is not kept."""
        if key not in self._topologies:
            if not _KEY.match(key):
                raise PluginError(f"{key[:60]!r} in {self.folder}/nodes.json is no key of ours")
            path = self.folder / "kinds" / f"{key}.json"
            try:
                topology = saved.read(_text(path, _MOST_KIND), name=key, source=str(path))
            except (FileNotFoundError, UnicodeDecodeError, TopologyError) as error:
                raise PluginError(f"{path}: {error}; run gputopo topology collect again") from error
            self._topologies[key] = topology
        return self._topologies[key]

    def keep(self, topology: NodeTopology) -> str:
        """Write a kind's file, once; its key."""
        key = key_of(topology)
        path = self.folder / "kinds" / f"{key}.json"
        if not path.exists():
            content = json.dumps(saved.to_dict(topology)) + "\n"
            whole_file.replace(path, content.encode(), 0o644)
        return key

    def save(self, nodes: dict[str, NodeRecord]) -> None:
        """Replace nodes.json."""
        rows = msgspec.to_builtins(dict(sorted(nodes.items())))
        content = json.dumps(rows, indent=1) + "\n"
        whole_file.replace(self.folder / "nodes.json", content.encode(), 0o644)


def _text(path: Path, most_bytes: int) -> str:
    """What is in a file, which root does not wait for and does not follow to anywhere else."""
    try:
        content = whole_file.read(path, most_bytes)
    except PluginError as error:
        raise PluginError(f"{error}; remove it and run gputopo topology collect") from error
    if len(content) > most_bytes:
        raise PluginError(
            f"{path}: expected at most {most_bytes >> 20} MiB; remove it and run gputopo topology"
            " collect"
        )
    return content.decode()
