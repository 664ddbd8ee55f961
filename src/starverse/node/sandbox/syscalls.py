"""The few system calls that Python 3.11 does not offer: namespaces, mounts, prctl."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 32, 4096, 16384
MS_PRIVATE, MS_SHARED = 1 << 18, 1 << 20
UMOUNT_NOFOLLOW, MNT_DETACH = 8, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 1, 4, 38, 36
PR_SET_NAME = 15

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def setns(handle: int, flags: int) -> None:
    """Enter namespaces of the process behind a pidfd."""
    _check(_libc.setns(handle, flags), "setns")


def umount(target: str, *, lazy: bool = False) -> None:
    """Raises ``OSError`` (EBUSY) where something is open there, in any namespace that it was shown to."""
    flags = UMOUNT_NOFOLLOW | (MNT_DETACH if lazy else 0)
    _check(_libc.umount2(os.fsencode(target), flags), f"umount {target}")


def syncfs(handle: int) -> None:
    _check(_libc.syncfs(handle), "syncfs")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    answer = _libc.mount(
        source.encode(),
        target.encode(),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        None if data is None else data.encode(),
    )
    _check(answer, f"mount {source} on {target}")


def prctl(option: int, value: int) -> None:
    arguments = [ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)]
    _check(_libc.prctl(option, *arguments), f"prctl {option}")


def fallocate(handle: int, mode: int, offset: int, length: int) -> None:
    """``fallocate(2)`` with its mode, which ``os.posix_fallocate`` does not have."""
    answer = _libc.fallocate(handle, mode, ctypes.c_longlong(offset), ctypes.c_longlong(length))
    _check(answer, "fallocate")


def call(number: int, what: str, *arguments: int | bytes | None) -> int:
    """A system call by its number, for what the C library may not know yet."""
    passed = [ctypes.c_long(given) if isinstance(given, int) else given for given in arguments]
    answer: int = _libc.syscall(ctypes.c_long(number), *passed)
    _check(min(answer, 0), what)
    return answer


def _check(answer: int, what: str) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
