"""What `gputopo enable` writes into slurm.conf, and how `gputopo disable` finds it again.

Text is only ever put in: an entry into a value, or a line. A comment in front of the line says
which, so that exactly this can be taken out, whoever else changed the file in between:

    # gputopo enable put lua into the next line; gputopo disable takes it out
    JobSubmitPlugins=all_partitions,lua
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from gres_topology.slurm_files.conf_lines import ConfLine, lines
from slurm_plugin.errors import PluginError
from slurm_plugin.slurm.slurm_conf import (
    JOB_SUBMIT,
    PLUGIN_DIR,
    ConfSetting,
    SlurmConf,
    parse,
)

LUA = "lua"
_SEPARATOR = {PLUGIN_DIR: ":", JOB_SUBMIT: ","}
_PUT = "# gputopo enable put {entry} into the next line; gputopo disable takes it out"
_WROTE = "# gputopo enable wrote the next line for {entry}{own}; gputopo disable takes it out"
_OWN = " (Slurm's own is {})"
_MARK = re.compile(
    r"# gputopo enable (?:put (\S+) into the next line|wrote the next line for (\S+)"
    r"(?: \(Slurm's own is (\S+)\))?); gputopo disable takes it out\s*"
)

Texts = dict[Path, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What slurm.conf is to say."""

    #: The directory of the select plugin, first in PluginDir; None where it is not needed.
    plugin_dir: str | None
    #: Slurm's own PluginDir, which is written where slurm.conf names none.
    slurms_own: str


@dataclass(frozen=True, slots=True)
class _Edit:
    """Text that takes the place of other text; nothing is replaced where start is end."""

    path: Path
    start: int
    end: int
    text: str
    is_new_line: bool = False


def entries(setting: ConfSetting | None) -> list[str]:
    """The parts of a value, such as the directories of PluginDir."""
    if setting is None:
        return []
    return [part.strip() for part in setting.value.split(_SEPARATOR[setting.key])]


def names_lua(conf: SlurmConf) -> bool:
    """Whether slurmctld loads job_submit.lua."""
    return LUA in [name.removeprefix("job_submit/") for name in entries(conf.last(JOB_SUBMIT))]


def enabled(conf: SlurmConf, wanted: Wanted) -> Texts:
    """The texts in which slurm.conf says what is wanted; the same ones where it does already.

    What an earlier call put in goes first, if something else is wanted now.
    """
    if _is_enabled(conf, wanted):
        return conf.texts
    bare = disabled(conf)
    conf = parse(conf.path, bare.__getitem__)
    edits: list[_Edit] = []
    if wanted.plugin_dir is not None:
        edits += _first_in_plugin_dir(conf, wanted.plugin_dir, wanted.slurms_own)
    if not names_lua(conf):
        edits += _last_in_job_submit(conf)
    # Before a last line that does not end, a new line comes before the mark of that line.
    edits.sort(key=lambda one: not one.is_new_line)
    return conf_texts(bare, edits)


def _is_enabled(conf: SlurmConf, wanted: Wanted) -> bool:
    folders = entries(conf.last(PLUGIN_DIR))
    if wanted.plugin_dir is None:
        is_right = not any(entry != LUA for entry, *_ in _marks(conf))
    else:
        is_right = folders[:1] == [wanted.plugin_dir]
    return is_right and names_lua(conf)


def _first_in_plugin_dir(conf: SlurmConf, folder: str, slurms_own: str) -> Iterator[_Edit]:
    setting = conf.last(PLUGIN_DIR)
    if setting is None:
        mark = _WROTE.format(entry=folder, own=_OWN.format(slurms_own))
        yield _new_line(conf, mark, f"{PLUGIN_DIR}={folder}:{slurms_own}")
        return
    folders = entries(setting)
    if folders[0] == folder:
        return
    if folder in folders:
        raise PluginError(
            f"{setting.where}: read {setting.value!r}, expected {folder} first:"
            " put it there, or take it out and let this command do it"
        )
    yield _mark_above(conf, setting, folder)
    yield _Edit(setting.path, setting.value_start, setting.value_start, f"{folder}:")


def _last_in_job_submit(conf: SlurmConf) -> Iterator[_Edit]:
    setting = conf.last(JOB_SUBMIT)
    if setting is None:
        yield _new_line(conf, _WROTE.format(entry=LUA, own=""), f"{JOB_SUBMIT}={LUA}")
        return
    yield _mark_above(conf, setting, LUA)
    more = f",{LUA}" if setting.value else LUA
    yield _Edit(setting.path, setting.value_end, setting.value_end, more)


def _mark_above(conf: SlurmConf, setting: ConfSetting, entry: str) -> _Edit:
    mark = _PUT.format(entry=entry) + _line_break(conf.texts[setting.path])
    return _Edit(setting.path, setting.start, setting.start, mark)


def _new_line(conf: SlurmConf, mark: str, line: str) -> _Edit:
    """At the end of slurm.conf; before its last line where that one does not end."""
    text = conf.texts[conf.path]
    at = next((one.start for one in lines(text) if not one.is_whole), len(text))
    line_break = _line_break(text)
    return _Edit(conf.path, at, at, f"{mark}{line_break}{line}{line_break}", is_new_line=True)


def _line_break(text: str) -> str:
    return "\r\n" if text.split("\n", 1)[0].endswith("\r") else "\n"


def conf_texts(texts: Texts, edits: list[_Edit]) -> Texts:
    """The texts after the edits, of which no two overlap."""
    changed = dict(texts)
    # From behind, so that offsets stay right; of two at one place the later one comes behind.
    for edit in sorted(edits, key=lambda one: one.start)[::-1]:
        text = changed[edit.path]
        changed[edit.path] = text[: edit.start] + edit.text + text[edit.end :]
    return changed


def disabled(conf: SlurmConf) -> Texts:
    """The texts without what `enabled` put in; PluginError where that cannot be told any more."""
    edits: list[_Edit] = []
    settings = {(one.path, one.start): one for one in conf.settings}
    for entry, own, path, mark, below in _marks(conf):
        setting = settings.get((path, below.start)) if below else None
        key = JOB_SUBMIT if entry == LUA else PLUGIN_DIR
        if setting is None or setting.key != key or entry not in entries(setting):
            raise PluginError(
                f"{path}, line {mark.number}: expected {key} with {entry} in the next line:"
                " take both out by hand"
            )
        edits.append(_Edit(path, mark.start, mark.end, ""))
        edits.append(_taken_out(setting, entry, own))
    return conf_texts(conf.texts, edits)


def _taken_out(setting: ConfSetting, entry: str, own: str | None) -> _Edit:
    separator = _SEPARATOR[setting.key]
    parts = setting.value.split(separator)
    at = [part.strip() for part in parts].index(entry)
    rest = separator.join(parts[:at] + parts[at + 1 :])
    if rest == own or not (rest or setting.is_quoted):
        return _Edit(setting.path, setting.start, setting.end, "")
    return _Edit(setting.path, setting.value_start, setting.value_end, rest)


def _marks(conf: SlurmConf) -> Iterator[tuple[str, str | None, Path, ConfLine, ConfLine | None]]:
    """Entry, what the whole line was written beside, file, the comment's line and the next one."""
    for path, text in conf.texts.items():
        for line, below in pairwise([*lines(text), None]):
            mark = line and _MARK.fullmatch(text[line.start : line.end])
            if line and mark:
                yield mark[1] or mark[2], mark[3], path, line, below
