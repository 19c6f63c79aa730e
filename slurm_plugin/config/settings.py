"""gputopo.yaml as an immutable Config; errors name file, line and key, and what is allowed."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, make_dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import yaml

from gres_topology import plain_file
from policies import topo_aware
from policies.contract.demand import Shares
from policies.errors import RegistryError
from policies.registry import registry
from slurm_plugin.base import whole_file
from slurm_plugin.config.genie import GenieConfig
from slurm_plugin.config.key import computed, keys_of, setting
from slurm_plugin.config.owner import check_owner
from slurm_plugin.config.pattern_file import SitePattern
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.config.sections import (
    MODES,
    DecisionLogConfig,
    DefragConfig,
    NodeSet,
    Personal,
    Rule,
    SlotsConfig,
    SlurmConfig,
    WaitingConfig,
)
from slurm_plugin.config.site_reader import SiteReader
from slurm_plugin.errors import ConfigError, PluginError, in_one_line

logger = logging.getLogger(__name__)

#: One to begin with: it observes, and names no node yet.
SAMPLE = Path(__file__).with_name("sample.yaml")

DEFAULT_STATE_DIR = Path("/var/lib/gputopo")
#: The file in the state directory that has the text which is in force, and the most it may have.
KEPT, MOST_KEPT = "gputopo.yaml", 1 << 20
#: The line of a file that nobody can read as YAML which says where that is.
_STATE_DIR = re.compile(r"""^state_dir:[ \t]*(["']?)([^\n]+?)\1[ \t]*(?: #.*)?$""", re.M)

_DANGER = (
    "it names where root's commands write; use a file of root's (--config), do this as the file's"
    " owner, or make it root's"
)
_OTHER_BIN_DIR = (
    "it names programs, so slurm.bin_dir is not used: root's commands take Slurm's own by PATH"
)


@dataclass(frozen=True, slots=True)
class TopoAwareConfig(topo_aware.TopoAwareSettings):
    """The policy's weights, and how the engine reads jobs' neighbours for any policy."""

    profiles: Path | None = setting(
        None, "Directory of job profiles (YAML, JSON); none when unset.", example="profiles"
    )
    refresh_s: float = setting(
        5.0,
        "Seconds between two readings of Slurm's queue, which tell who runs and who waits; more"
        " where a reading takes long.",
        low=0.1,
        high=3600,
    )
    max_age_s: float = setting(
        30.0,
        "Neighbours are ignored once the last reading is older than so many seconds.",
        low=1,
        high=86400,
    )


class Read(NamedTuple):
    """A file as it was read."""

    text: str
    #: Who may read and write it, as the system has it.
    mode: int


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration; its keys are read in the order in which they stand here."""

    #: Where it was read from.
    path: Path
    socket: Path = setting(Path("/run/gputopo/engine.sock"), "Unix socket the engine listens on.")
    enforcement: Literal["select", "slots"] = setting("select", "How decisions reach Slurm.")
    notes: Literal["admin-comment", "engine"] = setting(
        "admin-comment",
        "Where the engine's notes and records of jobs stand: in AdminComment, or (but for what"
        " Slurm needs while a job waits) in the engine alone.",
    )
    deadline_ms: int = setting(
        50,
        "Answers slower than this are counted as late in `gputopo status`; the callers keep"
        " their own clock.",
        low=1,
        high=10_000,
    )
    state_dir: Path = setting(
        DEFAULT_STATE_DIR,
        "What `gputopo topology collect` found, what finished jobs taught, and what the engine"
        " knows of its notes and records.",
    )
    kill_switch: Path = setting(
        Path("/etc/slurm/gputopo.disable"),
        "While this file exists the engine passes everything to Slurm's own choice.",
    )
    decision_log: DecisionLogConfig = computed(DecisionLogConfig, "Where decisions are written.")
    waiting: WaitingConfig = computed(WaitingConfig, "How long a policy may postpone a job.")
    slurm: SlurmConfig = computed(SlurmConfig, "How the engine reaches Slurm's commands.")
    slots: SlotsConfig = computed(SlotsConfig, "How `enforcement: slots` keeps its gates.")
    defrag: DefragConfig = computed(DefragConfig, "Moving running jobs to make room.")
    remote: RemoteConfig = computed(RemoteConfig, "GPUs of other nodes, lent over the network.")
    topo_aware: TopoAwareConfig = computed(
        TopoAwareConfig, "Weights of `topo-aware` and `topo-aware-p`, and what they know of jobs."
    )
    genie: GenieConfig | None = setting(
        None, "Where and how `genie` shapes jobs; nowhere when unset."
    )
    nodes: tuple[NodeSet, ...] = setting((), "Which nodes are which machine.", kind="node sets")
    patterns: Mapping[str, SitePattern] = computed(
        dict,
        "A site's own patterns, `NAME: FILE`: jobs may ask for `pattern=NAME`.",
        kind="patterns",
    )
    topology_conf: Path | None = setting(
        None,
        "Slurm's topology.conf or topology.yaml: jobs of several nodes get them as few switches"
        " apart as can be, those of one node leave whole switches alone. Unset: all nodes are"
        " alike, and under a TopologyPlugin they are Slurm's choice.",
        example="topology.conf",
    )
    usual_jobs: Shares | str = setting(
        "learned",
        "What `mapa-preserve-site` expects to be asked: weights by GPUs per node, `{1: 60,"
        " 2: 30, 8: 10}`, or `learned`: counted in the decision log.",
        kind="demand",
        example="{1: 60, 2: 30, 8: 10}",
    )
    partitions: Mapping[str, Rule] = computed(
        lambda: {"default": Rule()}, "Mode and policy per partition, and `default`.", kind="rules"
    )
    accounts: Mapping[str, Personal] = computed(
        dict, "Policy, default hints and limits per Slurm account."
    )
    users: Mapping[str, Personal] = computed(
        dict, "The same per user: a login name or a numeric uid."
    )
    explain_listen: tuple[str, int] | None = setting(
        None,
        "`host:port` where users of other hosts ask why (munge proves who asks); off when unset.",
        kind="address",
        example="ctl:9402",
    )
    metrics_listen: tuple[str, int] | None = setting(
        None,
        "`host:port` for Prometheus, such as `127.0.0.1:9401`; off when unset.",
        kind="address",
        example="127.0.0.1:9401",
    )
    metrics_read_s: float = setting(
        0.0,
        "With `metrics_listen`: Slurm's queue and nodes are read at least once in so many seconds,"
        " for the metrics of GPUs and jobs; 0: never for the metrics alone.",
        high=3600,
    )
    report_read_s: float = setting(
        600.0,
        "Once in so many seconds Slurm's queue and nodes are read, and `gputopo report` is told"
        " what of the free GPUs jobs could use, over time; 0: never for the report.",
        high=86400,
    )

    #: The file that this was read from; None where it came of a text.
    file: Read | None = field(default=None, compare=False, repr=False)

    @property
    def digest(self) -> str:
        """By which the file is known again (the beginning of its SHA-256); '' without a file."""
        return "" if self.file is None else hashlib.sha256(self.file.text.encode()).hexdigest()[:16]

    def rule(self, partition: str) -> Rule:
        """The rule of a partition; of several (`a,b`) the one that changes least."""
        default = self.partitions["default"]
        names = partition.split(",")
        rules = [self.partitions.get(name, default) for name in names]
        patterns = {name: pattern.internal for name, pattern in self.patterns.items()}
        return replace(
            min(rules, key=lambda rule: MODES.index(rule.mode)),
            patterns=patterns,
            lends=self.remote.allow,
            is_r_queue=self.remote.allow and not set(names) - set(self.remote.r_queues),
        )

    def where(self, line: int) -> str:
        """`file:line`, as error messages start."""
        return f"{self.path}:{line}"


@cache
def load_policies() -> type[Config]:
    """Register third parties' policies, or log why not; `Config` with a section for each."""
    registry.load_plugins(check=_check_section)
    ours = {one.name for one in keys_of(Config)}
    sections = [
        (name, settings, computed(settings, f"Settings of the policy `{name}`."))
        for name, settings in registry.sections.items()
        if name not in ours
    ]
    return make_dataclass("Config", sections, bases=(Config,), frozen=True, slots=True)


def _check_section(name: str, settings: type) -> None:
    """RegistryError where gputopo.yaml cannot hold these settings as a section of that name."""
    if any(one.name == name for one in keys_of(Config)):
        raise RegistryError(f"{name!r} is a key of gputopo.yaml; name its `section` otherwise")
    try:
        keys_of(settings)
        settings()
    except (KeyError, TypeError) as error:
        raise RegistryError(f"{settings.__name__} cannot be a section: {error!r}") from None


def load(path: Path, only: Collection[str] = (), *, writes: bool = True) -> Config:
    """The configuration in `path`, or `only` these keys of it; raises ConfigError.

    Root is refused a file that others may write where the caller `writes` to the places that it
    names. Else it has one without the folder of Slurm's commands, which is said.
    """
    if os.geteuid() == 0 and writes:
        check_owner(path, _DANGER)
    try:
        read = Read(plain_file.read_text(path), path.stat().st_mode & 0o777)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return replace(_trusted(parse(read.text, path, only), path), file=read)


def _trusted(config: Config, path: Path) -> Config:
    """What root may use of a configuration that stands in `path`: no programs of others."""
    if os.geteuid() == 0 and config.slurm.bin_dir is not None:
        try:
            check_owner(path, _OTHER_BIN_DIR)
        except ConfigError as error:
            logger.warning("%s", error)
            return replace(config, slurm=replace(config.slurm, bin_dir=None))
    return config


def in_force(path: Path) -> Config:
    """The configuration in `path`; where it cannot be used, what the engine has in force.

    For commands that only look. Which of the two it is, and what is wrong with the file, is
    logged. Raises ConfigError where there is neither.
    """
    try:
        return load(path, writes=False)
    except ConfigError as error:
        found = _kept(path)
        if found is None:
            raise
        config, read_at = found
        at = datetime.fromtimestamp(read_at).isoformat(" ", "seconds")
        said = in_one_line(str(error))
        logger.warning("%s; going on with what the engine read at %s", said, at)
        return config


def in_force_if_any(path: Path) -> Config | None:
    """The same; None where the file is not there, or this user may not see whether it is."""
    return in_force(path) if os.path.exists(path) else None


def keep(config: Config) -> None:
    """Keep what was read in the state directory, for `in_force`; a failure is only logged."""
    if config.file is None:
        return
    path = config.state_dir / KEPT
    content = (_head(config.path) + config.file.text).encode()
    # Nobody but its owner may write to it, whoever may write to the file itself.
    mode = config.file.mode & 0o644
    try:
        if len(content) > MOST_KEPT:
            raise PluginError(f"{path}: not kept: {config.path} has more than {MOST_KEPT} bytes")
        with suppress(FileNotFoundError), whole_file.opened(path) as old:
            if os.fstat(old.fileno()).st_mode & 0o777 == mode and old.read() == content:
                # Its time is that of the reading.
                with suppress(OSError):
                    os.utime(old.fileno())
                return
        whole_file.replace(path, content, mode)
    except PluginError as error:
        logger.warning("%s; commands have no other text where gputopo.yaml is wrong", error)


def _head(path: Path) -> str:
    """The line above a text that is kept: which file it is of, as another cluster has its own."""
    return f"# {str(path.resolve())!a}, as the engine read it\n"


def _kept(path: Path) -> tuple[Config, float] | None:
    """What the engine keeps of this file, and since when; None where there is nothing to use."""
    try:
        named = _STATE_DIR.search(plain_file.read_bytes(path).decode(errors="replace"))
    except OSError:
        named = None
    folder = path.absolute().parent / named[2] if named else DEFAULT_STATE_DIR
    try:
        with whole_file.opened(folder / KEPT) as file:
            since = os.fstat(file.fileno()).st_mtime
            head, text = file.readline(MOST_KEPT), file.read(MOST_KEPT + 1)
        if head.decode() != _head(path) or len(text) > MOST_KEPT:
            return None
        config = parse(text.decode(), path)
    except (OSError, PluginError, UnicodeDecodeError, ValueError):
        return None
    # A clock that was wrong, or a time that somebody made up.
    return _trusted(config, folder / KEPT), min(max(0.0, since), time.time())


def parse(text: str, path: Path, only: Collection[str] = ()) -> Config:
    """The configuration written in `text`; `path` is for messages and relative files."""
    path = path.absolute()
    with_sections = load_policies()
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{path}:{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}:1: not YAML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path}:1: not YAML that can be read: nested too deeply") from None
    if only and isinstance(root, yaml.MappingNode):
        root.value = [(key, value) for key, value in root.value if key.value in only]
    return SiteReader(path).settings(with_sections, root, unset={"path": path})
