"""What a running platform has on this machine, counted: so that what instances left behind can be told."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, fields
from pathlib import Path

from starverse.node.limits import find_cgroups

MIB = 1024**2
DATABASE = "starverse.db"
"""With what SQLite has beside it."""


@dataclass(frozen=True, slots=True)
class Traces:
    """Counts at one moment. ``files_open`` and the following are of the server's own process alone, without
    the connections to the database, of which a pool keeps some; ``processes`` are all others that name the
    data folder, hold a file of it or carry an allocation of it."""

    processes: int
    mounts: int
    control_groups: int
    loop_devices: int
    network_interfaces: int
    homes: int
    workspaces: int
    rooms: int
    files_open: int
    sockets_open: int
    threads: int
    memory_mib: float

    def since(self, before: Traces) -> dict[str, float]:
        """How much more there is of each than before."""
        return {each.name: getattr(self, each.name) - getattr(before, each.name) for each in fields(Traces)}


def count(data: Path, server: int) -> Traces:
    """Look once; ``server`` is the process of ``starverse up``."""
    handles = _handles(server)
    allocations = [entry.name for entry in _entries(data / "allocations")]
    return Traces(
        processes=len(_processes(data, set(allocations), server)),
        mounts=_mounts(data, server),
        control_groups=_control_groups(allocations),
        loop_devices=_loop_devices(data),
        network_interfaces=len(list(Path("/sys/class/net").iterdir())),
        homes=len(_entries(data / "instances")),
        workspaces=len(_entries(data / "workspaces")),
        rooms=sum((data / "allocations" / name / "run").exists() for name in allocations),
        files_open=sum(not Path(handle).name.startswith(DATABASE) for handle in handles),
        sockets_open=sum(handle.startswith("socket:") for handle in handles),
        threads=len(_entries(Path(f"/proc/{server}/task"))),
        memory_mib=resident_bytes(server) / MIB,
    )


def resident_bytes(pid: int) -> int:
    """What a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _entries(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []


def _handles(pid: int) -> list[str]:
    found = []
    for entry in _entries(Path(f"/proc/{pid}/fd")):
        with contextlib.suppress(OSError):
            found.append(str(entry.readlink()))
    return found


def _processes(data: Path, allocations: set[str], server: int) -> list[int]:
    tags = {f"STARVERSE_ALLOCATION_ID={name}".encode() for name in allocations}
    place, found = os.fsencode(data), []
    for entry in _entries(Path("/proc")):
        if not entry.name.isdigit() or int(entry.name) in (os.getpid(), server):
            continue
        with contextlib.suppress(OSError):
            tagged = tags & set((entry / "environ").read_bytes().split(b"\0"))
            named = place in (entry / "cmdline").read_bytes()
            if tagged or named or any(h.startswith(f"{data}/") for h in _handles(int(entry.name))):
                found.append(int(entry.name))
    return found


def _mounts(data: Path, server: int) -> int:
    """As this process sees them, or the server does."""
    lines = set()
    for pid in ("self", str(server)):
        with contextlib.suppress(OSError):
            lines |= set(Path(f"/proc/{pid}/mounts").read_text().splitlines())
    return sum(f"{data}/" in line for line in lines)


def _control_groups(allocations: list[str]) -> int:
    support = find_cgroups()
    parents = {support.memory, support.cpu, support.pids, support.blkio} - {""}
    return sum(Path(parent, f"starverse-{name}").exists() for parent in parents for name in allocations)


def _loop_devices(data: Path) -> int:
    found = 0
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            found += file.read_text().startswith(f"{data}/")
    return found
