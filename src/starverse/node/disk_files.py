"""Block disks as files: one file, one ext4 in it, made, grown and copied while nobody has it.

All bytes of a file are had at once, so that what is written into one later finds its room; where the file
system cannot do that (EOPNOTSUPP), files are sparse and take their bytes as they are written.

Whoever has such a file mounted holds an exclusive ``flock`` on it; so does everything here, which answers
:class:`InUse` instead of waiting.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starverse.node.disk_reserve import room_bytes
from starverse.node.disk_trees import TreeFault, copy_open_file, data_spans
from starverse.node.sandbox import syscalls

MIB = 1024**2
GIB = 1024**3
TOOL_SECONDS_MAX = 600
_PLACES = "/usr/sbin:/sbin:/usr/bin:/bin"
_PROBE_BYTES = 4096
_FULL = (errno.ENOSPC, errno.EDQUOT)
_CANNOT = (errno.EOPNOTSUPP, errno.ENOSYS)
_CHECKED = (0, 1)
"""Exit codes of ``e2fsck`` that leave a sound file system (its manual page)."""


class InUse(Exception):
    """Somebody has the file mounted, or works on it."""


def make_block_file(path: Path, gib: int, owner: int, reserve_bytes: int = 0) -> None:
    """A new file with an empty file system whose top folder belongs to ``owner``.

    Raises :class:`TreeFault` where the tool is missing or fails, or ``reserve_bytes`` would not stay free.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _have_all(descriptor, gib * GIB, reserve_bytes)
        options = f"root_owner={owner}:{owner},nodiscard,lazy_itable_init=1,lazy_journal_init=1"
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", options, str(path))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def grow_block_file(path: Path, gib: int, reserve_bytes: int = 0) -> None:
    """Give the file system more room; a repeat does nothing. Raises :class:`InUse`, :class:`TreeFault`; the
    file has the size that it had then."""
    with _alone(path) as descriptor:
        _run("e2fsck", "-f", "-p", str(path), ok=_CHECKED)
        _have_all(descriptor, max(gib * GIB, os.fstat(descriptor).st_size), reserve_bytes)
        _run("resize2fs", str(path))
        os.fsync(descriptor)


def copy_block_file(source: Path, target: Path) -> int:
    """Copy a file that nobody has, the rest as holes; the bytes stored. Raises :class:`InUse`."""
    with _alone(source) as descriptor:
        copy_open_file(descriptor, target)
    return target.stat().st_blocks * 512


def written_bytes(path: Path) -> int:
    """Those that were written so far, of all that the file has."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return sum(end - start for start, end in data_spans(descriptor))
    finally:
        os.close(descriptor)


def has_bytes_at_once(folder: Path) -> bool:
    """Whether files there can have bytes before they are written."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            syscalls.fallocate(file.fileno(), 0, 0, _PROBE_BYTES)
    except OSError as error:
        return error.errno not in _CANNOT
    return True


def require_room(place: Path, gib: int, reserve_bytes: int) -> None:
    """Raises :class:`TreeFault` where a whole new file would not leave ``reserve_bytes`` free."""
    _refuse(gib * GIB, gib * GIB, room_bytes(place, reserve_bytes))


def _have_all(descriptor: int, size: int, reserve_bytes: int) -> None:
    """Give the file this size, with room for every byte of it; else it is as long as it was."""
    before = os.fstat(descriptor)
    try:
        syscalls.fallocate(descriptor, 0, 0, min(size, _PROBE_BYTES))
        more = max(0, size - os.fstat(descriptor).st_blocks * 512)
        _refuse(size, more, room_bytes(descriptor, reserve_bytes))
        syscalls.fallocate(descriptor, 0, 0, size)
        _refuse(size, 0, room_bytes(descriptor, reserve_bytes))  # others may have taken room meanwhile
    except OSError as error:
        os.ftruncate(descriptor, before.st_size)
        if error.errno in _FULL:
            raise TreeFault(f"the platform's storage has no room for the {size // GIB} GiB") from error
        if error.errno not in _CANNOT:
            raise
        os.ftruncate(descriptor, size)
    except TreeFault:
        os.ftruncate(descriptor, before.st_size)
        raise


def _refuse(size: int, more: int, room: int) -> None:
    if more > room:
        raise TreeFault(
            f"a block disk of {size // GIB} GiB has all its bytes from the beginning, and the platform's"
            f" storage has {max(0, room) // MIB} MiB for it beside the operator's reserve"
        )


@contextmanager
def _alone(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InUse(f"{path.name} is in use") from error
        yield descriptor
    finally:
        os.close(descriptor)


def _run(tool: str, *arguments: str, ok: tuple[int, ...] = (0,)) -> None:
    program = shutil.which(tool, path=_PLACES)
    if program is None:
        raise TreeFault(f"the platform's machine has no {tool}: its operator has to install e2fsprogs")
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=TOOL_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired as error:
        raise TreeFault(f"{tool} took longer than {TOOL_SECONDS_MAX} s") from error
    if done.returncode not in ok:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        raise TreeFault(f"{tool} failed: {(said or ['without a word'])[-1][:200]}")
