"""Every hint key as data: its values, its default, and one line for the reference.

A policy lists the keys it reads (`Policy.hints`): those below, and keys of its own. A key that
no installed policy lists is refused, unless the engine or the launch reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from policies.contract import deadlines
from policies.patterns.pattern import PATTERNS

EVERY_JOB, LAUNCH, ENGINE = "every job", "the launch", "the engine"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

#: What a key allows, in words, and what gives a value's canonical text (None: not allowed).
Values = tuple[str, Callable[[str], str | None]]


@dataclass(frozen=True, slots=True)
class HintKey:
    """One key of a hint; `allowed` and `read` are what `one_of`, `number` or `count` return."""

    name: str
    allowed: str
    #: Gives a value's canonical text, or None where the value is not allowed.
    read: Callable[[str], str | None]
    #: What applies without the key, in words.
    default: str
    #: One line for the reference.
    doc: str
    #: Whether the key may stand alone: `spread` is `spread=yes`.
    flag: bool = False
    #: Who reads the key whatever the policy; empty: the policies that list it.
    reader: str = ""
    #: A key beside which this one is allowed under every policy; empty: none.
    beside: str = ""


def one_of(*choices: str) -> Values:
    """The values of a key that takes one of these words."""
    return ", ".join(choices), lambda text: text if text in choices else None


def number(low: float, high: float, what: str = "a number") -> Values:
    """A number within bounds, without sign or exponent."""

    def read(text: str) -> str | None:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
            return None
        return f"{float(text):g}" if low <= float(text) <= high else None

    return f"{what} from {low:g} to {high:g}", read


def count(high: int) -> Values:
    """A whole number from 1."""

    def read(text: str) -> str | None:
        if not re.fullmatch(r"\d{1,12}", text):
            return None
        return str(int(text)) if 1 <= int(text) <= high else None

    return f"a whole number from 1 to {high}", read


def _yes_or(high: int, what: str) -> Values:
    """`yes`, or a whole number from 1."""
    allowed, read = count(high)
    return f"yes, or {allowed} ({what})", lambda text: text if text == "yes" else read(text)


def is_pattern_name(text: str) -> bool:
    """Whether a site may give a pattern this name: none of ours, short enough for the launch."""
    return bool(_NAME.fullmatch(text)) and len(text) < 64 and text not in PATTERNS


#: A name: of a policy, a profile.
NAME: Values = (
    "a name of letters, digits, dot, dash and underscore",
    lambda text: text if _NAME.fullmatch(text) else None,
)
_YES_NO = one_of("yes", "no")
_YES = one_of("yes")

POLICY = HintKey("policy", *NAME, "the site's", "who decides", reader=EVERY_JOB)
PATTERN = HintKey("pattern", *one_of(*PATTERNS), "ring", "which ranks talk to which")
SENSITIVE = HintKey("sensitive", *_YES_NO, "yes", "whether the job feels slow links")
COMMUNICATION = HintKey(
    "communication",
    *number(0, 1),
    "none",
    "share of its run time that the job spends exchanging data between its GPUs, on the best ones",
)
#: What share of its run time a job is taken to communicate that does not say; and what is usual.
#: AlexNet on two GPUs, batches of 1 to 128 in powers of two: some 2 s of communication whatever the
#: batch, 1 to 66 s of computing (TOPO-AWARE, SC'17, section 3.2 and figure 3), so 3 to 67 %.
USUAL_COMMUNICATION, USUALLY = 0.3, (0.03, 0.67)


def communication_in(values: Mapping[str, str]) -> float | None:
    """What a job's hint values say of its communication; None where they say nothing."""
    said = values.get(COMMUNICATION.name)
    return None if said is None else float(said)


#: Borrowed GPUs are chosen by the job's profile, whatever the policy.
PROFILE = HintKey("profile", *NAME, "none", "measured behaviour of the job", beside="remote")
BATCH = HintKey("batch", *count(10**9), "none", "global batch size")
ITERATIONS = HintKey("iterations", *count(10**12), "none", "training iterations")
TASK = HintKey("task", *one_of("training", "inference"), "training", "kind of work")
CLASS = HintKey("class", *one_of("urgent", "prior", "normal"), "normal", "service class")
DEADLINE = HintKey("deadline", deadlines.ALLOWED, deadlines.read, "none", "done within, or by")
MIN_UTILITY = HintKey(
    "min-utility",
    *number(0, 1),
    "0",
    "wait for at least this utility (mapa: share of the ideal bandwidth)",
)
MEMORY_BANDWIDTH = HintKey(
    "memory-bandwidth", *number(0, 10_000, "GB/s"), "0", "host memory bandwidth needed"
)
SINGLE_NODE = HintKey("single-node", *_YES_NO, "no", "never more than one node", flag=True)
ANTI_COLLOCATION = HintKey(
    "anti-collocation", *_YES_NO, "no", "every GPU on a node of its own", flag=True
)
PACK = HintKey("pack", *_YES, "yes", "fill used nodes first", flag=True)
SPREAD = HintKey("spread", *_YES, "no", "take the emptiest nodes first", flag=True)
REMOTE = HintKey(
    "remote",
    *one_of("allow", "auto", "no"),
    "the site's",
    "rather than wait, borrow GPUs of other nodes over the network; `auto`: where that is"
    " predicted to end the job sooner",
    reader=ENGINE,
)
MOVABLE = HintKey(
    "movable",
    *_yes_or(10_080, "minutes between two checkpoints"),
    "no",
    "may be requeued and started elsewhere to make room; what it costs goes by its checkpoints",
    flag=True,
    reader=ENGINE,
)
BIND = HintKey(
    "bind",
    *one_of("numa", "none"),
    "numa",
    "CPUs of a task: those of its GPUs' NUMA node, or Slurm's own",
    reader=LAUNCH,
)
MEM = HintKey(
    "mem",
    *one_of("preferred", "bind", "interleave", "none"),
    "preferred",
    "memory of a task, as numactl would place it",
    reader=LAUNCH,
)

#: Our keys by name, in the order of a hint's canonical text.
KEYS: dict[str, HintKey] = {
    key.name: key
    for key in (
        *(POLICY, PATTERN, SENSITIVE, COMMUNICATION, PROFILE, BATCH, ITERATIONS, TASK, CLASS),
        *(DEADLINE, MIN_UTILITY, MEMORY_BANDWIDTH, SINGLE_NODE, ANTI_COLLOCATION, PACK, SPREAD),
        *(REMOTE, MOVABLE, BIND, MEM),
    )
}
