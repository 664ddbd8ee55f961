"""Whether anything may start at all: the disk reserve (no new starts below it)."""

from __future__ import annotations

import shutil

from starverse.app.platform import Platform


def disk_bytes_free(platform: Platform) -> int:
    """Bytes free where the data folder lies."""
    return shutil.disk_usage(platform.settings.data).free


def may_start_anything(platform: Platform) -> bool:
    """False while the data folder's file system is down to its reserve."""
    return disk_bytes_free(platform) >= platform.settings.disk_reserve_bytes
