"""Writes what enabling changes, all of it or nothing.

The link to job_submit.lua comes first and goes last: slurmctld does not start while slurm.conf
names lua and the file is missing. Each file is copied aside before it is replaced.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from slurm_plugin.base import whole_file
from slurm_plugin.enabling.edits import Texts
from slurm_plugin.errors import PluginError
from slurm_plugin.slurm.slurm_conf import load, store

#: Where a symbolic link stands -> what it names.
Links = Mapping[Path, Path]

_BACKUP = re.compile(r"\.gputopo-\d{8}-\d{6}(?:-\d+)?")


class Change(NamedTuple):
    """A file's text before and after; `path` is the file itself, behind all links."""

    path: Path
    before: str
    after: str


def changes(before: Texts, after: Texts) -> list[Change]:
    """The files of which the text differs."""
    return [
        Change(whole_file.resolved(path), text, after[path])
        for path, text in before.items()
        if after[path] != text
    ]


def write(changed: list[Change], now: datetime, links: Links = MappingProxyType({})) -> list[Path]:
    """Make the links, write the files; returns their backups. PluginError, and all is as before."""
    backups = []
    with ExitStack() as undo:
        for path, target in links.items():
            undo.callback(_make_link(path, target))
        for change in changed:
            # Before the copy, too: whoever owns the folder may read it.
            _require_unchanged(change)
            backup = _back_up(change, now)
            undo.callback(_undo, change, backup)
            _require_unchanged(change)
            whole_file.replace_contents(change.path, store(change.after))
            backups.append(backup)
        undo.pop_all()
    return backups


def drop_needless_backups(changed: list[Change]) -> list[Path]:
    """Remove the backups of files that are again as a backup has them; returns which.

    They are those that disabling made itself, too: enabling again writes the same text.
    """
    gone: list[Path] = []
    for change in changed:
        beside = change.path.parent.glob(f"{change.path.name}.gputopo-*")
        mine = [
            path
            for path in sorted(beside)
            if _BACKUP.fullmatch(path.name.removeprefix(change.path.name))
            and stat.S_ISREG(path.lstat().st_mode)
        ]
        contents = {path: store(load(path)) for path in mine}
        if store(change.after) not in contents.values():
            continue
        known = (store(change.after), store(change.before))
        gone += [path for path, content in contents.items() if content in known]
    remove(gone)
    return gone


def remove(paths: Iterable[Path]) -> None:
    """Remove these files or links; PluginError at the first that cannot be removed."""
    for path in paths:
        whole_file.remove(path)


def _make_link(path: Path, target: Path) -> Callable[[], None]:
    whole_file.link(path, target)
    return partial(whole_file.remove, path)


def _require_unchanged(change: Change) -> None:
    if load(change.path) != change.before:
        raise PluginError(f"{change.path}: changed meanwhile: run this again")


def _back_up(change: Change, now: datetime) -> Path:
    """A copy beside the file that only its owner may write, with the file's own owner and mode."""
    stem = f"{change.path}.gputopo-{now:%Y%m%d-%H%M%S}"
    try:
        like = change.path.lstat()
    except OSError as error:
        raise PluginError(f"{change.path}: cannot be read: {error.strerror}") from error
    for name in (stem, *(f"{stem}-{number}" for number in range(2, 100))):
        with suppress(FileExistsError):
            whole_file.create(Path(name), store(change.before), like)
            return Path(name)
    raise PluginError(f"{stem}: so many backups of this second are there already")


def _undo(change: Change, backup: Path) -> None:
    """Put the old text back if the new one is there; the backup goes once that is done."""
    if load(change.path) == change.after:
        whole_file.replace_contents(change.path, store(change.before))
    whole_file.remove(backup)
