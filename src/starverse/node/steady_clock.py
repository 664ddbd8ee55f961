"""One allocation's time: wall clock at the start, then a clock that does not jump."""

from __future__ import annotations

import time


class SteadyClock:
    """Seconds since the epoch (UTC) that never run backwards and count through suspend.

    The wall clock is read once; from then on CLOCK_BOOTTIME counts, so that within an allocation
    ``ready_at <= alive_at <= ended_at`` whatever is done to the wall clock.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> float:
        return self._offset + time.clock_gettime(time.CLOCK_BOOTTIME)


def read_boot_id() -> str:
    """The kernel's id of this boot: a process id or a lock of another boot means nothing."""
    with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123  (no pathlib at a start)
        return file.read().strip()
