"""Checks of the `genie` section: its partitions, its models, and how Slurm orders its queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from slurm_plugin.config.genie import GenieConfig
from slurm_plugin.doctor.finding import Finding, fail, ok, warn
from slurm_plugin.slurm.interface import SlurmPartition
from slurm_plugin.speed_models.database import Database

_NAME = "genie"


def findings(
    settings: GenieConfig,
    partitions: Sequence[SlurmPartition],
    slurm_config: Mapping[str, str],
) -> Iterator[Finding]:
    """Everything that keeps shapes or order from working."""
    known = {partition.name: set(partition.nodes) for partition in partitions}
    for name, rule in settings.partitions.items():
        nodes = known.get(name)
        if nodes is None:
            yield fail(_NAME, f"{name} is no partition of Slurm", "fix genie.partitions")
        elif nodes != set(rule.nodes):
            other = ", ".join(sorted(nodes ^ set(rule.nodes))[:5])
            problem = f"{name}: Slurm's nodes and genie.partitions.{name}.nodes differ in {other}"
            yield fail(_NAME, problem, "name the partition's nodes, all of one kind")
        else:
            yield ok(_NAME, f"{name}: {len(nodes)} nodes, classes {', '.join(rule.classes)}")
    priority = slurm_config.get("PriorityType", "")
    if "multifactor" not in priority:
        problem = f"the queue's order is not kept: PriorityType is {priority or 'not known'}"
        yield warn(_NAME, problem, "PriorityType=priority/multifactor")
    count = len(Database(settings.database).all())
    if count:
        yield ok(_NAME, f"{settings.database}: {count} profiles")
    else:
        yield warn(_NAME, f"{settings.database}: no profiles", "gputopo profile fit FILE")
