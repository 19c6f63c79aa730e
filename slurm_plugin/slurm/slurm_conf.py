"""The settings of slurm.conf that decide whether Slurm calls ours, with their place in the text.

Slurm takes one for each line, and of a key given twice the last.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gres_topology.errors import TopologyError
from gres_topology.slurm_files import conf_lines
from gres_topology.slurm_files.conf_lines import SPACE, ConfLine
from slurm_plugin.base import whole_file
from slurm_plugin.errors import PluginError

PLUGIN_DIR, JOB_SUBMIT = "PluginDir", "JobSubmitPlugins"
_CLUSTER = "ClusterName"
_KEYS = {key.lower(): key for key in (PLUGIN_DIR, JOB_SUBMIT, _CLUSTER)}
_MOST_BYTES = 16 << 20
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

    def text(file: Path) -> str:
        conf.included.append(file)
        if file not in conf.texts:
            try:
                conf.texts[file] = text_of(file)
            except PluginError as error:
                raise TopologyError(str(error)) from error
        return conf.texts[file]

    def cluster_name() -> str | None:
        cluster = conf.last(_CLUSTER)
        return cluster.value if cluster else None

    try:
        for file, line in conf_lines.included(path, text, cluster_name):
            if (setting := _setting(file, line)) is not None:
                conf.settings.append(setting)
    except TopologyError as error:
        raise PluginError(str(error)) from error
    return conf


def _setting(path: Path, line: ConfLine) -> ConfSetting | None:
    name = _NAME.match(line.joined)
    if name is None or name[1].lower() not in _KEYS:
        return None
    key, where = _KEYS[name[1].lower()], f"{path}, line {line.number}"
    pair = _PAIR.match(line.text)
    if "\\" in line.text:
        raise PluginError(f"{where}: {key} with a backslash: write it on one line, without any")
    if pair is None or pair[1] or line.text[pair.end() :].strip(SPACE):
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
