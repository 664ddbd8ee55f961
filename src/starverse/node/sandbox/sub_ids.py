"""Which ids of the host the users inside a container image are, and user namespaces that have them.

Inside, 0 is the workload's own user of the host, and 1 to 65535 are a block of ids that nobody else has: of
a team (root platform), or of the platform's user by ``/etc/subuid`` and ``/etc/subgid``. Nothing inside is
anybody of the host's, whatever it calls itself.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from starverse.domain.workloads.sub_ids import SUB_IDS_EACH
from starverse.node.sandbox import syscalls

_TOOLS = (("uid_map", "newuidmap", "subuid"), ("gid_map", "newgidmap", "subgid"))
_OWN_MAP = "/proc/self/uid_map"
_FURTHER_NAMESPACES = "/proc/sys/user/max_user_namespaces"


class NoSubIds(Exception):
    """Only one id can be had; the text says why, and after a colon what helps."""


@dataclass(frozen=True, slots=True)
class SubIds:
    """First id and count of what is shown from 1 on: of users, of groups."""

    users: tuple[int, int]
    groups: tuple[int, int]


def find_sub_ids(first: int, etc: Path = Path("/etc")) -> SubIds:
    """``first`` is the beginning of the team's block, on a root platform. Raises :class:`NoSubIds`."""
    if os.geteuid() == 0:
        block = (first + 1, SUB_IDS_EACH - 1)
        if not first:
            raise NoSubIds("this team has no block of ids")
        if not _is_mapped(Path(_OWN_MAP).read_text(), *block):
            raise NoSubIds(
                "ids above 2^30 are not to be had here: start the platform outside of a container of few ids"
            )
        return SubIds(block, block)
    for _, tool, _ in _TOOLS:
        if shutil.which(tool) is None:
            raise NoSubIds(f"{tool} is not installed: apt-get install uidmap")
    users, groups = (_own_range(etc / name) for _, _, name in _TOOLS)
    return SubIds(users, groups)


def _is_mapped(text: str, first: int, count: int) -> bool:
    lines = [[int(word) for word in line.split()] for line in text.splitlines()]
    return any(inside <= first and first + count <= inside + size for inside, _, size in lines)


def _own_range(file: Path) -> tuple[int, int]:
    """The first range that the file gives this user, by number or name."""
    uid = os.getuid()
    names = {str(uid)}
    try:
        names.add(pwd.getpwuid(uid).pw_name)
        lines = file.read_text().splitlines()
    except (KeyError, OSError):
        lines = file.read_text().splitlines() if file.is_file() else []
    for line in lines:
        owner, _, rest = line.partition(":")
        first, _, count = rest.partition(":")
        if owner in names and first.isdecimal() and count.isdecimal() and int(count) > 0:
            return int(first), min(int(count), SUB_IDS_EACH - 1)
    raise NoSubIds(
        f"{file} gives this user no ids: usermod --add-subuids 200000-265535 --add-subgids 200000-265535 USER"
    )


class Mapper:
    """Made before its maker enters a new user namespace, in which only who stayed outside can map more than
    one id."""

    def __init__(self, uid: int, ids: SubIds) -> None:
        target = os.getpid()
        waiting, self._go = os.pipe()
        self._helper = os.fork()
        if self._helper == 0:
            code = 1
            try:
                os.close(self._go)
                if os.read(waiting, 1):
                    _write_maps(target, uid, ids)
                code = 0
            finally:
                os._exit(code)
        os.close(waiting)

    def map(self) -> None:
        """The maker is in its new namespace: 0 there is its own user. Raises ``OSError``."""
        os.write(self._go, b"1")
        os.close(self._go)
        if os.waitpid(self._helper, 0)[1] != 0:
            raise OSError("the ids of the user namespace could not be mapped (starverse doctor says why)")


def _write_maps(target: int, uid: int, ids: SubIds) -> None:
    for (name, tool, _), (first, count) in zip(_TOOLS, (ids.users, ids.groups), strict=True):
        if os.geteuid() == 0:
            _write(f"/proc/{target}/{name}", f"0 {uid} 1\n1 {first} {count}\n")
        else:
            subprocess.run([tool, str(target), "0", str(uid), "1", "1", str(first), str(count)], check=True)


def make_namespace(users: str, groups: str, *, closed: bool = False) -> int:
    """A descriptor of a new user namespace below the caller's, with these lines as its maps;
    ``closed``: no further one can be made in it."""
    made, making = os.pipe()
    mapping, mapped_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(mapped_end)
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            os.write(making, b"1")
            if os.read(mapping, 1) and closed:
                _write(_FURTHER_NAMESPACES, "0")
            os.write(making, b"1")
            os.read(mapping, 1)
            code = 0
        finally:
            os._exit(code)
    os.close(making)
    os.close(mapping)
    try:
        if not os.read(made, 1):
            raise OSError("a user namespace could not be made (starverse doctor says why)")
        for (name, _, _), mapped in zip(_TOOLS, (users, groups), strict=True):
            _write(f"/proc/{child}/{name}", mapped)
        handle = os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        os.write(mapped_end, b"1")
        if not os.read(made, 1):
            os.close(handle)
            raise OSError("further user namespaces could not be forbidden inside")
        return handle
    finally:
        os.close(mapped_end)
        os.close(made)
        os.waitpid(child, 0)


def _write(path: str, text: str) -> None:
    """In one call, as the kernel wants it."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
