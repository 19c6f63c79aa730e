"""`gputopo simulate`: what each policy would have done with the jobs of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli import files
from slurm_plugin.cli.options import IN_FILE, OUT_FILE, json_option, number_option

if TYPE_CHECKING:
    from gres_topology import Network, NodeTopology
    from policies.order.passing import Reckoned
    from simulation.core.queue_order import PassingQueue
    from simulation.core.record import SimulatedRun
    from simulation.core.slurm_site import SlurmSite
    from simulation.report.output import Report
    from simulation.traces import Trace
    from slurm_plugin.config.settings import Config

#: Rejected rows named on the screen; the HTML and JSON name all.
NAMED = 5


@click.command()
@click.option(
    "--trace",
    "log",
    required=True,
    type=IN_FILE,
    metavar="FILE",
    help="Job log: CSV, SWF, sacct --json or --parsable2, TOPO-AWARE JSON; also .gz.",
)
@click.option(
    "--cluster",
    "nodes",
    required=True,
    type=IN_FILE,
    metavar="YAML",
    help="Nodes and their topologies; gputopo.yaml will do.",
)
@click.option(
    "--policy",
    "names",
    multiple=True,
    metavar="NAME",
    help="Repeat for each policy; `stock` is Slurm itself.",
)
@click.option(
    "--queue",
    type=click.Choice(["easy", "fifo"]),
    default="easy",
    show_default=True,
    help="Backfill, or strictly first in, first out.",
)
@click.option(
    "--order",
    type=click.Choice(["arrival", "predicted"]),
    default="arrival",
    show_default=True,
    help="Shorter predicted work passes within a bound of ten minutes (predicted).",
)
@click.option(
    "--reckon",
    type=click.Choice(["limits", "predictions"]),
    default="limits",
    show_default=True,
    help="What passing jobs are taken to need: their limits, or what such jobs took.",
)
@click.option(
    "--slurm-conf",
    type=IN_FILE,
    metavar="FILE",
    help="Queue, CPUs, memory, partitions and limits as this slurm.conf has them.",
)
@number_option(
    "--communication", 0, 1, 0.0, "Part of a job's time that grows as its bandwidth shrinks."
)
@click.option("--skip-days", type=click.FloatRange(0), default=0.0, help="Leave out a beginning.")
@click.option(
    "--load",
    type=click.FloatRange(0, 20, min_open=True),
    help="Let jobs arrive faster or slower: their GPU time over the cluster's.",
)
@click.option("--jobs", "most", type=click.IntRange(1), help="Only the first ones.")
@click.option("--html", type=OUT_FILE, help="Write a report with pictures.")
@click.option("--csv", "csv_file", type=OUT_FILE, help="Write one line per policy and job.")
@json_option
def simulate(
    log: Path,
    nodes: Path,
    names: tuple[str, ...],
    queue: str,
    order: str,
    reckon: Reckoned,
    slurm_conf: Path | None,
    communication: float,
    skip_days: float,
    load: float | None,
    most: int | None,
    html: Path | None,
    csv_file: Path | None,
    as_json: bool,
) -> None:
    """Replay a job log on a virtual cluster under one or more policies.

    Answers "what would each policy have done with my jobs". Durations are the log's own
    unless --communication says that a part of them depends on the GPUs a job gets.

    \b
      gputopo simulate --trace jobs.json --cluster gputopo.yaml --html report.html
    """
    from policies.registry import DEFAULT
    from simulation.core.jobs import at_load
    from simulation.errors import SimulationError
    from simulation.report import output
    from simulation.report.page import to_html
    from simulation.traces import prepare, read
    from slurm_plugin.config import settings

    files.require_folder(html)
    files.require_folder(csv_file)
    cluster = cluster_of(settings.load(nodes, only=("nodes", "state_dir"), writes=False))
    if not cluster:
        raise SimulationError(
            f"{nodes}: no list `nodes`; expected nodes: [{{nodes: dgx[1-4], topology: dgx1v}}]"
        )
    trace = prepare(read(log), cluster, skip_days, most)
    if load is not None and trace.jobs:
        trace.jobs = at_load(trace.jobs, sum(kind.gpus for kind in cluster.values()), load)
    policies = names or ("stock", DEFAULT)
    site = _site(slurm_conf)
    passing = _passing(trace, policies, reckon, site) if order == "predicted" else {}
    runs = runs_of(
        trace, cluster, _network(nodes), policies, site or queue == "easy", communication, passing
    )
    facts = {
        "queue": queue if site is None else str(slurm_conf),
        "order": f"{order} by {reckon}" if passing else order,
        "communication": communication,
        "load": load or "as recorded",
    }
    report = output.Report(runs, cluster, trace, facts)
    if html is not None:
        files.write(html, to_html(report))
    if csv_file is not None:
        files.write(csv_file, output.to_csv(runs))
    if as_json:
        click.echo(output.to_json(report))
    else:
        show(report)
        for rule in list(passing.values())[-1:]:
            click.echo(f"\n{_said_of(rule)}")


def _passing(
    trace: Trace, names: tuple[str, ...], reckon: Reckoned, site: SlurmSite | None
) -> dict[str, PassingQueue]:
    """Who passes whom, for each policy's own run."""
    from policies.order.passing import Passing
    from simulation.core.queue_order import PassingQueue

    if site is not None:
        raise click.UsageError("--order predicted is not simulated under a --slurm-conf")
    if reckon == "limits" and all(job.walltime_s is None for job in trace.jobs):
        click.echo("no job of the log has a time limit, so none passes; see --reckon", err=True)
    return {name: PassingQueue(Passing(by=reckon)) for name in names}


def _said_of(passing: PassingQueue) -> str:
    """How far what was predicted at the submits was off."""
    errors = passing.rule.learning.durations.errors
    ratio = errors.median_ratio()
    if ratio is None:
        return "Run times: no job ended of which any was predicted."
    within = ", ".join(
        f"{100 * part:.0f} % within the {100 * share:.0f} % quantile"
        for share, part in errors.coverage().items()
    )
    return (
        f"Run times as predicted at {errors.jobs} submits: half were off by at most a factor of"
        f" {ratio:.2g}; {within}."
    )


def cluster_of(config: Config) -> dict[str, NodeTopology]:
    """Node name -> topology, by what a configuration declares; it reads `nodes` and `state_dir`.

    Nodes that are not known yet are left out, and a line says so.
    """
    from gres_topology import find
    from slurm_plugin.config.sections import COLLECTED
    from slurm_plugin.decide.load_machines import node_sets
    from slurm_plugin.learn.collected import Store

    cluster: dict[str, NodeTopology] = {}
    path, store = config.path, Store(config.state_dir)
    for node_set in node_sets(config):
        if not node_set.nodes:
            left = f"no node is known with {node_set.features}; name them in a host list"
            click.echo(f"{path}:{node_set.line}: {left}", err=True)
        elif node_set.slices:
            left = f"{len(node_set.nodes)} nodes are left out: slices are not simulated"
            click.echo(f"{path}:{node_set.line}: {left}", err=True)
        elif node_set.topology == COLLECTED:
            records = store.nodes()
            known = {name: records[name].accepted for name in node_set.nodes if name in records}
            cluster |= {name: store.topology(key) for name, key in known.items()}
            if missing := len(node_set.nodes) - len(known):
                left = f"{missing} nodes are left out until gputopo topology collect has asked them"
                click.echo(f"{path}:{node_set.line}: {left}", err=True)
        else:
            beside = path.parent / node_set.topology
            topology = find(str(beside) if beside.is_file() else node_set.topology)
            cluster |= dict.fromkeys(node_set.nodes, topology)
    return cluster


def _network(path: Path) -> Network | None:
    """The network that the key `topology_conf` names; None where its file is on another machine."""
    from gres_topology.slurm_files import networks
    from slurm_plugin.config.settings import load

    named = load(path, only=("topology_conf",), writes=False).topology_conf
    if named is None:
        return None
    beside = path.parent / named
    if not beside.is_file():
        click.echo(f"{beside}: not there; all nodes are alike", err=True)
        return None
    return networks.read(beside).default


def _site(path: Path | None) -> SlurmSite | None:
    """What slurm.conf says; None where none is named."""
    from simulation.core import slurm_site

    site = None if path is None else slurm_site.read(path)
    if site and site.passed_over:
        words = ", ".join(site.passed_over)
        click.echo(f"{path}: not modelled of SchedulerParameters: {words}", err=True)
    return site


def runs_of(
    trace: Trace,
    cluster: dict[str, NodeTopology],
    network: Network | None,
    names: tuple[str, ...],
    queue: SlurmSite | bool,
    part: float,
    passing: dict[str, PassingQueue],
) -> list[SimulatedRun]:
    """One run for each policy; `queue` is a site's slurm.conf, or whether backfill is EASY."""
    from simulation.core.steps import each
    from simulation.errors import SimulationError
    from simulation.models.placing import Simulator
    from simulation.models.slurm import SlurmSimulator
    from simulation.models.speed import ByBandwidth, Speed
    from simulation.report import output
    from simulation.stock import policy_named
    from slurm_plugin.cli.progress import watching
    from slurm_plugin.config.settings import load_policies

    load_policies()
    if not trace.jobs:
        reasons = [f"{row.where}: {row.reason}" for row in trace.rejected[:NAMED]]
        reasons += output.left_out_by_kind(trace)
        why = "; ".join(reasons) or "it has none"
        raise SimulationError(f"{trace.source}: no job can be simulated ({why})")
    policies = {name: policy_named(name) for name in names}
    speed: Speed = ByBandwidth(part) if part else Speed()
    runs = []
    with watching("simulating"):
        for name in each(list(policies)):
            policy, passes = policies[name], passing.get(name)
            simulator = (
                Simulator(cluster, policy, speed, easy=queue, network=network, passing=passes)
                if isinstance(queue, bool)
                else SlurmSimulator(cluster, policy, queue, speed, network=network)
            )
            runs.append(simulator.run(trace.jobs))
    return runs


def show(report: Report) -> None:
    """The table of a simulation and what it says, on the screen."""
    from textwrap import fill

    from simulation.report import output
    from simulation.report.recommendation import recommendation
    from slurm_plugin.cli import tables

    trace, nodes = report.trace, len(report.cluster)
    click.echo(f"{len(trace.jobs)} jobs on {nodes} nodes, {report.gpus} GPUs ({trace.format})")
    for line in output.left_out(trace):
        click.echo(f"  {line}")
    for row in trace.rejected[:NAMED]:
        click.echo(f"    {row.where}: {row.reason}")
    if len(trace.rejected) > NAMED:
        click.echo(f"    ... {len(trace.rejected) - NAMED} more; --json and --html name all")
    every = output.table(report.runs, report.cluster)
    head, *rows = output.first_columns(every, report.facts)
    # One column per policy: figures of one kind are compared along a line.
    columns = [[heading, *(row[at] for row in rows)] for at, heading in enumerate(head) if at]
    table = tables.plain(["", *(row[0] for row in rows)], columns, numbers=True)
    tables.show(table, 30 + 20 * len(rows))
    click.echo(f"({len(every[0]) - len(head)} more figures: --html, --json)")
    if said := output.beside_the_log(report):
        click.echo(f"\n{fill(said, 100)}")
    click.echo(f"\n{fill(recommendation(report.runs, report.cluster, report.facts), 100)}")
