"""The one way to write files: as a whole, and where root writes, where nobody can lead it astray.

Readers, and whoever comes after a crash, see the old file or the new one. Root goes to a file from
folder to folder, by descriptors. It follows a link only where nobody but root can have put it, and
in a folder of somebody else's it leaves files that are that owner's.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from slurm_plugin.errors import PluginError

#: A path with more links is a circle, as to Linux.
_MOST_LINKS = 40
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _Place(NamedTuple):
    """A name in an open folder."""

    folder: int
    name: str
    #: The same as text, behind all links.
    path: Path
    #: Whose files those in the folder are to be: None for whoever runs this.
    owner: os.stat_result | None


def resolved(path: Path) -> Path:
    """The file itself, behind the links. PluginError where root may not follow one of them."""
    with _told(path, "read"), _place(path, follows=True) as place:
        return place.path


def read(path: Path, most_bytes: int) -> bytes:
    """What is in a file, but of a larger one no more than a byte too many.

    FileNotFoundError where there is none; PluginError where it cannot be read.
    """
    with _told(path, "read", FileNotFoundError), opened(path) as file:
        return file.read(most_bytes + 1)


def stamp(path: Path) -> tuple[int, ...]:
    """What differs after every change of the file; empty where there is none."""
    try:
        at = path.stat()
    except OSError:
        return ()
    return (at.st_mtime_ns, at.st_size, at.st_ino)


def opened(path: Path) -> BinaryIO:
    """A file to read from its start.

    FileNotFoundError where there is none; PluginError where it cannot be read.
    """
    with _told(path, "read", FileNotFoundError), _place(path, follows=True) as place:
        return os.fdopen(_opened(place)[0], "rb")


@contextmanager
def as_owner(path: Path, *, makes: bool = False) -> Iterator[None]:
    """A block that opens this file by its name, as SQLite does, and others beside it.

    Where root runs it and the folder is somebody else's, it has that owner's rights and no more: a
    link leads it nowhere that the owner could not go. PluginError where there is no way to the
    folder, which is made where it is missing and `makes`.
    """
    with _told(path, "written" if makes else "read"), _place(path, makes=makes) as place:
        owner = place.owner
    if owner is None:
        yield
        return
    uid, gid, groups = os.geteuid(), os.getegid(), os.getgroups()
    os.setgroups([owner.st_gid])
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(uid)
        os.setegid(gid)
        os.setgroups(groups)


def replace_contents(path: Path, content: bytes) -> None:
    """Replace a file that is there: owner, mode and extended attributes stay, a link is followed.

    It is on the disk when this returns. PluginError where that cannot be, with the old file there.
    """
    with _told(path, "written"), _place(path, follows=True) as place:
        with _told(path, "read"):
            descriptor, old = _opened(place)
            try:
                kept = {name: os.getxattr(descriptor, name) for name in os.listxattr(descriptor)}
            finally:
                os.close(descriptor)

        def like_the_old(descriptor: int) -> None:
            owner = place.owner or old
            os.fchown(descriptor, owner.st_uid, old.st_gid)
            for name, value in kept.items():
                os.setxattr(descriptor, name, value)
            os.fsync(descriptor)

        _put(place, content, stat.S_IMODE(old.st_mode) & 0o777, like_the_old)


def replace(
    path: Path, content: bytes, mode: int, prepare: Callable[[int], None] | None = None
) -> None:
    """Write `content` beside `path` and put it in its place; else PluginError, nothing left.

    `prepare` gets the descriptor of the new file before that. Folders that are missing are made; a
    link of that name is replaced.
    """
    with _told(path, "written"), _place(path, makes=True) as place:
        _put(place, content, mode, prepare)


def create(path: Path, content: bytes, like: os.stat_result) -> None:
    """Write a file that is not there, with the owner and mode of another one.

    FileExistsError where it is there; PluginError where it cannot be written.
    """
    with _told(path, "written", FileExistsError), _place(path) as place:
        descriptor = os.open(place.name, _NEW, 0o600, dir_fd=place.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchown(descriptor, (place.owner or like).st_uid, like.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(like.st_mode) & 0o777)
                os.fsync(descriptor)
        except BaseException:
            os.unlink(place.name, dir_fd=place.folder)
            raise


def link(path: Path, target: Path) -> None:
    """Make a symbolic link; PluginError where that cannot be."""
    with _told(path, "linked"), _place(path) as place:
        os.symlink(target, place.name, dir_fd=place.folder)


def remove(path: Path) -> None:
    """Remove a file or link; PluginError where that cannot be."""
    with _told(path, "removed"), _place(path) as place:
        os.unlink(place.name, dir_fd=place.folder)


@contextmanager
def folder_of(path: Path) -> Iterator[int]:
    """A descriptor of the folder that the file is in, for a lock; it is made where missing."""
    with _told(path, "written"), _place(path, makes=True) as place:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=place.folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _told(path: Path, what: str, *but: type[OSError]) -> Iterator[None]:
    """A block in which every OSError is a PluginError that names the file, `but` these."""
    try:
        yield
    except but:
        raise
    except OSError as error:
        raise PluginError(f"{path}: cannot be {what}: {error.strerror}") from error


def _opened(place: _Place) -> tuple[int, os.stat_result]:
    """The descriptor of a plain file to read, and what it is; OSError or PluginError."""
    # Not blocked by a FIFO, which is none.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(place.name, flags, dir_fd=place.folder)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise PluginError(f"{place.path}: expected a plain file")
    if place.owner is not None and found.st_nlink > 1:
        os.close(descriptor)
        # Its other name may be that of a file which the folder's owner may not read.
        raise PluginError(
            f"{place.path}: has several names (hard links), and its folder is not root's;"
            " expected a file of one name: copy it, or do this as the folder's owner"
        )
    return descriptor, found


def _put(place: _Place, content: bytes, mode: int, prepare: Callable[[int], None] | None) -> None:
    beside = f".{place.name}-{secrets.token_hex(6)}"
    descriptor = os.open(beside, _NEW, 0o600, dir_fd=place.folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if place.owner is not None:
                os.fchown(descriptor, place.owner.st_uid, place.owner.st_gid)
            if prepare is not None:
                prepare(descriptor)
            os.fchmod(descriptor, mode)
        os.replace(beside, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        os.unlink(beside, dir_fd=place.folder)
        raise


@contextmanager
def _place(path: Path, *, follows: bool = False, makes: bool = False) -> Iterator[_Place]:
    """Where a file is. `follows`: behind links of its name, too; `makes`: folders, if missing."""
    walk = _Walk(path)
    try:
        yield walk.to_file(follows, makes)
    finally:
        walk.close()


class _Walk:
    """From folder to folder. Only root does not follow what somebody else may have put there."""

    def __init__(self, path: Path) -> None:
        self._asked = path
        self._is_root = os.geteuid() == 0
        self._left = [*reversed(path.absolute().parts[1:])]
        self._links = 0
        self._folder = -1
        self._start()

    def close(self) -> None:
        """Close the file descriptor that is held; a second call does nothing."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _start(self) -> None:
        self.close()
        self._folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._seen = [Path("/")]
        #: Could nobody but root have changed the way so far?
        self._is_safe = True

    def to_file(self, follows: bool, makes: bool) -> _Place:
        """The file's place; OSError where there is no way, PluginError where it is not safe."""
        while self._left:
            name = self._left.pop()
            found = self._look(name)
            is_link = found is not None and stat.S_ISLNK(found.st_mode)
            if is_link and (self._left or follows):
                self._follow(name)
            elif not self._left and name != "..":
                return _Place(self._folder, name, self._seen[-1] / name, self._owner())
            else:
                if found is None and makes:
                    self._make(name)
                self._enter(name)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def _look(self, name: str) -> os.stat_result | None:
        """What the name is, None for nothing; whether the way is safe as far as there."""
        folder = os.fstat(self._folder)
        try:
            found = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            found = None
        # In a folder with the sticky bit everybody may put things, and nobody replace another's.
        is_roots = found is not None and found.st_uid == 0
        stays = is_roots and bool(folder.st_mode & stat.S_ISVTX)
        is_open = bool(folder.st_mode & _OTHERS_MAY_WRITE) and not stays
        self._is_safe = self._is_safe and folder.st_uid == 0 and not is_open
        return found

    def _follow(self, name: str) -> None:
        if self._is_root and not self._is_safe:
            raise PluginError(
                f"{self._asked}: {self._seen[-1] / name} is a link that others than root may have"
                " put there; expected the file itself: name what it links to, or do this as its"
                " owner"
            )
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = Path(os.readlink(name, dir_fd=self._folder))
        if target.is_absolute():
            self._start()
        self._left += reversed([part for part in target.parts if part != target.root])

    def _make(self, name: str) -> None:
        os.mkdir(name, 0o777, dir_fd=self._folder)
        owner = self._owner()
        if owner is None:
            return
        # Not by name: the folder's owner may have put a second name of a root's file there.
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        made = os.open(name, flags, dir_fd=self._folder)
        try:
            os.fchown(made, owner.st_uid, owner.st_gid)
        finally:
            os.close(made)

    def _enter(self, name: str) -> None:
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        inner = os.open(name, flags, dir_fd=self._folder)
        os.close(self._folder)
        self._folder = inner
        if name != "..":
            self._seen.append(self._seen[-1] / name)
        elif len(self._seen) > 1:
            self._seen.pop()

    def _owner(self) -> os.stat_result | None:
        folder = os.fstat(self._folder)
        return folder if self._is_root and folder.st_uid != 0 else None
