"""`gputopo topology`: look at machines, compare them, write their gres.conf."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from slurm_plugin.cli.groups import CommandGroup
from slurm_plugin.cli.machines.collect import collect
from slurm_plugin.cli.machines.mark import mark, marks_, unmark
from slurm_plugin.cli.options import json_option, numa_option, plot_option, with_numa

if TYPE_CHECKING:
    from rich.console import Console

    from gres_topology import NodeTopology


@click.group(cls=CommandGroup)
def topology() -> None:
    """Show machines, read the hardware of real nodes, and write gres.conf."""


for command in (collect, mark, unmark, marks_):
    topology.add_command(command)


@topology.command(name="list")
@json_option
def list_(as_json: bool) -> None:
    """List the machines of the catalog."""
    from gres_topology import catalog

    nodes = {name: catalog.load(name) for name in catalog.names()}
    if as_json:
        rows = [{"name": n, "gpus": node.gpus, "model": node.model} for n, node in nodes.items()]
        click.echo(json.dumps(rows))
        return
    width = max(map(len, nodes))
    for name, node in nodes.items():
        click.echo(f"{name:<{width}}  {node.gpus:>2} x {node.model}")


@topology.command()
@click.argument("machine", metavar="NAME|FILE")
@json_option
@plot_option()
@numa_option
def show(machine: str, as_json: bool, plot: Path | None, numa_file: Path | None) -> None:
    """Show a machine of the catalog or the topology in a file.

    FILE may hold the output of nvidia-smi topo -m, rocm-smi --showtopo, lstopo --of xml or
    numactl --hardware, an NCCL or RCCL topology XML, or a machine declared in YAML.
    """
    from gres_topology import find
    from gres_topology.readers import saved

    node = with_numa(find(machine), numa_file)
    if plot is not None:
        from gres_topology.pictures import machine_picture, write

        write(machine_picture(node), plot)
    if as_json:
        click.echo(json.dumps(saved.to_dict(node)))
    else:
        _print(node)


@topology.command(name="gres-conf")
@click.argument("machine", metavar="NAME|FILE")
@click.argument("nodes")
@click.option(
    "--device",
    "device_pattern",
    default="/dev/nvidia{minor}",
    show_default=True,
    help="Device file of each GPU: {minor} and {index} stand for numbers.",
)
@click.option("--type", "gpu_type", help="GRES type (default: from the model).")
@click.option("--cores/--no-cores", "with_cores", default=True, help="Write Cores=, or not.")
@click.option(
    "--slots", is_flag=True, help="One GRES type per GPU (v100.s0, ...), for enforcement: slots."
)
def gres_conf(
    machine: str,
    nodes: str,
    device_pattern: str,
    gpu_type: str | None,
    with_cores: bool,
    slots: bool,
) -> None:
    """Write gres.conf for NODES (Slurm's form, dgx[1-4]).

    With --slots what slurm.conf's node line needs is printed too, as a comment.
    """
    from gres_topology import find
    from gres_topology.slurm_files import gres_file

    node = find(machine)
    text = gres_file.gres_conf(
        node, nodes, device_pattern, gpu_type=gpu_type, with_cores=with_cores, slots=slots
    )
    if slots:
        words = gres_file.slots_node_words(node, nodes, gpu_type=gpu_type)
        click.echo(f"# slurm.conf: {words}")
    click.echo(text, nl=False)


@topology.command()
@click.argument("listing", metavar="FILE", type=click.File(errors="replace"))
def slices(listing: TextIO) -> None:
    """Write a node's MIG slices or AMD partitions for gputopo.yaml.

    FILE (- for stdin) has its nvidia-smi -L, or its amd-smi partition --current --json.
    The comment says in which order slurm.conf's Gres= has to name the types.
    """
    from gres_topology.slices import profile_of, words_of

    words = words_of(listing.read())
    types = dict.fromkeys(profile_of(word.partition("*")[0]) or "TYPE" for word in words)
    click.echo(f"# slurm.conf: Gres={','.join(f'gpu:{kind}:COUNT' for kind in types)}")
    click.echo(f"slices: [{', '.join(words)}]")


@topology.command()
@click.argument("expected", metavar="NAME|FILE")
@click.argument("found", metavar="NAME|FILE")
@json_option
def diff(expected: str, found: str, as_json: bool) -> None:
    """Say how two machines differ; exit status 1 if they do."""
    from gres_topology import difference, find

    sentences = difference(find(expected), find(found))
    if as_json:
        click.echo(json.dumps({"same": not sentences, "differences": sentences}))
    else:
        for sentence in sentences:
            click.echo(sentence)
    raise SystemExit(1 if sentences else 0)


def _print(topology: NodeTopology) -> None:
    from rich.console import Console

    # Never narrower than the matrix: one that wraps or is cut cannot be read.
    console = Console(soft_wrap=True, highlight=False)
    console.width = max(console.width, 200 + 8 * topology.gpus)
    console.print(
        f"[bold]{topology.name}[/bold]: {topology.gpus} GPUs, {topology.model or 'model unknown'}"
    )
    console.print(f"source: {topology.source}", markup=False)
    if topology.gpus:
        _print_matrix(console, topology)
        _print_links(console, topology)
    _print_numa(console, topology)


def _print_matrix(console: Console, topology: NodeTopology) -> None:
    """GPUs and NICs against GPUs, then where each GPU sits."""
    from gres_topology.cpulist import format_list
    from slurm_plugin.cli import tables

    has_pci, has_rails = any(topology.pci), bool(topology.rails)
    rows: list[list[str]] = []
    for gpu in range(topology.gpus):
        numa, cpus = topology.numa[gpu], topology.cpus[gpu]
        seat = ["-" if numa is None else str(numa), "-" if cpus is None else format_list(cpus)]
        seat += [topology.pci[gpu] or "-"] if has_pci else []
        seat += [str(topology.rails[gpu])] if has_rails else []
        rows.append([f"GPU{gpu}", *topology.kinds[gpu], *seat])
    rows += [[nic.name, *nic.kinds] for nic in topology.nics]
    gpus = [f"GPU{gpu}" for gpu in range(topology.gpus)]
    headings = ["", *gpus, "NUMA", "CPUs", *["PCI"] * has_pci, *["rail"] * has_rails]
    console.print(tables.plain(headings, rows))


def _print_links(console: Console, topology: NodeTopology) -> None:
    pairs = Counter(
        (topology.kinds[i][j], float(topology.bandwidth_gbps[i, j]))
        for i in range(topology.gpus)
        for j in range(i)
    )
    for (label, gbps), count in sorted(pairs.items(), key=lambda item: -item[0][1]):
        console.print(f"{label:<6} {gbps:>6g} GB/s per direction, {count} pairs")


def _print_numa(console: Console, topology: NodeTopology) -> None:
    from gres_topology.cpulist import format_list

    numbers = {n for n in topology.numa if n is not None} | {n.number for n in topology.numa_nodes}
    known = {node.number: node for node in topology.numa_nodes}
    for number in sorted(numbers):
        gpus = [gpu for gpu in range(topology.gpus) if topology.numa[gpu] == number]
        parts = [f"GPUs {format_list(gpus) or 'none'}"]
        node = known.get(number)
        if node is not None and node.cpus:
            parts.append(f"CPUs {format_list(node.cpus)}")
        if node is not None and node.memory_mb is not None:
            parts.append(f"{node.memory_mb} MB")
        if node is not None and node.distances:
            parts.append("distances " + " ".join(f"{k}:{v}" for k, v in node.distances))
        console.print(f"NUMA node {number}: {', '.join(parts)}")
