"""Who inside a sandbox keeps a plug from being taken out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from starverse.node import processes

_NAMED_MAX = 5


def find_holders(pids: Iterable[int], target: str) -> list[str]:
    """Processes (host ids given) that have something below ``target``, a path inside, open or are in it:
    ``python3 (process 12 inside)``. Only what this user may look at is seen.
    """
    found = []
    for pid in pids:
        if any(path == target or path.startswith(f"{target}/") for path in _paths_of(pid)):
            found.append(f"{_name_of(pid)} (process {processes.read_inside_pid(pid)} inside)")
    return found


def describe_holders(found: list[str]) -> str:
    if not found:
        return "something inside has it open"
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return f"held by {', '.join(found[:_NAMED_MAX])}{more}"


def _paths_of(pid: int) -> Iterable[str]:
    """As the process's own mount namespace names them."""
    base = f"/proc/{pid}"
    links = [f"{base}/cwd", f"{base}/root", f"{base}/exe"]
    with contextlib.suppress(OSError):
        links += [f"{base}/fd/{name}" for name in os.listdir(f"{base}/fd")]  # noqa: PTH208
    for link in links:
        try:
            yield os.readlink(link).removesuffix(" (deleted)")  # noqa: PTH115
        except OSError:
            continue
    with contextlib.suppress(OSError), open(f"{base}/maps", errors="surrogateescape") as file:  # noqa: PTH123
        for line in file:
            parts = line.rstrip("\n").split(maxsplit=5)
            if len(parts) == 6:
                yield parts[5].removesuffix(" (deleted)")


def _name_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", errors="replace") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return "a process"
