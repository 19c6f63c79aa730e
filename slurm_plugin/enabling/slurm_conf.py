"""slurm.conf as Slurm reads it, with the place of each setting in the text.

Slurm's parser (src/common/parse_config.c, 22.05 to 26.05 alike) takes keys in any case, one for
each line, cuts a line at a `#` that has no backslash before it, joins lines that end in a
backslash, reads included files where they stand, and of a key given twice takes the last.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin import whole_file
from slurm_plugin.errors import PluginError

PLUGIN_DIR, JOB_SUBMIT = "PluginDir", "JobSubmitPlugins"
_CLUSTER = "ClusterName"
_KEYS = {key.lower(): key for key in (PLUGIN_DIR, JOB_SUBMIT, _CLUSTER)}
_MOST_BYTES = 16 << 20
_MOST_DEEP = 32
_MOST_FILES = 1000
#: What C calls space; `str.split` knows more.
_SPACE = " \t\n\v\f\r"
_NAME = re.compile(r"\s*([A-Za-z0-9_.]+)", re.A)
_PAIR = re.compile(r"\s*[A-Za-z0-9_.]+\s*([-*+/]?)=\s*(?:\"([^\"]*)\"|([^\s\"]+))(?=\s|$)", re.A)


@dataclass(frozen=True, slots=True)
class ConfSetting:
    """One line that sets a key. Offsets are characters in the text of its file."""

    key: str
    value: str
    path: Path
    #: As an editor counts, from 1.
    line: int
    #: Of the whole line, and of the value without its quotes.
    start: int
    end: int
    value_start: int
    value_end: int
    is_quoted: bool

    @property
    def where(self) -> str:
        """FILE, line N."""
        return f"{self.path}, line {self.line}"


@dataclass(frozen=True, slots=True)
class SlurmConf:
    """slurm.conf and the files that it includes."""

    path: Path
    #: Text by path, in the order in which they are read.
    texts: dict[Path, str] = field(default_factory=dict)
    #: Every setting of the keys that matter here, in the order in which Slurm meets them.
    settings: list[ConfSetting] = field(default_factory=list)
    #: Every file as often as it is included.
    included: list[Path] = field(default_factory=list)

    def last(self, key: str) -> ConfSetting | None:
        """The setting that counts."""
        return next((one for one in reversed(self.settings) if one.key == key), None)


def load(path: Path) -> str:
    """A file's text, which `store` turns into the same bytes; PluginError where there is none."""
    try:
        # Root follows no link that SlurmUser, whose folder this may be, can have put there.
        raw = whole_file.read(path, _MOST_BYTES)
    except FileNotFoundError as error:
        raise PluginError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > _MOST_BYTES:
        raise PluginError(f"{path}: expected a file of at most {_MOST_BYTES >> 20} MB")
    if b"\0" in raw:
        raise PluginError(f"{path}: has a NUL byte, behind which Slurm reads nothing of a line")
    return raw.decode("utf-8", "surrogateescape")


def store(text: str) -> bytes:
    """The bytes that `load` read."""
    return text.encode("utf-8", "surrogateescape")


def parse(path: Path, text_of: Callable[[Path], str] = load) -> SlurmConf:
    """slurm.conf at this path; PluginError where a line that matters cannot be understood."""
    conf = SlurmConf(path)
    _parse_file(conf, path, text_of, ())
    return conf


@dataclass(frozen=True, slots=True)
class ConfLine:
    """A line as Slurm sees it, which may be several lines that backslashes join."""

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
        """The text without line breaks that a backslash takes away, and without backslashes."""
        return re.sub(r"\\(?:[ \t\v\f\r]*\n)?", "", self.text)


def lines(text: str) -> Iterator[ConfLine]:
    """The lines of a file, in order."""
    start = end = 0
    first, seen = 1, ""
    for number, physical in enumerate(re.findall(r"[^\n]*\n|[^\n]+", text), 1):
        end += len(physical)
        counted = _without_comment(physical)
        seen += counted
        if _is_continued(counted):
            continue
        yield ConfLine(first, start, end, seen, physical.endswith("\n"))
        first, start, seen = number + 1, end, ""
    if start < end:
        yield ConfLine(first, start, end, seen, False)


def _without_comment(line: str) -> str:
    # A backslash takes the character behind it along, a # too.
    counted = re.match(r"(?:[^\\#]|\\[\s\S])*", line)
    if counted and line[counted.end() : counted.end() + 1] == "#":
        return counted.group()
    return line


def _is_continued(counted: str) -> bool:
    text = counted.rstrip(_SPACE)
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _parse_file(
    conf: SlurmConf, path: Path, text_of: Callable[[Path], str], above: tuple[Path, ...]
) -> None:
    if path in above or len(above) > _MOST_DEEP:
        raise PluginError(f"{path}: includes itself, by way of {above[-1]}")
    conf.included.append(path)
    if len(conf.included) > _MOST_FILES:
        raise PluginError(f"{conf.path}: includes more than {_MOST_FILES} files")
    if path not in conf.texts:
        conf.texts[path] = text_of(path)
    for line in lines(conf.texts[path]):
        words = line.joined.split()
        if re.match(r"include[ \t\n\v\f\r]", line.joined, re.I) and len(words) > 1:
            try:
                included = _included(conf, words[1])
                _parse_file(conf, included, text_of, (*above, path))
            except PluginError as error:
                raise PluginError(f"{error} (included in {path}, line {line.number})") from error
        else:
            setting = _setting(path, line)
            if setting is not None:
                conf.settings.append(setting)


def _included(conf: SlurmConf, name: str) -> Path:
    if "%c" in name:
        cluster = conf.last(_CLUSTER)
        if cluster is None:
            raise PluginError(f"{name}: %c stands for ClusterName, which is not set above it")
        name = name.replace("%c", cluster.value.lower())
    if "*" in name:
        raise PluginError(f"{name}: Slurm includes one file by its name, and no pattern of names")
    # Beside slurm.conf by the name it is called by, even if that is a link.
    return Path(os.path.normpath(conf.path.parent / name))


def _setting(path: Path, line: ConfLine) -> ConfSetting | None:
    name = _NAME.match(line.joined)
    if name is None or name[1].lower() not in _KEYS:
        return None
    key, where = _KEYS[name[1].lower()], f"{path}, line {line.number}"
    pair = _PAIR.match(line.text)
    if "\\" in line.text:
        raise PluginError(f"{where}: {key} with a backslash: write it on one line, without any")
    if pair is None or pair[1] or line.text[pair.end() :].strip(_SPACE):
        raise PluginError(
            f"{where}: read {line.text.strip()!r}, expected {key}=VALUE alone on its line"
        )
    group = 3 if pair[2] is None else 2
    return ConfSetting(
        key=key,
        value=pair[group],
        path=path,
        line=line.number,
        start=line.start,
        end=line.end,
        value_start=line.start + pair.start(group),
        value_end=line.start + pair.end(group),
        is_quoted=group == 2,
    )
