"""`gputopo calibrate`: a bandwidth model from a site's own nccl-tests or rccl-tests logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli.options import IN_FILE, OUT_FILE, json_option, plot_option

if TYPE_CHECKING:
    from policies.bandwidth.calibration_fit import Fit


@click.command()
@click.argument("logs", metavar="FILE...", nargs=-1, required=True, type=IN_FILE)
@click.option(
    "--topology",
    required=True,
    metavar="MACHINE",
    help="The machine measured: of the catalog, or a topology file.",
)
@click.option("--output", type=OUT_FILE, help="Write the model to this file.")
@plot_option("Draw measured against predicted bandwidth to this file.")
@json_option
def calibrate(
    logs: tuple[Path, ...], topology: str, output: Path | None, plot: Path | None, as_json: bool
) -> None:
    """Fit the bandwidth model `calibrated` to logs of all_reduce_perf, one run per FILE.

    Run it on several sets of GPUs of one kind of node: each size, each kind of link. The model goes
    into gputopo.yaml as `bandwidth_model` of those nodes.
    """
    import json

    from gres_topology import find
    from gres_topology.pictures import write
    from policies.bandwidth.calibration_fit import fit
    from slurm_plugin.learn.link_calibration import model_file
    from slurm_plugin.learn.link_calibration.drawing import drawn
    from slurm_plugin.learn.link_calibration.gather import gather

    machine = find(topology)
    measured, sources = gather(logs, machine)
    fitted = fit(machine, measured)
    if output is not None:
        model_file.write_model(output, fitted, sources)
    if plot is not None:
        write(drawn(fitted), plot)
    click.echo(json.dumps(_facts(fitted)) if as_json else _text(fitted))
    if output is not None and not as_json:
        click.echo(
            f"written to {output}; name it as bandwidth_model of these nodes in gputopo.yaml"
        )


def _facts(fitted: Fit) -> dict[str, object]:
    from policies.bandwidth.calibrated import WEIGHTS

    made = fitted.calibration
    return {
        "machine": made.machine,
        "shape": made.shape,
        "sizes": made.sizes,
        "weights": dict(zip(WEIGHTS, made.weights, strict=True)),
        "mean_error": float(fitted.errors.mean()),
        "worst_error": float(fitted.errors.max()),
        "unseen_error": float(fitted.unseen.mean()),
        "sets": [
            {"gpus": gpus, "measured_gbps": float(gbps), "model_gbps": float(model)}
            for gpus, gbps, model in zip(
                fitted.sets, fitted.measured, fitted.predicted, strict=True
            )
        ],
    }


def _text(fitted: Fit) -> str:
    made = fitted.calibration
    table = []
    for gpus, gbps, model in zip(fitted.sets, fitted.measured, fitted.predicted, strict=True):
        error = f"{100 * (model / gbps - 1):>+7.1f} %"
        table.append(f"{','.join(map(str, gpus)):<20} {gbps:>9.2f} {model:>9.2f} {error}")
    low, high = made.sizes
    worst = fitted.sets[int(fitted.errors.argmax())]
    return "\n".join(
        [
            f"{'GPUs':<20} {'measured':>9} {'model':>9} {'error':>9}   (GB/s, bus bandwidth)",
            *table,
            f"{made.machine}: GB/s = {made.pace:.3f} x narrowest hop, and for three GPUs or more"
            f" in a ring of direct links + {made.both_ways:.3f} x its narrowest link"
            f" + {made.throughput:.3f} x direct links of the least linked GPU",
            f"error: mean {100 * fitted.errors.mean():.1f} %,"
            f" worst {100 * fitted.errors.max():.1f} % (GPUs {','.join(map(str, worst))});"
            f" of sets left out of the fit: mean {100 * fitted.unseen.mean():.1f} %",
            f"holds for rings of {low} to {high} GPUs of this machine",
        ]
    )
