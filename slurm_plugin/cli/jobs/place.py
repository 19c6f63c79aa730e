"""`gputopo place`: ask a policy about one machine; needs neither the engine nor Slurm."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_plugin.cli.options import IN_FILE, json_option

if TYPE_CHECKING:
    from gres_topology import NodeTopology
    from policies import Placement, Wait


@click.command()
@click.option("--machine", required=True, help="A machine of the catalog, or a topology file.")
@click.option("--free", help="GPUs that are free, such as 0-2,5.  [default: all]")
@click.option("--gpus", required=True, type=click.IntRange(min=1), help="GPUs wanted.")
@click.option("--hint", default="", help="A hint as users write it: policy=mapa,pattern=ring.")
@click.option(
    "--pattern",
    metavar="NAME|FILE",
    help="Which ranks talk to which; a file as gputopo pattern reads it.",
)
@click.option(
    "--bandwidth-model",
    "model",
    type=IN_FILE,
    help="What gputopo calibrate wrote for this machine.",
)
@json_option
def place(
    machine: str,
    free: str | None,
    gpus: int,
    hint: str,
    pattern: str | None,
    model: Path | None,
    as_json: bool,
) -> None:
    """Choose GPUs on one machine, and show the scores.

    Neither Slurm nor the engine is needed.

    \b
      gputopo place --machine dgx1v --free 0-2,5-7 --gpus 3
    """
    import json

    from gres_topology import find
    from policies import Wait
    from slurm_plugin.config.settings import load_policies
    from slurm_plugin.learn.link_calibration.model_file import calibrated, read_model

    load_policies()
    topology = find(machine)
    if model is not None:
        topology = calibrated(topology, read_model(model), model)
    available = _available(topology, free)
    if gpus > len(available):
        raise click.UsageError(
            f"--gpus {gpus}: only {len(available)} of {topology.gpus} GPUs are free on {machine}"
        )
    outcome = _outcome(topology, available, gpus, *_with_pattern(hint, pattern, topology))
    facts = _facts(outcome)
    if as_json:
        click.echo(json.dumps(facts))
    elif isinstance(outcome, Wait):
        most = f" at most {outcome.at_most_s:g} s" if isfinite(outcome.at_most_s) else ""
        click.echo(f"wait{most}: {outcome.reason}")
    else:
        click.echo(_text(facts))


def _outcome(
    topology: NodeTopology, free: list[int], gpus: int, hint: str, patterns: dict[str, str]
) -> Placement | Wait:
    """What the hint's policy answers for one job on this machine alone."""
    from policies import Cluster, NodeState, Placement, mask_of
    from policies.mapa.judge import with_scores
    from policies.registry import DEFAULT, registry
    from slurm_plugin.config.sections import Rule
    from slurm_plugin.decide.preferences import read_preferences

    # As it stands in --comment, too.
    hint = hint.strip().removeprefix("gpu-topo:").strip()
    preferences = read_preferences(hint, Rule("enforce", DEFAULT, patterns=patterns))
    if preferences.off:
        raise click.UsageError("--hint off: the job opts out, Slurm chooses")
    request = preferences.request((gpus,), None)
    cluster = Cluster({topology.name: NodeState(topology.name, topology, mask_of(free))})
    outcome = registry.get(preferences.policy).place(request, cluster)
    if isinstance(outcome, Placement):
        return with_scores(outcome, request, cluster.nodes)
    return outcome


def _available(topology: NodeTopology, free: str | None) -> list[int]:
    from gres_topology.cpulist import parse_list

    if free is None:
        return list(range(topology.gpus))
    try:
        chosen = list(parse_list(free))
    except ValueError as error:
        raise click.UsageError(f"--free: {error}") from error
    if chosen[-1] >= topology.gpus:
        raise click.UsageError(
            f"--free: {topology.name} has GPUs 0-{topology.gpus - 1}, not {chosen[-1]}"
        )
    return chosen


def _with_pattern(
    hint: str, pattern: str | None, topology: NodeTopology
) -> tuple[str, dict[str, str]]:
    """The hint that asks for the pattern, and the patterns known beside ours."""
    from policies.contract.hint_keys import is_pattern_name
    from policies.patterns.pattern import PATTERNS
    from slurm_plugin.config.pattern_file import site_pattern

    if pattern is None:
        return hint, {}
    patterns, name, file = {}, pattern, Path(pattern)
    if pattern not in PATTERNS:
        name = file.stem if is_pattern_name(file.stem) else "file"
        custom = site_pattern(name, file)
        if custom.ranks > topology.gpus:
            raise click.UsageError(
                f"--pattern {file}: {custom.ranks} ranks; {topology.name} has {topology.gpus} GPUs"
            )
        patterns[name] = custom.internal
    return ",".join(part for part in (hint.strip(), f"pattern={name}") if part), patterns


def _facts(outcome: Placement | Wait) -> dict[str, Any]:
    from policies import Wait

    facts: dict[str, Any] = {}
    placement = outcome
    if isinstance(outcome, Wait):
        wait_s = outcome.at_most_s if isfinite(outcome.at_most_s) else None
        facts = {"wait_s": wait_s, "wait_reason": outcome.reason}
        placement = outcome.instead  # type: ignore[assignment]
    if placement is None or isinstance(placement, Wait):
        return facts
    plain = ("score", "effbw_gbps", "agg_gbps", "preserved_gbps", "utility", "policy", "reason")
    return facts | {
        "nodes": {name: list(gpus) for name, gpus in placement.gpus.items()},
        "gpus": [gpu for gpus in placement.gpus.values() for gpu in gpus],
        "terms": dict(placement.terms),
        **{key: getattr(placement, key) for key in plain},
    }


def _text(facts: dict[str, Any]) -> str:
    from slurm_plugin.tell.explain.text import figures

    where = ", ".join(
        f"{name}: GPUs {','.join(map(str, gpus))}" for name, gpus in facts["nodes"].items()
    )
    worth = ", ".join(figures({**facts, "gpus": facts["nodes"]}))
    return f"{where}\n{facts['policy']}: {facts['reason']}\n{worth}"
