"""The `genie` section of gputopo.yaml: which partitions are shaped, with which classes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import yaml

from policies.contract import deadlines
from policies.contract.scheduling import CLASSES
from policies.genie.submit import PAPER, Within
from slurm_plugin import hostlist
from slurm_plugin.config import schema
from slurm_plugin.config.option import Option
from slurm_plugin.errors import ConfigError

Classes = Mapping[str, Within]

_TIMES = re.compile(r"\d{1,3}(\.\d{1,3})?")
_ALLOWED = (
    f"expected classes ({', '.join(CLASSES)}) and how long each may take, such as"
    " {prior: 1, normal: 12h}"
)


@dataclass(frozen=True, slots=True)
class GenieRule:
    """One partition that is shaped; `line` is where it stands. 0 is no limit."""

    nodes: tuple[str, ...]
    line: int
    max_nodes: int = 0
    max_gpus_per_node: int = 0
    classes: Classes = field(default_factory=lambda: PAPER)
    late: str = "accept"


@dataclass(frozen=True, slots=True)
class GenieConfig:
    """The whole section."""

    database: Path
    poll_s: float
    partitions: Mapping[str, GenieRule] = field(default_factory=dict)
    accounts: Mapping[str, Classes] = field(default_factory=dict)


class Reader(Protocol):
    """What is needed of the configuration's reader."""

    def fail(self, node: yaml.Node, key: str, text: str) -> ConfigError:
        """The error that names file, line and key."""
        ...

    def mapping(self, node: yaml.Node | None, key: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Keys of a mapping, each with its own node and its value's."""
        ...

    def section(
        self, node: yaml.Node | None, key: str, options: tuple[Option, ...]
    ) -> dict[str, Any]:
        """The values of one table's keys, defaults filled in."""
        ...


def genie_section(reader: Reader, node: yaml.Node | None) -> GenieConfig | None:
    """The section; None where there is none. Raises ConfigError."""
    if node is None:
        return None
    own = reader.section(node, "genie", schema.GENIE)
    classes = own["classes"] or PAPER
    partitions = {}
    for name, (_, value) in reader.mapping(own["partitions"], "genie.partitions").items():
        key = f"genie.partitions.{name}"
        said = reader.section(value, key, schema.GENIE_PARTITION)
        try:
            nodes = hostlist.expand(said["nodes"] or "")
        except ValueError as error:
            raise reader.fail(value, f"{key}.nodes", str(error)) from error
        if not nodes:
            raise reader.fail(value, f"{key}.nodes", "missing; expected the partition's nodes")
        partitions[name] = GenieRule(
            tuple(nodes),
            value.start_mark.line + 1,
            said["max_nodes"],
            said["max_gpus_per_node"],
            said["classes"] or classes,
            said["late"] or own["late"],
        )
    accounts = {}
    for name, (_, value) in reader.mapping(own["accounts"], "genie.accounts").items():
        said = reader.section(value, f"genie.accounts.{name}", schema.GENIE_ACCOUNT)
        if not said["classes"]:
            raise reader.fail(value, f"genie.accounts.{name}.classes", f"missing; {_ALLOWED}")
        accounts[name] = said["classes"]
    return GenieConfig(
        own["database"], own["poll_s"], MappingProxyType(partitions), MappingProxyType(accounts)
    )


def read_classes(reader: Reader, node: yaml.Node, key: str) -> Classes:
    """Classes and how long each may take, as written. Raises ConfigError."""
    found = {}
    if not isinstance(node, yaml.MappingNode) or not node.value:
        raise reader.fail(node, key, _ALLOWED)
    for name, (name_node, value) in reader.mapping(node, key).items():
        if name not in CLASSES:
            told = f"no such class; allowed: {', '.join(CLASSES)}"
            raise reader.fail(name_node, f"{key}.{name}", told)
        text = value.value if isinstance(value, yaml.ScalarNode) else ""
        seconds = deadlines.duration_s(text)
        if _TIMES.fullmatch(text):
            found[name] = Within(float(text))
        elif seconds is not None:
            found[name] = Within(seconds=float(seconds))
        else:
            told = f"{text!r}; expected times the latency on the smallest shape, or a duration"
            raise reader.fail(value, f"{key}.{name}", told)
    return MappingProxyType({name: found[name] for name in CLASSES if name in found})
