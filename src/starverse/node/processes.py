"""The processes of a workload, seen from outside its sandbox through /proc.

Orphans inside are taken up by the sandbox's first process (or by the supervisor of the ``process``
driver), so a workload is exactly what descends from the launcher's child.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

DISK_TAG = "STARVERSE_DISK_OF"
"""Names the allocation in the environment of what serves a disk to it, which ends by itself when all is
written back."""


def read_parents() -> dict[int, int]:
    """Parent by process id, of all living processes (zombies are not alive)."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  (names only, and fast)
        if not name.isdigit():
            continue
        text = _read(f"/proc/{name}/stat")
        if text is None:
            continue
        state, parent = text[text.rindex(")") + 2 :].split(" ", 2)[:2]
        if state not in "ZX":
            parents[int(name)] = int(parent)
    return parents


def find_descendants(root: int, parents: dict[int, int] | None = None) -> list[int]:
    """All living processes below ``root``, parents before children; ``root`` itself is not among them."""
    children: dict[int, list[int]] = {}
    for pid, parent in (read_parents() if parents is None else parents).items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop(0)
        found.append(pid)
        waiting.extend(children.get(pid, ()))
    return found


def is_handled(pid: int, number: int) -> bool:
    """Whether the process catches the signal (SigCgt), so that it will not be killed by it."""
    return bool(_status_mask(pid, "SigCgt") >> (number - 1) & 1)


def read_inside_pid(pid: int) -> int:
    """The process's id in its own (innermost) PID namespace; 0 where it is gone."""
    for line in (_read(f"/proc/{pid}/status") or "").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return 0


def read_resident_bytes(pids: Iterable[int]) -> int:
    """Private resident memory of the processes, summed; shared file pages are not counted."""
    total = 0
    for pid in pids:
        for line in (_read(f"/proc/{pid}/status") or "").splitlines():
            if line.startswith("RssAnon:"):
                total += int(line.split()[1]) * 1024
                break
    return total


def find_tagged(allocation_id: str, variable: str = "STARVERSE_ALLOCATION_ID") -> list[int]:
    """Processes whose first environment names the allocation: what is left where a launcher died.

    Sees processes of the own user only, or all of them as root.
    """
    tag = f"{variable}={allocation_id}".encode()
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123
                    if tag in file.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue
    return found


def send(pids: Iterable[int], number: int) -> int:
    """Signal each process; answers how many were there to get it."""
    reached = 0
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
        reached += 1
    return reached


def find_lock_holder(device: int, inode: int) -> int | None:
    """The process that holds a flock on the file, by the kernel's own table; ``None``: nobody visible."""
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    for line in (_read("/proc/locks") or "").splitlines():
        part = line.split()
        if "FLOCK" in part and wanted in part:
            pid = int(part[part.index(wanted) - 1])
            if pid > 0:
                return pid
    return None


def close_all_but(kept: tuple[int, ...]) -> None:
    """In a child of the launcher: nothing of the launcher's stays open, above all not its claim, which must
    end with it."""
    low = 0
    for handle in sorted(set(kept)):
        if low < handle:  # an empty range would close everything
            os.closerange(low, handle)
        low = handle + 1
    os.closerange(low, 65536)


def signal_number(name: str) -> int:
    """``USR1``, ``SIGUSR1`` or ``10``; raises ``ValueError`` for anything else."""
    if name.isdigit() and 0 < int(name) < 65:
        return int(name)
    try:
        return signal.Signals["SIG" + name.upper().removeprefix("SIG")].value
    except KeyError:
        raise ValueError(f"{name!r} is not a signal such as USR1 or 10") from None


def _status_mask(pid: int, key: str) -> int:
    for line in (_read(f"/proc/{pid}/status") or "").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1], 16)
    return 0


def _read(path: str) -> str | None:
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return None
