"""What is left of a disk above its reserve: nothing that the platform writes for a workload goes below it.

The reserve is the operator's ``policy.disk_reserve_mib``. What only root may still write (``f_bfree`` over
``f_bavail``) is never counted: a launcher that runs as root would use it up without noticing.
"""

from __future__ import annotations

import os
from pathlib import Path


def room_bytes(place: Path | int, reserve_bytes: int) -> int:
    """How many more bytes may be written where ``place`` (a path or an open file) lies; below zero: none."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize - reserve_bytes
