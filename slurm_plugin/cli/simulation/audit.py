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
    from policies.registry import DEFAULT
    from simulation.report import output
    from simulation.report.page import to_html
    from simulation.traces import prepare
    from slurm_plugin.cli import Fault
    from slurm_plugin.cli.simulation import simulate
    from slurm_plugin.config import settings
    from slurm_plugin.queue.snapshot import read_snapshot
    from slurm_plugin.slurm.clients.command_line import SlurmClient
    from slurm_plugin.slurm.runner import ProcessRunner

    config = settings.in_force(config_path) if config_path.exists() else None
    run = ProcessRunner(config.slurm.bin_dir if config else None, shows_all=True)
    snapshot = read_snapshot(SlurmClient(run))
    now = _now(snapshot, run)
    has_nodes = config is not None and bool(config.nodes)
    cluster = simulate.cluster_of(config_path) if has_nodes else {}
    machines = _add_undeclared(cluster, snapshot.nodes, _named(said))
    if not cluster:
        raise Fault("Slurm has no node with whole GPUs (GresTypes and Gres= in slurm.conf)")
    lines = [*now.lines(), *machines]
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
    #: Cause -> how many jobs wait for it, and one of their sentences.
    causes: Mapping[str, tuple[int, str]]

    def lines(self) -> list[str]:
        """In words."""
        gpus, waiting = self.fragmentation, sum(count for count, _ in self.causes.values())
        lines = [
            f"Now: of {gpus.total} GPUs {gpus.free} are free, and {gpus.stranded} of those are"
            " stranded: no job that waits, or mostly runs here, can use what is free on their"
            f" nodes. {self.running} jobs with GPUs run, and {waiting} wait:"
        ]
        if not waiting:
            lines[0] = f"{lines[0][: -len(':')]}."
        for cause, (count, sentence) in self.causes.items():
            lines.append(f"  {count:>4}  {cause}, such as: {sentence}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """In figures."""
        gpus = self.fragmentation
        causes = {cause: count for cause, (count, _) in self.causes.items()}
        figures = {"gpus": gpus.total, "free": gpus.free, "stranded": gpus.stranded}
        return {**figures, "running": self.running, "waiting": causes}


def _now(snapshot: Snapshot, run: Runner) -> _Now:
    from slurm_plugin.slurm.interface import QueuedJob
    from slurm_plugin.tell.web.reasons import Reasons
    from slurm_plugin.tell.why.reading import ExtrasReader, Reading
    from slurm_plugin.tell.why.site import fragmentation_now, site_of
    from slurm_plugin.tell.why.state import WaitingState

    reasons = Reasons(None)
    reasons.look(Reading(snapshot, ExtrasReader(run)(snapshot)), LOOK_S)
    wanting = {job.job_id for job in snapshot.jobs if any("gpu" in text for text in job.requests)}
    said = [reason for job, reason in reasons.said.items() if job in wanting]
    counts = Counter(reason.cause for reason in said)
    examples = {reason.cause: reason.sentence for reason in said}
    # So short a job sees the nodes as they are now.
    site = site_of(WaitingState(QueuedJob(0, time_limit_s=1), snapshot))
    running = sum(bool(job.gpus) and job.state != "PENDING" for job in snapshot.jobs)
    return _Now(
        fragmentation_now(snapshot, site),
        running,
        {cause: (count, examples[cause]) for cause, count in counts.most_common()},
    )


def _named(said: tuple[str, ...]) -> dict[str, NodeTopology]:
    """GRES type -> machine, as --machine has it."""
    from gres_topology import find

    pairs = [word.partition("=") for word in said]
    if wrong := [f"{name}{sign}{value}" for name, sign, value in pairs if not (name and value)]:
        raise click.UsageError(f"--machine {wrong[0]!r}: expected TYPE=NAME, as in a100=dgx-a100")
    return {name.lower(): find(value) for name, _, value in pairs}


def _add_undeclared(
    cluster: dict[str, NodeTopology],
    nodes: tuple[SlurmNode, ...],
    named: Mapping[str, NodeTopology],
) -> list[str]:
    """The machines of all other nodes, by the GRES types of their GPUs; what is taken for what."""
    from slurm_plugin.enabling.first_file import label, models_on

    kinds: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for node in nodes:
        if node.gpu_count and node.name not in cluster:
            kinds.setdefault(tuple(sorted(models_on(node).items())), []).append(node.name)
    lines = []
    for kind, names in kinds.items():
        what, machine = _machine(dict(kind), named)
        if machine is not None:
            cluster |= dict.fromkeys(names, machine)
        lines.append(f"{label(len(names), kind)}: {what}.")
    return lines


def _machine(
    gpus: Mapping[str, int], named: Mapping[str, NodeTopology]
) -> tuple[str, NodeTopology | None]:
    """What such a node is taken for, in words, and as a machine; None where it is left out."""
    from gres_topology import catalog
    from gres_topology.catalog import declared
    from gres_topology.slices import profile_of
    from slurm_plugin.cli import Fault
    from slurm_plugin.enabling.first_file import machines_with

    if any(profile_of(gres_type) for gres_type in gpus):
        return "left out, as slices are not simulated", None
    count = sum(gpus.values())
    if len(gpus) == 1 and (machine := named.get(next(iter(gpus)).lower())) is not None:
        if machine.gpus != count:
            raise Fault(f"--machine: {machine.name} has {machine.gpus} GPUs, the nodes {count}")
        return f"{machine.name}, as you say", machine
    found = machines_with(gpus)
    if len(found) == 1:
        [name] = found
        return f"taken for {name}, the only machine of the catalog with these", catalog.load(name)
    if found:
        kind = next(iter(gpus))
        raise Fault(
            f"nodes with {count} GPUs of type {kind} can be {' or '.join(found)}: say which"
            f" (--machine {kind}={found[0]})"
        )
    plain = declared.read(
        f"gpus: {count}\nother_links: SYS\nrates: {{pcie: 4}}\n",
        name="links not known",
        source="gputopo audit",
    )
    return "links not known, so all are taken to be alike (--machine says otherwise)", plain


def _log(run: Runner, days: int) -> Trace:
    """The jobs with GPUs that ended lately, as far as Slurm shows them to who asks."""
    from simulation.traces import sacct
    from slurm_plugin.cli import Fault
    from slurm_plugin.errors import SlurmError

    argv = [*sacct.COMMAND.split(), "--starttime", f"now-{days}days", "--endtime", "now"]
    try:
        return sacct.from_parsable("sacct", run(argv, timeout_s=SACCT_S))
    except SlurmError as error:
        raise Fault(f"{error}; past jobs are known by Slurm's accounting alone") from None


def _whose(trace: Trace) -> str:
    """Of how many users the log has jobs: Slurm may show people their own alone."""
    users = len({job.user for job in trace.jobs})
    if users == 1:
        return "one user's; where Slurm hides others' jobs from you (PrivateData), ask an operator"
    return f"those of {users} users"
