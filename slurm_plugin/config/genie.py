"""The `genie` section of gputopo.yaml: which partitions are shaped, with which classes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import yaml

from policies.contract import deadlines
from policies.contract.scheduling import CLASSES
from policies.genie.submit import USUAL, Within
from slurm_plugin.config.key import Key, computed, required, setting
from slurm_plugin.config.yaml_reader import YamlReader

Classes = Mapping[str, Within]
Late = Literal["accept", "refuse"]
Algorithm = Literal["genie", "genie-paper"]

_TIMES = re.compile(r"\d{1,3}(\.\d{1,3})?")
_ALLOWED = (
    f"expected classes ({', '.join(CLASSES)}) and how long each may take, such as"
    " {prior: 1, normal: 12h}"
)
_EXAMPLE = "{urgent: 0, prior: 1, normal: 12h}"


@dataclass(frozen=True, slots=True)
class GenieRule:
    """One partition that is shaped; `line` is where it stands."""

    nodes: tuple[str, ...] = required(
        "Host list of the partition's nodes, all of one kind of machine.",
        kind="host list",
        example="n[1-4]",
    )
    max_nodes: int = setting(0, "Most nodes of a job; 0: all.", high=65536)
    max_gpus_per_node: int = setting(0, "Most GPUs per node; 0: all.", high=256)
    classes: Classes = computed(
        lambda: USUAL,
        "The same as in `genie`, for this partition.",
        kind="classes",
        inherits=True,
        example=_EXAMPLE,
    )
    late: Late = setting("accept", "The same as in `genie`, for this partition.", inherits=True)
    line: int = 0


@dataclass(frozen=True, slots=True)
class GenieAccount:
    """What the jobs of one account may have."""

    classes: Classes = required(
        "The classes of this account's jobs.", kind="classes", example=_EXAMPLE
    )


@dataclass(frozen=True, slots=True)
class GenieConfig:
    """The section `genie` of gputopo.yaml."""

    database: Path = setting(
        Path("/var/lib/gputopo/performance.db"),
        "The model database that `gputopo profile fit` writes.",
    )
    late: Late = setting(
        "accept", "A job that cannot meet its deadline is let in with a notice, or refused."
    )
    algorithm: Algorithm = setting(
        "genie",
        "Who orders the jobs: `genie`, or the paper's Algorithm 1 as printed, whose head of the"
        " queue nobody passes.",
    )
    classes: Classes = computed(
        lambda: USUAL,
        "Classes jobs may have and how long each may take: times the latency on the smallest"
        f" shape, or a duration, such as `{_EXAMPLE}`, which are the paper's but for the last (2)."
        " Unset: `{normal: 2}`. The others go before other users' jobs: name them here, for a"
        " partition, or for those accounts that may have them.",
        kind="classes",
        example=_EXAMPLE,
    )
    poll_s: float = setting(
        5.0,
        "Seconds between two readings of the queue while nothing happens.",
        low=0.5,
        high=60,
    )
    partitions: Mapping[str, GenieRule] = computed(dict, "The partitions whose jobs are shaped.")
    accounts: Mapping[str, GenieAccount] = computed(
        dict, "Other classes for the jobs of an account."
    )


def read_classes(reader: YamlReader, node: yaml.Node, name: str, _key: Key) -> Classes:
    """Classes and how long each may take, as written. Raises ConfigError."""
    classes = {}
    if not isinstance(node, yaml.MappingNode) or not node.value:
        raise reader.fail(node, name, _ALLOWED)
    for given, (at, value) in reader.mapping(node, name).items():
        if given not in CLASSES:
            problem = f"no such class; allowed: {', '.join(CLASSES)}"
            raise reader.fail(at, f"{name}.{given}", problem)
        text = value.value if isinstance(value, yaml.ScalarNode) else ""
        seconds = deadlines.duration_s(text)
        if _TIMES.fullmatch(text):
            classes[given] = Within(float(text))
        elif seconds is not None:
            classes[given] = Within(seconds=float(seconds))
        else:
            problem = f"{text!r}; expected times the latency on the smallest shape, or a duration"
            raise reader.fail(value, f"{name}.{given}", problem)
    return MappingProxyType({name: classes[name] for name in CLASSES if name in classes})
