"""gputopo.yaml as an immutable, validated Config.

Every error names file, line and key and says what is allowed; unknown keys are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from policies import hints
from policies.demand import Shares, shares
from policies.errors import HintError
from policies.hint_keys import KEYS, LAUNCH
from policies.registry import registry
from slurm_plugin import hostlist, schema
from slurm_plugin.errors import ConfigError
from slurm_plugin.genie_section import GenieConfig, genie_section, read_classes
from slurm_plugin.pattern_file import PatternFileError, SitePattern, site_pattern
from slurm_plugin.plugins import load_policies
from slurm_plugin.remote import settings as remote
from slurm_plugin.remote.settings import RemoteConfig

DEFAULT_PATH = Path("/etc/slurm/gputopo.yaml")


@dataclass(frozen=True, slots=True)
class DecisionLogConfig:
    """Where decisions go and how the file rotates."""

    path: Path
    max_mb: int
    keep: int


@dataclass(frozen=True, slots=True)
class WaitingConfig:
    """Bounds on postponement; beyond any of them a job is placed instead."""

    max_postponements: int
    max_wait_s: int
    step_s: int


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """How to reach Slurm (`bin_dir` None: its commands by PATH)."""

    client: str
    rest_socket: Path
    bin_dir: Path | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class SlotsConfig:
    """The gates of `enforcement: slots`: lease, poll and grace, in seconds."""

    lease_s: int
    poll_s: float
    grace_s: int


@dataclass(frozen=True, slots=True)
class TopoAwareConfig:
    """Weights of the utility, GB/s of a socket, profiles, and how neighbours are read."""

    communication: float = 1.0
    interference: float = 1.0
    fragmentation: float = 1.0
    socket_memory_gbps: float = 0.0
    profiles: Path | None = None
    refresh_s: float = 5.0
    max_age_s: float = 30.0


@dataclass(frozen=True, slots=True)
class NodeSet:
    """Nodes of one machine kind; `slurm_index` is a word of the schema or a permutation."""

    names: tuple[str, ...]
    topology: str
    slurm_index: str | tuple[int, ...]
    gres_conf: Path
    bandwidth_model: Path | None
    line: int


@dataclass(frozen=True, slots=True)
class Rule:
    """What applies to a partition: mode, policy, default hints, what users may set.

    `patterns` are the site's own, the same in every rule: the names users write, and
    those `policies.patterns` knows them by. `lends`: jobs may borrow GPUs of other nodes where
    they ask for it; in an R queue all may.
    """

    mode: str
    policy: str
    hints: Mapping[str, str] = field(default_factory=dict)
    users_may_set: tuple[str, ...] | None = None
    patterns: Mapping[str, str] = field(default_factory=dict)
    lends: bool = False
    is_r_queue: bool = False


@dataclass(frozen=True, slots=True)
class Personal:
    """What an account's or a user's rule says; None where the partition's word stands."""

    policy: str | None = None
    hints: Mapping[str, str] = field(default_factory=dict)
    users_may_set: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration; `path` is where it was read from."""

    path: Path
    socket: Path
    enforcement: str
    deadline_ms: int
    state_dir: Path
    kill_switch: Path
    decision_log: DecisionLogConfig
    waiting: WaitingConfig
    slurm: SlurmConfig
    slots: SlotsConfig
    remote: RemoteConfig
    nodes: tuple[NodeSet, ...]
    patterns: Mapping[str, SitePattern]
    usual_jobs: Shares | str
    partitions: Mapping[str, Rule]
    accounts: Mapping[str, Personal] = field(default_factory=dict)
    users: Mapping[str, Personal] = field(default_factory=dict)
    topo_aware: TopoAwareConfig = field(default_factory=TopoAwareConfig)
    genie: GenieConfig | None = None
    topology_conf: Path | None = None
    explain_listen: tuple[str, int] | None = None
    metrics_listen: tuple[str, int] | None = None

    def rule(self, partition: str) -> Rule:
        """The rule of a partition; of several (`a,b`) the one that changes least."""
        default = self.partitions["default"]
        names = partition.split(",")
        rules = [self.partitions.get(name, default) for name in names]
        found = min(rules, key=lambda rule: schema.MODES.index(rule.mode))
        if not self.remote.allow:
            return found
        is_r_queue = not set(names) - set(self.remote.r_queues)
        return replace(found, lends=True, is_r_queue=is_r_queue)

    def where(self, line: int) -> str:
        """`file:line`, as error messages start."""
        return f"{self.path}:{line}"


class _Reader:
    """Reads YAML nodes by the schema's tables, keeping the place for messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: The site's patterns, once they are read: hints may name them.
        self.patterns: dict[str, str] = {}

    def fail(self, node: yaml.Node, key: str, text: str) -> ConfigError:
        return ConfigError(f"{self.path}:{node.start_mark.line + 1}: {key}: {text}")

    def mapping(self, node: yaml.Node | None, key: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Keys of a mapping, each with its own node and its value's; none for an empty one."""
        if node is None or (isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")):
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise self.fail(node, key or "file", "expected keys and values")
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode):
                raise self.fail(name, key or "file", "a key must be a word")
            if name.value in found:
                raise self.fail(name, f"{key}.{name.value}".lstrip("."), "given twice")
            found[name.value] = (name, value)
        return found

    def section(
        self, node: yaml.Node | None, key: str, options: tuple[schema.Option, ...]
    ) -> dict[str, Any]:
        """The values of one table's keys, defaults filled in."""
        found = self.mapping(node, key)
        known = [option.key for option in options]
        for name, (name_node, _) in found.items():
            if name not in known:
                full = f"{key}.{name}".lstrip(".")
                raise self.fail(name_node, full, f"unknown key; allowed: {', '.join(known)}")
        values: dict[str, Any] = {}
        for option in options:
            full = f"{key}.{option.key}".lstrip(".")
            if option.key in found:
                values[option.key] = self.value(found[option.key][1], full, option)
            elif option.required and node is not None:
                raise self.fail(node, full, f"missing; {option.doc}")
            else:
                values[option.key] = self.default(option)
        return values

    def default(self, option: schema.Option) -> Any:
        if option.type == "path" and option.default is not None:
            return Path(str(option.default))
        if option.type == "flag":
            return option.default == "yes"
        if option.type == "ports":
            low, _, high = str(option.default).partition("-")
            return int(low), int(high)
        return option.default

    def value(self, node: yaml.Node, key: str, option: schema.Option) -> Any:
        if option.type in ("section", "list"):
            return node
        reader: dict[str, Callable[[yaml.Node, str, schema.Option], Any]] = {
            "text": self.text,
            "path": self.file,
            "integer": self.number,
            "number": self.number,
            "policy": self.policy,
            "hints": self.hints,
            "hint keys": self.hint_keys,
            "index": self.index,
            "address": self.address,
            "demand": self.demand,
            "classes": lambda node, key, _: read_classes(self, node, key),
            "flag": self.flag,
            "ports": self.ports,
            "words": self.words,
        }
        return reader[option.type](node, key, option)

    def text(self, node: yaml.Node, key: str, option: schema.Option) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.value == "":
            raise self.fail(node, key, f"expected a value; {option.doc}")
        if option.choices and node.value not in option.choices:
            # YAML 1.1 reads a bare `off` as false; the scalar's own text is what we compare.
            allowed = ", ".join(option.choices)
            raise self.fail(node, key, f"{node.value!r} is not one of {allowed}")
        return str(node.value)

    def file(self, node: yaml.Node, key: str, option: schema.Option) -> Path:
        return self.path.parent / self.text(node, key, option)

    def number(self, node: yaml.Node, key: str, option: schema.Option) -> float:
        text = self.text(node, key, option)
        limits = f"expected {option.type} from {option.low:g} to {option.high:g}"
        try:
            value = int(text) if option.type == "integer" else float(text)
        except ValueError:
            raise self.fail(node, key, f"{text!r} is not a number; {limits}") from None
        if not math.isfinite(value) or not option.low <= value <= option.high:
            raise self.fail(node, key, f"{text} is out of range; {limits}")
        return value

    def policy(self, node: yaml.Node, key: str, option: schema.Option) -> str:
        name, known = self.text(node, key, option), registry.names()
        if name not in known:
            raise self.fail(node, key, f"{name!r} is no policy; known: {', '.join(known)}")
        return name

    def hints(self, node: yaml.Node, key: str, _option: schema.Option) -> Mapping[str, str]:
        values: dict[str, str] = {}
        for name, (name_node, value) in self.mapping(node, key).items():
            full = f"{key}.{name}"
            if name == "policy":
                raise self.fail(name_node, full, "write it as the rule's own key `policy`")
            if name in LAUNCH:
                told = "read on the nodes; its default stands in their plugstack.conf"
                raise self.fail(name_node, full, told)
            if not isinstance(value, yaml.ScalarNode):
                raise self.fail(value, full, "expected one value")
            values[name] = value.value
            try:
                given = {name: value.value}
                hints.to_request(hints.Hints(), (1,), given, patterns=self.patterns)
            except HintError as error:
                raise self.fail(value, full, str(error)) from error
        return MappingProxyType(values)

    def hint_keys(self, node: yaml.Node, key: str, option: schema.Option) -> tuple[str, ...]:
        names = self.words(node, key, option)
        for name in names:
            if name not in KEYS:
                raise self.fail(node, key, f"{name!r} is no hint key; allowed: {', '.join(KEYS)}")
        return names

    def words(self, node: yaml.Node, key: str, _option: schema.Option) -> tuple[str, ...]:
        items = self.items(node, key)
        if not all(isinstance(item, yaml.ScalarNode) for item in items):
            raise self.fail(node, key, "expected a list of words: [a, b]")
        return tuple(str(item.value) for item in items)

    def index(self, node: yaml.Node, key: str, _option: schema.Option) -> str | tuple[int, ...]:
        allowed = f"expected {schema.IDENTITY}, {schema.GRES_CONF} or a list such as [2, 0, 1, 3]"
        if isinstance(node, yaml.ScalarNode):
            if node.value not in (schema.IDENTITY, schema.GRES_CONF):
                raise self.fail(node, key, f"{node.value!r} is no mapping; {allowed}")
            return str(node.value)
        words = self.words(node, key, _option)
        if sorted(words) != sorted(str(i) for i in range(len(words))) or not words:
            last = len(words) - 1
            raise self.fail(node, key, f"each of 0 to {last} must stand once; {allowed}")
        return tuple(int(word) for word in words)

    def address(self, node: yaml.Node, key: str, option: schema.Option) -> tuple[str, int]:
        text = self.text(node, key, option)
        host, colon, port = text.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise self.fail(node, key, f"{text!r} is not host:port; expected 127.0.0.1:9401, say")
        return host.strip("[]"), int(port)

    def flag(self, node: yaml.Node, key: str, option: schema.Option) -> bool:
        return self.text(node, key, option) == "yes"

    def ports(self, node: yaml.Node, key: str, option: schema.Option) -> tuple[int, int]:
        text = self.text(node, key, option)
        low, _, high = text.partition("-")
        if not (low.isdecimal() and high.isdecimal() and 1024 <= int(low) < int(high) < 65536):
            raise self.fail(node, key, f"{text!r} is no range of ports; expected 50000-50999, say")
        return int(low), int(high)

    def demand(self, node: yaml.Node, key: str, option: schema.Option) -> Shares | str:
        """Shares by GPUs per node, or the default's word."""
        allowed = f"expected {option.default} or weights by GPUs per node, such as {{1: 60, 2: 40}}"
        if isinstance(node, yaml.ScalarNode) and node.value == option.default:
            return str(node.value)
        if not isinstance(node, yaml.MappingNode) or not node.value:
            raise self.fail(node, key, allowed)
        written = self.mapping(node, key)
        try:
            return shares({int(name): float(value.value) for name, (_, value) in written.items()})
        except (TypeError, ValueError) as error:  # a PolicyError is one
            raise self.fail(node, key, f"{error}; {allowed}") from error

    def items(self, node: yaml.Node, key: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            raise self.fail(node, key, "expected a list")
        return list(node.value)


def load(path: Path) -> Config:
    """The configuration in `path`.

    Raises ConfigError naming file, line and key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return parse(text, path)


def parse(text: str, path: Path) -> Config:
    """The configuration written in `text`; `path` is for messages and relative files."""
    path = path.absolute()
    load_policies()
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{path}:{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}:1: not YAML: {error}") from error
    reader = _Reader(path)
    values = reader.section(root, "", schema.ROOT)
    log = reader.section(values["decision_log"], "decision_log", schema.DECISION_LOG)
    waiting = reader.section(values["waiting"], "waiting", schema.WAITING)
    slurm = reader.section(values["slurm"], "slurm", schema.SLURM)
    values["decision_log"] = DecisionLogConfig(**log)
    values["waiting"] = WaitingConfig(**waiting)
    values["slurm"] = SlurmConfig(**slurm)
    values["slots"] = SlotsConfig(**reader.section(values["slots"], "slots", schema.SLOTS))
    values["remote"] = remote.read(reader, values["remote"])
    values["topo_aware"] = _topo_aware(reader, values["topo_aware"])
    values["genie"] = genie_section(reader, values["genie"])
    values["nodes"] = _node_sets(reader, values["nodes"])
    values["patterns"] = _patterns(reader, values["patterns"])
    values["partitions"] = _partitions(reader, values["partitions"])
    for key in ("accounts", "users"):
        values[key] = _personal(reader, values[key], key)
    return Config(path=path, **values)


def _topo_aware(reader: _Reader, node: yaml.Node | None) -> TopoAwareConfig:
    found = TopoAwareConfig(**reader.section(node, "topo_aware", schema.TOPO_AWARE))
    if node is not None and not found.communication + found.interference + found.fragmentation:
        raise reader.fail(node, "topo_aware", "all three weights are 0; expected one above")
    return found


def _node_sets(reader: _Reader, node: yaml.Node | None) -> tuple[NodeSet, ...]:
    sets = []
    seen: dict[str, int] = {}
    items = [] if node is None else reader.items(node, "nodes")
    for i, item in enumerate(items):
        key = f"nodes[{i}]"
        values = reader.section(item, key, schema.NODE_SET)
        line = item.start_mark.line + 1
        try:
            names = hostlist.expand(values.pop("nodes"))
        except ValueError as error:
            raise reader.fail(item, f"{key}.nodes", str(error)) from error
        for name in names:
            if name in seen:
                told = f"node {name} was already declared in line {seen[name]}"
                raise reader.fail(item, f"{key}.nodes", told)
            seen[name] = line
        sets.append(NodeSet(names=names, line=line, **values))
    return tuple(sets)


def _patterns(reader: _Reader, node: yaml.Node | None) -> Mapping[str, SitePattern]:
    """The site's patterns by the name users write; the reader knows them from then on."""
    found = {}
    for name, (_, value) in reader.mapping(node, "patterns").items():
        key = f"patterns.{name}"
        path = reader.file(value, key, schema.PATTERN)
        try:
            found[name] = site_pattern(name, path, value.start_mark.line + 1)
        except PatternFileError as error:
            raise reader.fail(value, key, str(error)) from error
        reader.patterns[name] = found[name].internal
    return MappingProxyType(found)


def _partitions(reader: _Reader, node: yaml.Node | None) -> Mapping[str, Rule]:
    """Rules by name; a partition takes what it does not say from `default`."""
    found = reader.mapping(node, "partitions")
    base = reader.section(None, "", schema.PARTITION)
    rules: dict[str, Rule] = {}
    for name in ("default", *(name for name in found if name != "default")):
        key, value = f"partitions.{name}", found[name][1] if name in found else None
        written = reader.mapping(value, key)
        own = reader.section(value, key, schema.PARTITION)
        merged = base | {option: own[option] for option in written}
        if name == "default":
            base = merged
        rules[name] = Rule(
            **merged | {"hints": merged["hints"] or {}}, patterns=dict(reader.patterns)
        )
    return MappingProxyType(rules)


def _personal(reader: _Reader, node: yaml.Node | None, key: str) -> Mapping[str, Personal]:
    """Rules by account or user."""
    rules = {}
    for name, (_, value) in reader.mapping(node, key).items():
        own = reader.section(value, f"{key}.{name}", schema.PERSONAL)
        rules[name] = Personal(**own | {"hints": own["hints"] or {}})
    return MappingProxyType(rules)
