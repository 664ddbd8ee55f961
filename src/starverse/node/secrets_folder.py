"""A team's secrets as files inside: in a file system in memory, read-only, never in arguments, on no disk."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from starverse.node.sandbox.driver import StartRefused

FOLDER = "secrets"
"""Below ``/run/starverse``."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def check_names(secrets: Sequence[tuple[str, str]]) -> None:
    """Raises :class:`StartRefused` for a name that is none of a file."""
    for name, _ in secrets:
        if _NAME.fullmatch(name) is None:
            raise StartRefused(f"secret {name[:80]!r}: letters, digits, '_', '.' and '-', at most 64 of them")


def bwrap_arguments(secrets: Sequence[tuple[str, str]], run: str) -> list[str]:
    """What has bubblewrap put them below ``run``; opens a descriptor for each, which it inherits."""
    if not secrets:
        return []
    folder = f"{run}/{FOLDER}"
    arguments = ["--perms", "0500", "--tmpfs", folder]
    for name, value in secrets:
        handle = os.memfd_create("secret")
        left = memoryview(value.encode())
        while left:
            left = left[os.write(handle, left) :]
        os.lseek(handle, 0, os.SEEK_SET)
        os.set_inheritable(handle, True)
        arguments += ["--perms", "0400", "--file", str(handle), f"{folder}/{name}"]
    return [*arguments, "--remount-ro", folder]
