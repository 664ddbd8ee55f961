"""Disks: storage follows what is recorded of them.

Target set: the bytes of a disk are there, in the size asked for, if and only if it is ready, or deleted for
less than seven days; those of a snapshot if and only if it was ordered, or its disk's schedule named it, and
it was not removed since.
"""

from __future__ import annotations

from starverse.app.disks.storage import follow
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 5.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        return ", ".join(follow(platform))

    return Reconciler("disks", "make, grow, copy and remove disks as ordered", PERIOD_SECONDS, act)
