"""Mounts that are nowhere yet (Linux 5.12): of their maker nothing is left where it dies.

System call numbers and flags are those of ``linux/mount.h`` and ``linux/fcntl.h``.
"""

from __future__ import annotations

import os
import struct

from starverse.node.sandbox import syscalls

_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 0, 1, 6
_CLOEXEC = 1  # of fsopen and fsmount
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV, _ATTR_IDMAP = 1, 2, 4, 1 << 20


def clone_tree(handle: int, *, read_only: bool, shown_as: int = -1) -> int:
    """The folder that is open as ``handle``, without what is mounted below it, as a mount of its own.

    ``shown_as`` is a descriptor of the user namespace whose map says whose its files seem to be (of those on
    disk, inside; root's only). Needs the right to mount in the namespace of the caller, and a folder that is
    seen there.
    """
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH
    tree = syscalls.call(_OPEN_TREE, "open_tree", handle, b"", flags)
    try:
        mapped = _ATTR_IDMAP if shown_as >= 0 else 0
        attributes = struct.pack("=QQQQ", _attributes(read_only) | mapped, 0, 0, max(0, shown_as))
        syscalls.call(_MOUNT_SETATTR, "mount_setattr", tree, b"", _AT_EMPTY_PATH, attributes, len(attributes))
    except OSError:
        os.close(tree)
        raise
    return tree


def mount_device(kind: str, device: str, *, read_only: bool) -> int:
    """A file system of ``kind`` on a block device, mounted nowhere; root's only."""
    context = syscalls.call(_FSOPEN, f"fsopen {kind}", kind.encode(), _CLOEXEC)
    try:
        _configure(context, _FSCONFIG_SET_STRING, b"source", device.encode())
        if read_only:
            _configure(context, _FSCONFIG_SET_FLAG, b"ro", None)
        _configure(context, _FSCONFIG_CMD_CREATE, None, None)
        return syscalls.call(_FSMOUNT, "fsmount", context, _CLOEXEC, _attributes(read_only))
    finally:
        os.close(context)


def attach_tree(tree: int, target: str) -> None:
    """Show a mount that is nowhere yet at ``target``, in the namespace of the caller."""
    syscalls.call(
        _MOVE_MOUNT,
        f"move_mount to {target}",
        tree,
        b"",
        _AT_FDCWD,
        os.fsencode(target),
        _MOVE_MOUNT_F_EMPTY_PATH,
    )


def _configure(context: int, command: int, key: bytes | None, value: bytes | None) -> None:
    syscalls.call(_FSCONFIG, "fsconfig", context, command, key, value, 0)


def _attributes(read_only: bool) -> int:
    return _ATTR_NOSUID | _ATTR_NODEV | (_ATTR_RDONLY if read_only else 0)
