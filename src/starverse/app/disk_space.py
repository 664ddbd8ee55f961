"""The stated reserve: below it nothing new is stored or started."""

from __future__ import annotations

import os

from starverse.app.platform import Platform
from starverse.domain.errors import Unavailable


def bytes_free(platform: Platform) -> int:
    """What an ordinary user can still write on the data folder's file system."""
    found = os.statvfs(platform.settings.data)
    return found.f_bavail * found.f_frsize


def may_start_anything(platform: Platform) -> bool:
    """False while the data folder's file system is down to its reserve."""
    return bytes_free(platform) >= platform.settings.disk_reserve_bytes


def require_space(platform: Platform, more_bytes: int) -> None:
    """Raises :class:`Unavailable` unless so much can be stored without touching the reserve."""
    free = bytes_free(platform)
    if free - more_bytes < platform.settings.disk_reserve_bytes:
        mib = 1024**2
        raise Unavailable(
            "The platform's disk is nearly full; nothing was stored.",
            hint=f"The operator keeps {platform.settings.disk_reserve_bytes // mib} MiB in reserve; "
            f"{free // mib} MiB are free.",
        )
