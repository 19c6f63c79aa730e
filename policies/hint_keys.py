"""Every hint key as data: its values, its default, and one line for the reference.

Which keys have an effect is not written here: a policy declares the ones it reads
(`hints`), and a key that no installed policy declares is refused. Keys marked `launch`
are read where a task starts, those marked `engine` by the engine itself, whatever the policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from policies.contract import deadlines
from policies.patterns.pattern import PATTERNS

#: Keys that the hint grammar itself handles, whatever the policies.
GENERAL = frozenset({"policy"})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class HintKey:
    """One key. `read` gives a value's canonical text, or None if it is not allowed.

    `flag` keys may stand alone (`spread` is `spread=yes`). `launch` keys are read on the
    node, when a task starts, and by no policy; `engine` keys by the engine.
    """

    name: str
    allowed: str
    read: Callable[[str], str | None]
    default: str
    doc: str
    flag: bool = False
    launch: bool = False
    engine: bool = False


def _choice(*choices: str) -> tuple[str, Callable[[str], str | None]]:
    return ", ".join(choices), lambda text: text if text in choices else None


def _number(low: float, high: float, what: str) -> tuple[str, Callable[[str], str | None]]:
    def read(text: str) -> str | None:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
            return None
        return f"{float(text):g}" if low <= float(text) <= high else None

    return f"{what} from {low:g} to {high:g}", read


def _count(high: int) -> tuple[str, Callable[[str], str | None]]:
    def read(text: str) -> str | None:
        if not re.fullmatch(r"\d{1,12}", text):
            return None
        return str(int(text)) if 1 <= int(text) <= high else None

    return f"a whole number from 1 to {high}", read


def _read_name(text: str) -> str | None:
    return text if _NAME.fullmatch(text) else None


def is_pattern_name(text: str) -> bool:
    """Whether a site may give a pattern this name: none of ours, short enough for the launch."""
    return bool(_NAME.fullmatch(text)) and len(text) < 64 and text not in PATTERNS


_NAME_ALLOWED = "a name of letters, digits, dot, dash and underscore"
_YES_NO = _choice("yes", "no")

#: In the order of the canonical text.
KEYS: dict[str, HintKey] = {
    key.name: key
    for key in (
        HintKey("policy", _NAME_ALLOWED, _read_name, "the site's", "who decides"),
        HintKey("pattern", *_choice(*PATTERNS), "ring", "which ranks talk to which"),
        HintKey("sensitive", *_YES_NO, "yes", "whether the job feels slow links"),
        HintKey("profile", _NAME_ALLOWED, _read_name, "none", "measured behaviour of the job"),
        HintKey("batch", *_count(10**9), "none", "global batch size"),
        HintKey("iterations", *_count(10**12), "none", "training iterations"),
        HintKey("task", *_choice("training", "inference"), "training", "kind of work"),
        HintKey("class", *_choice("urgent", "prior", "normal"), "normal", "service class"),
        HintKey("deadline", deadlines.ALLOWED, deadlines.read, "none", "done within, or by"),
        HintKey(
            "min-utility",
            *_number(0, 1, "a number"),
            "0",
            "wait for at least this utility (mapa: share of the ideal bandwidth)",
        ),
        HintKey(
            "memory-bandwidth", *_number(0, 10_000, "GB/s"), "0", "host memory bandwidth needed"
        ),
        HintKey("single-node", *_YES_NO, "no", "never more than one node", flag=True),
        HintKey("anti-collocation", *_YES_NO, "no", "every GPU on a node of its own", flag=True),
        HintKey("pack", *_choice("yes"), "yes", "fill used nodes first", flag=True),
        HintKey("spread", *_choice("yes"), "no", "take the emptiest nodes first", flag=True),
        HintKey(
            "remote",
            *_choice("allow", "auto", "no"),
            "the site's",
            "rather than wait, borrow GPUs of other nodes over the network; `auto`: where that is"
            " predicted to end the job sooner",
            engine=True,
        ),
        HintKey(
            "bind",
            *_choice("numa", "none"),
            "numa",
            "CPUs of a task: those of its GPUs' NUMA node, or Slurm's own",
            launch=True,
        ),
        HintKey(
            "mem",
            *_choice("preferred", "bind", "interleave", "none"),
            "preferred",
            "memory of a task, as numactl would place it",
            launch=True,
        ),
    )
}

#: Keys that have their effect at launch, under every policy.
LAUNCH = frozenset(name for name, key in KEYS.items() if key.launch)
#: Keys that the engine itself reads, under every policy.
ENGINE = frozenset(name for name, key in KEYS.items() if key.engine)
#: Keys that have an effect beside another one, whatever the policy: what is lent goes by them.
BESIDE = {"profile": "remote"}
