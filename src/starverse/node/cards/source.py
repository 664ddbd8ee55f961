"""The interface that every source of cards fills."""

from __future__ import annotations

import os
from typing import Protocol

from starverse.engines.base import NodeReport

ZONE_DEFAULT = "local"
FABRIC_DEFAULT = "eth"


class CardSource(Protocol):
    """Where a host's cards come from."""

    def probe(self) -> tuple[NodeReport, ...]:
        """Every node with its cards as they are now; nothing is kept from one call to the next."""
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
