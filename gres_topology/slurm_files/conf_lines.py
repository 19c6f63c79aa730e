"""The lines of slurm.conf, gres.conf and topology.conf as Slurm's own parser sees them.

The parser (src/common/parse_config.c, 22.05 to 26.05 alike) takes keys in any case, cuts a line at
a `#` that has no backslash before it, joins lines that end in a backslash, and reads included files
where they stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gres_topology.errors import TopologyError

#: What C calls space; `str.split` knows more.
SPACE = " \t\n\v\f\r"
_INCLUDE = re.compile(r"include[ \t\n\v\f\r]+([^ \t\n\v\f\r]+)", re.I)
_PAIR = re.compile(r"\s*([A-Za-z0-9_.]+)\s*[-*+/]?=\s*(?:\"([^\"]*)\"|([^\s\"]\S*))(?=\s|$)", re.A)
#: A backslash that joins two lines, with the blanks behind it; one before a character that counts.
_JOINED = re.compile(r"\\[ \t\v\f\r]*\n")
_ESCAPED = re.compile(r"\\([\s\S]?)")
_MOST_DEEP = 32
_MOST_FILES = 1000


@dataclass(frozen=True, slots=True)
class ConfLine:
    """A line as Slurm sees it, which may be several lines that backslashes join."""

    #: As an editor counts, from 1.
    number: int
    start: int
    #: Behind its line break.
    end: int
    #: Without its comment; with the backslashes and line breaks of joined lines.
    text: str
    #: It ends in a line break, and the next line does not belong to it.
    is_whole: bool

    @property
    def joined(self) -> str:
        """The text without what a backslash takes away: a line break, or itself."""
        return _ESCAPED.sub(r"\1", _JOINED.sub("", self.text))


def lines(text: str) -> Iterator[ConfLine]:
    """The lines of a file, in order."""
    start = end = 0
    first, seen = 1, ""
    for number, physical in enumerate(re.findall(r"[^\n]*\n|[^\n]+", text), 1):
        end += len(physical)
        counted = _without_comment(physical)
        if _is_continued(counted):
            # Also where a comment stood between the backslash and the line break.
            seen += counted if counted.endswith("\n") else f"{counted}\n"
            continue
        seen += counted
        yield ConfLine(first, start, end, seen, physical.endswith("\n"))
        first, start, seen = number + 1, end, ""
    if start < end:
        yield ConfLine(first, start, end, seen, False)


def pairs(line: ConfLine) -> dict[str, str]:
    """`Key=value` of a line, keys in lower case and values without quotes; {} for an empty line.

    Of a key given twice the last counts. Raises ValueError with what is no `Key=value`.
    """
    found, text, at = {}, line.joined, 0
    while pair := _PAIR.match(text, at):
        found[pair[1].lower()] = pair[3] if pair[2] is None else pair[2]
        at = pair.end()
    if rest := text[at:].strip(SPACE):
        raise ValueError(f"{rest.split()[0]!r}; expected Key=value")
    return found


def included(
    path: Path,
    text_of: Callable[[Path], str],
    cluster_name: Callable[[], str | None] = lambda: None,
) -> Iterator[tuple[Path, ConfLine]]:
    """Each line of a file and of those that it includes, with its file, as Slurm meets them.

    `cluster_name` is asked where an include has `%c`. Raises TopologyError for a file that includes
    itself or too many, and adds to one from `text_of` where the file is included.
    """
    count = 0

    def read(at: Path, above: tuple[Path, ...]) -> Iterator[tuple[Path, ConfLine]]:
        nonlocal count
        if at in above or len(above) > _MOST_DEEP:
            raise TopologyError(f"{at}: includes itself, or deeper than {_MOST_DEEP} files")
        count += 1
        if count > _MOST_FILES:
            raise TopologyError(f"{path}: includes more than {_MOST_FILES} files")
        for line in lines(text_of(at)):
            include = _INCLUDE.match(line.joined)
            if include is None:
                yield at, line
                continue
            where = f"included in {at}, line {line.number}"
            if rest := line.joined[include.end() :].strip(SPACE):
                raise TopologyError(f"{at}, line {line.number}: {rest!r} behind an included file")
            try:
                yield from read(_place(path, include[1], cluster_name), (*above, at))
            except TopologyError as error:
                raise TopologyError(f"{error} ({where})") from error

    return read(path, ())


def _place(path: Path, name: str, cluster_name: Callable[[], str | None]) -> Path:
    """Where an included file is: beside the first one, by the name that this is called by."""
    if "%c" in name:
        cluster = cluster_name()
        if cluster is None:
            raise TopologyError(f"{name}: %c stands for ClusterName, which is not set above it")
        name = name.replace("%c", cluster.lower())
    if "*" in name:
        raise TopologyError(f"{name}: Slurm includes one file by its name, and no pattern of names")
    # As Slurm puts it together: `..` behind a link to a folder is the folder that this lies in.
    return Path(name) if name.startswith("/") else Path(f"{path.parent}/{name}")


def _without_comment(line: str) -> str:
    # A backslash takes the character behind it along, a # too.
    counted = re.match(r"(?:[^\\#]|\\[\s\S])*", line)
    if counted and line[counted.end() : counted.end() + 1] == "#":
        return counted.group()
    return line


def _is_continued(counted: str) -> bool:
    text = counted.rstrip(SPACE)
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1
