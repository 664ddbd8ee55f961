"""The interface that every source of cards fills."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from starverse.engines.base import NodeReport

ZONE_DEFAULT = "local"
FABRIC_DEFAULT = "eth"


@dataclass(frozen=True, slots=True)
class CardUsage:
    """What a card does now. ``None``: the source cannot tell. ``utilisation`` is 0 to 1, ``processes`` are
    the host's process ids that compute on it, ``memory_bytes`` is all that it has."""

    memory_bytes: int
    utilisation: float | None = None
    memory_used_bytes: int | None = None
    processes: tuple[int, ...] = ()


class CardSource(Protocol):
    """Where a host's cards come from."""

    def probe(self) -> tuple[NodeReport, ...]:
        """Every node with its cards as they are now; nothing is kept from one call to the next."""
        ...

    def usage(self) -> Mapping[str, CardUsage]:
        """By UUID what the cards that are really there do now, without those that nothing is known of."""
        ...


def read_host_memory_bytes() -> int:
    """Memory of this host, or what its cgroup leaves of it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:  # noqa: PTH123
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def read_host_cpus() -> int:
    return len(os.sched_getaffinity(0))
