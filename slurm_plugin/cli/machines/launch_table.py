"""`gputopo launch-table`: the table that the SPANK plugin and the TaskProlog read on a node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli.options import IN_FILE, numa_option, plot_option, with_numa

if TYPE_CHECKING:
    from gres_topology import NodeTopology


@click.command(name="launch-table")
@click.argument("machine", metavar="MACHINE|FILE")
@click.option(
    "--slurm-index",
    default="identity",
    show_default=True,
    help="The topology's GPU of each of Slurm's GPUs: identity, gres-conf, or a"
    " permutation (2,0,1,3).",
)
@click.option(
    "--gres-conf",
    "gres_path",
    type=IN_FILE,
    default=Path("/etc/slurm/gres.conf"),
    show_default=True,
    help="The file that --slurm-index gres-conf reads.",
)
@click.option(
    "--node", default="", help="The node whose lines of gres.conf count, after those of every node."
)
@click.option(
    "--minors",
    help="Device minors of the topology's GPUs (0,1,3,2), where the topology does not know them.",
)
@numa_option
@click.option(
    "--pattern",
    "files",
    metavar="NAME=FILE",
    multiple=True,
    help="A pattern of the site, as in gputopo.yaml; may be given again.",
)
@plot_option("Draw the binding to this file instead.")
def launch_table(
    machine: str,
    slurm_index: str,
    gres_path: Path,
    node: str,
    minors: str | None,
    numa_file: Path | None,
    files: tuple[str, ...],
    plot: Path | None,
) -> None:
    """Write the launch table of MACHINE (of the catalog, or a topology in a FILE).

    The nodes need nothing else: rank order, NUMA nodes, NICs and device numbers of every GPU
    set stand in it. One table serves all nodes of one kind and one numbering.
    """
    from dataclasses import replace

    from gres_topology import find
    from slurm_plugin.node.launch import machine_of, write

    topology = find(machine)
    if minors is not None:
        topology = replace(topology, minors=_numbers(minors, "--minors"))
    topology = with_numa(topology, numa_file)
    known = machine_of(topology, _mapping(topology, slurm_index, gres_path, node))
    if plot is not None:
        from gres_topology.pictures import write as write_picture
        from slurm_plugin.node.launch.drawing import drawn

        write_picture(drawn(known), plot)
        return
    click.echo(write(known, own=_patterns(files)), nl=False)


def _patterns(files: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns of `NAME=FILE`, by the names policies know them by."""
    from policies.contract.hint_keys import is_pattern_name
    from slurm_plugin.config.pattern_file import site_pattern

    patterns: dict[str, str] = {}
    for text in files:
        name, equals, file = text.partition("=")
        if not (equals and file and is_pattern_name(name)) or name in patterns:
            raise click.UsageError(f"--pattern {text!r}; expected NAME=FILE, each new NAME once")
        patterns[name] = site_pattern(name, Path(file)).internal
    return tuple(patterns.values())


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.UsageError(f"{option} {text!r}; expected numbers such as 2,0,1,3") from None


def _mapping(
    topology: NodeTopology, slurm_index: str, gres_path: Path, node: str
) -> tuple[int, ...]:
    from gres_topology.slurm_files import gres_file, mapping

    if slurm_index == "identity":
        return tuple(range(topology.gpus))
    if slurm_index != "gres-conf":
        return mapping.explicit(topology, _numbers(slurm_index, "--slurm-index"))
    devices = gres_file.load_devices(gres_path)
    return mapping.from_gres_conf(topology, devices.files(node), devices.detected_by(node))
