"""Trees that somebody else filled, and may be filling: measured, and copied whole.

Every step is an ``openat`` that follows no link, so that whoever changes the tree meanwhile leads nobody out
of it. What an ordinary user's platform may not read, or give to whom it belongs, because root in a container
image gave it to others there, is done by the root that it was (``node/trees_as_root.py``).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starverse.checkpoint.removing import remove_tree
from starverse.domain.errors import Uncopyable
from starverse.node.trees_as_root import run_as_root

DEPTH_MAX = 200
"""Levels of folders that are looked into; each costs an open file."""
TRIES = 3
PIECE_BYTES = 8 * 1024**2

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
"""Of opening what was just seen: it was removed, or something else has its name."""
_CAPABILITY = "security.capability"


class TreeFault(Uncopyable):
    """What is wrong with a tree, in words for its owner."""


class Unfinished(Exception):
    """It took longer than was allowed."""


class OthersFile(Exception):
    """A file or folder, by its path, that this process's user may not read or give away; never for root."""


@dataclass(frozen=True, slots=True)
class Measured:
    """``bytes`` are those that storage keeps for it: holes are nothing, a file with two names is one."""

    bytes: int
    files: int


def measure(root: Path, go_on: Callable[[], bool] = lambda: True) -> Measured:
    """What a tree takes. ``go_on`` is asked at each folder; false raises :class:`Unfinished`.

    What cannot be looked at (too deep, gone meanwhile) is left out.
    """
    try:
        return measure_here(root, go_on)
    except OthersFile:
        found = run_as_root("measure", (str(root),), go_on)
        if found is None:
            raise Unfinished from None
        return Measured(*_told(found))


def measure_here(root: Path, go_on: Callable[[], bool] = lambda: True) -> Measured:
    """:func:`measure` with this process's own rights; raises :class:`OthersFile` where they are too few."""
    taken, files = 0, 0
    linked: set[tuple[int, int]] = set()
    for facts in _walk(root, go_on):
        if facts.st_nlink > 1 and not stat.S_ISDIR(facts.st_mode):
            if (facts.st_dev, facts.st_ino) in linked:
                continue
            linked.add((facts.st_dev, facts.st_ino))
        taken += facts.st_blocks * 512
        files += not stat.S_ISDIR(facts.st_mode)
    return Measured(taken, files)


def _walk(root: Path, go_on: Callable[[], bool]) -> Iterator[os.stat_result]:
    way = [_Level(os.open(root, _FOLDER))]
    try:
        while way:
            name = way[-1].next_name()
            if name is None:
                os.close(way.pop().descriptor)
                continue
            try:
                facts = os.stat(name, dir_fd=way[-1].descriptor, follow_symlinks=False)
                yield facts
                if stat.S_ISDIR(facts.st_mode) and len(way) < DEPTH_MAX:
                    if not go_on():
                        raise Unfinished
                    way.append(_Level(os.open(name, _FOLDER, dir_fd=way[-1].descriptor)))
            except PermissionError as error:
                if os.geteuid() != 0:
                    raise OthersFile(name) from error
            except OSError:
                continue  # gone, or replaced, meanwhile
    finally:
        for level in way:
            os.close(level.descriptor)


class _Level:
    """An open folder and the names in it that were not looked at yet."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._names = iter(os.listdir(descriptor))

    def next_name(self) -> str | None:
        return next(self._names, None)


def copy_tree(source: Path, target: Path, between: Callable[[], object] = lambda: None) -> int:
    """Copy a tree into a new folder: contents, links, modes, times, owners where root. The bytes copied.

    Each file is whole: one that changes while it is copied is copied again, :data:`TRIES` times in all; then,
    for folders deeper than :data:`DEPTH_MAX`, and for what may not be read, :class:`TreeFault` is raised.
    Sockets, pipes and devices are left out, but not what hides a file of a container image from the layer
    over it. Everything is flushed to the disk. ``between`` is called with each file open, before it is read.
    Raises ``OSError`` where the tree cannot be read or the target not be written.
    """
    try:
        return copy_here(source, target, between)
    except OthersFile as error:
        remove_tree(target)
        found = run_as_root("copy", (str(source), str(target)))
        if found is None:
            raise TreeFault(f"{_shown(str(error))} may not be read by the platform's user") from error
        return _told(found)[0]


def copy_here(source: Path, target: Path, between: Callable[[], object] = lambda: None) -> int:
    """:func:`copy_tree` with this process's own rights; raises :class:`OthersFile` where they are too few."""
    target.mkdir(mode=0o700)
    here, there = os.open(source, _FOLDER), os.open(target, _FOLDER)
    try:
        return _Copy(between).folder(here, there, "", 1)
    finally:
        os.close(here)
        os.close(there)


def copy_open_file(source: int, target: Path) -> int:
    """Copy an open file to a new name, holes as holes; its size; :class:`TreeFault` if it was cut off."""
    folder = os.open(target.parent, _FOLDER)
    try:
        facts = os.fstat(source)
        copied = _copy_bytes(source, folder, target.name, facts)
    finally:
        os.close(folder)
    if copied != facts.st_size:
        raise TreeFault(f"{_shown(target.name)} was cut off while it was copied")
    return copied


def _told(found: dict[str, Any]) -> list[int]:
    """The figures that were found as root; raises what was raised there."""
    if "fault" in found:
        raise TreeFault(found["fault"])
    if "errno" in found:
        raise OSError(found["errno"], os.strerror(found["errno"]))
    return list(found["figures"])


class _Gone(Exception):
    """An entry that was removed, or replaced, while its folder was copied: as if it had not been there."""


class _Copy:
    """One copying of a tree."""

    def __init__(self, between: Callable[[], object]) -> None:
        self._between = between

    def folder(self, here: int, there: int, path: str, depth: int) -> int:
        if depth > DEPTH_MAX:
            raise TreeFault(f"{_shown(path)} has more than {DEPTH_MAX} levels of folders")
        copied = 0
        for name in sorted(os.listdir(here)):
            inner = f"{path}/{name}" if path else name
            try:
                facts = _look(name, here)
                if os.geteuid() not in (0, facts.st_uid):
                    raise OthersFile(inner)
                if stat.S_ISDIR(facts.st_mode):
                    copied += self._below(here, there, name, inner, depth)
                elif stat.S_ISREG(facts.st_mode):
                    copied += self._file(here, there, name, inner)
                elif stat.S_ISLNK(facts.st_mode):
                    os.symlink(os.readlink(name, dir_fd=here), name, dir_fd=there)
                    _take_over(facts, name, there)
                elif stat.S_ISCHR(facts.st_mode) and facts.st_rdev == 0:
                    os.mknod(name, stat.S_IFCHR, 0, dir_fd=there)
            except _Gone:
                continue
        facts = os.fstat(here)
        _own(facts, there)
        _take_marks(here, there, path)
        os.fchmod(there, stat.S_IMODE(facts.st_mode))
        os.utime(there, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        os.fsync(there)
        return copied

    def _below(self, here: int, there: int, name: str, path: str, depth: int) -> int:
        source = _open(name, _FOLDER, here, path)
        try:
            os.mkdir(name, 0o700, dir_fd=there)
            target = os.open(name, _FOLDER, dir_fd=there)
            try:
                return self.folder(source, target, path, depth + 1)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _file(self, here: int, there: int, name: str, path: str) -> int:
        for _ in range(TRIES):
            source = _open(name, _READ, here, path)
            try:
                before = os.fstat(source)
                if not stat.S_ISREG(before.st_mode):
                    raise _Gone
                self._between()
                copied = _copy_bytes(source, there, name, before, path)
                if copied == before.st_size and _state(os.fstat(source)) == _state(before):
                    return copied
            finally:
                os.close(source)
            os.unlink(name, dir_fd=there)
        raise TreeFault(f"{_shown(path)} kept changing while it was copied; stop what writes it")


def _look(name: str, folder: int) -> os.stat_result:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError as error:
        raise _Gone from error


def _open(name: str, flags: int, folder: int, path: str) -> int:
    """Raises :class:`_Gone`; for what is there and may not be read :class:`OthersFile` or, as root,
    :class:`TreeFault`: a copy without it would look like a whole one."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError as error:
        if os.geteuid() != 0:
            raise OthersFile(path) from error
        raise TreeFault(f"{_shown(path)} may not be read") from error
    except OSError as error:
        if error.errno in _GONE:
            raise _Gone from error
        raise


def _take_marks(source: int, target: int, path: str) -> None:
    """People's own extended attributes, those by which a layer hides what an image has, and what a program
    may do by itself (which counts for no other team: it names whose root gave it)."""
    try:
        names = os.listxattr(source)
    except OSError:
        return  # the file system has none
    for name in names:
        if name.startswith("user.") or name == _CAPABILITY:
            try:
                os.setxattr(target, name, os.getxattr(source, name))
            except PermissionError as error:
                if os.geteuid() != 0:
                    raise OthersFile(path) from error
            except OSError as error:
                if error.errno not in (errno.ENODATA, errno.ENOTSUP):
                    raise


def _copy_bytes(source: int, there: int, name: str, facts: os.stat_result, path: str = "") -> int:
    """Holes stay holes; the bytes up to the end of what was there."""
    target = os.open(name, _WRITE, 0o600, dir_fd=there)
    try:
        at, end = 0, facts.st_size
        while at < end:
            at, hole = _next_data(source, at, end)
            while at < hole and (piece := os.pread(source, min(PIECE_BYTES, hole - at), at)):
                at += _write_at(target, piece, at)
            if at < hole:
                break  # it was cut off
        os.ftruncate(target, at)
        _own(facts, target)
        _take_marks(source, target, path or name)
        os.fchmod(target, stat.S_IMODE(facts.st_mode))
        os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        os.fsync(target)
        return at
    finally:
        os.close(target)


def data_spans(source: int) -> Iterator[tuple[int, int]]:
    """Where an open file has bytes that were written: from where on, up to where."""
    at, end = 0, os.fstat(source).st_size
    while at < end:
        start, at = _next_data(source, at, end)
        if start < at:
            yield start, at


def _next_data(source: int, at: int, end: int) -> tuple[int, int]:
    """The next span of bytes that are stored; at the end of the file an empty one."""
    try:
        data = os.lseek(source, at, os.SEEK_DATA)
    except OSError:
        return end, end
    data = min(data, end)
    return data, min(os.lseek(source, data, os.SEEK_HOLE), end) if data < end else end


def _write_at(target: int, piece: bytes, at: int) -> int:
    view, done = memoryview(piece), 0
    while done < len(piece):
        done += os.pwrite(target, view[done:], at + done)
    return done


def _state(facts: os.stat_result) -> tuple[int, int, int]:
    return facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _take_over(facts: os.stat_result, name: str, there: int) -> None:
    """Owner and time of a link."""
    if os.geteuid() == 0:
        os.chown(name, facts.st_uid, facts.st_gid, dir_fd=there, follow_symlinks=False)
    os.utime(name, ns=(facts.st_atime_ns, facts.st_mtime_ns), dir_fd=there, follow_symlinks=False)


def _own(facts: os.stat_result, descriptor: int) -> None:
    if os.geteuid() == 0:
        os.fchown(descriptor, facts.st_uid, facts.st_gid)


def _shown(path: str) -> str:
    return path[-200:].encode("utf-8", "backslashreplace").decode()
