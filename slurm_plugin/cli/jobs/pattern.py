"""`gputopo pattern`: look at an application's pattern before jobs ask for it."""

from __future__ import annotations

from pathlib import Path

import click

from slurm_plugin.cli.groups import CommandGroup
from slurm_plugin.cli.options import IN_FILE, json_option


@click.group(cls=CommandGroup)
def pattern() -> None:
    """Show an application's pattern in a file: edges, NCCL's graphs or NVLink's counters."""


@pattern.command()
@click.argument("file", type=IN_FILE)
@click.option("--edges", "as_edges", is_flag=True, help="Print it as an edge list, to be kept.")
@json_option
def show(file: Path, as_edges: bool, as_json: bool) -> None:
    """Show the pattern in FILE: which ranks talk to which.

    FILE is an edge list (0 1 per line), what NCCL writes with NCCL_GRAPH_DUMP_FILE, or NVLink
    traffic: the output of nvidia-smi nvlink -R, then of nvidia-smi nvlink -gt d before and after
    a run. Ranks are the GPUs in the order of their numbers.
    """
    import json

    from policies.patterns import graph_file
    from slurm_plugin.config import pattern_file

    if as_edges and as_json:
        raise click.UsageError("--edges: cannot go with --json; expected one of them")
    graph = pattern_file.read(file)
    same = graph_file.same_as(graph)
    if as_edges:
        click.echo(graph_file.edge_list(graph))
        return
    if as_json:
        facts = {"kind": graph.kind, "ranks": graph.ranks, "edges": graph.edges}
        click.echo(json.dumps(facts | {"gpus": graph.labels, "same_as": same}))
        return
    click.echo(f"{file}: {graph.kind}, {graph.ranks} ranks, {len(graph.edges)} edges")
    click.echo(" ".join(f"{a}-{b}" for a, b in graph.edges))
    if graph.labels != tuple(range(graph.ranks)):
        click.echo(f"ranks 0 to {graph.ranks - 1} are GPUs {', '.join(map(str, graph.labels))}")
    if same:
        click.echo(f"the same as pattern={same} for {graph.ranks} GPUs")
