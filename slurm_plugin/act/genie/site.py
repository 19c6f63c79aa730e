"""The partitions where jobs are shaped, and how a hint becomes a Task of the scheduler.

Made of one configuration; only the models are read again when their file has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from policies.contract.scheduling import Platform, Task
from policies.errors import HintError
from policies.genie.submit import ShapingRequest, read, task_of
from policies.genie.tasks import TaskMaker
from policies.performance import Shape
from slurm_plugin.act.genie.models import ModelFile
from slurm_plugin.base.job_notes.shape import ShapeNote
from slurm_plugin.config.genie import GenieConfig, GenieRule
from slurm_plugin.decide.machines import UNDECLARED, Machines
from slurm_plugin.errors import ConfigError


@dataclass(slots=True)
class ShapedPartition:
    """One partition whose jobs are shaped: its nodes as a platform, and what makes its tasks."""

    name: str
    rule: GenieRule
    platform: Platform
    maker: TaskMaker


@dataclass(slots=True)
class ShapingSite:
    """All shaped partitions. `refresh` is called before the first use, and now and then."""

    config: GenieConfig
    shelf: ModelFile
    domains: Mapping[str, ShapedPartition] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the models again where they changed."""
        if self.shelf.refresh():
            for domain in self.domains.values():
                domain.maker = TaskMaker(domain.platform, self.shelf.models)

    def domain(self, partition: str) -> ShapedPartition:
        """The domain of a job's partition; HintError where its jobs are not shaped."""
        domain = self.domains.get(partition)
        if domain is None:
            known = ", ".join(self.domains) or "none: see `genie` in gputopo.yaml"
            raise HintError(
                f"policy: genie does not shape the jobs of partition {partition or '(default)'};"
                f" expected one of {known}"
            )
        return domain

    def task(
        self,
        job_id: int,
        values: Mapping[str, str],
        domain: ShapedPartition,
        account: str,
        said: ShapeNote,
        now_s: float,
    ) -> tuple[ShapingRequest, Task]:
        """What a hint asks for, and the job as the scheduler sees it; HintError with one line.

        `said` is what the user fixed beside the hint, `now_s` when the job was submitted.
        """
        personal = self.config.accounts.get(account)
        classes = personal.classes if personal else domain.rule.classes
        asked = read(values, now_s, tuple(classes), shapes_of(domain, said))
        return asked, task_of(job_id, asked, domain.maker, now_s, classes)

    def note(self, asked: ShapingRequest) -> str:
        """Which profile stands in for the job's, in a sentence; empty where it has its own."""
        match = self.shelf.models.match((asked.work.profile, asked.work.task))
        return match.note if match else ""


def shapes_of(domain: ShapedPartition, said: ShapeNote) -> tuple[Shape, ...]:
    """The shapes that site and user leave, () for all of them; HintError where there are none."""
    platform, rule = domain.platform, domain.rule
    if said.is_fixed:
        if said.shape is None or said.shape not in platform.shapes:
            raise HintError(
                f"shape: {said.shape} is not one of partition {domain.name}; expected at most"
                f" {platform.shapes[-1]}"
            )
        return (said.shape,)
    least, most = max(said.nodes, 1), said.max_nodes or said.nodes or platform.nodes
    if said.tasks and said.tasks_per_node:
        least = most = -(-said.tasks // said.tasks_per_node)
    shapes = tuple(
        shape
        for shape in platform.shapes
        if least <= shape.nodes <= min(most, rule.max_nodes or most)
        and shape.gpus_per_node <= (rule.max_gpus_per_node or platform.gpus_per_node)
        and (not said.tasks or said.tasks_per_node or shape.gpus == said.tasks)
    )
    if not shapes:
        limit = Shape(
            rule.max_nodes or platform.nodes, rule.max_gpus_per_node or platform.gpus_per_node
        )
        given = [f"{said.tasks} tasks"] if said.tasks else []
        given += [f"{said.nodes} nodes"] if said.nodes else []
        raise HintError(
            f"shape: none has {' and '.join(given)}; expected at most {limit}, and as many GPUs as"
            " tasks where -n is given"
        )
    return () if len(shapes) == len(platform.shapes) else shapes


def site_of(config: GenieConfig, machines: Machines, where: str) -> ShapingSite:
    """The site of a configuration; ConfigError for nodes that are not alike or not declared.

    `where` is the file, for messages.
    """
    shelf = ModelFile(config.database)
    shelf.refresh()
    domains = {}
    for name, rule in config.partitions.items():
        topologies = {node: machines.get(node, UNDECLARED).topology for node in rule.nodes}
        sizes = {topology.gpus for topology in topologies.values() if topology is not None}
        unknown = [node for node in rule.nodes if node not in machines]
        place = f"{where}:{rule.line}: genie.partitions.{name}.nodes"
        if unknown:
            raise ConfigError(f"{place}: {unknown[0]} is not declared; expected nodes of `nodes`")
        if len(sizes) > 1:
            counts = ", ".join(map(str, sorted(sizes)))
            raise ConfigError(f"{place}: nodes of {counts} GPUs; expected nodes of one kind")
        if sizes:
            platform = Platform(len(rule.nodes), sizes.pop())
            domains[name] = ShapedPartition(name, rule, platform, TaskMaker(platform, shelf.models))
    return ShapingSite(config, shelf, domains)
