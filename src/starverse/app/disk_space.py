"""The stated reserve: below it nothing new is stored or started."""

from __future__ import annotations

import os

from starverse.app.platform import Platform
from starverse.domain.errors import Unavailable

MIB = 1024**2


def bytes_free(platform: Platform) -> int:
    """What an ordinary user can still write on the data folder's file system."""
    found = os.statvfs(platform.settings.data)
    return found.f_bavail * found.f_frsize


def may_start_anything(platform: Platform) -> bool:
    """False while the data folder's file system is down to its reserve."""
    return bytes_free(platform) >= platform.settings.disk_reserve_bytes


def require_space(platform: Platform, more_bytes: int) -> None:
    """Raises :class:`Unavailable` unless so much can be stored without touching the reserve."""
    reason = why_no_space(bytes_free(platform), more_bytes, platform.settings.disk_reserve_bytes)
    if reason is not None:
        raise Unavailable("The platform's disk is nearly full; nothing was stored.", hint=reason)


def why_no_space(free_bytes: int, more_bytes: int, reserve_bytes: int) -> str | None:
    """Why ``more_bytes`` are not stored, in figures that explain themselves; ``None``: they are."""
    left = free_bytes - more_bytes
    if left >= reserve_bytes:
        return None
    free, more, reserve = free_bytes // MIB, -(-more_bytes // MIB), -(-reserve_bytes // MIB)
    if left < 0:
        return f"It may take {more} MiB and {free} MiB are free; the operator keeps {reserve} MiB in reserve."
    if more == 0:
        return f"{free} MiB are free; the operator keeps {reserve} MiB in reserve."
    return (
        f"It may take {more} MiB of the {free} MiB that are free; {left // MIB} MiB would remain, "
        f"and the operator keeps {reserve} MiB in reserve."
    )
