"""`gputopo audit`: what the GPUs of a site do, and what other placements would have brought."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from slurm_plugin.cli import files
from slurm_plugin.cli.options import OUT_FILE, config_option, json_option

if TYPE_CHECKING:
    from gres_topology import NodeTopology
    from policies.fragmentation import Fragmentation
    from simulation.traces import Trace
    from slurm_plugin.queue.snapshot import Snapshot
    from slurm_plugin.slurm.interface import SlurmNode
    from slurm_plugin.slurm.runner import Runner

#: What Slurm calls GPUs without a type.
UNTYPED = "gpu"
#: Seconds that sacct may take, and that the look at the waiting jobs may take.
SACCT_S, LOOK_S = 600.0, 20.0


@click.command()
@config_option
@click.option(
    "--days",
    type=click.IntRange(1, 366),
    default=14,
    show_default=True,
    help="Look at the jobs of so many days.",
)
@click.option(
    "--machine",
    "said",
    multiple=True,
    metavar="TYPE=NAME",
    help="What nodes with GPUs of this GRES type are: a name of gputopo topology list, or a file."
    " Repeat for each.",
)
@click.option("--html", type=OUT_FILE, help="Write a page with pictures.")
@json_option
def audit(
    config_path: Path, days: int, said: tuple[str, ...], html: Path | None, as_json: bool
) -> None:
    """Say what GPUs do here now, why jobs wait, and what other placements would have brought.

    Needs nothing of ours in Slurm and no rights: it asks scontrol, squeue and sacct as whoever
    calls it. Nothing is written but --html, and nothing is sent anywhere.

    Slurm does not keep which GPUs past jobs had. So the jobs of the last days are simulated, under
    a model of stock Slurm and under the default policy.
    """
    from gres_topology import NodeTopology, TopologyError
    from policies.registry import DEFAULT
    from simulation.report import output
    from simulation.report.page import to_html
    from simulation.traces import prepare
    from slurm_plugin.cli import Fault, printable
    from slurm_plugin.cli.simulation import simulate
    from slurm_plugin.config import settings
    from slurm_plugin.enabling.first_file import has_slices
    from slurm_plugin.errors import PluginError
    from slurm_plugin.queue.snapshot import read_snapshot
    from slurm_plugin.slurm.clients.command_line import SlurmClient
    from slurm_plugin.slurm.runner import ProcessRunner

    files.require_folder(html)
    config, declared = None, dict[str, NodeTopology]()
    try:
        config = settings.in_force_if_any(config_path)
        if config is not None and config.nodes:
            declared = simulate.cluster_of(config)
    except (PluginError, TopologyError) as error:
        click.echo(printable(f"note: {' '.join(str(error).split())}"), err=True)
    run = ProcessRunner(config.slurm.bin_dir if config else None, shows_all=True)
    snapshot = read_snapshot(SlurmClient(run))
    now = _now(snapshot, run)
    there = {node.name for node in snapshot.nodes if node.gpu_count and not has_slices(node.gpus)}
    cluster = {name: machine for name, machine in declared.items() if name in there}
    machines = _add_undeclared(cluster, snapshot.nodes, _named(said))
    if not cluster:
        raise Fault("Slurm shows you no node with whole GPUs (GresTypes, Gres=, PrivateData)")
    lines = [printable(line) for line in (*now.lines(), *machines)]
    if not as_json:
        click.echo("\n".join([*lines, ""]))
    trace = prepare(_log(run, days), cluster)
    lines.append(f"The jobs of the last {days} days are {_whose(trace)}.")
    networks, policies = snapshot.settings.networks, ("stock", DEFAULT)
    network = networks.default if networks else None
    runs = simulate.runs_of(trace, cluster, network, policies, True, 0.0, {})
    report = output.Report(runs, cluster, trace, {"queue": "easy", "communication": 0.0})
    if html is not None:
        files.write(html, to_html(report, lines))
    if as_json:
        log = json.loads(output.to_json(report))
        click.echo(json.dumps({"now": now.as_json(), "said": lines, **log}, indent=2))
    else:
        click.echo(lines[-1])
        simulate.show(report)


class _Now(NamedTuple):
    """What Slurm says at this moment."""

    fragmentation: Fragmentation
    running: int
    waiting: int
    #: Cause -> how many jobs wait for it, and one of their sentences.
    causes: Mapping[str, tuple[int, str]]
    #: Slurm hides other users' jobs from who asks.
    hides_jobs: bool

    def lines(self) -> list[str]:
        """The same as lines of text."""
        gpus = self.fragmentation
        lines = [
            f"Now: of {gpus.total} GPUs {gpus.free} are free, and {gpus.stranded} of those are"
            " stranded: no job that waits, or mostly runs here, can use what is free on their"
            f" nodes. {self.running} jobs with GPUs run, and {self.waiting} wait."
        ]
        if self.hides_jobs:
            lines.append("Slurm hides other users' jobs from you (PrivateData): ask an operator.")
        looked_at = sum(count for count, _ in self.causes.values())
        if looked_at:
            lines.append(f"What {looked_at} of them wait for:")
        for cause, (count, sentence) in self.causes.items():
            lines.append(f"  {count:>4}  {cause}, such as: {sentence}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        gpus = self.fragmentation
        causes = {cause: count for cause, (count, _) in self.causes.items()}
        figures = {"gpus": gpus.total, "free": gpus.free, "stranded": gpus.stranded}
        return {**figures, "running": self.running, "waiting": self.waiting, "causes": causes}


def _now(snapshot: Snapshot, run: Runner) -> _Now:
    import os

    from slurm_plugin.serve.site_figures import figures_of
    from slurm_plugin.tell.explain import slurm_says
    from slurm_plugin.tell.web.reasons import Reasons
    from slurm_plugin.tell.why.reading import ExtrasReader, Reading

    reasons = Reasons(None)
    reasons.look(Reading(snapshot, ExtrasReader(run)(snapshot)), LOOK_S)
    wanting = {
        job.job_id: job.tasks
        for job in snapshot.jobs
        if job.state == "PENDING" and any("gpu" in text for text in job.requests)
    }
    counts, examples = Counter[str](), dict[str, str]()
    for job_id, reason in reasons.said.items():
        if job_id in wanting:
            counts[reason.cause] += wanting[job_id]
            examples[reason.cause] = reason.sentence
    figures = figures_of(snapshot)
    return _Now(
        figures.fragmentation,
        figures.jobs["running"],
        figures.jobs["waiting"],
        {cause: (count, examples[cause]) for cause, count in counts.most_common()},
        snapshot.settings.hides_jobs and os.getuid() not in slurm_says.operators(run),
    )


def _named(said: tuple[str, ...]) -> list[tuple[str, NodeTopology]]:
    """GRES type and machine, as each --machine has it."""
    from gres_topology import find

    pairs = [word.partition("=") for word in said]
    if wrong := [f"{name}{sign}{value}" for name, sign, value in pairs if not (name and value)]:
        raise click.UsageError(f"--machine {wrong[0]!r}: expected TYPE=NAME, as in a100=dgx-a100")
    return [(name.lower(), find(value)) for name, _, value in pairs]


def _add_undeclared(
    cluster: dict[str, NodeTopology],
    nodes: tuple[SlurmNode, ...],
    named: list[tuple[str, NodeTopology]],
) -> list[str]:
    """The machines of all other nodes, by the GRES types of their GPUs; what is taken for what."""
    from slurm_plugin.enabling.first_file import label, models_on

    kinds: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for node in nodes:
        if node.gpu_count and node.name not in cluster:
            kinds.setdefault(tuple(sorted(models_on(node).items())), []).append(node.name)
    sizes = {((kind[0][0] or UNTYPED).lower(), kind[0][1]) for kind in kinds if len(kind) == 1}
    if wrong := [(name, one) for name, one in named if (name, one.gpus) not in sizes]:
        name, other = wrong[0]
        there = ", ".join(f"{count} x {kind}" for kind, count in sorted(sizes)) or "none"
        raise click.UsageError(
            f"--machine {name}={other.name}: no node that is not declared has {other.gpus} such"
            f" GPUs; there are {there}"
        )
    lines = []
    for kind, names in kinds.items():
        what, machine = _machine(dict(kind), named)
        if machine is not None:
            cluster |= dict.fromkeys(names, machine)
        lines.append(f"{label(len(names), kind)}: {what}.")
    return lines


def _machine(
    gpus: Mapping[str, int], named: list[tuple[str, NodeTopology]]
) -> tuple[str, NodeTopology | None]:
    """What such a node is taken for, in words, and as a machine; None where it is left out."""
    from gres_topology import catalog
    from gres_topology.catalog import declared
    from slurm_plugin.cli import Fault
    from slurm_plugin.enabling.first_file import has_slices, is_uniform, machines_with

    if has_slices(gpus):
        return "left out, as slices are not simulated", None
    count, kind = sum(gpus.values()), next(iter(gpus)) or UNTYPED
    for name, machine in named if len(gpus) == 1 else ():
        if (name, machine.gpus) == (kind.lower(), count):
            return f"{machine.name}, as you say", machine
    found = machines_with(gpus)
    if len(found) == 1 and is_uniform(catalog.load(found[0])):
        [name] = found
        return f"taken for {name}, the only machine of the catalog with these", catalog.load(name)
    if found:
        raise Fault(
            f"nodes with {count} GPUs of type {kind}: say which machine they are, as in"
            f" --machine {kind}={' or '.join(found)}; a file may have the output of nvidia-smi topo"
            " -m, too"
        )
    plain = declared.read(
        f"gpus: {count}\nother_links: SYS\nrates: {{pcie: 4}}\n",
        name="links not known",
        source="gputopo audit",
    )
    advice = f" (--machine {kind}=FILE says otherwise)" if len(gpus) == 1 else ""
    return f"links not known, so all are taken to be alike{advice}", plain


def _log(run: Runner, days: int) -> Trace:
    """The jobs with GPUs that began to wait and ended in these days, as Slurm shows them."""
    import time

    from simulation.traces import sacct
    from slurm_plugin.cli import Fault
    from slurm_plugin.errors import SlurmError

    argv = [*sacct.COMMAND.split(), "--starttime", f"now-{days}days", "--endtime", "now"]
    try:
        trace = sacct.from_parsable("sacct", run(argv, timeout_s=SACCT_S))
    except SlurmError as error:
        raise Fault(f"{error}; past jobs are known by Slurm's accounting alone") from None
    since = time.time() - 86_400 * days
    jobs, trace.jobs = trace.jobs, []
    for job in jobs:
        if job.submit_s < since:
            trace.leave_out("waited before these days")
        else:
            trace.jobs.append(job)
    return trace


def _whose(trace: Trace) -> str:
    """Of how many users the log has jobs: Slurm may show people their own alone."""
    users = len({job.user for job in trace.jobs})
    if users == 1:
        return "one user's; where Slurm hides others' jobs from you (PrivateData), ask an operator"
    return f"those of {users} users"
