"""The sections of gputopo.yaml that need no policies to be understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

from slurm_plugin.config.key import computed, required, setting

Mode = Literal["off", "observe", "enforce"]
#: From the one that changes least to the one that changes most.
MODES: tuple[Mode, ...] = get_args(Mode)

IDENTITY = "identity"
GRES_CONF = "gres-conf"
DEFAULT_GRES_CONF = Path("/etc/slurm/gres.conf")
COLLECTED = "collected"


@dataclass(frozen=True, slots=True)
class DecisionLogConfig:
    """Where decisions go and how the file rotates."""

    path: Path = setting(Path("/var/log/gputopo/decisions.jsonl"), "One JSON line per decision.")
    max_mb: int = setting(64, "Size at which the file is rotated, in MB.", low=1, high=65536)
    keep: int = setting(4, "Rotated files kept.", high=1000)


@dataclass(frozen=True, slots=True)
class WaitingConfig:
    """Bounds on postponement; beyond any of them a job is placed instead."""

    max_postponements: int = setting(
        10, "Waits per job; after that the job is placed on what is free.", high=10_000
    )
    max_wait_s: int = setting(
        600, "Seconds in all a job may be postponed; after that it is placed.", high=7 * 86400
    )
    step_s: int = setting(60, "Longest single wait, in seconds.", low=1, high=86400)


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """How to reach Slurm."""

    client: Literal["command", "rest", "pyslurm"] = setting(
        "command", "How Slurm is asked: its commands, slurmrestd, or the Python package PySlurm."
    )
    rest_socket: Path = setting(
        Path("/run/slurmrestd/slurmrestd.sock"),
        "The Unix socket slurmrestd listens on, for `client: rest`.",
    )
    bin_dir: Path | None = setting(
        None, "Directory of scontrol, squeue, sinfo, srun; else PATH.", example="/usr/bin"
    )
    timeout_s: float = setting(10.0, "Longest a Slurm command may take.", low=0.1, high=600)


@dataclass(frozen=True, slots=True)
class SlotsConfig:
    """The gates of `enforcement: slots`."""

    lease_s: int = setting(
        120,
        "Seconds a gate holds without being renewed; then Slurm starts the job by itself. Ten"
        " times as long behind the first 500 waiting jobs.",
        low=10,
        high=3600,
    )
    poll_s: float = setting(
        5.0,
        "Seconds between two readings of the queue while nothing happens.",
        low=0.5,
        high=60,
    )
    grace_s: int = setting(
        30,
        "A released job that has not started after so many seconds waits behind its gate again.",
        low=2,
        high=600,
    )


@dataclass(frozen=True, slots=True)
class DefragConfig:
    """Whether and how running jobs are moved to make room."""

    move: bool = setting(
        False,
        "Requeue jobs that allow it (hint `movable`) and start them elsewhere where the first"
        " waiting job starts by that; else only `gputopo defrag --plan` tells what could be done.",
    )
    most_moves: int = setting(
        1, "Jobs that may be moved, one after the other, for one waiting job.", low=1, high=4
    )
    max_gpu_hours: float = setting(
        8.0, "GPU hours that the moves for one waiting job may cost, by checkpoints.", high=100_000
    )
    every_s: int = setting(600, "Seconds between the moves for two jobs.", high=86400)
    start_s: int = setting(
        120,
        "A moved job that has not started at its new place after so many seconds is let go: it"
        " starts wherever there is room.",
        low=10,
        high=3600,
    )


@dataclass(frozen=True, slots=True)
class NodeSet:
    """Nodes of one kind of machine; `line` is where they are declared."""

    topology: str = required(
        f"A machine of the catalog, a file (relative to this one), or `{COLLECTED}`.",
        example="dgx1v",
    )
    nodes: tuple[str, ...] = setting(
        (), "Host list, as in slurm.conf: `dgx[1-2,5]`.", kind="host list", example="n1"
    )
    features: str = setting(
        "",
        "Instead of `nodes`: those of Slurm's nodes that have these features, as `--constraint`"
        " names them (`h100&nvlink`), and that stand in no host list and no set above.",
        kind="features",
        example="h100",
    )
    slurm_index: str | tuple[int, ...] = setting(
        IDENTITY,
        f"`{IDENTITY}`, a list (`[2, 0, 1, 3]`: Slurm's GPU 0 is the topology's GPU 2, ...),"
        f" or `{GRES_CONF}`.",
        kind="index",
    )
    bandwidth_model: Path | None = setting(
        None,
        "What `gputopo calibrate` wrote for these nodes; else the general models.",
        example="models/a100.json",
    )
    gres_conf: Path = setting(DEFAULT_GRES_CONF, f"Read for `slurm_index: {GRES_CONF}`.")
    slices: tuple[str, ...] = setting(
        (),
        "Where GPUs are cut into slices or partitions: all that Slurm counts, in its order:"
        " `[0-5, 6/3g.20gb*2, 7/1g.5gb*7]`, GPU 0 to 5, two slices of GPU 6, seven of GPU 7.",
        example="[0-6, 7/1g.5gb*7]",
    )
    line: int = 0

    def conflict(self) -> tuple[str, str] | None:
        """The key and what is wrong where values cannot go together."""
        if bool(self.nodes) == bool(self.features):
            return "nodes", "expected a host list, or else `features`"
        if self.slices and self.slurm_index != IDENTITY:
            return "slices", "says Slurm's order by itself; leave out slurm_index"
        return None


def _hints(about: str) -> Mapping[str, str]:
    nothing: Mapping[str, str] = MappingProxyType({})
    return computed(lambda: nothing, about, kind="hints", example="{pattern: ring}")


@dataclass(frozen=True, slots=True)
class Rule:
    """What applies to the jobs of a partition."""

    mode: Mode = setting("observe", "`off`; `observe`: decide and log, change nothing; `enforce`.")
    policy: str = setting("horizon", "Policy for jobs whose hint names none.", kind="policy")
    hints: Mapping[str, str] = _hints("Hints for jobs that give none: `{pattern: ring}`.")
    users_may_set: tuple[str, ...] | None = setting(
        None, "Hint keys users may write; all when unset.", kind="hint keys", example="[pattern]"
    )
    order: Literal["slurm", "predicted"] = setting(
        "slurm", "`predicted`: shorter work may pass the first in line within `order_bound_s`."
    )
    order_bound_s: int = setting(
        600,
        "Seconds for which those that pass may hold up the first in line at most.",
        low=1,
        high=86400,
    )
    order_by: Literal["limits", "predictions"] = setting(
        "limits",
        "What a passing job is taken to need: its time limit; or the 90 % quantile of what its"
        " user's such jobs took, where the limit is twice that at most. Then the first in line may"
        " be held up for two bounds.",
    )
    #: The site's own patterns, the same in every rule: the names users write, and those
    #: that `policies.patterns` knows them by.
    patterns: Mapping[str, str] = field(default_factory=dict)
    #: May jobs borrow GPUs of other nodes where they ask for it?
    lends: bool = False
    #: May every job borrow, without asking for it?
    is_r_queue: bool = False


@dataclass(frozen=True, slots=True)
class Personal:
    """What the rule of an account or a user says; what it does not say, the partition says."""

    mode: Mode | None = setting(
        None, "`off`, `observe` or `enforce` for these jobs, in every partition.", example="enforce"
    )
    policy: str | None = setting(
        None, "Policy for jobs whose hint names none.", kind="policy", example="mapa"
    )
    hints: Mapping[str, str] = _hints("Hints for jobs that give none; key by key.")
    users_may_set: tuple[str, ...] | None = setting(
        None, "Hint keys that may be written.", kind="hint keys", example="[pattern]"
    )
