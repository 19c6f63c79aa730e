"""The texts of a support bundle: bounded, and what in them says whose names they are."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import yaml

from gres_topology.slurm_files import conf_lines
from slurm_plugin.base import whole_file
from slurm_plugin.base.rows_file import NO_JSON
from slurm_plugin.doctor.placeholders import Placeholders
from slurm_plugin.doctor.secrets import Secrets
from slurm_plugin.errors import PluginError

#: Characters of a line that are shown, and of one of the decision log.
LONGEST, LONGEST_RECORD = 2_000, 1 << 16
#: Lines of a file of settings: more are no settings.
MOST_LINES = 20_000
_PIECE = 1 << 16
#: What of slurm.conf tells how we are called, who chooses, and what there is to choose from.
_MATTERS = re.compile(
    r"(?i)\s*(?:Select|PluginDir|JobSubmitPlugins|Gres|AccountingStorageTRES|Node(?:Name|Set)"
    r"|PartitionName|Topology|Scheduler|Priority|Preempt|(?:Task|Srun)?(?:Prolog|Epilog)|PlugStack"
    r"|Include|SlurmctldHost|SlurmctldParameters|SlurmctldTimeout|SlurmctldLogFile|MessageTimeout"
    r"|SlurmUser|StateSaveLocation|TaskPlugin|ProctrackType|LaunchParameters|CliFilter|Licenses"
    r"|Def(?:Mem|Cpu)|MaxMem|EnforcePartLimits|(?:Store|JobComp|AccountingStorage)Pass|Auth)"
)
_OPERATOR = re.compile(r"([\w.]+)[ \t]*[-*+/]=(?!=)")
_FREE_TEXT = re.compile(r"(?i)\b(Comment|Reason|Extra|InstanceId)[ \t]*=[ \t]*(?:\"[^\"]*\"?|\S+)")
_SECTION = re.compile(r"^([ ]*)(users|accounts):[ ]*(?:#.*)?$")
_MEMBER = re.compile(r"""^([ ]*)(["']?)([^\s:#"'][^:#"']*)\2[ ]*:""")


def last_lines(
    file: BinaryIO, most_bytes: int, most_lines: int, wanted: bytes = b"", longest: int = LONGEST
) -> list[str]:
    """The last lines with `wanted` (lower case) near their beginning, each cut where it is long.

    No more than `most_bytes` of the file are read.
    """
    end = file.seek(0, os.SEEK_END)
    if file.seek(max(0, end - most_bytes)):
        _to_end_of_line(file)
    found: deque[str] = deque(maxlen=most_lines)
    while piece := file.readline(4 * longest):
        length = len(piece)
        if not piece.endswith(b"\n"):
            length += _to_end_of_line(file)
        if wanted in piece.lower():
            found.append(_cut(piece, length, longest))
    return list(found)


def lines_of(
    path: Path, most_bytes: int, most_lines: int, wanted: bytes = b"", longest: int = LONGEST
) -> list[str]:
    """The same of a file; PluginError where it cannot be read."""
    try:
        with whole_file.opened(path) as file:
            return last_lines(file, most_bytes, most_lines, wanted, longest)
    except OSError as error:
        raise PluginError(f"{path}: cannot be read: {error.strerror}") from error


def _to_end_of_line(file: BinaryIO) -> int:
    """Pass over what is left of a line; how many bytes that was."""
    passed = 0
    while piece := file.readline(_PIECE):
        passed += len(piece)
        if piece.endswith(b"\n"):
            break
    return passed


def _cut(piece: bytes, length: int, longest: int) -> str:
    """A line as text; one that is too long ends before a word, as half a name is not known."""
    text = piece.decode(errors="replace").rstrip("\r\n")
    if length == len(piece) and len(text) <= longest:
        return text
    text = re.sub(r"\S+\Z", "", text[:longest].rstrip("\ufffd"))
    return f"{text}... ({length} bytes, cut here)"


def yaml_text(text: str, names: Placeholders, secrets: Secrets) -> str:
    """gputopo.yaml, be it wrong: without comments, users and accounts by placeholders."""
    names.know("user", (text[a:b] for a, b, kind in _places(text) if kind == "user"))
    names.know("account", (text[a:b] for a, b, kind in _places(text) if kind == "account"))
    bare = "\n".join(map(_uncommented, text.split("\n")))
    return names.text(secrets.text(names.named(bare, _places(bare))))


def settings_text(text: str, names: Placeholders, secrets: Secrets) -> str:
    """Lines `Key=value` of Slurm or of ours."""
    names.learn(text)
    return names.text(secrets.settings("\n".join(map(_uncommented, text.split("\n")))))


def that_matter(text: str) -> str:
    """The lines of slurm.conf that matter to us, continued ones as one, without free text.

    Operators (`Key+=value`, which Slurm takes for `Key=value`) and blanks in lists are left out: by
    plain `Key=value` is known what names a person, or is a secret.
    """
    whole = (line.joined.rstrip() for line in conf_lines.lines(text))
    found = [_OPERATOR.sub(r"\1=", line) for line in whole if _MATTERS.match(line)]
    found = [_FREE_TEXT.sub(r"\1=(free text)", line) for line in found]
    return "\n".join(re.sub(r",[ \t]+", ",", line) for line in found)


def records(lines: Iterable[str], names: Placeholders, secrets: Secrets) -> Iterator[str]:
    """Lines of the decision log; of those that cannot be read, that they cannot."""
    for line in lines:
        try:
            record = msgspec.json.decode(line)
            if not isinstance(record, dict):
                raise msgspec.DecodeError("no object")
            yield secrets.text(msgspec.json.encode(names.tree(record)).decode())
        except (*NO_JSON, UnicodeError):
            yield f"(a line of {len(line)} characters that cannot be read)"


def _uncommented(line: str) -> str:
    """The line without a comment, in which people write names; a # in quotes begins none."""
    for match in re.finditer(r"(?:^|(?<=\s))#", line):
        before = line[: match.start()]
        if before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
            return f"{before}# (a comment)"
    return line


def _places(text: str) -> list[tuple[int, int, str]]:
    """Where a user or an account is a key: from, to, whose."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return list(_places_by_line(text))
    found: list[tuple[int, int, str]] = []
    if isinstance(root, yaml.MappingNode):
        _in_sections(root, found)
        for key, value in root.value:
            if key.value == "genie" and isinstance(value, yaml.MappingNode):
                _in_sections(value, found)
    return [(a, b, kind) for a, b, kind in found if a < b]


def _in_sections(node: yaml.MappingNode, found: list[tuple[int, int, str]]) -> None:
    for key, value in node.value:
        if key.value in ("users", "accounts") and isinstance(value, yaml.MappingNode):
            for name in (name for name, _ in value.value if isinstance(name, yaml.ScalarNode)):
                start, end = name.start_mark.index, name.end_mark.index
                quoted = int(name.style in ("'", '"'))
                found.append((start + quoted, end - quoted, key.value[:-1]))


def _places_by_line(text: str) -> Iterator[tuple[int, int, str]]:
    """The same by indentation, of what is no YAML."""
    at, outer, inner, kind = 0, -1, -1, ""
    for line in text.split("\n"):
        section, member = _SECTION.match(line), _MEMBER.match(line)
        depth = len(line) - len(line.lstrip(" "))
        if kind and line.strip() and depth <= outer:
            kind = ""
        if section and not kind:
            outer, inner, kind = depth, -1, section[2][:-1]
        elif member and kind:
            inner = depth if inner < 0 else inner
            if depth == inner:
                yield at + member.start(3), at + member.end(3), kind
        at += len(line) + 1
