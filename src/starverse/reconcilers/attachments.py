"""Attachments: each that is past its time gets an end that people see.

Target set: an attachment is open if and only if its run may have the disk; it counts as refused when a
running launcher did not answer in time, as stuck when the disk did not come out in time, and as detached once
nothing of its run is left.
"""

from __future__ import annotations

from starverse.app.disks.attachments import settle_late, settle_one
from starverse.app.one_by_one import each
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 5.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        return ", ".join(each(settle_late(platform), lambda late: settle_one(platform, late)))

    return Reconciler("attachments", "end what is past its time", PERIOD_SECONDS, act)
