"""The keys of gputopo.yaml's section `remote`."""

from __future__ import annotations

from slurm_plugin.config.option import Option

REMOTE = (
    Option(
        "allow",
        "flag",
        "no",
        "`yes`: jobs may borrow GPUs of other nodes.",
        ("no", "yes"),
    ),
    Option(
        "preset",
        "text",
        "echo",
        "The middleware: a preset of `gputopo remote presets`, or a site's own file NAME.yaml.",
    ),
    Option(
        "trust_network",
        "flag",
        "no",
        "`yes`: whoever can reach a node's ports may use the servers there; no relay.",
        ("no", "yes"),
    ),
    Option(
        "ports", "ports", "50000-50999", "Where donors listen; each needs two of them on its node."
    ),
    Option(
        "r_queues",
        "words",
        None,
        "Partitions whose jobs may borrow without asking for it: `[rq, long]`.",
    ),
    Option(
        "unservable",
        "text",
        "wait",
        "What becomes of a job whose donors cannot serve: `wait` for local GPUs, or `refuse`:"
        " it is cancelled, and AdminComment says why.",
        ("wait", "refuse"),
    ),
    Option(
        "donors",
        "text",
        "local-first",
        "Who lends: `local-first` (ours), or `least-occupied` (the R queue's paper).",
        ("local-first", "least-occupied"),
    ),
    Option(
        "decider",
        "text",
        "r-queue",
        "Who is lent to: `r-queue` asks about one waiting job after the other, `drmaestro` about"
        " all of them at once.",
        ("r-queue", "drmaestro"),
    ),
    Option(
        "solve_s",
        "number",
        2.0,
        "Longest one answer of DRMaestro may take; then the R queue decides.",
        low=0.05,
        high=30,
    ),
    Option(
        "max_slowdown",
        "number",
        1.5,
        "DRMaestro waits for a calmer network where remote GPUs would make a job take so many"
        " times as long; a profile may say its own.",
        low=1,
        high=1000,
    ),
    Option(
        "network_gb_s",
        "number",
        7.0,
        "A node's network in GB/s, by which `remote=auto` predicts.",
        low=0.01,
        high=10_000,
    ),
    Option("donor_cpus", "integer", 1, "CPUs that a donor takes for each GPU.", low=1, high=64),
    Option(
        "donor_memory_mb",
        "integer",
        512,
        "Memory that a donor takes for each GPU, in MB.",
        low=16,
        high=1 << 20,
    ),
    Option(
        "program",
        "path",
        "/usr/local/bin/gputopo-node",
        "What `gputopo remote program` wrote, by its path on the nodes.",
    ),
    Option(
        "ready_s",
        "integer",
        60,
        "Donors whose servers are not ready after so many seconds are given up.",
        low=5,
        high=600,
    ),
    Option(
        "submitter",
        "path",
        "/run/gputopo-donors/socket",
        "The Unix socket of `gputopo serve-donors`, which submits donors as their users.",
    ),
    Option(
        "first_uid",
        "integer",
        1000,
        "Jobs of users with a lower uid borrow nothing.",
        low=1,
        high=1 << 31,
    ),
)
