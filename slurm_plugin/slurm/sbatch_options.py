"""sbatch's options by name and letter, read from a command line and from a batch script's lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from slurm_plugin.errors import PluginError

#: Options that say which nodes, CPUs and GPUs a job may have; `gputopo try` leaves them to Slurm's
#: own test, which knows them.
BY_SLURM = {
    **{"consolidate-segments": "", "contiguous": "", "core-spec=": "S", "cores-per-socket=": ""},
    **{"distribution=": "m", "extra-node-info=": "B", "hint=": ""},
    **{"mincpus=": "", "ntasks-per-core=": "", "ntasks-per-gpu=": "", "ntasks-per-socket=": ""},
    **{"overcommit": "O", "oversubscribe": "s", "segment=": "", "sockets-per-node=": ""},
    **{"spread-segments": "", "thread-spec=": "", "threads-per-core=": "", "tmp=": ""},
    # Older releases' word for --oversubscribe.
    "share": "",
    "use-min-nodes": "",
}
#: Options that may change where or when a job starts in other ways; it judges no job with them.
NOT_JUDGED = {
    **{"array=": "a", "batch=": "", "bb=": "", "bbf=": "", "begin=": "b", "clusters=": "M"},
    **{"cluster-constraint=": "", "deadline=": "", "delay-boot=": "", "dependency=": "d"},
    **{"extra=": "", "gid=": "", "gpus-per-socket=": "", "hold": "H", "mcs-label=": ""},
    # With enforce-binding a test may find a start where a submit is refused (seen on 24.11.5).
    "gres-flags=": "",
    **{"network=": "", "nice": "", "nodefile=": "F", "power=": "", "prefer=": "", "priority=": ""},
    **{"reboot": "", "spread-job": "", "switches=": "", "time-min=": "", "tres-per-task=": ""},
    **{"resv-ports": "", "uid=": ""},
}
#: sbatch's options, each with its letter; `=` takes a value.
OPTIONS = {
    "partition=": "p",
    "account=": "A",
    "qos=": "q",
    "constraint=": "C",
    "nodelist=": "w",
    "exclude=": "x",
    "time=": "t",
    "nodes=": "N",
    "ntasks=": "n",
    "ntasks-per-node=": "",
    "cpus-per-task=": "c",
    "cpus-per-gpu=": "",
    "gpus=": "G",
    "gpus-per-node=": "",
    "gpus-per-task=": "",
    "gres=": "",
    "mem=": "",
    "mem-per-cpu=": "",
    "mem-per-gpu=": "",
    "exclusive": "",
    "comment=": "",
    "gpu-topo=": "",
    "reservation=": "",
    "licenses=": "L",
    # They change nothing about where or when a job starts.
    **{"job-name=": "J", "output=": "o", "error=": "e", "input=": "i", "chdir=": "D"},
    **{"mail-type=": "", "mail-user=": "", "export=": "", "export-file=": "", "wrap=": ""},
    **{"requeue": "", "no-requeue": "", "gpu-bind=": "", "gpu-freq=": "", "cpu-freq=": ""},
    **{"open-mode=": "", "profile=": "", "acctg-freq=": ""},
    **{"admin-comment=": "", "wckey=": "", "kill-on-invalid-dep=": "", "parsable": ""},
    **{"quiet": "Q", "verbose": "v", "wait": "W", "ignore-pbs": "", "test-only": ""},
    **{"container=": "", "container-id=": "", "get-user-env": "", "mem-bind=": "", "no-kill": "k"},
    **{"oom-kill-step": "", "propagate": "", "signal=": "", "stepmgr": "", "tres-bind=": ""},
    **{"wait-all-nodes=": ""},
    **BY_SLURM,
    **NOT_JUDGED,
}
#: Of those without `=` the ones that may have a value, which then stands behind a `=`.
WITH_OR_WITHOUT = frozenset(
    ("exclusive", "get-user-env", "nice", "no-kill", "oom-kill-step", "propagate", "resv-ports")
)
#: Options with which sbatch submits nothing.
_WITHOUT_A_JOB = {"help": "h", "usage": "u", "version": "V"}
_KNOWN = OPTIONS | _WITHOUT_A_JOB
_NAMES = frozenset(name.rstrip("=") for name in _KNOWN)
_FLAGS = _NAMES & _KNOWN.keys()
_NAME_OF = {letter: name.rstrip("=") for name, letter in _KNOWN.items() if letter}

#: What begins a script's line of options, and the line before the options of a further component.
_MARK = re.compile("#(?:SBATCH|SLURM)")
_HETJOB = re.compile(r"\s*(?:hetjob|packjob)(?!\S)", re.IGNORECASE)


def read_options(words: Sequence[str]) -> tuple[dict[str, str | None], int]:
    """The options by their long names with their values (None without), and the script's place.

    That is the place of its name in `words`, or their number without one. Options that are none of
    sbatch's own are plugins': one without a `=` is taken to have the next word for its value.
    """
    given: dict[str, str | None] = {}
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return given, at + 1
        if word == "-" or not word.startswith("-"):
            break
        at += 1
        if word.startswith("--"):
            name, sign, text = word[2:].partition("=")
            name, value = _in_full(name), text if sign else None
        else:
            *flags, (name, value) = _by_letters(word[1:])
            given |= flags
        if value is None and name not in _FLAGS and at < len(words):
            value = words[at]
            at += 1
        given[name] = value
    return given, at


def _in_full(name: str) -> str:
    """The one option whose name begins so, as for getopt_long(3); else the name as it is."""
    found = [one for one in _NAMES if one.startswith(name)]
    return found[0] if name not in _NAMES and len(found) == 1 else name


def _by_letters(text: str) -> list[tuple[str, str | None]]:
    """The options of a word such as `-HN2`: flags, and behind them one with a value."""
    found: list[tuple[str, str | None]] = []
    for place, letter in enumerate(text, start=1):
        name = _NAME_OF.get(letter, letter)
        if name not in _FLAGS:
            return [*found, (name, text[place:] or None)]
        found.append((name, None))
    return found


def script_words(text: str, name: str) -> tuple[list[str], str]:
    """The words of a script's lines of options, and how those of a second component begin.

    The words are those of the first component; the other is '' for a job of one. As in
    _opt_batch_script of sbatch's opt.c no line counts behind the first command. `name` is the
    script's, for the PluginError about a line that cannot be read.
    """
    words: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        mark = _MARK.match(line)
        if mark is None:
            if line.strip() and not line.lstrip().startswith("#"):
                break
            continue
        if hetjob := _HETJOB.match(line, mark.end()):
            return words, line[: hetjob.end()]
        try:
            words += shlex.split(line[mark.end() :], comments=True)
        except ValueError as error:
            raise PluginError(f"{name}:{number}: {error}; expected options of sbatch") from error
    return words, ""
