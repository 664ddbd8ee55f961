"""Hard limits on trees of files, by the project quotas of their file system (ext4, XFS).

A project is a number that files carry; what is made in a folder that hands its number on carries it too, and
the kernel counts all files of a number together. Only root sets numbers and limits, and nobody in a user
namespace, such as a workload, can take a file out of its project. Root itself is not held to the limit.

By ``quotactl_fd(2)`` (Linux 5.14) and ``FS_IOC_FSSETXATTR``; numbers are those of ``linux/quota.h``,
``dqblk_xfs.h`` and ``fs.h``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import zlib
from ctypes import addressof, create_string_buffer
from pathlib import Path

from starverse.node.sandbox import syscalls

_QUOTACTL_FD = 443
_PROJECTS = 2
_GET_STATE, _GET_QUOTA, _SET_QUOTA = 0x5805, 0x800007, 0x800008
_ENFORCED = 1 << 5
_QUOTA = struct.Struct("=8QIxxxx")  # struct if_dqblk
_BLOCK_BYTES = 1024
_LIMITS_ARE_VALID = 1
_GET_LABEL, _SET_LABEL = 0x801C581F, 0x401C5820
_LABEL = struct.Struct("=IIIII8x")  # struct fsxattr
_HANDED_ON = 0x200
_NUMBERS = 1 << 30
"""Ours are above: operators count theirs from 1."""
_TRIES = 64


def refusal(folder: Path) -> str:
    """Why trees below ``folder`` cannot have hard limits, and what helps; ``""``: they can."""
    if os.geteuid() != 0:
        return "only root sets project quotas: start the platform as root"
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return f"{folder} cannot be opened: {error.strerror}"
    try:
        (flags,) = struct.unpack_from("=H", _call(handle, _GET_STATE, 0, bytes(256)), 2)
    except OSError:
        flags = 0  # a file system, or a kernel, without quotas
    finally:
        os.close(handle)
    if flags & _ENFORCED:
        return ""
    return (
        "the file system enforces no project quotas: ext4 (tune2fs -O quota,project -Q prjquota) or XFS, "
        "mounted with prjquota, and Linux 5.14 or newer"
    )


def limit_tree(folder: Path, number_from: str, size: int) -> bool:
    """Hold what will lie below an empty folder to ``size`` bytes, counting folders; whether that can be.

    ``number_from`` names the tree: from it the project's number is made, or one near, where that is taken.
    Raises ``OSError`` where the file system can but does not.
    """
    if refusal(folder):
        return False
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        number = _number_of(handle) or _free_number(handle, number_from)
        _set_limit(handle, number, size)
        flags, *rest = _LABEL.unpack(_label(handle))
        fcntl.ioctl(handle, _SET_LABEL, _LABEL.pack(flags | _HANDED_ON, *rest[:2], number, rest[3]))
    finally:
        os.close(handle)
    return True


def is_limited(folder: Path) -> bool:
    """Whether a tree has a limit that its file system enforces."""
    if refusal(folder):
        return False
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return _number_of(handle) != 0
    finally:
        os.close(handle)


def change_limit(folder: Path, size: int) -> None:
    """Another limit for a tree that has one; 0: none any more. Nothing where it has none."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.geteuid() == 0 and (number := _number_of(handle)):
            _set_limit(handle, number, size)
    finally:
        os.close(handle)


def _number_of(handle: int) -> int:
    """0: none of ours."""
    try:
        number = int(_LABEL.unpack(_label(handle))[3])
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EOPNOTSUPP):
            return 0
        raise
    return number if number >= _NUMBERS else 0


def _free_number(handle: int, number_from: str) -> int:
    """The first from the name's own on of which there are no files and no limit."""
    first = zlib.crc32(number_from.encode()) % _NUMBERS
    for step in range(_TRIES):
        number = _NUMBERS + (first + step) % _NUMBERS
        try:
            hard, _, used, *_ = _QUOTA.unpack(_call(handle, _GET_QUOTA, number, bytes(_QUOTA.size)))
        except FileNotFoundError:  # XFS of a number that was never used
            return number
        if not hard and not used:
            return number
    raise OSError(errno.EBUSY, "no number is free for a project quota")


def _set_limit(handle: int, number: int, size: int) -> None:
    blocks = -(-size // _BLOCK_BYTES)
    _call(handle, _SET_QUOTA, number, _QUOTA.pack(blocks, blocks, 0, 0, 0, 0, 0, 0, _LIMITS_ARE_VALID))


def _label(handle: int) -> bytes:
    return fcntl.ioctl(handle, _GET_LABEL, bytes(_LABEL.size))


def _call(handle: int, command: int, number: int, block: bytes) -> bytes:
    buffer = create_string_buffer(block, len(block))
    kind = (command << 8) | _PROJECTS
    syscalls.call(_QUOTACTL_FD, "quotactl", handle, kind, number, addressof(buffer))
    return buffer.raw
