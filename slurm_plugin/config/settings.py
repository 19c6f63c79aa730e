"""gputopo.yaml as an immutable, validated Config.

Every error names file, line and key and says what is allowed; unknown keys are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import yaml

from policies.contract.demand import Shares
from slurm_plugin import hostlist
from slurm_plugin.config import remote, schema
from slurm_plugin.config.genie import GenieConfig, genie_section
from slurm_plugin.config.pattern_file import PatternFileError, SitePattern, site_pattern
from slurm_plugin.config.plugins import load_policies
from slurm_plugin.config.policy_reader import PolicyReader
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.errors import ConfigError

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
    reader = PolicyReader(path)
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


def _topo_aware(reader: PolicyReader, node: yaml.Node | None) -> TopoAwareConfig:
    found = TopoAwareConfig(**reader.section(node, "topo_aware", schema.TOPO_AWARE))
    if node is not None and not found.communication + found.interference + found.fragmentation:
        raise reader.fail(node, "topo_aware", "all three weights are 0; expected one above")
    return found


def _node_sets(reader: PolicyReader, node: yaml.Node | None) -> tuple[NodeSet, ...]:
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


def _patterns(reader: PolicyReader, node: yaml.Node | None) -> Mapping[str, SitePattern]:
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


def _partitions(reader: PolicyReader, node: yaml.Node | None) -> Mapping[str, Rule]:
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


def _personal(reader: PolicyReader, node: yaml.Node | None, key: str) -> Mapping[str, Personal]:
    """Rules by account or user."""
    rules = {}
    for name, (_, value) in reader.mapping(node, key).items():
        own = reader.section(value, f"{key}.{name}", schema.PERSONAL)
        rules[name] = Personal(**own | {"hints": own["hints"] or {}})
    return MappingProxyType(rules)
