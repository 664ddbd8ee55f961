"""Evidence that an instance is in use, as its agent sees it from inside: processor, disk, network, terminals.

Nothing here judges whether an instance is idle: each source says when it last saw work, and what. Standard
library only; read by the agent in the sandbox, so that only what runs there is seen, and none of it is ours:
sshd's keep-alives are below every threshold, and a connection that is merely open shows nothing.

    =========  =====================================================================================
    cpu        processes inside used more than ``CPU_SHARE`` of a core since the last look
    disk       they read and wrote more than ``DISK_BYTES_PER_SECOND`` (files and pipes, cached or not)
    network    more than ``NETWORK_BYTES_PER_SECOND`` went through the sandbox's own interfaces
    ssh        somebody typed in a terminal, or a command, shell or transfer began
    jupyter    a kernel ran something (:mod:`starverse.node.notebooks`)
    cards      the launcher's word (:mod:`starverse.node.card_watch`)
    =========  =====================================================================================
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from starverse.node.network.rates import INCOMING

SAMPLE_SECONDS = 10.0
CPU_SHARE = 0.05
DISK_BYTES_PER_SECOND = 100 * 1024
NETWORK_BYTES_PER_SECOND = 10 * 1024
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PROCESSES_SLOW = 400
"""Where more than so many run, looks are rarer in proportion, so that they cost no more."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used, those included whose end it waited for. ``begun`` tells processes apart whose
    number is the same."""

    name: str
    begun: int
    cpu_ticks: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One look. ``network_bytes`` ``None``: the sandbox has no interfaces of its own. ``typed_at``: when
    input was last read from a terminal (seconds since the epoch), ``None``: there is none."""

    at: float
    processes: Mapping[int, Usage]
    network_bytes: int | None = None
    typed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """That ``source`` saw work at ``at``, and what."""

    source: str
    at: float
    detail: str


def take_sample(now: float, ours: Collection[int], *, own_network: bool) -> Sample:
    """Look once; ``ours`` are the sandbox's own processes. ``now``: seconds since the epoch."""
    network = read_network_bytes("/proc/self/net/dev") if own_network else None
    return Sample(now, read_processes(ours), network, read_typed_at("/dev/pts"))


def compare(before: Sample, after: Sample) -> list[Evidence]:
    """What happened between two looks.

    What a process did is counted again for its parent at its end: that can make a moment look busier, never
    idler.
    """
    seconds = max(0.001, after.at - before.at)
    cpu, disk, top = 0.0, 0, ("", 0.0)
    for pid, used in after.processes.items():
        earlier = before.processes.get(pid)
        same = earlier is not None and earlier.begun == used.begun
        ticks = used.cpu_ticks - (earlier.cpu_ticks if earlier is not None and same else 0)
        written = used.disk_bytes - (earlier.disk_bytes if earlier is not None and same else 0)
        if ticks > top[1]:
            top = (used.name, ticks)
        cpu += max(0, ticks) / _TICKS_PER_SECOND
        disk += max(0, written)
    found = []
    if cpu / seconds > CPU_SHARE:
        found.append(Evidence("cpu", after.at, f"{cpu / seconds:.0%} of a core, most by {top[0]}"))
    if disk / seconds > DISK_BYTES_PER_SECOND:
        found.append(Evidence("disk", after.at, f"{_size(disk / seconds)}/s read and written"))
    if before.network_bytes is not None and after.network_bytes is not None:
        moved = after.network_bytes - before.network_bytes
        if moved / seconds > NETWORK_BYTES_PER_SECOND:
            found.append(Evidence("network", after.at, f"{_size(moved / seconds)}/s"))
    if after.typed_at is not None and after.typed_at > before.at:
        found.append(Evidence("ssh", after.typed_at, "typed in a terminal"))
    return found


def next_look_seconds(sample: Sample, usual: float = SAMPLE_SECONDS) -> float:
    """How long to wait until the next one."""
    return usual * max(1.0, len(sample.processes) / _PROCESSES_SLOW)


def read_processes(ours: Collection[int], proc: str = "/proc") -> dict[int, Usage]:
    """Every process that is none of ``ours``; what cannot be told of one (sshd tells no I/O) counts as 0."""
    found = {}
    for name in os.listdir(proc):  # noqa: PTH208  (names only, and fast)
        if not name.isdigit() or int(name) in ours:
            continue
        used = _usage(f"{proc}/{name}")
        if used is not None:
            found[int(name)] = used
    return found


def read_network_bytes(path: str) -> int | None:
    """Received and sent by every interface but the loopback one and the queue of what comes in, as
    ``/proc/net/dev`` has it; ``None``: there is no other."""
    rows = [line.partition(":") for line in _read(path).splitlines() if ":" in line]
    others = [words.split() for name, _, words in rows if name.strip() not in ("lo", INCOMING)]
    return sum(int(row[0]) + int(row[8]) for row in others) if others else None


def read_typed_at(folder: str) -> float | None:
    """When input was last read from any terminal: the kernel notes that, within 8 s, as its access time."""
    times = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    times.append(entry.stat().st_atime)
    return max(times, default=None)


def _usage(folder: str) -> Usage | None:
    text = _read(f"{folder}/stat")
    name, found, rest = text.partition("(")[2].rpartition(") ")
    if not found:
        return None
    words = rest.split()
    if words[0] in "ZX":
        return None
    moved = 0
    for line in _read(f"{folder}/io").splitlines()[:2]:  # rchar and wchar
        moved += int(line.partition(":")[2])
    return Usage(name, int(words[19]), sum(map(int, words[11:15])), moved)


def _size(count: float) -> str:
    return f"{count / 1024**2:.1f} MiB" if count >= 1024**2 else f"{count / 1024:.0f} KiB"


def _read(path: str) -> str:
    """``""`` for what is gone or not for us to read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""
