"""What the user would submit, and the sbatch command line of one run made of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from policies.performance import Shape
from slurm_plugin.act.profiling.progress import ProfileSettings
from slurm_plugin.errors import PluginError
from slurm_plugin.slurm.gres_text import counts
from slurm_plugin.slurm.sbatch_options import read_options, script_words

_SHAPE = "each run has a shape of its own: give --nodes and --gpus-per-node before the `--`"
_OWN = "profile run sets that itself"
_NODES = "give --on NODES before the `--`"
_ALL = "it gives a run all GPUs of its nodes, whatever its shape"
_NONE = "a run must start by itself, once, as soon as it can"
#: Refused wherever they stand: they would change the shape, the nodes or the start of a run.
_REFUSED = {
    "gpus-per-socket": _SHAPE, "ntasks-per-gpu": _SHAPE, "tres-per-task": _SHAPE,
    "nodelist": _NODES, "nodefile": _NODES, "exclude": _NODES,
    "array": _NONE, "begin": _NONE, "hold": _NONE, "wait": _NONE, "test-only": _NONE,
    "clusters": _NONE,
}  # fmt: skip
#: Our own options overrule these in a script; on the command line they would overrule ours.
_REFUSED_WORDS = _REFUSED | {
    "nodes": _SHAPE, "ntasks": _SHAPE, "ntasks-per-node": _SHAPE, "gres": _SHAPE, "gpus": _SHAPE,
    "gpus-per-node": _SHAPE, "gpus-per-task": _SHAPE,
    "time": "give --limit MINUTES before the `--`", "nice": "give --nice before the `--`",
    "output": _OWN, "error": _OWN, "job-name": _OWN,
}  # fmt: skip
#: Variables that sbatch reads and that would add to the shape.
_VARIABLES = ("SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_GPUS", "SBATCH_GPUS_PER_NODE",
              "SBATCH_GPUS_PER_TASK", "SBATCH_GRES")  # fmt: skip
#: The forms in which a script may ask for GPUs; each that it uses is overruled.
_FORMS = ("gres", "gpus", "gpus-per-node", "gpus-per-task")
# `${nodes}` is a variable of --wrap's shell.
_PLACE = re.compile(r"(?<!\$)\{(batch|local_batch|iterations|nodes|gpus_per_node)\}")


@dataclass(frozen=True, slots=True)
class Submission:
    """A command line of sbatch, read. `script` is None for --wrap."""

    command: str
    words: tuple[str, ...]
    script: Path | None
    given: Mapping[str, str | None]
    in_script: Mapping[str, str | None]
    variables: Mapping[str, str]

    def value(self, name: str) -> str:
        """An option's value, by sbatch's order: words, variables, script; '' where not given."""
        variable = f"SBATCH_{name.upper().replace('-', '_')}"
        places = (self.given.get(name), self.variables.get(variable), self.in_script.get(name))
        return next((place for place in places if place), "")

    @property
    def gpu_type(self) -> str:
        """The type of GPU that the script asks for; '' where it names none."""
        for form in _FORMS:
            types = [kind for kind in _types(self.in_script.get(form) or "") if kind]
            if types:
                return types[0]
        return ""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What is the same for all runs besides the user's words."""

    settings: ProfileSettings
    limit_min: int
    nice: int


def read_submission(words: Sequence[str], variables: Mapping[str, str] = os.environ) -> Submission:
    """What stands behind the `--`; PluginError for what cannot be profiled, in one line."""
    if not words or Path(words[0]).name != "sbatch":
        shown = words[0] if words else "nothing"
        raise PluginError(f"{shown!r} behind the `--`; expected sbatch [OPTIONS] SCRIPT")
    given, at = read_options(words[1:])
    _refuse(given, _REFUSED_WORDS, "sbatch")
    bad = [name for name in _VARIABLES if variables.get(name)]
    if bad:
        raise PluginError(f"{bad[0]} is set; expected none of {', '.join(_VARIABLES)}: unset it")
    if ":" in words:
        raise PluginError("`:` begins a heterogeneous job; expected a job of one part")
    if "wrap" not in given and at + 1 >= len(words):
        raise PluginError("sbatch without a script; expected sbatch [OPTIONS] SCRIPT, or --wrap")
    script = None if "wrap" in given else Path(words[at + 1])
    inside = _of(script) if script else {}
    return Submission(words[0], tuple(words[1:]), script, given, inside, dict(variables))


def variables(how: RunOptions, shape: Shape, local_batch: int) -> dict[str, str]:
    """What the script of one run finds in its environment."""
    return {
        "GPUTOPO_BATCH": str(local_batch * shape.gpus),
        "GPUTOPO_LOCAL_BATCH": str(local_batch),
        "GPUTOPO_ITERATIONS": str(how.settings.iterations),
        "GPUTOPO_TASK": how.settings.task,
    }


def command(
    asked: Submission, how: RunOptions, shape: Shape, local_batch: int, name: str, output: Path
) -> list[str]:
    """The sbatch command line of one run: our options first, which the user's words overrule."""
    per_node = shape.gpus_per_node if how.settings.per_gpu else 1
    ours = [
        "--parsable", f"--job-name={name}", f"--output={output}", f"--nodes={shape.nodes}",
        f"--ntasks={shape.nodes * per_node}", f"--ntasks-per-node={per_node}",
        *_gpus(asked, how, shape), f"--time={how.limit_min}", f"--nice={how.nice}", "--no-requeue",
    ]  # fmt: skip
    if "error" in asked.in_script:
        ours.append(f"--error={output}")
    if how.settings.others:
        ours.append(f"--exclude={','.join(how.settings.others)}")
    places = {
        "batch": local_batch * shape.gpus, "local_batch": local_batch,
        "iterations": how.settings.iterations, "nodes": shape.nodes,
        "gpus_per_node": shape.gpus_per_node,
    }  # fmt: skip
    theirs = [
        _PLACE.sub(lambda match: str(places[match[1]]), word)
        for word in _exporting(asked, variables(how, shape, local_batch))
    ]
    return [Path(asked.command).name, *ours, *theirs]


def _exporting(asked: Submission, values: Mapping[str, str]) -> list[str]:
    """The words, such that sbatch hands over our variables from its own environment.

    It does so by default. Only a list without ALL gets ours added: `--export=ALL,X=1` would have
    slurmd start a login shell, too (24.11).
    """
    base = asked.value("export")
    if base in ("", "ALL") or base.startswith("ALL,"):
        return list(asked.words)
    ours = [f"{name}={value}" for name, value in values.items()]
    # NONE is what Slurm means anyway by a list without ALL.
    text = ",".join(ours if base in ("NONE", "NIL") else [base, *ours])
    at = read_options(asked.words)[1]
    return [f"--export={text}", *_without_export(asked.words, at)]


def _without_export(words: Sequence[str], script_at: int) -> list[str]:
    kept: list[str] = []
    skips = False
    for at, word in enumerate(words):
        if skips:
            skips = False
        elif at < script_at and word == "--export":
            skips = True
        elif at >= script_at or not word.startswith("--export="):
            kept.append(word)
    return kept


def _gpus(asked: Submission, how: RunOptions, shape: Shape) -> list[str]:
    """The GPUs in every form that the script uses, else as --gres."""
    numbers = {
        "gres": shape.gpus_per_node,
        "gpus": shape.gpus,
        "gpus-per-node": shape.gpus_per_node,
        "gpus-per-task": 1 if how.settings.per_gpu else shape.gpus_per_node,
    }
    used = [form for form in _FORMS if form in asked.in_script] or ["gres"]
    if not {"gres", "gpus-per-node"} & set(used):
        # By themselves the others leave it to Slurm how many each node gives.
        used.append("gpus-per-node")
    kind = f"{how.settings.gpu_type}:" if how.settings.gpu_type else ""
    words = []
    for form in used:
        text = f"{kind}{numbers[form]}"
        if form == "gres":
            rest = [
                item
                for item in (asked.in_script.get("gres") or "").split(",")
                if item and not item.startswith(("gpu", "gres:gpu", "gres/gpu"))
            ]
            text = ",".join([f"gpu:{text}", *rest])
        words.append(f"--{form}={text}")
    return words


def _types(text: str) -> list[str]:
    """Types in `gpu:a100:2` or, of the --gpus family, `a100:2`."""
    items = [item if item.startswith("gpu") else f"gpu:{item}" for item in text.split(",") if item]
    try:
        return list(counts(",".join(items)))
    except ValueError:
        return []


def _of(script: Path) -> dict[str, str | None]:
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PluginError(f"{script}: {error.strerror}; expected a batch script") from error
    words, next_component = script_words(text, script.name)
    if next_component:
        raise PluginError(
            f"{script.name}: {next_component}: a heterogeneous job; expected a script whose job has"
            " one part"
        )
    given = read_options(words)[0]
    _refuse(given, _REFUSED, f"{script.name}: #SBATCH")
    return given


def _refuse(given: Mapping[str, str | None], refused: Mapping[str, str], where: str) -> None:
    for option, value in given.items():
        # `--exclusive=user` and the like leave the number of GPUs alone.
        if option == "exclusive" and not value:
            raise PluginError(f"{where} --exclusive: {_ALL}")
        if option in refused:
            raise PluginError(f"{where} --{option}: {refused[option]}")
