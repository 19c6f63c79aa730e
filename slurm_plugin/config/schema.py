"""What gputopo.yaml may hold, declared as data: key, type, default, limits, meaning.

`slurm_plugin.config.settings` reads by these tables and docs/configuration.md prints them.
"""

from __future__ import annotations

from slurm_plugin.config.option import Option
from slurm_plugin.config.remote_keys import REMOTE

MODES = ("off", "observe", "enforce")
ENFORCEMENTS = ("select", "slots")

IDENTITY = "identity"
GRES_CONF = "gres-conf"
COLLECTED = "collected"


ROOT = (
    Option("socket", "path", "/run/gputopo/engine.sock", "Unix socket the engine listens on."),
    Option("enforcement", "text", "select", "How decisions reach Slurm.", ENFORCEMENTS),
    Option(
        "deadline_ms",
        "integer",
        50,
        "Answers slower than this are counted as late in `gputopo status`; the callers keep"
        " their own clock.",
        low=1,
        high=10_000,
    ),
    Option(
        "state_dir",
        "path",
        "/var/lib/gputopo",
        "What `gputopo topology collect` found, and what finished jobs taught.",
    ),
    Option(
        "kill_switch",
        "path",
        "/etc/slurm/gputopo.disable",
        "While this file exists the engine passes everything to Slurm's own choice.",
    ),
    Option("decision_log", "section", None, "Where decisions are written."),
    Option("waiting", "section", None, "How long a policy may postpone a job."),
    Option("slurm", "section", None, "How the engine reaches Slurm's commands."),
    Option("slots", "section", None, "How `enforcement: slots` keeps its gates."),
    Option("remote", "section", None, "GPUs of other nodes, lent over the network."),
    Option("topo_aware", "section", None, "What `topo-aware` and `topo-aware-p` go by."),
    Option("genie", "section", None, "Where and how `genie` shapes jobs; nowhere when unset."),
    Option("nodes", "list", None, "Which nodes are which machine."),
    Option(
        "patterns",
        "section",
        None,
        "A site's own patterns, `NAME: FILE`: jobs may ask for `pattern=NAME`.",
    ),
    Option(
        "topology_conf",
        "path",
        None,
        "Slurm's topology.conf: jobs of several nodes get them as few switches apart as can be."
        " Unset: all nodes are alike.",
    ),
    Option(
        "usual_jobs",
        "demand",
        "learned",
        "What `mapa-preserve-site` expects to be asked: weights by GPUs per node, `{1: 60, 2: 30,"
        " 8: 10}`, or `learned`: counted in the decision log.",
    ),
    Option("partitions", "section", None, "Mode and policy per partition, and `default`."),
    Option("accounts", "section", None, "Policy, default hints and limits per Slurm account."),
    Option("users", "section", None, "The same per user: a login name or a numeric uid."),
    Option(
        "explain_listen",
        "address",
        None,
        "`host:port` where users of other hosts ask why (munge proves who asks); off when unset.",
    ),
    Option(
        "metrics_listen",
        "address",
        None,
        "`host:port` for Prometheus, such as `127.0.0.1:9401`; off when unset.",
    ),
)

DECISION_LOG = (
    Option("path", "path", "/var/log/gputopo/decisions.jsonl", "One JSON line per decision."),
    Option("max_mb", "integer", 64, "Size at which the file is rotated, in MB.", low=1, high=65536),
    Option("keep", "integer", 4, "Rotated files kept.", low=0, high=1000),
)

WAITING = (
    Option(
        "max_postponements",
        "integer",
        10,
        "Waits per job; after that the job is placed on what is free.",
        high=10_000,
    ),
    Option(
        "max_wait_s",
        "integer",
        600,
        "Seconds in all a job may be postponed; after that it is placed.",
        high=7 * 86400,
    ),
    Option("step_s", "integer", 60, "Longest single wait, in seconds.", low=1, high=86400),
)

CLIENTS = ("command", "rest", "pyslurm")
SLURM = (
    Option(
        "client",
        "text",
        "command",
        "How Slurm is asked: its commands, slurmrestd, or the Python package PySlurm.",
        CLIENTS,
    ),
    Option(
        "rest_socket",
        "path",
        "/run/slurmrestd/slurmrestd.sock",
        "The Unix socket slurmrestd listens on, for `client: rest`.",
    ),
    Option("bin_dir", "path", None, "Directory of scontrol, squeue, sinfo, srun; else PATH."),
    Option("timeout_s", "number", 10.0, "Longest a Slurm command may take.", low=0.1, high=600),
)

SLOTS = (
    Option(
        "lease_s",
        "integer",
        120,
        "Seconds a gate holds without being renewed; then Slurm starts the job by itself.",
        low=10,
        high=3600,
    ),
    Option(
        "poll_s",
        "number",
        5.0,
        "The queue is looked at this often when nothing is heard of, in seconds.",
        low=0.5,
        high=60,
    ),
    Option(
        "grace_s",
        "integer",
        30,
        "A released job that has not started after so many seconds waits behind its gate again.",
        low=2,
        high=600,
    ),
)

TOPO_AWARE = (
    Option("communication", "number", 1.0, "Weight of the term of distance.", high=1000),
    Option("interference", "number", 1.0, "Weight of the term of neighbours.", high=1000),
    Option("fragmentation", "number", 1.0, "Weight of the term of whole sockets.", high=1000),
    Option(
        "socket_memory_gbps",
        "number",
        0.0,
        "Host memory bandwidth of one socket, GB/s, for `memory-bandwidth`; 0: not checked.",
        high=100_000,
    ),
    Option("profiles", "path", None, "Directory of job profiles (YAML, JSON); none when unset."),
    Option(
        "refresh_s",
        "number",
        5.0,
        "Seconds between two readings of Slurm's queue, by which neighbours are known.",
        low=0.1,
        high=3600,
    ),
    Option(
        "max_age_s",
        "number",
        30.0,
        "Age of the last reading from which on no neighbour is taken into account.",
        low=1,
        high=86400,
    ),
)

LATE = ("accept", "refuse")
GENIE = (
    Option(
        "database",
        "path",
        "/var/lib/gputopo/performance.db",
        "The model database that `gputopo profile fit` writes.",
    ),
    Option(
        "late",
        "text",
        "accept",
        "A job that cannot meet its deadline is let in with a notice, or refused.",
        LATE,
    ),
    Option(
        "classes",
        "classes",
        None,
        "Classes jobs may have and how long each may take: times the latency on the smallest shape,"
        " or a duration, such as `{urgent: 0, prior: 1, normal: 12h}`. Unset: the paper's 0, 1, 2.",
    ),
    Option(
        "poll_s",
        "number",
        5.0,
        "The queue is looked at this often when nothing is heard of, in seconds.",
        low=0.5,
        high=60,
    ),
    Option("partitions", "section", None, "The partitions whose jobs are shaped."),
    Option("accounts", "section", None, "What an account's jobs may have instead."),
)
GENIE_PARTITION = (
    Option(
        "nodes",
        "text",
        None,
        "Host list of the partition's nodes, all of one kind of machine.",
        required=True,
    ),
    Option("max_nodes", "integer", 0, "Most nodes of a job; 0: all.", high=65536),
    Option("max_gpus_per_node", "integer", 0, "Most GPUs per node; 0: all.", high=256),
    Option("classes", "classes", None, "As above, for this partition."),
    Option("late", "text", None, "As above, for this partition.", LATE),
)
GENIE_ACCOUNT = (
    Option("classes", "classes", None, "The classes of this account's jobs.", required=True),
)

NODE_SET = (
    Option("nodes", "text", None, "Host list, as in slurm.conf: `dgx[1-2,5]`.", required=True),
    Option(
        "topology",
        "text",
        None,
        f"A machine of the catalog, a file (relative to this one), or `{COLLECTED}`.",
        required=True,
    ),
    Option(
        "slurm_index",
        "index",
        IDENTITY,
        f"`{IDENTITY}`, a list (`[2, 0, 1, 3]`: Slurm's GPU 0 is the topology's GPU 2, ...),"
        f" or `{GRES_CONF}`.",
    ),
    Option(
        "bandwidth_model",
        "path",
        None,
        "What `gputopo calibrate` wrote for these nodes; else the general models.",
    ),
    Option("gres_conf", "path", "/etc/slurm/gres.conf", f"Read for `slurm_index: {GRES_CONF}`."),
)

MODE = Option(
    "mode",
    "text",
    "observe",
    "`off`; `observe`: decide and log, change nothing; `enforce`.",
    MODES,
)
PARTITION = (
    MODE,
    Option("policy", "policy", "mapa", "Policy for jobs whose hint names none."),
    Option("hints", "hints", None, "Hints for jobs that give none: `{pattern: ring}`."),
    Option("users_may_set", "hint keys", None, "Hint keys users may write; all when unset."),
)
#: Each value of `patterns`.
PATTERN = Option("FILE", "path", None, "A pattern's file, relative to this one.")
#: What a rule of an account or a user may say; what it does not say, the partition says.
PERSONAL = (
    Option("policy", "policy", None, "Policy for jobs whose hint names none."),
    Option("hints", "hints", None, "Hints for jobs that give none; key by key."),
    Option("users_may_set", "hint keys", None, "Hint keys that may be written."),
)

SECTIONS = {
    "": ROOT,
    "decision_log": DECISION_LOG,
    "waiting": WAITING,
    "slurm": SLURM,
    "slots": SLOTS,
    "remote": REMOTE,
    "topo_aware": TOPO_AWARE,
    "genie": GENIE,
    "genie.partitions.NAME": GENIE_PARTITION,
    "genie.accounts.NAME": GENIE_ACCOUNT,
    "nodes[]": NODE_SET,
    "partitions.NAME": PARTITION,
    "accounts.NAME": PERSONAL,
    "users.NAME": PERSONAL,
}


def reference() -> str:
    """The tables of docs/configuration.md (Markdown), from the declarations above."""
    lines = []
    for section, options in SECTIONS.items():
        title = f"`{section}`" if section else "Top level"
        lines += [f"### {title}", "", "| key | type | default | meaning |", "|---|---|---|---|"]
        for option in options:
            default = "required" if option.required else _shown(option.default)
            kind = " \\| ".join(f"`{c}`" for c in option.choices) or option.type
            lines.append(f"| `{option.key}` | {kind} | {default} | {option.doc} |")
        lines.append("")
    return "\n".join(lines)


def _shown(value: str | int | float | None) -> str:
    return "" if value is None else f"`{value}`"
