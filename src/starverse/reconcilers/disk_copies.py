"""Disk copies: what takes as long as there are bytes, so that nobody's new disk waits for another's snapshot.

Target set: the bytes of a snapshot, and of a disk that begins as one, are there if and only if it was ordered
and not removed since; those of a purged disk are not.
"""

from __future__ import annotations

from starverse.app.disks.storage import follow_bytes
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 5.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        return ", ".join(follow_bytes(platform))

    return Reconciler("disk_copies", "copy and delete the bytes of disks as ordered", PERIOD_SECONDS, act)
