"""Block disks as files: one file, one ext4 in it, made, grown and copied while nobody has it.

Whoever has such a file mounted holds an exclusive ``flock`` on it; so does everything here, which answers
:class:`InUse` instead of waiting.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starverse.node.disk_trees import TreeFault, copy_open_file

GIB = 1024**3
TOOL_SECONDS_MAX = 600
_PLACES = "/usr/sbin:/sbin:/usr/bin:/bin"
_CHECKED = (0, 1)
"""Exit codes of ``e2fsck`` that leave a sound file system (its manual page)."""


class InUse(Exception):
    """Somebody has the file mounted, or works on it."""


def make_block_file(path: Path, gib: int, owner: int) -> None:
    """A new sparse file with an empty file system whose top folder belongs to ``owner``.

    Raises :class:`TreeFault` where the tool is missing or fails.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, gib * GIB)
        options = f"root_owner={owner}:{owner},lazy_itable_init=1,lazy_journal_init=1"
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", options, str(path))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def grow_block_file(path: Path, gib: int) -> None:
    """Give the file system more room; a repeat does nothing. Raises :class:`InUse`, :class:`TreeFault`."""
    with _alone(path) as descriptor:
        _run("e2fsck", "-f", "-p", str(path), ok=_CHECKED)
        if os.fstat(descriptor).st_size < gib * GIB:
            os.ftruncate(descriptor, gib * GIB)
        _run("resize2fs", str(path))
        os.fsync(descriptor)


def copy_block_file(source: Path, target: Path) -> int:
    """Copy a file that nobody has, holes as holes; the bytes stored. Raises :class:`InUse`."""
    with _alone(source) as descriptor:
        copy_open_file(descriptor, target)
    return target.stat().st_blocks * 512


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
