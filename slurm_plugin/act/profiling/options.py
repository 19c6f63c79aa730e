"""Options of sbatch in a command line or a batch script's `#SBATCH` lines."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from slurm_plugin.errors import PluginError

#: Short options under their long names; `FLAGS` among them take no value.
SHORT = {
    "a": "array", "A": "account", "b": "begin", "B": "extra-node-info", "c": "cpus-per-task",
    "C": "constraint", "d": "dependency", "D": "chdir", "e": "error", "F": "nodefile",
    "G": "gpus", "h": "help", "H": "hold", "i": "input", "J": "job-name", "k": "no-kill",
    "L": "licenses", "m": "distribution", "M": "clusters", "n": "ntasks", "N": "nodes",
    "o": "output", "O": "overcommit", "p": "partition", "q": "qos", "Q": "quiet",
    "s": "oversubscribe", "S": "core-spec", "t": "time", "u": "usage", "v": "verbose",
    "V": "version", "w": "nodelist", "W": "wait", "x": "exclude",
}  # fmt: skip
#: Long options whose value, if they have one, stands behind `=` only.
FLAGS = frozenset(
    ("contiguous", "exclusive", "get-user-env", "help", "hold", "ignore-pbs", "nice", "no-kill",
     "no-requeue", "overcommit", "oversubscribe", "parsable", "propagate", "quiet", "reboot",
     "requeue", "resv-ports", "share", "spread-job", "stepmgr", "test-only", "usage",
     "use-min-nodes", "verbose", "version", "wait")
)  # fmt: skip
#: What begins a line of options in a batch script.
MARK = "#SBATCH"


def read_options(words: Sequence[str]) -> tuple[list[tuple[str, str]], int]:
    """The options by their long names with their values ('' for none), and where the script stands.

    That is the place of its name in `words`, or their number without one.
    """
    given: list[tuple[str, str]] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return given, at + 1
        if word == "-" or not word.startswith("-"):
            break
        at += 1
        if word.startswith("--"):
            name, is_given, value = word[2:].partition("=")
            if not is_given and name not in FLAGS and at < len(words):
                value = words[at]
                at += 1
            given.append((name, value))
            continue
        for place, letter in enumerate(word[1:], start=2):
            name = SHORT.get(letter, letter)
            if name in FLAGS:
                given.append((name, ""))
                continue
            value = word[place:].removeprefix("=")
            if not value and at < len(words):
                value = words[at]
                at += 1
            given.append((name, value))
            break
    return given, at


def of_script(text: str, name: str) -> list[tuple[str, str]]:
    """The options before a script's first command; PluginError for a line that cannot be read."""
    given: list[tuple[str, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if not line.startswith(MARK):
            continue
        try:
            words = shlex.split(line.removeprefix(MARK), comments=True)
        except ValueError as error:
            raise PluginError(f"{name}:{number}: {error}; expected options of sbatch") from error
        if words in (["hetjob"], ["packjob"]):
            raise PluginError(
                f"{name}:{number}: a heterogeneous job; expected a script whose job has one part"
            )
        given += read_options(words)[0]
    return given
