"""The section `remote` of gputopo.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from slurm_plugin.config.remote_keys import REMOTE
from slurm_plugin.remote import presets
from slurm_plugin.remote.errors import RemoteError
from slurm_plugin.remote.node.preset import Preset

if TYPE_CHECKING:
    from policies.r_queue import Network
    from slurm_plugin.config.yaml_reader import Reader


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """GPUs of other nodes: whether, by which middleware, and on whose terms.

    `ports` is the lowest and the highest; `donor_cpus` and `donor_memory_mb` (MB) are per GPU;
    `network_gb_s` is GB/s of a node.
    """

    preset: Preset
    allow: bool = False
    trust_network: bool = False
    ports: tuple[int, int] = (50000, 50999)
    r_queues: tuple[str, ...] = ()
    unservable: str = "wait"
    donors: str = "local-first"
    decider: str = "r-queue"
    solve_s: float = 2.0
    max_slowdown: float = 1.5
    network_gb_s: float = 7.0
    donor_cpus: int = 1
    donor_memory_mb: int = 512
    program: Path = Path("/usr/local/bin/gputopo-node")
    ready_s: int = 60
    submitter: Path = Path("/run/gputopo-donors/socket")
    first_uid: int = 1000

    @property
    def wires(self) -> Network:
        """The site's network in the R queue's model."""
        # Imported when asked for: what submits donors needs the section, and no policies.
        from policies.r_queue import Network

        return Network(net_gb_s=self.network_gb_s)


def read(reader: Reader, node: yaml.Node | None) -> RemoteConfig:
    """The section in `node` (None: all defaults).

    Raises ConfigError naming file, line and key, also for what does not go together.
    """
    found = reader.section(node, "remote", REMOTE)
    found["r_queues"] = found["r_queues"] or ()
    try:
        found["preset"] = presets.load(found["preset"], reader.path.parent)
    except RemoteError as error:
        assert node is not None
        raise reader.fail(node, "remote.preset", str(error)) from error
    remote = RemoteConfig(**found)
    if node is None or not remote.allow:
        return remote
    why = "" if remote.trust_network else remote.preset.needs_trust()
    if why:
        name = remote.preset.name
        raise reader.fail(node, "remote.preset", f"{name}: {why}; expected trust_network: yes")
    return remote
