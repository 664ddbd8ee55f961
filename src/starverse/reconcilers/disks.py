"""Disks: storage follows what is recorded of them.

Target set: a disk that begins empty is there, and has the size asked for, if and only if it was ordered; a
snapshot is ordered if and only if its disk's schedule named this time; a disk is purged if and only if it was
deleted seven days ago. Nothing here takes as long as there are bytes: that is for ``disk_copies``.
"""

from __future__ import annotations

from starverse.app.disks.storage import follow
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 5.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        return ", ".join(follow(platform))

    return Reconciler("disks", "make, grow and purge disks as ordered", PERIOD_SECONDS, act)
